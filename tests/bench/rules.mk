# Measuring programs: $(B)/tests/bench/NAME. They run natively and through Flyt alike.

BENCH_PROGRAMS := $(patsubst tests/bench/%.cu,$(B)/tests/bench/%,$(wildcard tests/bench/*.cu))

bench_gpus := -gencode arch=compute_75,code=compute_75 -gencode arch=compute_90,code=sm_90
$(B)/tests/bench/%: tests/bench/%.cu tests/bench/bench.h $(wildcard tests/apps/*_interface.h) tests/compile.sh
	tests/compile.sh $@ $< -O2 $(bench_gpus)

# The server's kernel that hashes pages, straight on the driver: natively only. No nvcc.
PAGE_HASH_BENCH := $(B)/tests/bench/page_hash
$(PAGE_HASH_BENCH): $(call objs,tests/bench/page_hash.c cpu/server/move/common/page_hasher.c cpu/server/move/common/own_kernel.c cpu/server/cuda/jit.c cpu/server/core/driver.c) $(BASE_OBJS)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -o $@ $^ -ldl

# The driver's own checkpoint of another process, which it finds at run time: natively only. No nvcc.
DRIVER_CHECKPOINT := $(B)/tests/bench/driver_checkpoint
$(DRIVER_CHECKPOINT): $(call objs,tests/bench/driver_checkpoint.c)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -o $@ $^ -ldl

# What that makes of memory as servers have it: natively only. No nvcc, the toolkit's stub.
EXTENTS_CHECKPOINT := $(B)/tests/bench/extents_checkpoint
$(EXTENTS_CHECKPOINT): $(call objs,tests/bench/extents_checkpoint.c)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -o $@ $^ -L$(CUDA_PATH)/lib64/stubs -lcuda

# What textbook.py measures, tests with other arguments.
TEXTBOOK_PROGRAMS := $(addprefix $(B)/tests/apps/,matrix_product binomial_options convolution_separable merge_sort stencil_3d)

.PHONY: bench-programs
bench-programs: $(TEXTBOOK_PROGRAMS) $(BENCH_PROGRAMS) $(PAGE_HASH_BENCH) $(DRIVER_CHECKPOINT) $(EXTENTS_CHECKPOINT)

# A cluster of simulated nodes and VMs before a real cluster manager (tests/bench/load/main.c). No CUDA.
CONTROL_LOAD := $(B)/tests/bench/control_load
$(CONTROL_LOAD): $(call objs,$(wildcard tests/bench/load/*.c) tests/system/programs/input_lines.c) $(STORE_OBJS) $(CONTROL_OBJS) | $(B)/lib/libflyt-store-mongodb.so
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -o $@ $^ $(CONTROL_LIBS) $(STORE_LIBS)
bench-programs: $(CONTROL_LOAD)
test-apps: $(CONTROL_LOAD)
