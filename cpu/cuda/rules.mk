# libcuda.so.1: the driver API over libflyt-client.so.1.

CUDA_SOURCES := $(filter-out %_test.c,$(wildcard cpu/cuda/*.c))
CUDA_OBJECTS := $(call objs,$(CUDA_SOURCES) rpc/base/log.c) \
	$(addprefix $(GEN)/,cuda_stubs.o cuda_entries.o flyt_entry_points.o flyt_error_names.o)

# -Bsymbolic: addresses that cuGetProcAddress gives are this library's own, whatever else the program has loaded.
$(B)/lib/libcuda.so.1: $(CUDA_OBJECTS) $(GEN)/libcuda.map $(B)/lib/libflyt-client.so.1
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -shared -Wl,-soname,libcuda.so.1 -Wl,--version-script,$(GEN)/libcuda.map \
	    -Wl,--no-undefined-version $(if $(SANITIZE),,-Wl,-z,defs) -Wl,-Bsymbolic -Wl,-rpath,'$$ORIGIN' -o $@ \
	    $(CUDA_OBJECTS) $(B)/lib/libflyt-client.so.1

CLIENT += $(B)/lib/libcuda.so.1

# The fakes in the test stand before the core's functions of the same name.
$(B)/cpu/cuda/cuda_test: $(call objs,cpu/cuda/cuda_test.c) $(CUDA_OBJECTS) $(B)/lib/libflyt-client.so.1
	$(CC) $(LDFLAGS) -Wl,-rpath,'$$ORIGIN/../../lib' -o $@ $(filter %.o,$^) $(B)/lib/libflyt-client.so.1 -lcmocka

UNIT_TESTS += $(B)/cpu/cuda/cuda_test
