# flyt-server. It links no CUDA library: the driver is loaded at run time (driver.c).

server_sources := $(filter-out %_test.c cpu/server/fake_%.c,$(wildcard cpu/server/*.c))
server_objs := $(call objs,$(server_sources)) $(IMAGE_OBJS) $(FATBIN_OBJS) $(GEN)/flyt_serve.o $(GEN)/flyt_svc.o

# Kernels of the server's own, as text: PTX through the C preprocessor, whose macros it uses, as a string.
server_kernels := $(patsubst cpu/server/%.ptx,$(GEN)/flyt_%_ptx.h,$(wildcard cpu/server/*.ptx))
$(server_kernels): $(GEN)/flyt_%_ptx.h: cpu/server/%.ptx
	@mkdir -p $(@D)
	$(CC) -E -P -x c -o $(@:.h=.ptx) $<
	sed -e '1i /* from $<: do not edit */\nstatic const char flyt_$*_ptx[] =' -e 's/.*/"&\\n"/' -e '$$a ;' $(@:.h=.ptx) >$@
GENERATED += $(server_kernels)

# rpcgen puts the dispatch of both programs into one file. The server serves one of them: the other is left out.
$(GEN)/flyt_svc.o: CFLAGS += -ffunction-sections

$(B)/bin/flyt-server: $(server_objs) $(RPC_OBJS) $(BUILD_NAME)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -Wl,--gc-sections -o $@ $^ $(RPC_LIBS) -llz4 -lzstd -ldl

SERVER += $(B)/bin/flyt-server

# These start flyt-server itself, as a node manager does.
server_process_tests := cpu/server/arrived_test.c cpu/server/execution_test.c cpu/server/node_test.c cpu/server/takeover_test.c cpu/server/prepare_test.c cpu/server/return_test.c cpu/server/moved_test.c cpu/server/written_test.c cpu/server/received_test.c

# Tests: the whole server but its main, over a driver that does nothing.
server_tests := $(patsubst %.c,$(B)/%,$(filter-out $(server_process_tests) cpu/server/own_kernel_test.c cpu/server/page_hasher_test.c cpu/server/scan_test.c cpu/server/save_test.c cpu/server/copying_test.c cpu/server/writing_test.c cpu/server/sending_test.c,$(wildcard cpu/server/*_test.c)))
server_test_objs := $(filter-out $(B)/cpu/server/main.o,$(server_objs)) $(B)/cpu/server/fake_driver.o
$(server_tests): $(B)/%: $(B)/%.o $(server_test_objs) $(RPC_OBJS)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -Wl,--gc-sections -o $@ $^ $(RPC_LIBS) -llz4 -lzstd -ldl -lcmocka
UNIT_TESTS += $(server_tests)

# What the kernel says when a message is sent is in this test's hands.
$(B)/cpu/server/tell_test: LDFLAGS += -Wl,--wrap=flyt_server_link_send

# What copies pages and saves state is in these tests' hands.
move_test_wraps := begin begin_image put_state mirror advance state finish go_on result sentence pages_last end
move_test_wraps := $(addprefix flyt_copying_,$(move_test_wraps)) flyt_save_libraries flyt_save_state
$(addprefix $(B)/cpu/server/,move_test left_test): $(B)/cpu/server/fake_move.o
$(addprefix $(B)/cpu/server/,move_test left_test): LDFLAGS += $(addprefix -Wl$(comma)--wrap=,$(move_test_wraps))

$(B)/cpu/server/footprint_test.o: CFLAGS += -DSAMPLES='"$(B)/cpu/softgpu/samples"'
$(B)/cpu/server/footprint_test: | $(addprefix $(B)/cpu/softgpu/samples/,text.ptx none.fatbin size.fatbin speed.fatbin)

# Modules with state of every kind, in every form.
image_state_parts := 0 1 2 3 4 5
image_state_samples := $(foreach kind,ptx cubin fatbin,$(image_state_parts:%=$(B)/cpu/server/image_state_samples/%.$(kind)))
$(image_state_samples): cpu/server/image_state_test.cu
	@mkdir -p $(@D)
	$(NVCC) -o $@ -DPART=$(basename $(@F)) $(if $(filter %.fatbin,$@),-fatbin -gencode arch=compute_90$(comma)code=[sm_90$(comma)compute_90],-arch=sm_90 -$(subst .,,$(suffix $@))) $<
$(B)/cpu/server/image_state_test.o $(B)/cpu/server/image_symbols_test.o: CFLAGS += -DSAMPLES='"$(B)/cpu/server/image_state_samples"'
$(B)/cpu/server/image_state_test $(B)/cpu/server/image_symbols_test: | $(image_state_samples)

server_process_objs := $(call objs,$(addprefix cpu/server/fake_,image.c manager.c node.c program.c wire.c) rpc/transport/test_client.c) \
		$(GEN)/flyt_clnt.o
$(B)/cpu/server/prepare_test $(B)/cpu/server/arrived_test: $(IMAGE_OBJS) $(call objs,cpu/server/fake_prepare.c cpu/server/state.c)
$(B)/cpu/server/written_test: $(IMAGE_OBJS) | $(B)/bin/flytctl
$(B)/cpu/server/received_test: $(IMAGE_OBJS) | $(B)/cpu/server/fake_clock.so
$(B)/cpu/server/fake_clock.so: $(B)/cpu/server/fake_clock.o
	$(CC) $(LDFLAGS) -shared -o $@ $^ -ldl
$(server_process_tests:%.c=$(B)/%): %: %.o $(server_process_objs) $(RPC_OBJS) | $(B)/bin/flyt-server $(B)/lib/libflyt-softgpu.so
	$(CC) $(LDFLAGS) -o $@ $^ $(RPC_LIBS) $(IMAGE_LIBS) -lcmocka
UNIT_TESTS += $(server_process_tests:%.c=$(B)/%)

# These call the software GPU themselves.
$(B)/cpu/server/scan_test: $(call objs,cpu/server/scan_test.c cpu/server/fake_soft.c cpu/server/scan.c cpu/server/own_kernel.c) $(BASE_OBJS) $(B)/lib/libflyt-softgpu.so
	$(CC) $(LDFLAGS) -Wl,-rpath,'$$ORIGIN/../../lib' -o $@ $^ -lcmocka
$(B)/cpu/server/own_kernel_test: $(call objs,cpu/server/own_kernel_test.c cpu/server/fake_soft.c cpu/server/page_hasher.c cpu/server/scan.c cpu/server/own_kernel.c) $(BASE_OBJS) $(B)/lib/libflyt-softgpu.so
	$(CC) $(LDFLAGS) -Wl,-rpath,'$$ORIGIN/../../lib' -o $@ $^ -lcmocka
$(B)/cpu/server/page_hasher_test: $(call objs,cpu/server/page_hasher_test.c cpu/server/fake_soft.c cpu/server/page_hasher.c cpu/server/page_table.c cpu/server/own_kernel.c) $(BASE_OBJS) $(B)/lib/libflyt-softgpu.so
	$(CC) $(LDFLAGS) -Wl,-rpath,'$$ORIGIN/../../lib' -o $@ $^ -lcmocka
$(B)/cpu/server/copying_test $(B)/cpu/server/writing_test $(B)/cpu/server/sending_test: $(B)/cpu/server/fake_session.o
$(B)/cpu/server/save_test $(B)/cpu/server/copying_test $(B)/cpu/server/writing_test $(B)/cpu/server/sending_test: $(B)/%: $(B)/%.o $(B)/cpu/server/fake_soft.o $(server_test_objs) $(RPC_OBJS) $(B)/lib/libflyt-softgpu.so
	$(CC) $(LDFLAGS) -Wl,--gc-sections -Wl,-rpath,'$$ORIGIN/../../lib' -o $@ $(filter %.o,$^) $(filter %.so,$^) $(RPC_LIBS) -llz4 -lzstd -ldl -lcmocka
UNIT_TESTS += $(B)/cpu/server/own_kernel_test $(B)/cpu/server/page_hasher_test $(B)/cpu/server/scan_test $(B)/cpu/server/save_test $(B)/cpu/server/copying_test $(B)/cpu/server/writing_test $(B)/cpu/server/sending_test
