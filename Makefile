# Shoal's one Makefile. `make help` lists the targets.
#
# A variant is a way to build: release (the default), debug, asan, tsan, fuzz. Each has its own folder
# under build/, so none disturbs another: `make VARIANT=asan check`.

VARIANT ?= release
CC      ?= cc
B       := build/$(VARIANT)
ARCH    := $(firstword $(subst -, ,$(shell $(CC) -dumpmachine)))

# ---- flags ----------------------------------------------------------------------------------------

WARN := -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Wmissing-prototypes \
        -Wstrict-prototypes -Wvla $(if $(CI)$(WERROR),-Werror)
OPT_release := -O2 -g
OPT_debug   := -O0 -g3
OPT_lint-gcc := -O2
OPT_asan    := -O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=undefined
OPT_tsan    := -O1 -g -fno-omit-frame-pointer -fsanitize=thread
OPT_fuzz    := -O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined,fuzzer-no-link \
               -fno-sanitize-recover=undefined

# What makes a memory error harder to use (docs/security.md); tests/cmd/test_hardening.sh looks at the result.
SYSTEM          := $(shell uname -s)
HARDEN_x86_64   := -fcf-protection=full
HARDEN_aarch64  := -mbranch-protection=standard
HARDEN_Linux    := -fstack-clash-protection $(HARDEN_$(ARCH))
HARDEN          := -fstack-protector-strong $(HARDEN_$(SYSTEM))
FORTIFY_release := -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3
LINK_Linux      := -Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack
PIE_Linux       := -pie

PKGS      := libcjson libpcre2-8 libutf8proc openssl libevent libevent_openssl
PKG_CONFIG ?= pkg-config
PKG_CFLAGS := $(shell $(PKG_CONFIG) --cflags $(PKGS))
PKG_LIBS   := $(shell $(PKG_CONFIG) --libs $(PKGS))

VERSION := $(shell cat VERSION)
# No contraction: several results must have the same bits on every machine.
CFLAGS_ALL = -std=c11 -ffp-contract=off -D_GNU_SOURCE -Isrc $(WARN) $(OPT_$(VARIANT)) -fPIE $(HARDEN) $(FORTIFY_$(VARIANT)) \
             $(PKG_CFLAGS) -pthread $(CFLAGS)
LIBS       = $(PKG_LIBS) -lm -ldl -pthread $(LINK_$(SYSTEM)) $(LDFLAGS)

# A kernel file says by its name which instructions it needs; it is built only for a machine that has such
# a family of instructions, and called only when the CPU at hand has them.
ISA_avx2       := -mavx2 -mfma -mf16c
ISA_avx512     := $(ISA_avx2) -mavx512f -mavx512bw -mavx512vl -mavx512dq
ISA_avx512vnni := $(ISA_avx512) -mavx512vnni
ISA_avx512bf16 := $(ISA_avx512vnni) -mavx512bf16
ISA_neon       :=
ISA_dotprod    := -march=armv8.2-a+dotprod+fp16
ISA_i8mm       := -march=armv8.2-a+dotprod+fp16+i8mm
ISAS_x86_64    := avx2 avx512 avx512vnni avx512bf16
ISAS_aarch64   := neon dotprod i8mm
ISAS_ALL       := $(ISAS_x86_64) $(ISAS_aarch64)

# ---- what there is --------------------------------------------------------------------------------

SRC_ALL   := $(sort $(shell find src -name '*.c'))
SRC_OTHER := $(foreach isa,$(filter-out $(ISAS_$(ARCH)),$(ISAS_ALL)),$(filter %_$(isa).c,$(SRC_ALL)))
SRC       := $(filter-out $(SRC_OTHER),$(SRC_ALL))
OBJ       := $(SRC:%.c=$(B)/%.o)
LIB_OBJ   := $(filter-out $(B)/src/cmd/main.o,$(OBJ))
# SHOAL_TEST_UNITS, a regular expression, picks unit tests by their folder.
TEST_SRC  := $(sort $(shell find tests/unit -name 'test_*.c' | grep -E '^tests/unit/($(or $(SHOAL_TEST_UNITS),.*))/'))
TEST_BIN  := $(TEST_SRC:%.c=$(B)/%)
FUZZ_SRC  := $(sort $(wildcard tests/fuzz/fuzz_*.c))
FUZZ_BIN  := $(FUZZ_SRC:tests/fuzz/%.c=build/fuzz/%)

# One plugin for each MPI library that has its compiler here; without any, the program has no MPI.
MPI_FAMILIES := $(foreach f,openmpi mpich,$(if $(shell command -v mpicc.$(f)),$(f)))
ifeq ($(MPI_FAMILIES),)
MPI_FAMILIES := $(if $(shell command -v mpicc),$(if $(findstring open,$(shell mpicc -show)),openmpi,mpich))
endif
MPICC         = $(or $(shell command -v mpicc.$*),mpicc)
PLUGINS      := $(MPI_FAMILIES:%=$(B)/shoal-mpi-%.so)

.PHONY: bench-kernels all help check unit lint format asan tsan debug fuzz fuzz-build load soak chaos nightly bare-check
.PHONY: macos-check clean docs program tests
all: program ## build the release program, build/shoal

program: $(B)/shoal $(PLUGINS)
	@if [ $(VARIANT) = release ] && [ ! -e build/shoal ]; then ln -sf release/shoal build/shoal; fi

$(B)/shoal: $(B)/src/cmd/main.o $(B)/libshoal.a
	@echo "LD $@"
	@$(CC) $(OPT_$(VARIANT)) $(PIE_$(SYSTEM)) -o $@ $^ $(LIBS)

$(B)/shoal-mpi-%.so: plugins/mpi.c src/net/mpi_plugin.h Makefile
	@mkdir -p $(@D)
	@echo "MPICC $@"
	@OMPI_CC="$(CC)" MPICH_CC="$(CC)" $(MPICC) -std=c11 -O2 -g -Isrc $(WARN) $(HARDEN) $(FORTIFY_release) -fPIC \
	    -shared -o $@ $< $(LINK_$(SYSTEM))

$(B)/libshoal.a: $(LIB_OBJ)
	@rm -f $@
	@ar rcs $@ $^

$(B)/%.o: %.c Makefile
	@mkdir -p $(@D)
	@echo "CC $<"
	@$(CC) $(CFLAGS_ALL) $(ISA_$(lastword $(subst _, ,$(basename $(notdir $<))))) -MMD -MP -c -o $@ $<

$(B)/src/base/version.o: CFLAGS_ALL += -DSH_VERSION='"$(VERSION)"'
$(B)/src/base/version.o: VERSION
$(B)/src/api/assets.o: $(wildcard web/* web/*/*)

$(B)/tests/unit/%: tests/unit/%.c $(B)/libshoal.a Makefile
	@mkdir -p $(@D)
	@echo "CC $<"
	@$(CC) $(CFLAGS_ALL) -Itests -MMD -MP -o $@ $< $(B)/libshoal.a -lcmocka $(LIBS)

-include $(OBJ:.o=.d) $(TEST_BIN:=.d)

# ---- tests ----------------------------------------------------------------------------------------

tests: program $(TEST_BIN) $(B)/tests/soak/soak

$(B)/tests/soak/soak: tests/soak/soak.c $(B)/libshoal.a Makefile
	@mkdir -p $(@D)
	@echo "CC $<"
	@$(CC) $(CFLAGS_ALL) -MMD -MP -o $@ $< $(B)/libshoal.a $(LIBS)

check: tests ## run all tests of this variant
	tests/run.sh $(B)

unit: $(TEST_BIN) ## run the unit tests alone
	tests/run.sh $(B) unit

asan tsan debug: ## build and run all tests with that variant
	$(MAKE) VARIANT=$@ check

SOAK_REQUESTS ?= 3000
SOAK_SEED ?= 1
soak: tests ## random requests against 1, 2 and 3 ranks, each answer compared with the same request alone
	for form in "1" "2" "2 --parallel pipeline" "3" "3 --parallel pipeline" "4 --parallel 2x2"; do \
	    echo "ranks: $$form"; tests/soak/soak.sh $(B) $(SOAK_REQUESTS) $(SOAK_SEED) $$form || exit 1; done

CHAOS_SECONDS ?= 120
CHAOS_SEED ?= 1
chaos: program ## ranks, API and links killed, stopped and cut at random under load, for CHAOS_SECONDS (120) each
	tests/chaos/chaos.sh $(B) $(CHAOS_SECONDS) $(CHAOS_SEED)
	tests/chaos/chaos.sh $(B) $(CHAOS_SECONDS) $(CHAOS_SEED) --parallel pipeline
	tests/chaos/chaos.sh --hosts $(B) $(CHAOS_SECONDS) $(CHAOS_SEED)

nightly: ## what takes hours: all tests under the sanitizers, soak, chaos, fuzz
	tools/nightly.sh

BARE ?= /var/tmp/shoal-bare
bare-check: ## run ./test.sh in a bare Debian 12, made in the folder BARE: with npm's registry and without
	tools/bare.sh $(BARE)
	tools/bare.sh --no-npm $(BARE)

# Fuzz targets are libFuzzer's, so they are built by clang, in a variant of their own.
build/fuzz/fuzz_%: tests/fuzz/fuzz_%.c build/fuzz/libshoal.a
	@echo "CC $<"
	@$(CC) $(CFLAGS_ALL) -fsanitize=fuzzer -o $@ $< build/fuzz/libshoal.a $(LIBS)

fuzz-build: $(FUZZ_BIN)

FUZZ_SECONDS ?= 600
fuzz: ## run every fuzz target for FUZZ_SECONDS (600)
	$(MAKE) VARIANT=fuzz CC=clang fuzz-build
	tests/fuzz/run.sh $(FUZZ_SECONDS)

# ---- benchmarks of single layers ------------------------------------------------------------------

$(B)/bench/%: bench/%.c $(B)/libshoal.a Makefile
	@mkdir -p $(@D)
	$(CC) $(CFLAGS_ALL) -MMD -MP -o $@ $< $(B)/libshoal.a $(LIBS)

bench-kernels: $(B)/bench/bench_matmul ## time the matrix products: GOP/s and GB/s beside the machine's peaks
	$(B)/bench/bench_matmul $(ARGS)

load: program $(B)/bench/fake_engine ## measure the API under load
	tools/load.sh $(B)

# ---- chores ---------------------------------------------------------------------------------------

FORMATTED := $(shell find src tests plugins -name '*.[ch]')

format: ## format all sources
	clang-format -i $(FORMATTED)

lint: ## clang-format, shellcheck, cppcheck, layers, budgets, warnings as errors with gcc and clang
	tools/lint.sh

macos-check: ## compile all sources for macOS, with MACOS_CC or with what is found
	tools/macos_check.sh

# The warnings of the compiler for all sources and tests; nothing is built.
SYNTAX := $(SRC:%=syntax/%) $(TEST_SRC:%=syntax/%) $(FUZZ_SRC:%=syntax/%) syntax/tests/soak/soak.c
.PHONY: syntax $(SYNTAX)
syntax: $(SYNTAX)
syntax/src/base/version.c: CFLAGS_ALL += -DSH_VERSION='"$(VERSION)"'
$(SYNTAX): syntax/%.c: %.c
	@$(CC) $(CFLAGS_ALL) $(ISA_$(lastword $(subst _, ,$(basename $(notdir $<))))) -Itests -fsyntax-only $<

docs: program ## write the pages of docs/ that are made from the tables
	build/shoal help --markdown > docs/options.md

clean: ## remove build/
	rm -rf build

include tools/cluster.mk

help: ## list the targets
	@grep -hE '^[a-zA-Z _-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | sort | \
	    awk -F'\t' '{printf "  %-18s %s\n", $$1, $$2}'
