# What the programs of the control plane share. CONTROL_OBJS with CONTROL_LIBS: all that each of them links of it.

CONTROL_OBJS := $(call objs,$(filter-out %_test.c control/base/test_%,$(wildcard control/base/*.c))) $(GEN)/control_xdr.o $(RPC_OBJS)
CONTROL_LIBS := $(RPC_LIBS) -lsystemd -lconfig -lcjson -lmicrohttpd -lssl -lcrypto

control_base_tests := $(patsubst %.c,$(B)/%,$(wildcard control/base/*_test.c))
$(control_base_tests): $(B)/%: $(B)/%.o $(call objs,$(wildcard control/base/test_*.c)) $(CONTROL_OBJS)
	$(CC) $(LDFLAGS) -o $@ $^ $(CONTROL_LIBS) -lcmocka
UNIT_TESTS += $(control_base_tests)

# Certificates of tests come from the script that makes everybody's.
$(B)/control/base/tls_test.o $(B)/control/base/tls_enrol_test.o: CPPFLAGS += -DFLYT_PKI='"$(CURDIR)/scripts/flyt-pki"'

# A thread is held up where it wakes the loop; a clock that goes on by what is done.
$(B)/control/base/worker_test: private LDFLAGS += -Wl,--wrap=eventfd_write
$(B)/control/base/peer_turns_test: private LDFLAGS += -Wl,--wrap=clock_gettime
