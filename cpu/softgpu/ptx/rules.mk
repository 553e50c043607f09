# The PTX engine. What links it takes $(call objs,$(SOFTGPU_PTX_SRCS)) and -lm.

ptx_common := build lex parse parse_body join lower lowering lower_memory lower_flow lower_matrix texture_insn slots compile module \
	ops warp flow special memory sync video print block partition pool

# What is done on all lanes at once is compiled for every x86-64 processor, for AVX2 and for AVX-512; ops.c chooses at run time.
# The sources called *_v3.c and *_v4.c do not exist: their objects are made from the plain ones. Sanitized tests need one
# of them, and no speed.
ptx_lanes := integer bits float compare half convert convert_float access matrix texture
ptx_isas  := $(if $(SANITIZE),,$(if $(filter x86_64,$(shell uname -m)),v3 v4))

SOFTGPU_PTX_SRCS := $(filter-out %_test.c,$(wildcard cpu/softgpu/texel/*.c)) \
	$(patsubst %,cpu/softgpu/ptx/%.c,$(ptx_common) $(ptx_lanes) \
	$(foreach isa,$(ptx_isas),$(addsuffix _$(isa),$(ptx_lanes))))

# f32 products and sums must not be fused. The rounding mode is set around an instruction, never within one, so that the
# compiler need not know (-frounding-math): it would vectorise neither fma nor square roots.
ptx_flags := $(if $(SANITIZE),,-O3 -g1) -ffp-contract=off -fno-math-errno -fno-trapping-math $(if $(ptx_isas),-DPTX_HAS_X86_ISAS) \
	$(if $(filter clang%,$(notdir $(CC))),-Wno-pass-failed) $(if $(SANITIZE),-DPTX_PLAIN_LOOPS)
cpu_softgpu_ptx_CFLAGS += $(ptx_flags)
cpu_softgpu_texel_CFLAGS += -ffp-contract=off

define ptx_isa_rule
$(B)/cpu/softgpu/ptx/%_$(1).o: cpu/softgpu/ptx/%.c Makefile | $$(GENERATED) toolkit
	@mkdir -p $$(@D)
	$$(CC) $$(CPPFLAGS) $$(CFLAGS) $$(ptx_flags) -march=x86-64-$(1) -DPTX_ISA=$(1) -MMD -MP -c -o $$@ $$<
endef
$(foreach isa,$(ptx_isas),$(eval $(call ptx_isa_rule,$(isa))))

# GCC would gather the few places of an access in a vector, only to take it apart again.
$(B)/cpu/softgpu/ptx/access%.o $(B)/cpu/softgpu/ptx/access.o: ptx_flags += -fno-tree-slp-vectorize
softgpu_ptx_objs := $(call objs,$(SOFTGPU_PTX_SRCS))

# Tests and the benchmark are linked with the engine alone.
softgpu_ptx_tests := $(patsubst %.c,$(B)/%,$(wildcard cpu/softgpu/ptx/*_test.c cpu/softgpu/texel/*_test.c))
$(softgpu_ptx_tests): $(B)/%: $(B)/%.o $(B)/cpu/softgpu/ptx/harness.o $(softgpu_ptx_objs)
	$(CC) $(LDFLAGS) -o $@ $^ -lm -lcmocka
UNIT_TESTS += $(softgpu_ptx_tests)

$(B)/bench/ptx-bench: $(B)/cpu/softgpu/ptx/bench.o $(B)/cpu/softgpu/ptx/harness.o $(softgpu_ptx_objs)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -o $@ $^ -lm
ALL += $(B)/bench/ptx-bench

# The kernels of kernel_test.c as nvcc compiles them for the oldest and the newest architecture that is promised.
ptx_test_kernels := $(foreach arch,75 90,$(B)/cpu/softgpu/ptx/test_kernels_$(arch).ptx)
$(ptx_test_kernels): $(B)/cpu/softgpu/ptx/test_kernels_%.ptx: cpu/softgpu/ptx/test_kernels.cu | toolkit
	@mkdir -p $(@D)
	$(NVCC) -ptx -arch=compute_$* -o $@ $<
$(B)/cpu/softgpu/ptx/kernel_test $(B)/cpu/softgpu/ptx/module_test: | $(ptx_test_kernels)
cpu_softgpu_ptx_CFLAGS += -DPTX_TEST_FOLDER='"$(B)/cpu/softgpu/ptx"'
