# Programs that the tests of this folder run: tests/system/programs/NAME.cu becomes $(B)/tests/system/NAME. They are no
# tests themselves.

SYSTEM_PROGRAMS := $(patsubst tests/system/programs/%.cu,$(B)/tests/system/%,$(wildcard tests/system/programs/*.cu))

$(B)/tests/system/%: tests/system/programs/%.cu $(wildcard tests/apps/*_interface.h) tests/compile.sh | toolkit
	tests/compile.sh $@ $<

# A library of somebody's that brings the static runtime.
$(B)/tests/system/libstatic_plugin.so: tests/apps/parts/plugin.cu tests/compile.sh | toolkit
	tests/compile.sh $@ $< -cudart static -shared -Xcompiler -fPIC
SYSTEM_PROGRAMS += $(B)/tests/system/libstatic_plugin.so

# PTX that nothing older takes.
$(B)/tests/system/steady_newest: tests/system/programs/steady.cu tests/compile.sh | toolkit
	tests/compile.sh $@ $< -gencode arch=compute_90,code=compute_90
SYSTEM_PROGRAMS += $(B)/tests/system/steady_newest

# Programs of several files, in a folder of the program's name; -lcuda, for they use the driver API, too.
MOVERS := $(B)/tests/system/movers
MOVERS_OBJS := $(patsubst tests/system/programs/%.cu,$(B)/tests/system/programs/%.cu.o,$(wildcard tests/system/programs/movers/*.cu))
$(MOVERS_OBJS): $(B)/tests/system/programs/%.cu.o: tests/system/programs/%.cu tests/system/programs/movers/movers.h tests/compile.sh | toolkit
	tests/compile.sh $@ $< -c
$(MOVERS): $(MOVERS_OBJS)
	$(NVCC) -cudart shared -L$(CUDA_PATH)/lib64/stubs -o $@ $^ -lcuda
test-apps: $(MOVERS)
TEST_DEPS += $(MOVERS)

# Without CUDA: what stands in for nodes, VMs and operators before the cluster manager.
CLUSTER_HELPERS := $(B)/tests/system/simulated_node $(B)/tests/system/cluster_call
$(CLUSTER_HELPERS): $(B)/tests/system/%: $(B)/tests/system/programs/%.o $(B)/tests/system/programs/input_lines.o $(CONTROL_OBJS)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -o $@ $^ $(CONTROL_LIBS)
test-apps: $(CLUSTER_HELPERS)

MAKE_IMAGE := $(B)/tests/system/make_image
$(MAKE_IMAGE): $(B)/tests/system/programs/make_image.o $(IMAGE_OBJS) $(BASE_OBJS)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -o $@ $^ $(IMAGE_LIBS)
test-apps: $(MAKE_IMAGE)

PRELOADED := $(B)/tests/system/stepped_clock.so $(B)/tests/system/scribbler.so $(B)/tests/system/liar.so $(B)/tests/system/older_library.so
$(PRELOADED): $(B)/tests/system/%.so: tests/system/programs/%.c
	@mkdir -p $(@D)
	$(CC) -D_GNU_SOURCE -I. $(CFLAGS) -fvisibility=default -fPIC -shared $(LDFLAGS) -o $@ $<
test-apps: $(PRELOADED)

# The driver API alone, with whatever library it is told.
MPS_PROGRAMS := $(B)/tests/system/mps_users $(B)/tests/system/mps_contexts
$(MPS_PROGRAMS): $(B)/tests/system/%: tests/system/programs/%.c tests/system/programs/driver_library.h | toolkit
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) -o $@ $< -ldl
test-apps: $(MPS_PROGRAMS)

# A unit test that fails, for the test of the runner.
TORN_DOWN := $(B)/tests/system/torn_down
$(TORN_DOWN): tests/system/programs/torn_down.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) -o $@ $< -lcmocka
test-apps: $(TORN_DOWN)

# The client libraries of an older build, as a node sees them: their handshake is made of tables that lack rows, and says
# another build. What they do not offer there they cannot call; all else is today's. Compiles three files.
OLDER := $(B)/tests/system/older
OLDER_OWN := $(OLDER)/flyt_signatures.o $(OLDER)/channel_handshake.o $(OLDER)/build_name.o
$(OLDER)/gen/flyt_signatures.c: tests/system/programs/older_tables.py $(GEN)/stamp
	$(PYTHON) -B $< $(OLDER)/api $(API_TABLES)
	$(PYTHON) -B rpc/gen/generate.py $(OLDER)/gen rpc/proto/flyt.x rpc/proto/limits.h \
		$(patsubst rpc/api/%,$(OLDER)/api/%,$(API_TABLES))
	touch $@
$(OLDER)/flyt_signatures.o: $(OLDER)/gen/flyt_signatures.c $(GEN)/flyt.h
	$(CC) -I$(OLDER)/gen $(CPPFLAGS) $(CFLAGS) -w -c -o $@ $<
$(OLDER)/channel_handshake.o: rpc/transport/channel_handshake.c rpc/transport/channel_state.h $(OLDER)/gen/flyt_signatures.c $(GEN)/flyt.h
	$(CC) $(CPPFLAGS) $(CFLAGS) -c -o $@ $<
$(OLDER)/build_name.o: tests/system/programs/older_build_name.c rpc/base/build_name.h
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) -c -o $@ $<
$(OLDER)/lib/libflyt-client.so.1: $(OLDER_OWN) $(B)/lib/libflyt-client.so.1 $(B)/lib/libcudart.so.13 $(B)/lib/libcuda.so.1
	@mkdir -p $(@D)
	$(CC) -shared $(LDFLAGS) -Wl,-soname,$(@F) -Wl,-z,nodelete -Wl,--version-script=cpu/client/flyt-client.map -o $@ \
		$(OLDER_OWN) $(filter-out $(GEN)/flyt_signatures.o %/channel_handshake.o,$(CLIENT_OBJS) $(RPC_OBJS) $(FATBIN_OBJS)) \
		$(RPC_LIBS) $(FATBIN_LIBS)
	cp $(B)/lib/libcudart.so.13 $(B)/lib/libcuda.so.1 $(@D)/
test-apps: $(OLDER)/lib/libflyt-client.so.1

# For each of NVIDIA's libraries one that writes down what it is called with, and a program that calls each of its rows.
RECORDED := $(B)/tests/system/recorded
recorded_flags := -D_GNU_SOURCE -std=gnu11 -w -fPIC -I. -I$(GEN) -I$(CUDA_PATH)/include
define recorded_library
$(RECORDED)/$(1)_caller.c: rpc/library/$(1).rows rpc/gen/library_recorder.py $(LIBRARY_MAKERS)
	@mkdir -p $(RECORDED)/lib
	$(PYTHON) -B rpc/gen/library_recorder.py $(RECORDED) $$<
$(RECORDED)/lib/$(2): $(RECORDED)/$(1)_caller.c tests/system/programs/library_record.h rpc/library/library.h
	$(CC) $(recorded_flags) -shared -fvisibility=hidden -Wl,-soname,$(2) -o $$@ $(RECORDED)/$(1)_recorder.c
$(RECORDED)/$(1): $(RECORDED)/$(1)_caller.c tests/system/programs/library_record.h rpc/library/library.h $(B)/lib/$(2) $(B)/lib/libcudart.so.13
	$(CC) $(recorded_flags) -o $$@ $$< -L$(B)/lib -l:$(2) -l:libcudart.so.13 -Wl,-rpath-link,$(B)/lib
SYSTEM_PROGRAMS += $(RECORDED)/lib/$(2) $(RECORDED)/$(1)
endef
$(foreach name,$(LIBRARIES),$(eval $(call recorded_library,$(name),$(LIBRARY_FILE_$(name)))))

# A library in the place of cuDNN that has descriptors of the graph interface, and a program that makes some.
$(B)/tests/system/graph/libcudnn.so.9: tests/system/programs/graph_library.c
	@mkdir -p $(@D)
	$(CC) -std=gnu11 -O2 -g -Wall -Wextra -Wno-unused-parameter -Werror -fPIC -shared -fvisibility=hidden -Wl,-soname,$(@F) -o $@ $< -ldl
$(B)/tests/system/plans: tests/system/programs/plans.c $(B)/lib/libcudnn.so.9 $(B)/lib/libcudart.so.13
	@mkdir -p $(@D)
	$(CC) -std=gnu11 -O2 -g -Wall -Wextra -Werror -o $@ $< -L$(B)/lib -l:libcudnn.so.9 -l:libcudart.so.13 -Wl,-rpath-link,$(B)/lib
SYSTEM_PROGRAMS += $(B)/tests/system/graph/libcudnn.so.9 $(B)/tests/system/plans

# A program that is linked to cuDNN's parts alone.
CUDNN_PARTS := $(LIBRARY_PARTS_cudnn:%=$(B)/lib/%)
$(B)/tests/system/parts: tests/system/programs/parts.c $(CUDNN_PARTS) $(B)/lib/libcudart.so.13
	@mkdir -p $(@D)
	$(CC) -std=gnu11 -O2 -g -Wall -Wextra -Werror -o $@ $< -L$(B)/lib $(LIBRARY_PARTS_cudnn:%=-l:%) -l:libcudart.so.13 -ldl \
		-Wl,-rpath-link,$(B)/lib
SYSTEM_PROGRAMS += $(B)/tests/system/parts

# Libraries in the place of wheels' ones, with the function that each has, and a program that calls these.
WHEEL_LIBRARIES := libcudnn_ops.so.9 libcudnn.so.9 libnccl.so.2 libcusparseLt.so.0
wheel_function_libcudnn_ops.so.9 := cudnnCreateTensorDescriptor
wheel_function_libcudnn.so.9 := cudnnCreate
wheel_function_libnccl.so.2 := ncclGetUniqueId
wheel_function_libcusparseLt.so.0 := cusparseLtInit
define wheel_library
$(B)/tests/system/wheel/$(1): tests/system/programs/wheel_library.c
	@mkdir -p $$(@D)
	echo '$(1) { global: *; };' >$$@.map
	$$(CC) -std=gnu11 -O2 -g -Wall -Wextra -Werror -fPIC -shared -DFUNCTION=$(wheel_function_$(1)) -Wl,-soname,$(1) \
		-Wl,--version-script=$$@.map -o $$@ $$<
SYSTEM_PROGRAMS += $(B)/tests/system/wheel/$(1)
endef
$(foreach name,$(WHEEL_LIBRARIES),$(eval $(call wheel_library,$(name))))
$(B)/tests/system/wheels: tests/system/programs/wheels.c $(WHEEL_LIBRARIES:%=$(B)/lib/%) $(B)/lib/libcublas.so.13 $(B)/lib/libcudart.so.13
	@mkdir -p $(@D)
	$(CC) -std=gnu11 -O2 -g -Wall -Wextra -Werror -o $@ $< -L$(B)/lib $(WHEEL_LIBRARIES:%=-l:%) -l:libcublas.so.13 -l:libcudart.so.13 -ldl \
		-Wl,-rpath-link,$(B)/lib
SYSTEM_PROGRAMS += $(B)/tests/system/wheels

# The tests also use the measuring programs and a demonstration's, and make a bundle of everything.
test-apps: $(SYSTEM_PROGRAMS) $(BENCH_PROGRAMS) $(DEMO_PROGRAMS)
TEST_DEPS += $(SYSTEM_PROGRAMS)

# The version before, for upgrade_test.py: what of it runs, of the revision that tests/previous names. A clone without that
# revision has none.
PREVIOUS := $(shell cat tests/previous)
.PHONY: previous
previous: $(B)/previous/$(PREVIOUS)
$(B)/previous/$(PREVIOUS):
	@rm -rf $(B)/previous && mkdir -p $(B)/previous/tree
	git archive $(PREVIOUS) | tar -x -C $(B)/previous/tree
	$(MAKE) --no-print-directory -C $(B)/previous/tree B=build VERSION=$(PREVIOUS) SANITIZE= COVERAGE= DEBUG= control server client
	mv $(B)/previous/tree/build/bin $(B)/previous/tree/build/lib $(B)/previous/
	rm -rf $(B)/previous/tree
	touch $@
