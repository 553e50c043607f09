# STORE_OBJS with STORE_LIBS: what a program links to keep documents (beside BASE_OBJS).

STORE_LIBS := $(shell pkg-config --libs sqlite3 libcjson libmongoc-1.0) -lm
control_store_CFLAGS := $(shell pkg-config --cflags sqlite3 libcjson libmongoc-1.0)

STORE_OBJS := $(call objs,$(filter-out %_test.c control/store/test_%,$(wildcard control/store/*.c)))

control_store_tests := $(patsubst %.c,$(B)/%,$(wildcard control/store/*_test.c))
$(control_store_tests): $(B)/%: $(B)/%.o $(call objs,$(wildcard control/store/test_*.c)) $(STORE_OBJS) $(BASE_OBJS)
	$(CC) $(LDFLAGS) -o $@ $^ $(STORE_LIBS) -lcmocka
UNIT_TESTS += $(control_store_tests)
