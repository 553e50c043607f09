# Rows of NVIDIA's libraries -> $(GEN): what client and server share, the client's entry points, what the server calls.

LIBRARIES := $(patsubst rpc/library/%.rows,%,$(sort $(wildcard rpc/library/*.rows)))
LIBRARY_MAKERS := $(filter-out %_test.py,$(wildcard rpc/gen/library*.py)) rpc/gen/generate.py

$(LIBRARIES:%=$(GEN)/library_%.stamp): $(GEN)/library_%.stamp: rpc/library/%.rows $(LIBRARY_MAKERS)
	@mkdir -p $(GEN)
	$(PYTHON) -B rpc/gen/library.py $(GEN) $<
$(foreach name,$(LIBRARIES),$(eval $(GEN)/flyt_lib_$(name).h $(GEN)/flyt_lib_$(name)_client.c $(GEN)/flyt_lib_$(name)_server.c: $(GEN)/library_$(name).stamp ;))
GENERATED += $(LIBRARIES:%=$(GEN)/flyt_lib_%.h)

# What flyt-server has of them.
LIBRARY_SERVER_OBJS := $(LIBRARIES:%=$(GEN)/flyt_lib_%_server.o)

rpc_library_tests := $(patsubst %.c,$(B)/%,$(wildcard rpc/library/*_test.c))
$(rpc_library_tests): $(B)/%: $(B)/%.o
	$(CC) $(LDFLAGS) -o $@ $^ -lcmocka
UNIT_TESTS += $(rpc_library_tests)
