# Mutating tests of decoders: a few seconds each among the unit tests, as long as one likes by hand.

$(B)/tests/fuzz/wire-fuzz: $(B)/tests/fuzz/wire_fuzz.o $(TEST_PEER_OBJS) $(RPC_OBJS)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -o $@ $^ $(RPC_LIBS)
UNIT_TESTS += $(B)/tests/fuzz/wire-fuzz

$(B)/tests/fuzz/ptx-fuzz: $(B)/tests/fuzz/ptx_fuzz.o $(call objs,$(SOFTGPU_PTX_SRCS))
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -o $@ $^ -lm
UNIT_TESTS += $(B)/tests/fuzz/ptx-fuzz

$(B)/tests/fuzz/image-fuzz: $(B)/tests/fuzz/image_fuzz.o $(B)/cpu/image/test_image.o $(IMAGE_OBJS) $(BASE_OBJS)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -o $@ $^ $(IMAGE_LIBS) -lcmocka
UNIT_TESTS += $(B)/tests/fuzz/image-fuzz
