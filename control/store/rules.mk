# STORE_OBJS with STORE_LIBS: what a program links to keep documents (beside BASE_OBJS). MongoDB is a library of its own,
# $(B)/lib/libflyt-store-mongodb.so, which mongodb_load.c finds.

store_libs_of = $(shell pkg-config --libs $(1))
STORE_LIBS := $(call store_libs_of,sqlite3 libcjson) -lm -ldl
control_store_CFLAGS := $(shell pkg-config --cflags sqlite3 libcjson libmongoc-1.0)

store_mongodb_objs := $(call objs,control/store/mongodb.c control/store/bson_document.c)
store_common_objs := $(call objs,control/store/common.c control/store/json.c control/store/schema.c)
STORE_OBJS := $(filter-out $(store_mongodb_objs),$(call objs,$(filter-out %_test.c control/store/test_%,$(wildcard control/store/*.c))))

$(B)/lib/libflyt-store-mongodb.so: $(store_mongodb_objs) $(store_common_objs) $(BASE_OBJS)
	@mkdir -p $(@D)
	$(CC) -shared $(LDFLAGS) $(if $(SANITIZE),,-Wl,-z,defs) -o $@ $^ $(call store_libs_of,libcjson libmongoc-1.0) -lm
CONTROL += $(B)/lib/libflyt-store-mongodb.so

control_store_tests := $(patsubst %.c,$(B)/%,$(wildcard control/store/*_test.c))
$(control_store_tests): $(B)/%: $(B)/%.o $(call objs,$(wildcard control/store/test_*.c)) $(STORE_OBJS) $(BASE_OBJS) | \
		$(B)/lib/libflyt-store-mongodb.so
	$(CC) $(LDFLAGS) -o $@ $^ $(STORE_LIBS) $(call store_libs_of,libmongoc-1.0) -lcmocka
UNIT_TESTS += $(control_store_tests)
