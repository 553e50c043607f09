# The checkpoint image. IMAGE_OBJS with IMAGE_LIBS, beside RPC_OBJS or BASE_OBJS: who reads or writes one. Needs no CUDA
# toolkit.

IMAGE_OBJS := $(call objs,$(filter-out %_test.c cpu/image/test_%,$(wildcard cpu/image/*.c))) $(GEN)/checkpoint_xdr.o $(B)/rpc/transport/xdr_string.o
IMAGE_LIBS := -lzstd -llz4 -ltirpc

$(GEN)/checkpoint_xdr.o: | $(WIRE)
$(B)/cpu/image/%.o: cpu/image/%.c Makefile | $(WIRE)
	$(compile)

image_tests := $(patsubst %.c,$(B)/%,$(wildcard cpu/image/*_test.c))
$(image_tests): $(B)/%: $(B)/%.o $(call objs,$(wildcard cpu/image/test_*.c)) $(IMAGE_OBJS) $(BASE_OBJS)
	$(CC) $(LDFLAGS) -o $@ $^ $(IMAGE_LIBS) -lcmocka
UNIT_TESTS += $(image_tests)

# This one makes the file system's answers.
$(B)/cpu/image/folder_test: LDFLAGS += -Wl,--wrap=openat
