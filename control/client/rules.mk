# flyt-client-manager

client_manager_objs := $(call objs,$(filter-out %_test.c,$(wildcard control/client/*.c)) control/store/json.c)

$(B)/bin/flyt-client-manager: $(client_manager_objs) $(CONTROL_OBJS) $(BUILD_NAME)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -o $@ $^ $(CONTROL_LIBS)
CONTROL += $(B)/bin/flyt-client-manager

$(B)/control/client/client_test: $(B)/control/client/client_test.o $(CONTROL_OBJS) | $(B)/bin/flyt-client-manager
	$(CC) $(LDFLAGS) -o $@ $(filter %.o,$^) $(CONTROL_LIBS) -lcmocka
UNIT_TESTS += $(B)/control/client/client_test

# Without a cluster manager that it could tell of.
$(B)/control/client/status_test: private LDFLAGS += -Wl,--wrap=flyt_uplink_address,--wrap=flyt_uplink_cause,--wrap=flyt_uplink_is_up
$(B)/control/client/status_test: $(B)/control/client/status_test.o $(filter-out %/main.o,$(client_manager_objs)) $(CONTROL_OBJS)
	$(CC) $(LDFLAGS) -o $@ $^ $(CONTROL_LIBS) -lcmocka
UNIT_TESTS += $(B)/control/client/status_test

# In a folder that looks as sysfs does.
$(B)/control/client/vm_memory_test: $(call objs,control/client/vm_memory_test.c control/client/vm_memory.c) $(CONTROL_OBJS)
	$(CC) $(LDFLAGS) -o $@ $^ $(CONTROL_LIBS) -lcmocka
UNIT_TESTS += $(B)/control/client/vm_memory_test
