# The CUDA test programs: tests/apps/NAME.cu or NAME.c becomes $(B)/tests/apps/NAME, made by plain
# `nvcc -cudart shared`. Two lines of a source's head are read here:
#   // nvcc: FLAGS     more flags for nvcc (another architecture, -lcuda for the driver API, ...)
#   // with: FILES     further sources of the program, in tests/apps/parts
# Flags are read when the program is compiled, so that changing them is changing the source.

apps_dir     := $(B)/tests/apps
apps_headers := $(wildcard tests/apps/*.h)
apps_names   := $(basename $(notdir $(wildcard tests/apps/*.cu tests/apps/*.c)))
APPS         := $(addprefix $(apps_dir)/,$(apps_names))

apps_nvcc := $(NVCC) -cudart shared -Itests/apps -Werror all-warnings -Xcompiler -Wall,-Wextra,-Wno-unused-parameter \
	-L$(CUDA_PATH)/lib64/stubs
apps_flags = $$(sed -n 's,^// nvcc: *,,p' $<)
apps_with  = $(filter tests/apps/parts/%,$^)

# What has no kernels needs the compiler for the host alone, which takes a fifth of the time.
apps_of_host := $(patsubst tests/apps/%.cu,$(apps_dir)/%,$(shell grep -LE '__(global|device|managed|constant)__|<<<|"image.h"' tests/apps/*.cu))
$(apps_of_host): apps_nvcc += -x c++ -include cuda_runtime.h

$(apps_dir)/%: tests/apps/%.cu $(apps_headers) | toolkit
	@mkdir -p $(@D)
	$(apps_nvcc) -o $@ $< $(apps_with) $(apps_flags)

$(apps_dir)/%: tests/apps/%.c $(apps_headers) | toolkit
	@mkdir -p $(@D)
	$(apps_nvcc) -o $@ $< $(apps_with) $(apps_flags)

# `// with:` lines as dependencies, which is also how the recipes above learn of them. One word per source
# of the form NAME:FILE[:FILE...].
apps_with_lines := $(shell grep -H '^// with: ' tests/apps/*.cu tests/apps/*.c 2>/dev/null | \
	sed 's,^tests/apps/\([^.]*\)[^:]*:// with: *,\1:,; s, ,:,g')
$(foreach line,$(apps_with_lines),$(eval $(apps_dir)/$(firstword $(subst :, ,$(line))): \
	$(addprefix tests/apps/parts/,$(wordlist 2,99,$(subst :, ,$(line))))))

$(apps_dir)/rand_continues: cpu/library/curand_rules.h

# What programs load while they run lies beside them.
APPS_DATA := $(addprefix $(apps_dir)/,module.ptx module.cubin module.fatbin stub.fatbin libplugin.so)

$(apps_dir)/module.ptx: tests/apps/parts/module.cu | toolkit
	@mkdir -p $(@D)
	$(NVCC) -ptx -arch compute_75 -o $@ $<

# Machine code for the GPUs of compute capability 9.0 alone.
$(apps_dir)/module.cubin: tests/apps/parts/module.cu | toolkit
	@mkdir -p $(@D)
	$(NVCC) -cubin -arch sm_90 -o $@ $<

$(apps_dir)/module.fatbin: tests/apps/parts/module.cu | toolkit
	@mkdir -p $(@D)
	$(NVCC) -fatbin -gencode arch=compute_75,code=compute_75 -gencode arch=compute_90,code=sm_90 -o $@ $<

$(apps_dir)/stub.fatbin: tests/apps/parts/stub.cu | toolkit
	@mkdir -p $(@D)
	$(NVCC) -fatbin -gencode arch=compute_75,code=compute_75 -o $@ $<

$(apps_dir)/libplugin.so: tests/apps/parts/plugin.cu | toolkit
	@mkdir -p $(@D)
	$(NVCC) -cudart shared -shared -Xcompiler -fPIC -o $@ $<

.PHONY: test-apps
test-apps: $(APPS) $(APPS_DATA)
TEST_DEPS += $(APPS) $(APPS_DATA)
