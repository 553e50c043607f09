# flyt-cluster-manager. CLUSTER_OBJS: everything of it but main, for tests.

CLUSTER_OBJS := $(call objs,$(filter-out %_test.c control/cluster/main.c,$(wildcard control/cluster/*.c)))
CLUSTER_PURE_OBJS := $(call objs,$(addprefix control/cluster/,capacity.c placement.c quota.c desired.c watch.c migration_rules.c claims.c) control/base/size.c control/base/name.c)

# control/store's rules are read after these: known at the second expansion.
.SECONDEXPANSION:

$(B)/bin/flyt-cluster-manager: $(B)/control/cluster/main.o $(CLUSTER_OBJS) $$(STORE_OBJS) $(CONTROL_OBJS) $(BUILD_NAME)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -o $@ $^ $(CONTROL_LIBS) $(STORE_LIBS) -lm
CONTROL += $(B)/bin/flyt-cluster-manager

cluster_pure_tests := $(addprefix $(B)/control/cluster/,capacity_test placement_test quota_test desired_test migration_rules_test claims_test)
$(cluster_pure_tests): $(B)/%: $(B)/%.o $(CLUSTER_PURE_OBJS) $(BASE_OBJS)
	$(CC) $(LDFLAGS) -o $@ $^ -lcjson -lm -lcmocka
UNIT_TESTS += $(cluster_pure_tests)

$(B)/control/cluster/keep_test: $(B)/control/cluster/keep_test.o $(B)/control/cluster/keep.o $$(STORE_OBJS) $(CONTROL_OBJS)
	$(CC) $(LDFLAGS) $(STORE_RPATH) -o $@ $^ $(CONTROL_LIBS) $(STORE_LIBS) -lcmocka
UNIT_TESTS += $(B)/control/cluster/keep_test

cluster_whole_tests := $(addprefix $(B)/control/cluster/,event_test leader_test migration_document_test)
$(cluster_whole_tests): $(B)/%: $(B)/%.o $(CLUSTER_OBJS) $$(STORE_OBJS) $(CONTROL_OBJS)
	$(CC) $(LDFLAGS) $(STORE_RPATH) -o $@ $^ $(CONTROL_LIBS) $(STORE_LIBS) -lm -lcmocka
UNIT_TESTS += $(cluster_whole_tests)
