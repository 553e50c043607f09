# The software GPU: the driver and the PTX engine (ptx/rules.mk names its sources).
-include cpu/softgpu/ptx/rules.mk

softgpu_driver_srcs := $(filter-out %_test.c,$(wildcard cpu/softgpu/driver/*.c))
softgpu_lib_objs    := $(call objs,$(softgpu_driver_srcs) $(SOFTGPU_PTX_SRCS) rpc/base/fatbin.c)

SERVER += $(B)/lib/libflyt-softgpu.so

# Worker threads run until the process ends: the library must never be unmapped.
$(B)/lib/libflyt-softgpu.so: $(softgpu_lib_objs)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -shared -Wl,-soname,$(@F) -Wl,-Bsymbolic -Wl,-z,nodelete -o $@ $^ -llz4 -lzstd -lm

# Tests are linked with the library's objects, so that sanitizers see them.
softgpu_driver_tests := $(patsubst %.c,$(B)/%,$(wildcard cpu/softgpu/driver/*_test.c))
$(softgpu_driver_tests): $(B)/%: $(B)/%.o $(softgpu_lib_objs)
	$(CC) $(LDFLAGS) -o $@ $^ -llz4 -lzstd -lm -lcmocka
UNIT_TESTS += $(softgpu_driver_tests)

# The same device code in every form that nvcc gives images.
softgpu_samples := $(addprefix $(B)/cpu/softgpu/driver/samples/,none.fatbin size.fatbin speed.fatbin text.ptx code.fatbin code.cubin)
softgpu_sample_source := cpu/softgpu/driver/image_test.cu
softgpu_sample_archs := -gencode arch=compute_75,code=[compute_75,sm_75]
softgpu_nvcc = @mkdir -p $(@D) && $(NVCC) -o $@ $(1) $(softgpu_sample_source)

$(B)/cpu/softgpu/driver/samples/%.fatbin: $(softgpu_sample_source)
	$(call softgpu_nvcc,-fatbin $(softgpu_sample_archs) -compress-mode=$*)
$(B)/cpu/softgpu/driver/samples/code.fatbin: $(softgpu_sample_source)
	$(call softgpu_nvcc,-fatbin -gencode arch=compute_90$(comma)code=sm_90)
$(B)/cpu/softgpu/driver/samples/code.cubin: $(softgpu_sample_source)
	$(call softgpu_nvcc,-cubin -arch=sm_90)
$(B)/cpu/softgpu/driver/samples/text.ptx: $(softgpu_sample_source)
	$(call softgpu_nvcc,-ptx -arch=compute_75)

$(B)/cpu/softgpu/driver/image_test: | $(softgpu_samples)

include cpu/softgpu/library/rules.mk
