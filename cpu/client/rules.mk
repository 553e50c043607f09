# libflyt-client.so.1: the core below the replaced libraries.

cpu_client_sources := $(filter-out %_test.c %/fake_channel.c,$(wildcard cpu/client/*/*.c))
CLIENT_OBJS := $(call objs,$(cpu_client_sources)) $(GEN)/control_xdr.o $(GEN)/flyt_client_rows.o

# rpc's fragments are read after this one: their objects are known at the second expansion.
.SECONDEXPANSION:

# nodelete: threads of the library and destructors of the program's threads outlive a dlclose.
$(B)/lib/libflyt-client.so.1: $(CLIENT_OBJS) $$(RPC_OBJS) $$(FATBIN_OBJS) $(BUILD_NAME) cpu/client/flyt-client.map
	@mkdir -p $(@D)
	$(CC) -shared $(LDFLAGS) -Wl,-soname,$(@F) -Wl,-z,nodelete -Wl,--version-script=cpu/client/flyt-client.map \
		$(if $(SANITIZE),,-Wl,-z,defs) -o $@ $(filter %.o,$^) $(RPC_INSIDE) $(FATBIN_LIBS)
$(B)/lib/libflyt-client.so: $(B)/lib/libflyt-client.so.1
	ln -sf libflyt-client.so.1 $@
CLIENT += $(B)/lib/libflyt-client.so.1 $(B)/lib/libflyt-client.so

# Unit tests: everything of this folder over a channel without a server.
cpu_client_tests := $(patsubst %.c,$(B)/%,$(wildcard cpu/client/*_test.c cpu/client/*/*_test.c))
$(cpu_client_tests): $(B)/%: $(B)/%.o $(B)/cpu/client/core/fake_channel.o $(CLIENT_OBJS) $$(RPC_GEN_OBJS) \
		$$(SOCKET_OBJS) $$(BASE_OBJS) $$(FATBIN_OBJS)
	$(CC) $(LDFLAGS) -o $@ $^ $(RPC_LIBS) $(FATBIN_LIBS) -lcmocka
UNIT_TESTS += $(cpu_client_tests)

# Memory is out when this test says so.
$(B)/cpu/client/library/sequence_test: LDFLAGS += -Wl,--wrap=calloc
