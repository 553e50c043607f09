# flyt-node-manager. NODE_OBJS: everything of it but main, for tests. IMAGE_OBJS are named in a rules.mk that is read
# later.

.SECONDEXPANSION:

NODE_OBJS := $(call objs,$(filter-out %_test.c control/node/test_% control/node/fake_% control/node/main.c,$(wildcard control/node/*.c)))

control_node_tests := $(patsubst %.c,$(B)/%,$(wildcard control/node/*_test.c))
$(control_node_tests): $(B)/%: $(B)/%.o $(call objs,$(wildcard control/node/test_*.c)) $(NODE_OBJS) $(CONTROL_OBJS) $$(IMAGE_OBJS)
	$(CC) $(LDFLAGS) -o $@ $(filter %.o,$^) $(CONTROL_LIBS) $(IMAGE_LIBS) -ldl -lcmocka
UNIT_TESTS += $(control_node_tests)

# A server without CUDA, for tests.
$(B)/control/node/fake-server: $(call objs,$(filter-out control/node/fake_nvml.c,$(wildcard control/node/fake_*.c))) $(RPC_OBJS) $$(IMAGE_OBJS)
	$(CC) $(LDFLAGS) -o $@ $(filter %.o,$^) $(RPC_LIBS) $(IMAGE_LIBS)
$(control_node_tests): $(B)/control/node/fake-server

$(B)/bin/flyt-node-manager: $(B)/control/node/main.o $(NODE_OBJS) $(CONTROL_OBJS) $$(IMAGE_OBJS) $(BUILD_NAME)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -o $@ $^ $(CONTROL_LIBS) $(IMAGE_LIBS) -ldl
CONTROL += $(B)/bin/flyt-node-manager

# NVML's names without a GPU, for tests.
$(B)/control/node/libfake-nvml.so: $(B)/control/node/fake_nvml.o
	$(CC) $(LDFLAGS) -shared -o $@ $^
$(B)/control/node/gpu_test: $(B)/control/node/libfake-nvml.so

# What servers do not get.
$(B)/control/node/retransmit_test: private LDFLAGS += -Wl,--wrap=flyt_manager_link_send

# A process that does not end when it is killed.
$(B)/control/node/stop_test: private LDFLAGS += -Wl,--wrap=waitid,--wrap=poll

# A program that is not executed at once.
$(B)/control/node/spawn_test: private LDFLAGS += -Wl,--wrap=execve

# What the disk does is seen, and held up, at the calls to it: not those of the fake server, which is made for it.
$(B)/control/node/disk_test: private LDFLAGS += -Wl,--wrap=close,--wrap=fstatat,--wrap=linkat,--wrap=flyt_worker_do,--wrap=flyt_worker_new

# Whether the loop's thread writes.
$(B)/control/node/manager_test: private LDFLAGS += -Wl,--wrap=pwrite

$(B)/control/node/images_test: private LDFLAGS += -Wl,--wrap=rename

# A disk that takes its time.
$(B)/control/node/writer_test: private LDFLAGS += -Wl,--wrap=fsync
