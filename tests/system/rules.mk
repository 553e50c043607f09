# Programs that the tests of this folder run: tests/system/programs/NAME.cu becomes $(B)/tests/system/NAME. They are no
# tests themselves.

SYSTEM_PROGRAMS := $(patsubst tests/system/programs/%.cu,$(B)/tests/system/%,$(wildcard tests/system/programs/*.cu))

$(B)/tests/system/%: tests/system/programs/%.cu | toolkit
	@mkdir -p $(@D)
	$(NVCC) -cudart $(if $(filter static_%,$*),static,shared) -o $@ $<

# The tests also use the measuring programs and make a bundle of everything.
test-apps: $(SYSTEM_PROGRAMS) $(BENCH_PROGRAMS)
TEST_DEPS += $(SYSTEM_PROGRAMS)
