# RPC_OBJS with RPC_LIBS: what client libraries and servers link to speak the protocol (rpc/base included).

TRANSPORT_SOURCES := $(wildcard rpc/transport/*.c rpc/transport/endpoint/*.c)
TRANSPORT_OBJS := $(call objs,$(filter-out %_test.c %_bench.c rpc/transport/test_% rpc/transport/endpoint/test_% \
	%/xdr_string.c %/xdr_late.c,$(TRANSPORT_SOURCES)))
RPC_GEN_OBJS := $(GEN)/flyt_xdr.o $(GEN)/flyt_signatures.o $(GEN)/flyt_procedures.o $(B)/rpc/transport/xdr_string.o $(B)/rpc/transport/xdr_late.o
RPC_OBJS := $(BASE_OBJS) $(TRANSPORT_OBJS) $(RPC_GEN_OBJS)
RPC_LIBS := -ltirpc
# Of a library in a program's process: a dozen of libtirpc's functions, without the libraries that it loads beside itself
# (Kerberos: 0.9 ms of each program's start). Where there is no archive, the whole of it; also where sanitizers look at
# what its functions do.
RPC_ARCHIVED := $(if $(SANITIZE),,$(findstring /,$(shell $(CC) -print-file-name=libtirpc.a)))
RPC_INSIDE := $(if $(RPC_ARCHIVED),-Wl$(comma)--exclude-libs$(comma)libtirpc.a -l:libtirpc.a,$(RPC_LIBS))
# What needs neither a channel nor a connection: blocking sockets and heads of messages.
SOCKET_OBJS := $(call objs,rpc/transport/endpoint/listen.c rpc/transport/message.c rpc/transport/xdr_buffer.c)

$(GEN)/flyt_xdr.o: CPPFLAGS += -Dxdr_string=flyt_xdr_string -Dxdr_u_quad_t=flyt_xdr_u_quad_t
$(GEN)/flyt_xdr.o: rpc/transport/rules.mk

# A server without CUDA, for tests and measurements of the wire.
TEST_PEER_OBJS := $(call objs,rpc/transport/test_peer.c rpc/transport/test_values.c) $(GEN)/flyt_svc.o $(GEN)/flyt_test_svc.o \
	$(GEN)/flyt_test_values.o $(GEN)/flyt_clnt.o

# Generated sources include generated headers: those must be there first.
$(filter $(GEN)/%,$(RPC_GEN_OBJS)) $(GEN)/flyt_svc.o $(GEN)/flyt_test_svc.o $(GEN)/flyt_test_values.o $(GEN)/flyt_clnt.o: | $(WIRE)

rpc_transport_tests := $(patsubst %.c,$(B)/%,$(filter %_test.c,$(TRANSPORT_SOURCES)))
$(rpc_transport_tests): $(B)/%: $(B)/%.o $(B)/rpc/transport/test_client.o $(B)/rpc/transport/test_listener.o $(TEST_PEER_OBJS) $(RPC_OBJS)
	$(CC) $(LDFLAGS) -o $@ $^ $(RPC_LIBS) -lcmocka
UNIT_TESTS += $(rpc_transport_tests)
# Reads the wire by itself, with libcrypto, and asks OpenSSL for the secrets.
# Time is in this test's hands.
$(B)/rpc/transport/greeter_test: LDFLAGS += -Wl,--wrap=clock_gettime
$(B)/rpc/transport/endpoint/secure_key_test: $(B)/rpc/transport/endpoint/test_records.o
$(B)/rpc/transport/endpoint/secure_key_test: RPC_LIBS += -lssl -lcrypto

.PHONY: bench-programs
bench-programs: $(B)/bench/channel-bench
$(B)/bench/channel-bench: $(B)/rpc/transport/channel_bench.o $(TEST_PEER_OBJS) $(RPC_OBJS)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -o $@ $^ $(RPC_LIBS)
