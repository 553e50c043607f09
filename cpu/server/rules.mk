# flyt-server. It links no CUDA library: the driver is loaded at run time (driver.c).

server_sources := $(filter-out %_test.c cpu/server/test/%,$(wildcard cpu/server/*/*.c cpu/server/*/*/*.c))
server_objs := $(call objs,$(server_sources)) $(IMAGE_OBJS) $(FATBIN_OBJS) $(GEN)/flyt_serve.o $(GEN)/flyt_objects.o $(GEN)/flyt_objects_all.o $(GEN)/flyt_driver_rows.o $(GEN)/flyt_svc.o $(LIBRARY_SERVER_OBJS)

# Kernels of the server's own, as text: PTX through the C preprocessor, whose macros it uses, as a string.
server_kernels := $(patsubst cpu/server/move/%.ptx,$(GEN)/flyt_%_ptx.h,$(wildcard cpu/server/move/*.ptx))
$(server_kernels): $(GEN)/flyt_%_ptx.h: cpu/server/move/%.ptx
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
server_process_tests := cpu/server/move/in/arrived_pages_test.c cpu/server/core/execution_test.c cpu/server/test/node_test.c cpu/server/test/takeover_test.c cpu/server/move/in/prepare_test.c cpu/server/test/return_test.c cpu/server/test/moved_test.c cpu/server/test/written_test.c cpu/server/test/received_test.c

# Tests: the whole server but its main, over a driver that does nothing.
server_tests := $(patsubst %.c,$(B)/%,$(filter-out $(server_process_tests) cpu/server/move/common/own_kernel_test.c cpu/server/move/common/page_hasher_test.c cpu/server/move/out/scan_test.c cpu/server/move/out/save_test.c cpu/server/move/out/copying_test.c cpu/server/move/out/writing_test.c cpu/server/move/out/sending_test.c,$(wildcard cpu/server/*/*_test.c cpu/server/*/*/*_test.c)))
server_test_objs := $(filter-out $(B)/cpu/server/process/main.o,$(server_objs)) $(B)/cpu/server/test/fake_driver.o
$(server_tests): $(B)/%: $(B)/%.o $(server_test_objs) $(RPC_OBJS)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -Wl,--gc-sections -o $@ $^ $(RPC_LIBS) -llz4 -lzstd -ldl -lcmocka
UNIT_TESTS += $(server_tests)

# What the kernel says when a message is sent is in this test's hands.
$(B)/cpu/server/core/tell_test: LDFLAGS += -Wl,--wrap=flyt_manager_link_send

# NVIDIA's libraries are functions of these tests.
$(B)/cpu/server/library/served_test $(B)/cpu/server/library/switch_test: LDFLAGS += -Wl,--export-dynamic
$(B)/cpu/server/library/lookup_test: LDFLAGS += -Wl,--wrap=dlsym

# Rounds of the loop are counted.
$(B)/cpu/server/core/pieces_test: LDFLAGS += -Wl,--wrap=flyt_jobs_advance

# What copies pages and saves state is in these tests' hands.
move_test_wraps := begin begin_image put_state mirror advance state finish go_on result sentence pages_last end
move_test_wraps := $(addprefix flyt_copying_,$(move_test_wraps)) flyt_save_libraries flyt_save_state
$(addprefix $(B)/cpu/server/move/out/,move_test left_test): $(B)/cpu/server/test/fake_move.o
$(addprefix $(B)/cpu/server/move/out/,move_test left_test): LDFLAGS += $(addprefix -Wl$(comma)--wrap=,$(move_test_wraps))

# Modules with state of every kind, in every form.
image_state_parts := 0 1 2 3 4 5 6 7
image_state_folder := $(B)/cpu/server/image_state_samples
image_state_samples := $(foreach kind,ptx cubin,$(image_state_parts:%=$(image_state_folder)/%.$(kind)))
$(image_state_samples): cpu/server/code/image_state_test.cu
	@mkdir -p $(@D)
	$(NVCC) -o $@ -DPART=$(basename $(@F)) $(if $(filter 7.%,$(@F)),-rdc=true) -arch=sm_90 -$(subst .,,$(suffix $@)) $<
$(image_state_folder)/7.linked: $(image_state_folder)/7.cubin
	$(NVCC) -o $@ -arch=sm_90 -dlink -cubin $< -lcudadevrt
$(B)/cpu/server/code/image_state_test.o $(B)/cpu/server/code/image_symbols_test.o $(B)/cpu/server/code/image_refusal_test.o: CFLAGS += -DSAMPLES='"$(B)/cpu/server/image_state_samples"'
$(B)/cpu/server/code/image_state_test $(B)/cpu/server/code/image_symbols_test $(B)/cpu/server/code/image_refusal_test: | $(image_state_samples) $(image_state_folder)/7.linked

server_process_objs := $(call objs,$(addprefix cpu/server/test/fake_,image.c manager.c node.c program.c wire.c) rpc/transport/test_client.c) \
		$(GEN)/flyt_clnt.o
$(B)/cpu/server/move/in/prepare_test $(B)/cpu/server/move/in/arrived_pages_test: $(IMAGE_OBJS) $(call objs,cpu/server/test/fake_prepare.c cpu/server/move/common/state.c)
$(B)/cpu/server/test/written_test: $(IMAGE_OBJS) | $(B)/bin/flytctl
$(B)/cpu/server/test/received_test: $(IMAGE_OBJS) | $(B)/cpu/server/test/fake_clock.so
$(B)/cpu/server/test/fake_clock.so: $(B)/cpu/server/test/fake_clock.o
	$(CC) $(LDFLAGS) -shared -o $@ $^ -ldl
$(server_process_tests:%.c=$(B)/%): %: %.o $(server_process_objs) $(RPC_OBJS) | $(B)/bin/flyt-server $(B)/lib/libflyt-softgpu.so
	$(CC) $(LDFLAGS) -o $@ $^ $(RPC_LIBS) $(IMAGE_LIBS) -lcmocka
UNIT_TESTS += $(server_process_tests:%.c=$(B)/%)

# These call the software GPU themselves.
$(B)/cpu/server/move/out/scan_test: $(call objs,cpu/server/move/out/scan_test.c cpu/server/test/fake_soft.c cpu/server/move/out/scan.c cpu/server/move/common/own_kernel.c cpu/server/cuda/jit.c) $(BASE_OBJS) $(B)/lib/libflyt-softgpu.so
	$(CC) $(LDFLAGS) -Wl,-rpath,'$(abspath $(B)/lib)' -o $@ $^ -lcmocka
$(B)/cpu/server/move/common/own_kernel_test: $(call objs,cpu/server/move/common/own_kernel_test.c cpu/server/test/fake_soft.c cpu/server/move/common/page_hasher.c cpu/server/move/out/scan.c cpu/server/move/common/own_kernel.c cpu/server/cuda/jit.c) $(BASE_OBJS) $(B)/lib/libflyt-softgpu.so
	$(CC) $(LDFLAGS) -Wl,-rpath,'$(abspath $(B)/lib)' -o $@ $^ -lcmocka
$(B)/cpu/server/move/common/page_hasher_test: $(call objs,cpu/server/move/common/page_hasher_test.c cpu/server/test/fake_soft.c cpu/server/move/common/page_hasher.c cpu/server/move/common/page_table.c cpu/server/move/common/own_kernel.c cpu/server/cuda/jit.c) $(BASE_OBJS) $(B)/lib/libflyt-softgpu.so
	$(CC) $(LDFLAGS) -Wl,-rpath,'$(abspath $(B)/lib)' -o $@ $^ -lcmocka
$(B)/cpu/server/move/out/copying_test $(B)/cpu/server/move/out/writing_test $(B)/cpu/server/move/out/sending_test: $(B)/cpu/server/test/fake_session.o
$(B)/cpu/server/move/out/save_test $(B)/cpu/server/move/out/copying_test $(B)/cpu/server/move/out/writing_test $(B)/cpu/server/move/out/sending_test: $(B)/%: $(B)/%.o $(B)/cpu/server/test/fake_soft.o $(server_test_objs) $(RPC_OBJS) $(B)/lib/libflyt-softgpu.so
	$(CC) $(LDFLAGS) -Wl,--gc-sections -Wl,-rpath,'$(abspath $(B)/lib)' -o $@ $(filter %.o,$^) $(filter %.so,$^) $(RPC_LIBS) -llz4 -lzstd -ldl -lcmocka
UNIT_TESTS += $(B)/cpu/server/move/common/own_kernel_test $(B)/cpu/server/move/common/page_hasher_test $(B)/cpu/server/move/out/scan_test $(B)/cpu/server/move/out/save_test $(B)/cpu/server/move/out/copying_test $(B)/cpu/server/move/out/writing_test $(B)/cpu/server/move/out/sending_test
