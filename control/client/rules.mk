# flyt-client-manager

client_manager_objs := $(call objs,$(filter-out %_test.c,$(wildcard control/client/*.c)))

$(B)/bin/flyt-client-manager: $(client_manager_objs) $(CONTROL_OBJS) $(BUILD_NAME)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -o $@ $^ $(CONTROL_LIBS)
CONTROL += $(B)/bin/flyt-client-manager

$(B)/control/client/client_test: $(B)/control/client/client_test.o $(CONTROL_OBJS) | $(B)/bin/flyt-client-manager
	$(CC) $(LDFLAGS) -o $@ $(filter %.o,$^) $(CONTROL_LIBS) -lcmocka
UNIT_TESTS += $(B)/control/client/client_test
