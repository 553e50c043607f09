# What everything stands on. BASE_OBJS: link these. FATBIN_OBJS with FATBIN_LIBS: only who reads fat binaries.

BASE_OBJS := $(call objs,$(filter-out rpc/base/fatbin%,$(filter-out %_test.c,$(wildcard rpc/base/*.c))))
FATBIN_OBJS := $(call objs,$(filter-out %_test.c,$(wildcard rpc/base/fatbin*.c)))
FATBIN_LIBS := -lzstd -llz4

rpc_base_tests := $(patsubst %.c,$(B)/%,$(wildcard rpc/base/*_test.c))
$(rpc_base_tests): $(B)/%: $(B)/%.o $(BASE_OBJS) $(FATBIN_OBJS)
	$(CC) $(LDFLAGS) -o $@ $^ $(FATBIN_LIBS) -lcmocka
UNIT_TESTS += $(rpc_base_tests)
