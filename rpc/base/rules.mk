# What everything stands on. BASE_OBJS: link these. FATBIN_OBJS with FATBIN_LIBS: only who reads fat binaries.

BASE_OBJS := $(call objs,$(filter-out rpc/base/fatbin%,$(filter-out %_test.c,$(wildcard rpc/base/*.c))))
FATBIN_OBJS := $(call objs,$(filter-out %_test.c,$(wildcard rpc/base/fatbin*.c)))
FATBIN_LIBS := -lzstd -llz4

# BUILD_NAME: what programs and client libraries link besides (build_name.h). Written again only where it says another
# name: then the programs are linked anew, and nothing is compiled.
BUILD_NAME := $(GEN)/flyt_build_name.o
.PHONY: build-name
$(GEN)/flyt_build_name.c: build-name
	@mkdir -p $(@D)
	@printf '%s\n' '/* from `git describe`: do not edit */' '#include "rpc/base/build_name.h"' \
		'const char flyt_build_name[] = "$(VERSION)";' >$@.new
	@if cmp -s $@.new $@; then rm $@.new; else mv $@.new $@; fi

rpc_base_tests := $(patsubst %.c,$(B)/%,$(wildcard rpc/base/*_test.c))
$(rpc_base_tests): $(B)/%: $(B)/%.o $(BASE_OBJS) $(FATBIN_OBJS)
	$(CC) $(LDFLAGS) -o $@ $^ $(FATBIN_LIBS) -lcmocka
UNIT_TESTS += $(rpc_base_tests)
