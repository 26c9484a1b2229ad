# libshoal, the C library (include/shoal.h): the same objects as the program, of which a link takes what the public
# functions need. Only those are visible, in the shared library and in the static one.

LIB       := $(B)/lib
SONAME    := libshoal.so.0
LIB_SRC   := $(sort $(wildcard src/lib/*.c))
LIB_API   := $(LIB_SRC:%.c=$(B)/%.o)
LIB_MAP   := src/lib/libshoal.map
# Sanitizers leave references to their runtime, which is in the program.
LIB_DEFS_release := -Wl,-z,defs
LIB_DEFS_debug   := -Wl,-z,defs

EXAMPLES  := $(patsubst %.c,$(B)/%,$(sort $(wildcard examples/*.c)))

.PHONY: lib examples
lib: $(LIB)/libshoal.so $(LIB)/libshoal.a ## build libshoal, shared and static

$(LIB)/$(SONAME): $(LIB_API) $(B)/libshoal.a $(LIB_MAP)
	@mkdir -p $(@D)
	@echo "LD $@"
	@$(CC) $(OPT_$(VARIANT)) -shared -o $@ $(LIB_API) $(B)/libshoal.a -Wl,-soname,$(SONAME) \
	    -Wl,--version-script=$(LIB_MAP) $(LIB_DEFS_$(VARIANT)) $(LIBS)

$(LIB)/libshoal.so: $(LIB)/$(SONAME)
	@ln -sf $(SONAME) $@

# One object, in which all that is not public has become local: names of a program that uses it cannot clash with ours.
$(LIB)/libshoal.a: $(LIB_API) $(B)/libshoal.a
	@mkdir -p $(@D)
	@echo "LD $@"
	@$(LD) -r -o $(LIB)/libshoal.o $(LIB_API) $(B)/libshoal.a
	@objcopy --wildcard --keep-global-symbol='shoal_*' $(LIB)/libshoal.o
	@rm -f $@
	@ar rcs $@ $(LIB)/libshoal.o

examples: lib $(EXAMPLES) ## build the examples of the library

$(B)/examples/%: examples/%.c include/shoal.h $(LIB)/libshoal.so
	@mkdir -p $(@D)
	@echo "CC $<"
	@$(CC) -std=c11 -Iinclude $(WARN) $(OPT_$(VARIANT)) -o $@ $< -L$(LIB) -lshoal -lm -Wl,-rpath,'$$ORIGIN/../lib'

# Its tests have what a user has: the header and the shared library.
$(B)/tests/unit/lib/%: tests/unit/lib/%.c include/shoal.h $(LIB)/libshoal.so
	@mkdir -p $(@D)
	@echo "CC $<"
	@$(CC) -std=c11 -D_GNU_SOURCE -Iinclude -Itests $(WARN) $(OPT_$(VARIANT)) -o $@ $< -L$(LIB) -lshoal -lcmocka -lm \
	    -pthread -Wl,-rpath,'$$ORIGIN/../../../lib'
