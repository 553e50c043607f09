# flyt-node-manager. NODE_OBJS: everything of it but main, for tests. IMAGE_OBJS are named in a rules.mk that is read
# later.

.SECONDEXPANSION:

node_sources := $(wildcard control/node/*.c control/node/*/*.c)
NODE_OBJS := $(call objs,$(filter-out %_test.c control/node/test/% control/node/gpu/fake_nvml.c control/node/main.c,$(node_sources)))

control_node_tests := $(patsubst %.c,$(B)/%,$(filter %_test.c,$(node_sources)))
$(control_node_tests): $(B)/%: $(B)/%.o $(call objs,$(wildcard control/node/test/test_*.c)) $(NODE_OBJS) $(CONTROL_OBJS) $$(IMAGE_OBJS)
	$(CC) $(LDFLAGS) -o $@ $(filter %.o,$^) $(CONTROL_LIBS) $(IMAGE_LIBS) -ldl -lcmocka
UNIT_TESTS += $(control_node_tests)

# A server without CUDA, for tests.
$(B)/control/node/test/fake-server: $(call objs,$(wildcard control/node/test/fake_*.c)) $(RPC_OBJS) $$(IMAGE_OBJS)
	$(CC) $(LDFLAGS) -o $@ $(filter %.o,$^) $(RPC_LIBS) $(IMAGE_LIBS)
$(control_node_tests): $(B)/control/node/test/fake-server

$(B)/bin/flyt-node-manager: $(B)/control/node/main.o $(NODE_OBJS) $(CONTROL_OBJS) $$(IMAGE_OBJS) $(BUILD_NAME)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -o $@ $^ $(CONTROL_LIBS) $(IMAGE_LIBS) -ldl
CONTROL += $(B)/bin/flyt-node-manager

# NVML's names without a GPU, for tests.
$(B)/control/node/gpu/libfake-nvml.so: $(B)/control/node/gpu/fake_nvml.o
	$(CC) $(LDFLAGS) -shared -o $@ $^
$(B)/control/node/gpu/gpu_test: $(B)/control/node/gpu/libfake-nvml.so

# What servers do not get.
$(B)/control/node/link/retransmit_test: private LDFLAGS += -Wl,--wrap=flyt_manager_link_send

# A process that does not end when it is killed.
$(B)/control/node/test/stop_test: private LDFLAGS += -Wl,--wrap=waitid,--wrap=poll

# A program that is not executed at once.
$(B)/control/node/process/spawn_test: private LDFLAGS += -Wl,--wrap=execve

# What the disk does is seen, and held up, at the calls to it: not those of the fake server, which is made for it.
$(B)/control/node/ops/disk_test: private LDFLAGS += -Wl,--wrap=close,--wrap=fstatat,--wrap=linkat,--wrap=flyt_worker_do,--wrap=flyt_worker_new

# Whether the loop's thread writes.
$(B)/control/node/uplink/manager_test: private LDFLAGS += -Wl,--wrap=pwrite

$(B)/control/node/process/images_test: private LDFLAGS += -Wl,--wrap=rename

# A disk that takes its time.
$(B)/control/node/model/writer_test: private LDFLAGS += -Wl,--wrap=fsync

# The state file as other builds read it.
$(B)/control/node/state/state_test.o: CPPFLAGS += -DFLYT_STATE_GOLDEN='"$(CURDIR)/control/node/state/state_golden.json"'
