# The CUDA test programs: tests/apps/NAME.cu or NAME.c becomes $(B)/tests/apps/NAME, made by nvcc (tests/compile.sh). Two lines of
# a source's head count:
#   // nvcc: FLAGS     more flags for nvcc (another architecture, -lcuda for the driver API, ...)
#   // with: FILES     further sources of the program, in tests/apps/parts

apps_dir     := $(B)/tests/apps
apps_headers := $(wildcard tests/apps/*.h)
apps_names   := $(basename $(notdir $(wildcard tests/apps/*.cu tests/apps/*.c)))
APPS         := $(addprefix $(apps_dir)/,$(apps_names))

apps_with  = $(filter tests/apps/parts/%,$^)

$(apps_dir)/%: tests/apps/%.cu $(apps_headers) tests/compile.sh | toolkit
	tests/compile.sh $@ $< $(apps_with)

$(apps_dir)/%: tests/apps/%.c $(apps_headers) tests/compile.sh | toolkit
	tests/compile.sh $@ $< $(apps_with)

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

$(apps_dir)/libplugin.so: tests/apps/parts/plugin.cu tests/compile.sh | toolkit
	tests/compile.sh $@ $< -shared -Xcompiler -fPIC

.PHONY: test-apps
test-apps: $(APPS) $(APPS_DATA)
TEST_DEPS += $(APPS) $(APPS_DATA)
