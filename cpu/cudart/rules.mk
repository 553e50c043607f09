# libcudart.so.13: our runtime API over libflyt-client.so.1.

CUDART_SRCS := $(filter-out %_test.c,$(wildcard cpu/cudart/*.c))
CUDART_OBJS := $(call objs,$(CUDART_SRCS) rpc/base/log.c) $(GEN)/cudart_stubs.o $(GEN)/cudart_entries.o $(GEN)/flyt_error_names.o

# Calls between entry points stay inside the library, whatever the program defines.
$(B)/lib/libcudart.so.13: $(CUDART_OBJS) $(GEN)/libcudart.map $(B)/lib/libflyt-client.so.1
	@mkdir -p $(@D)
	$(CC) -shared $(LDFLAGS) -Wl,-soname,libcudart.so.13 -Wl,--version-script=$(GEN)/libcudart.map \
		-Wl,-Bsymbolic-functions $(if $(SANITIZE),,-Wl,-z$(comma)defs) -Wl,-rpath,'$$ORIGIN' -o $@ $(CUDART_OBJS) \
		$(B)/lib/libflyt-client.so.1 -ldl

$(B)/lib/libcudart.so: $(B)/lib/libcudart.so.13
	ln -sf libcudart.so.13 $@

CLIENT += $(B)/lib/libcudart.so.13 $(B)/lib/libcudart.so

$(B)/cpu/cudart/address_map_test: $(call objs,cpu/cudart/address_map_test.c cpu/cudart/address_map.c)
	$(CC) $(LDFLAGS) -o $@ $^ -lcmocka

$(B)/cpu/cudart/registry_test: $(call objs,cpu/cudart/registry_test.c cpu/cudart/registry.c cpu/cudart/address_map.c \
		cpu/cudart/error.c rpc/base/log.c) $(GEN)/flyt_error_names.o
	$(CC) $(LDFLAGS) -o $@ $^ -lcmocka

$(B)/cpu/cudart/error_test: $(call objs,cpu/cudart/error_test.c cpu/cudart/error.c) $(GEN)/flyt_error_names.o
	$(CC) $(LDFLAGS) -o $@ $^ -lcmocka

$(B)/cpu/cudart/launch_test: $(call objs,cpu/cudart/launch_test.c cpu/cudart/launch.c cpu/cudart/error.c) \
		$(GEN)/flyt_error_names.o
	$(CC) $(LDFLAGS) -o $@ $^ -lcmocka

$(B)/cpu/cudart/properties_test: $(call objs,cpu/cudart/properties_test.c cpu/cudart/properties.c)
	$(CC) $(LDFLAGS) -o $@ $^ -lcmocka

# The fakes in the test stand before the core's functions of the same name.
$(B)/cpu/cudart/device_test: $(call objs,cpu/cudart/device_test.c $(addprefix cpu/cudart/,device.c error.c properties.c \
		registry.c address_map.c) rpc/base/log.c) $(GEN)/cudart_entries.o $(GEN)/flyt_error_names.o $(B)/lib/libflyt-client.so.1
	$(CC) $(LDFLAGS) -Wl,-rpath,'$$ORIGIN/../../lib' -o $@ $(filter %.o,$^) $(B)/lib/libflyt-client.so.1 -lcmocka

UNIT_TESTS += $(addprefix $(B)/cpu/cudart/,address_map_test registry_test error_test device_test launch_test properties_test)
