# flyt-cluster-manager. CLUSTER_OBJS: everything of it but main, for tests.

CLUSTER_OBJS := $(call objs,$(filter-out %_test.c control/cluster/test/%,$(wildcard control/cluster/*/*.c)))
# What tests of decisions have: neither a loop nor a store.
CLUSTER_MODEL_OBJS := $(call objs,$(filter-out %_test.c,$(wildcard control/cluster/model/*.c)))

# control/store's rules are read after these: known at the second expansion.
.SECONDEXPANSION:

$(B)/bin/flyt-cluster-manager: $(B)/control/cluster/main.o $(CLUSTER_OBJS) $$(STORE_OBJS) $(CONTROL_OBJS) $(BUILD_NAME)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -o $@ $^ $(CONTROL_LIBS) $(STORE_LIBS) -lm
CONTROL += $(B)/bin/flyt-cluster-manager

cluster_model_tests := $(patsubst %.c,$(B)/%,$(wildcard control/cluster/model/*_test.c))
$(cluster_model_tests): $(B)/%: $(B)/%.o $(CLUSTER_MODEL_OBJS) $(CONTROL_OBJS)
	$(CC) $(LDFLAGS) -o $@ $^ $(CONTROL_LIBS) -lm -lcmocka
UNIT_TESTS += $(cluster_model_tests)

$(B)/control/cluster/io/store_writer_test: $(B)/control/cluster/io/store_writer_test.o $(B)/control/cluster/io/store_writer.o $$(STORE_OBJS) $(CONTROL_OBJS)
	$(CC) $(LDFLAGS) $(STORE_RPATH) -o $@ $^ $(CONTROL_LIBS) $(STORE_LIBS) -lcmocka
UNIT_TESTS += $(B)/control/cluster/io/store_writer_test

cluster_whole_tests := $(addprefix $(B)/control/cluster/io/,claims_test document_test event_test leader_test migration_document_test)
$(cluster_whole_tests): $(B)/%: $(B)/%.o $(CLUSTER_OBJS) $$(STORE_OBJS) $(CONTROL_OBJS)
	$(CC) $(LDFLAGS) $(STORE_RPATH) -o $@ $^ $(CONTROL_LIBS) $(STORE_LIBS) -lm -lcmocka
UNIT_TESTS += $(cluster_whole_tests)

# The store's documents as the version before wrote them.
$(B)/control/cluster/io/document_test.o: CPPFLAGS += -DFLYT_DOCUMENT_GOLDEN='"$(CURDIR)/control/cluster/io/document_golden.json"'
$(B)/control/cluster/io/document_test: private LDFLAGS += -Wl,--wrap=flyt_record_new,--wrap=flyt_record_free

# Decisions in a world of the test's own: the store's thread, connections and leading are the test's.
cluster_world_objs := $(CLUSTER_MODEL_OBJS) $(call objs,$(filter-out %_test.c,$(wildcard control/cluster/reconcile/*.c)) \
    $(addprefix control/cluster/io/,edit.c executor.c document.c grant.c gpu_document.c node_document.c allocation_document.c migration_document.c reply.c) \
    $(wildcard control/cluster/test/test_*.c) $(addprefix control/base/,config.c fields.c json_memory.c name.c size.c))
cluster_world_tests := $(addprefix $(B)/control/cluster/test/,decisions_test decisions_migration_test sequences_test)
$(cluster_world_tests): $(B)/%: $(B)/%.o $(cluster_world_objs) $(GEN)/control_xdr.o $$(RPC_OBJS)
	$(CC) $(LDFLAGS) -o $@ $^ $(CONTROL_LIBS) -lm -lcmocka
UNIT_TESTS += $(cluster_world_tests)
