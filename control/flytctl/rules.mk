# flytctl. FLYTCTL_OBJS: everything of it but main, for tests. IMAGE_OBJS are named in a rules.mk that is read later.

.SECONDEXPANSION:
FLYTCTL_OBJS := $(call objs,$(filter-out %_test.c control/flytctl/main.c control/flytctl/test_%,$(wildcard control/flytctl/*.c)))

$(B)/bin/flytctl: $(call objs,control/flytctl/main.c) $(FLYTCTL_OBJS) $(CONTROL_OBJS) $$(IMAGE_OBJS) $(BUILD_NAME)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -o $@ $^ $(CONTROL_LIBS) $(IMAGE_LIBS) -lm
CONTROL += $(B)/bin/flytctl

flytctl_tests := $(patsubst %.c,$(B)/%,$(wildcard control/flytctl/*_test.c))
$(flytctl_tests): $(B)/%: $(B)/%.o $(call objs,$(wildcard control/flytctl/test_*.c)) $(FLYTCTL_OBJS) $(CONTROL_OBJS) $$(IMAGE_OBJS) | $(B)/bin/flytctl
	$(CC) $(LDFLAGS) -o $@ $(filter-out %/flytctl,$^) $(CONTROL_LIBS) $(IMAGE_LIBS) -lm -lcmocka -lutil
UNIT_TESTS += $(flytctl_tests)
