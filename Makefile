# Shoal's Makefile. `make help` lists the targets.
#
# A variant is a build configuration: release (the default), debug, asan, tsan. Each builds in its own
# folder under build/, so they do not interfere: `make VARIANT=asan check`.

VARIANT ?= release
CC      ?= cc
ifeq ($(VARIANT),asan) # the fuzz targets share its objects, and libFuzzer is clang's
CC      := clang
endif
B       := build/$(VARIANT)
ARCH    := $(firstword $(subst -, ,$(shell $(CC) -dumpmachine)))

# ---- flags ----------------------------------------------------------------------------------------

WARN := -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Wmissing-prototypes \
        -Wstrict-prototypes -Wvla $(if $(CI)$(WERROR),-Werror)
OPT_release := -O2 -g
OPT_debug   := -O0 -g3
OPT_lint-gcc := -O2
OPT_asan    := -O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined,fuzzer-no-link \
               -fno-sanitize-recover=undefined
OPT_tsan    := -O1 -g -fno-omit-frame-pointer -fsanitize=thread

# Makes memory errors harder to exploit (docs/security.md); tests/cmd/test_hardening.sh checks the binaries.
SYSTEM          := $(shell uname -s)
HARDEN_x86_64   := -fcf-protection=full
HARDEN_aarch64  := -mbranch-protection=standard
HARDEN_Linux    := -fstack-clash-protection $(HARDEN_$(ARCH))
HARDEN          := -fstack-protector-strong $(HARDEN_$(SYSTEM))
FORTIFY_release := -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3
LINK_Linux      := -Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack
PIE_Linux       := -pie
# The same objects go into the program and into the shared library. Hidden symbols make that free: calls between
# our own functions need no table, as in a program.
PIC             := -fPIC -fvisibility=hidden

PKGS      := libcjson libpcre2-8 libutf8proc openssl libevent libevent_openssl libnghttp2 libprotobuf-c \
             yaml-0.1 libedit
PKG_CONFIG ?= pkg-config
PKG_CFLAGS := $(shell $(PKG_CONFIG) --cflags $(PKGS) libcurl)
PKG_LIBS   := $(shell $(PKG_CONFIG) --libs $(PKGS))

VERSION := $(shell cat VERSION)
# No contraction to fused multiply-add: several results must have the same bits on every machine.
CFLAGS_ALL = -std=c11 -ffp-contract=off -D_GNU_SOURCE -Isrc -I$(B)/src -Iinclude $(WARN) $(OPT_$(VARIANT)) $(PIC) $(HARDEN) $(FORTIFY_$(VARIANT)) \
             $(PKG_CFLAGS) -pthread $(CFLAGS)
LIBS       = $(PKG_LIBS) -lm -ldl -pthread $(LINK_$(SYSTEM)) $(LDFLAGS)

# The suffix of a kernel file names the instruction set it needs. It is built only for an architecture that
# has that instruction set, and called only if the CPU supports it at run time.
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

# ---- files ----------------------------------------------------------------------------------------

SRC_ALL   := $(sort $(shell find src -name '*.c'))
SRC_OTHER := $(foreach isa,$(filter-out $(ISAS_$(ARCH)),$(ISAS_ALL)),$(filter %_$(isa).c,$(SRC_ALL)))
SRC       := $(filter-out $(SRC_OTHER),$(SRC_ALL))
OBJ       := $(SRC:%.c=$(B)/%.o)
# The messages of LocalAI's gRPC calls; protoc-c makes C of them.
PROTO_C   := $(B)/src/grpc/backend.pb-c.c
OBJ       += $(PROTO_C:.c=.o)
# All but the entry points: of the program, and of the library (tools/library.mk).
LIB_OBJ   := $(filter-out $(B)/src/cmd/main.o $(B)/src/lib/%,$(OBJ))
# SHOAL_TEST_UNITS, a regular expression, selects unit tests by folder.
TEST_SRC  := $(sort $(shell find tests/unit -name 'test_*.c' | grep -E '^tests/unit/($(or $(SHOAL_TEST_UNITS),.*))/'))
TEST_BIN  := $(TEST_SRC:%.c=$(B)/%)
FUZZ_SRC  := $(sort $(wildcard tests/fuzz/fuzz_*.c))
FUZZ_BIN  := $(FUZZ_SRC:tests/fuzz/%.c=build/fuzz/%)
# Benchmarks are compiled with the tests, so that they keep up with what they measure. bench_mpi is built by hand, with an mpicc.
BENCH_SRC := $(filter-out bench/bench_mpi.c,$(wildcard bench/*.c))
BENCH_BIN := $(BENCH_SRC:%.c=$(B)/%)

# One plugin for each MPI library whose compiler is installed; without one, the program has no MPI support.
MPI_FAMILIES := $(foreach f,openmpi mpich,$(if $(shell command -v mpicc.$(f)),$(f)))
ifeq ($(MPI_FAMILIES),)
MPI_FAMILIES := $(if $(shell command -v mpicc),$(if $(findstring open,$(shell mpicc -show)),openmpi,mpich))
endif
MPICC         = $(or $(shell command -v mpicc.$*),mpicc)
PLUGINS      := $(MPI_FAMILIES:%=$(B)/shoal-mpi-%.so)

# The plugin for RDMA needs libibverbs (librdma on macOS); without it, the program has no RDMA support.
RDMA_LIB_Linux  := -libverbs
RDMA_LIB_Darwin := -lrdma
RDMA_HEADER     := $(shell echo '\#include <infiniband/verbs.h>' | $(CC) -E - >/dev/null 2>&1 && echo yes)
PLUGINS         += $(if $(RDMA_HEADER),$(B)/shoal-rdma.so)

.PHONY: bench-kernels bench-grammar bench-drafts all help check unit unit-build fenced lint format asan tsan debug fuzz fuzz-build load soak chaos rdma-check nightly bare-check
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

$(B)/shoal-rdma.so: plugins/rdma.c src/net/rdma_plugin.h Makefile
	@mkdir -p $(@D)
	@echo "CC $@"
	@$(CC) -std=c11 -D_GNU_SOURCE -O2 -g -Isrc $(WARN) $(HARDEN) $(FORTIFY_release) -fPIC -shared -o $@ $< \
	    $(RDMA_LIB_$(SYSTEM)) $(LINK_$(SYSTEM))

$(B)/libshoal.a: $(LIB_OBJ)
	@rm -f $@
	@ar rcs $@ $^

include tools/library.mk

$(B)/%.o: %.c Makefile
	@mkdir -p $(@D)
	@echo "CC $<"
	@$(CC) $(CFLAGS_ALL) $(ISA_$(lastword $(subst _, ,$(basename $(notdir $<))))) -MMD -MP -c -o $@ $<

$(B)/src/%.pb-c.c: src/%.proto
	@mkdir -p $(@D)
	@echo "PROTOC $<"
	@protoc-c --proto_path=$(<D) --c_out=$(@D) $<

$(PROTO_C:.c=.h): $(PROTO_C) ;

# Generated code is not ours to warn about.
$(PROTO_C:.c=.o): $(PROTO_C) Makefile
	@echo "CC $<"
	@$(CC) $(filter-out -W%,$(CFLAGS_ALL)) -MMD -MP -c -o $@ $<

# Needed to be there before the first file that includes its header is compiled.
$(LIB_OBJ): | $(PROTO_C)

# Three quarters of the time that clang needs for a kernel, and address sums that leave an array are found by asan.
$(B)/src/kernels/cpu/%.o: OPT_asan += -fno-sanitize=pointer-overflow
# Four fifths of tsan's time go into the innermost products. They read weights, which nobody writes, and activations; the
# sums are written by who calls them. `make nightly` watches them all the same.
ifndef SHOAL_TEST_FULL
$(B)/src/kernels/cpu/dot%.o: OPT_tsan += -fno-sanitize=thread
endif
$(B)/src/base/version.o: CFLAGS_ALL += -DSH_VERSION='"$(VERSION)"'
$(B)/src/base/version.o: VERSION
$(B)/src/api/assets.o: $(wildcard web/* web/*/*)

$(B)/tests/unit/%: tests/unit/%.c $(B)/libshoal.a Makefile
	@mkdir -p $(@D)
	@echo "CC $<"
	@$(CC) $(CFLAGS_ALL) -Itests -MMD -MP -o $@ $< $(B)/libshoal.a -lcmocka $(LIBS)

-include $(OBJ:.o=.d) $(TEST_BIN:=.d) $(BENCH_BIN:=.d)

# ---- tests ----------------------------------------------------------------------------------------

TEST_TOOLS := $(B)/tests/soak/soak $(B)/tests/text/grammar_tool
tests: program examples $(TEST_BIN) $(TEST_TOOLS) $(BENCH_BIN)

$(TEST_TOOLS): $(B)/%: %.c $(B)/libshoal.a Makefile
	@mkdir -p $(@D)
	@echo "CC $<"
	@$(CC) $(CFLAGS_ALL) -MMD -MP -o $@ $< $(B)/libshoal.a $(LIBS)

check: tests ## run all tests of this variant
	tests/run.sh $(B)

unit-build: $(TEST_BIN)

unit: unit-build ## run only the unit tests
	tests/run.sh $(B) unit

fenced: $(TEST_BIN) ## run what is above the device on one whose memory only its ops can touch
	SHOAL_TEST_DEVICE=fenced SHOAL_TEST_UNITS='model|engine' tests/run.sh $(B) unit

asan tsan debug: ## build that variant and run all its tests
	$(MAKE) VARIANT=$@ check

SOAK_REQUESTS ?= 3000
SOAK_SEED ?= 1
soak: tests ## send random requests to 1 to 4 ranks; compare each answer with the same request alone
	fixed="--model tests/data/models/lfm2-long-4bit"; for form in "1" "2" "2 --parallel pipeline" "3" "3 --parallel pipeline" \
	    "4 --parallel 2x2" "1 $$fixed" "2 $$fixed" "3 --parallel pipeline $$fixed"; do \
	    echo "ranks: $$form"; tests/soak/soak.sh $(B) $(SOAK_REQUESTS) $(SOAK_SEED) $$form || exit 1; done

CHAOS_FAULTS ?= 100
CHAOS_SEED ?= 1
chaos: program ## kill, stop, cut, add and remove ranks at random under load, CHAOS_FAULTS (100) times in each of six ways
	tests/chaos/chaos.sh $(B) $(CHAOS_FAULTS) $(CHAOS_SEED)
	tests/chaos/chaos.sh $(B) $(CHAOS_FAULTS) $(CHAOS_SEED) --parallel pipeline
	tests/chaos/chaos.sh $(B) $(CHAOS_FAULTS) $(CHAOS_SEED) --ranks 4 --parallel 2x2
	tests/chaos/chaos.sh --elastic $(B) $(CHAOS_FAULTS) $(CHAOS_SEED)
	tests/chaos/chaos.sh --elastic $(B) $(CHAOS_FAULTS) $(CHAOS_SEED) --parallel pipeline
	tests/chaos/chaos.sh --hosts $(B) $(CHAOS_FAULTS) $(CHAOS_SEED) --parallel pipeline

rdma-check: tests ## try RDMA on two and three machines in QEMU, with soft-RoCE: 10 minutes
	tests/rdma/full.sh $(B)

nightly: ## run everything that takes hours: all tests under the sanitizers, soak, chaos, fuzz
	tools/nightly.sh

BARE ?= /var/tmp/shoal-bare
bare-check: ## run ./test.sh in a bare Debian 12, made in the folder BARE, with and without npm's registry
	tools/bare.sh $(BARE)
	tools/bare.sh --no-npm $(BARE)

build/fuzz/fuzz_%: tests/fuzz/fuzz_%.c build/asan/libshoal.a
	@mkdir -p $(@D)
	@echo "CC $<"
	@$(CC) $(CFLAGS_ALL) -fsanitize=fuzzer -o $@ $< build/asan/libshoal.a $(LIBS)

fuzz-build: $(FUZZ_BIN)

FUZZ_SECONDS ?= 600
fuzz: ## run every fuzz target for FUZZ_SECONDS (600)
	$(MAKE) VARIANT=asan fuzz-build
	tests/fuzz/run.sh $(FUZZ_SECONDS)

# ---- benchmarks of single layers ------------------------------------------------------------------

$(B)/bench/%: bench/%.c $(B)/libshoal.a Makefile
	@mkdir -p $(@D)
	@echo "CC $<"
	@$(CC) $(CFLAGS_ALL) -Itests -MMD -MP -o $@ $< $(B)/libshoal.a $(LIBS)

bench-kernels: $(B)/bench/bench_matmul ## time the matrix products: GOP/s and GB/s next to the machine's peaks
	$(B)/bench/bench_matmul $(ARGS)

bench-grammar: $(B)/bench/bench_grammar ## time grammars: compiling, and masks over 150k tokens
	$(B)/bench/bench_grammar $(ARGS)

bench-drafts: $(B)/bench/bench_drafts ## time a draft model: right in 70 % of its drafts, always wrong, and none; DRAFTS_DIR keeps 4 GB of models
	$(B)/bench/bench_drafts $(or $(DRAFTS_DIR),build/drafts) $(ARGS)

load: program $(B)/bench/fake_engine ## measure the API under load
	tools/load.sh $(B)

# ---- chores ---------------------------------------------------------------------------------------

FORMATTED := $(shell find src include tests bench plugins examples -name '*.[ch]')

format: ## format all sources
	clang-format -i $(FORMATTED)

lint: ## run clang-format, shellcheck, cppcheck, layers, budgets, gcc and clang with warnings as errors
	tools/lint.sh

macos-check: ## compile all sources for macOS, with MACOS_CC or an installed compiler
	tools/macos_check.sh

# Compiler warnings for all sources and tests, without building.
SYNTAX := $(SRC:%=syntax/%) $(TEST_SRC:%=syntax/%) $(FUZZ_SRC:%=syntax/%) $(BENCH_SRC:%=syntax/%) syntax/tests/soak/soak.c syntax/tests/text/grammar_tool.c
.PHONY: syntax $(SYNTAX)
syntax: $(SYNTAX)
syntax/src/base/version.c: CFLAGS_ALL += -DSH_VERSION='"$(VERSION)"'
$(SYNTAX): | $(PROTO_C)
$(SYNTAX): syntax/%.c: %.c
	@$(CC) $(CFLAGS_ALL) $(ISA_$(lastword $(subst _, ,$(basename $(notdir $<))))) -Itests -fsyntax-only $<

docs: program ## regenerate the pages of docs/ that are built from tables
	build/shoal help --markdown > docs/options.md

clean: ## remove build/
	rm -rf build

include packaging/install.mk
include tools/cluster.mk

help: ## list the targets
	@grep -hE '^[a-zA-Z _-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | sort | \
	    awk -F'\t' '{printf "  %-18s %s\n", $$1, $$2}'
