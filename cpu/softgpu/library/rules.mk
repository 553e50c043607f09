# NVIDIA's libraries on the software GPU: functions with their names, over CPU libraries that are loaded when used.
softgpu_library_files := $(wildcard cpu/softgpu/library/*.c cpu/softgpu/dnn/*.c cpu/softgpu/sparse/*.c)
softgpu_library_objs := $(call objs,$(filter-out %_test.c,$(softgpu_library_files)) rpc/library/blas_status.c)

SERVER += $(B)/lib/libflyt-softgpu-libraries.so

# Beside libflyt-softgpu.so, whose driver it works with. Its work runs on the driver's threads until the process ends.
$(B)/lib/libflyt-softgpu-libraries.so: $(softgpu_library_objs) $(B)/lib/libflyt-softgpu.so
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -shared -Wl,-soname,$(@F) -Wl,-Bsymbolic -Wl,-z,nodelete -Wl,-rpath,'$$ORIGIN' -o $@ $^ -lm

# Tests are linked with the objects of both, so that sanitizers see them.
softgpu_library_tests := $(patsubst %.c,$(B)/%,$(filter %_test.c,$(softgpu_library_files)))
$(softgpu_library_tests): $(B)/%: $(B)/%.o $(softgpu_library_objs) $(softgpu_lib_objs)
	$(CC) $(LDFLAGS) -o $@ $^ -llz4 -lzstd -lm -lcmocka
UNIT_TESTS += $(softgpu_library_tests)
