# A program that calls every function of the toolkit's headers.
CONFORMANCE := $(B)/tests/conformance/conformance
$(B)/tests/conformance/calls.c: tests/conformance/make.py rpc/gen/prototypes.py | toolkit
	@mkdir -p $(@D)
	$(PYTHON) -B tests/conformance/make.py $@ $(CUDA_PATH)
$(CONFORMANCE): $(B)/tests/conformance/calls.c tests/conformance/main.c tests/conformance/calls.h
	$(CC) -std=gnu11 -w -I. -I$(CUDA_PATH)/include -o $@ $(filter %.c,$^) -L$(CUDA_PATH)/lib64/stubs -L$(CUDA_PATH)/lib64 -lcuda -lcudart
test-apps: $(CONFORMANCE)
