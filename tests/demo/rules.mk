# The demonstration's programs: ordinary CUDA programs, compiled as anybody would.

DEMO_PROGRAMS := $(patsubst tests/demo/%.cu,$(B)/tests/demo/%,$(wildcard tests/demo/*.cu))

$(B)/tests/demo/%: tests/demo/%.cu tests/demo/demo.h tests/demo/picture.h
	@mkdir -p $(@D)
	$(NVCC) -cudart shared -o $@ $<

.PHONY: demo-programs
demo-programs: $(DEMO_PROGRAMS)
