# Programs that the tests of this folder run: tests/system/programs/NAME.cu becomes $(B)/tests/system/NAME. They are no
# tests themselves.

SYSTEM_PROGRAMS := $(patsubst tests/system/programs/%.cu,$(B)/tests/system/%,$(wildcard tests/system/programs/*.cu))

$(B)/tests/system/%: tests/system/programs/%.cu | toolkit
	@mkdir -p $(@D)
	$(NVCC) -cudart $(if $(filter static_%,$*),static,shared) -o $@ $<

# Without CUDA: what stands in for nodes, VMs and operators before the cluster manager.
CLUSTER_HELPERS := $(B)/tests/system/simulated_node $(B)/tests/system/cluster_call
$(CLUSTER_HELPERS): $(B)/tests/system/%: $(B)/tests/system/programs/%.o $(CONTROL_OBJS)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -o $@ $^ $(CONTROL_LIBS)
test-apps: $(CLUSTER_HELPERS)

STEPPED_CLOCK := $(B)/tests/system/stepped_clock.so
$(STEPPED_CLOCK): tests/system/programs/stepped_clock.c
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -fvisibility=default -fPIC -shared $(LDFLAGS) -o $@ $<
test-apps: $(STEPPED_CLOCK)

# The tests also use the measuring programs and a demonstration's, and make a bundle of everything.
test-apps: $(SYSTEM_PROGRAMS) $(BENCH_PROGRAMS) $(DEMO_PROGRAMS)
TEST_DEPS += $(SYSTEM_PROGRAMS)
