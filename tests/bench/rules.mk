# Measuring programs: $(B)/tests/bench/NAME. They run natively and through Flyt alike.

BENCH_PROGRAMS := $(patsubst tests/bench/%.cu,$(B)/tests/bench/%,$(wildcard tests/bench/*.cu))

$(B)/tests/bench/%: tests/bench/%.cu tests/bench/bench.h
	@mkdir -p $(@D)
	$(NVCC) -O2 -cudart shared -gencode arch=compute_75,code=compute_75 -gencode arch=compute_90,code=sm_90 -o $@ $<

.PHONY: bench-programs
bench-programs: $(BENCH_PROGRAMS)
