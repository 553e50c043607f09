# flyt-client-manager

client_manager_objs := $(call objs,$(filter-out %_test.c,$(wildcard control/client/*.c)))

control_client_CFLAGS := -DFLYT_BUILD_NAME='"$(VERSION)"'

$(B)/bin/flyt-client-manager: $(client_manager_objs) $(CONTROL_OBJS)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -o $@ $^ $(CONTROL_LIBS)
CONTROL += $(B)/bin/flyt-client-manager
