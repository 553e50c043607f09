# libnvidia-ml.so.1: NVML for VMs. It needs nothing of libflyt-client.so.1: a monitor loads no channel.

$(GEN)/nvml.stamp: rpc/gen/nvml.py rpc/gen/generate.py cpu/nvml/nvml.rows
	@mkdir -p $(GEN)
	$(PYTHON) -B rpc/gen/nvml.py $(GEN) cpu/nvml/nvml.rows
$(GEN)/libnvidia-ml.map $(GEN)/nvml_stubs.c: $(GEN)/nvml.stamp ;

nvml_sources := $(filter-out %_test.c cpu/nvml/flyt_smi%,$(wildcard cpu/nvml/*.c))
NVML_OBJS := $(call objs,$(nvml_sources)) $(GEN)/nvml_stubs.o

# rpc's fragments are read before this one. Local calls are all that it has of cpu/client.
NVML_PARTS := $(call objs,cpu/client/core/local_call.c) $(SOCKET_OBJS) $(BASE_OBJS) $(GEN)/control_xdr.o $(B)/rpc/transport/xdr_string.o

$(B)/lib/libnvidia-ml.so.1: $(NVML_OBJS) $(NVML_PARTS) $(GEN)/libnvidia-ml.map
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -shared -Wl,-soname,$(@F) -Wl,--version-script,$(GEN)/libnvidia-ml.map -Wl,--no-undefined-version \
	    $(if $(SANITIZE),,-Wl,-z,defs) -Wl,-Bsymbolic -o $@ $(filter %.o,$^) $(RPC_INSIDE)
CLIENT += $(B)/lib/libnvidia-ml.so.1

nvml_tests := $(patsubst %.c,$(B)/%,$(filter-out cpu/nvml/flyt_smi%,$(wildcard cpu/nvml/*_test.c)))
$(nvml_tests): $(B)/%: $(B)/%.o $(NVML_OBJS) $(NVML_PARTS)
	$(CC) $(LDFLAGS) -o $@ $(filter %.o,$^) $(RPC_LIBS) -lcmocka
UNIT_TESTS += $(nvml_tests)

# Over functions of its own in the place of the library's.
$(B)/cpu/nvml/flyt_smi_test: $(call objs,cpu/nvml/flyt_smi_test.c cpu/nvml/flyt_smi_query.c)
	$(CC) $(LDFLAGS) -o $@ $^ -lcmocka
UNIT_TESTS += $(B)/cpu/nvml/flyt_smi_test

$(B)/cpu/nvml/nvml_exports_test: rpc/gen/nvml_exports_test.py rpc/gen/nvml.py rpc/gen/elf.py $(B)/lib/libnvidia-ml.so.1
	@mkdir -p $(@D)
	printf '#!/bin/sh\ncd $(CURDIR) || exit 1\nexec $(PYTHON) -B rpc/gen/nvml_exports_test.py %s cpu/nvml/nvml.rows %s\n' $(B)/lib/libnvidia-ml.so.1 $(CUDA_PATH) > $@ && chmod +x $@
UNIT_TESTS += $(B)/cpu/nvml/nvml_exports_test

# Beside the library in a build and in a bundle; installed, the library is in a folder of its own.
$(B)/bin/flyt-smi: $(call objs,$(filter-out %_test.c,$(wildcard cpu/nvml/flyt_smi*.c))) $(B)/lib/libnvidia-ml.so.1 $(BUILD_NAME)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -Wl,-rpath,'$$ORIGIN/../lib/flyt:$$ORIGIN/../lib' -o $@ $^
CLIENT += $(B)/bin/flyt-smi
