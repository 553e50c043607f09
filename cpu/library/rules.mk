# The replaced libraries of NVIDIA's: entry points made from rpc/library, and by hand what is here, over libflyt-client.so.1.

# Entry points have NVIDIA's prototypes, whose headers are not needed to build them.
cpu_library_CFLAGS := -Wno-missing-prototypes

# What libraries share.
LIBRARY_SHARE_cublas := rpc/library/blas_status.c
LIBRARY_SHARE_cublaslt := rpc/library/blas_status.c
LIBRARY_SHARE_cusparse := rpc/library/sparse_status.c
LIBRARY_SHARE_cusparselt := rpc/library/sparse_status.c

# $(1): the library; $(2): its file.
define replaced_library
$(B)/lib/$(2): $(GEN)/flyt_lib_$(1)_client.o $(call objs,$(filter-out %_test.c,$(wildcard cpu/library/$(1).c cpu/library/$(1)_*.c)) $(LIBRARY_SHARE_$(1))) $(B)/lib/libflyt-client.so.1
	@mkdir -p $$(@D)
	$$(CC) -shared $$(LDFLAGS) -Wl,-soname,$(2) -Wl,--version-script=$(GEN)/$(firstword $(subst .so, ,$(2))).map \
		-Wl,-Bsymbolic-functions @$(GEN)/flyt_lib_$(1).options $(if $(SANITIZE),,-Wl$(comma)-z$(comma)defs) -Wl,-rpath,'$$$$ORIGIN' -o $$@ $$(filter %.o,$$^) \
		$(B)/lib/libflyt-client.so.1
CLIENT += $(B)/lib/$(2)
endef
$(foreach name,$(LIBRARIES),$(eval $(call replaced_library,$(name),$(LIBRARY_FILE_$(name)))))

# The parts of a library (rpc/library/NAME.parts): their functions jump to its. The second library that each is linked to, though
# it calls nothing there, makes it known as one of Flyt's (scripts/flyt-client-lib).
# $(1): the library's file; $(2): the part's file, and its name.
define library_part
$(B)/lib/$(2): $(GEN)/$(3).o $(B)/lib/$(1) $(B)/lib/libflyt-client.so.1
	@mkdir -p $$(@D)
	$$(CC) -shared $$(LDFLAGS) -Wl,-soname,$(2) -Wl,--version-script=$(GEN)/$(3).map $(if $(SANITIZE),,-Wl$(comma)-z$(comma)defs) \
		-Wl,-rpath,'$$$$ORIGIN' -o $$@ $$< -Wl,--no-as-needed $(B)/lib/$(1) $(B)/lib/libflyt-client.so.1
CLIENT += $(B)/lib/$(2)
endef
$(foreach name,$(LIBRARIES),$(foreach part,$(LIBRARY_PARTS_$(name)),$(eval \
	$(call library_part,$(LIBRARY_FILE_$(name)),$(part),$(firstword $(subst .so, ,$(part)))))))

# It forwards nothing: every function refuses. It is linked to libflyt-client.so.1 as a part is.
$(B)/lib/libcufile.so.0: $(call objs,cpu/library/cufile.c) $(B)/lib/libflyt-client.so.1
	@mkdir -p $(@D)
	$(CC) -shared $(LDFLAGS) -Wl,-soname,$(@F) -Wl,-rpath,'$$ORIGIN' -o $@ $(filter %.o,$^) \
		-Wl,--no-as-needed $(B)/lib/libflyt-client.so.1
CLIENT += $(B)/lib/libcufile.so.0

# The same.
$(B)/lib/libcusolverMg.so.12: $(call objs,cpu/library/cusolvermg.c) cpu/library/cusolvermg.map $(B)/lib/libflyt-client.so.1
	@mkdir -p $(@D)
	$(CC) -shared $(LDFLAGS) -Wl,-soname,$(@F) -Wl,--version-script=cpu/library/cusolvermg.map \
		$(if $(SANITIZE),,-Wl$(comma)-z$(comma)defs) -Wl,-rpath,'$$ORIGIN' -o $@ $(filter %.o,$^) $(B)/lib/libflyt-client.so.1
CLIENT += $(B)/lib/libcusolverMg.so.12

# Rows and exports against the toolkit's header and library.
define library_check
$(B)/rpc/gen/library_check_$(1): rpc/library/$(1).rows rpc/gen/library_check.py $(LIBRARY_MAKERS) $(B)/lib/$(2) cpu/library/rules.mk
	@mkdir -p $$(@D)
	printf '#!/bin/sh\ncd $(CURDIR) || exit 1\nexec $(PYTHON) -B rpc/gen/library_check.py %s %s %s\n' rpc/library/$(1).rows $(B)/lib/$(2) $(CUDA_PATH) >$$@ && chmod +x $$@
UNIT_TESTS += $(B)/rpc/gen/library_check_$(1)
endef
$(foreach name,$(LIBRARIES),$(eval $(call library_check,$(name),$(LIBRARY_FILE_$(name)))))

# The parts' exports against those of NVIDIA's files.
define library_parts_check
$(B)/rpc/gen/library_parts_check_$(1): rpc/library/$(1).parts rpc/gen/library_parts_check.py $(LIBRARY_MAKERS) $(LIBRARY_PARTS_$(1):%=$(B)/lib/%) cpu/library/rules.mk
	@mkdir -p $$(@D)
	printf '#!/bin/sh\ncd $(CURDIR) || exit 1\nexec $(PYTHON) -B rpc/gen/library_parts_check.py %s %s %s\n' rpc/library/$(1).parts $(B)/lib $(CUDA_PATH)/lib64 >$$@ && chmod +x $$@
UNIT_TESTS += $(B)/rpc/gen/library_parts_check_$(1)
endef
$(foreach name,$(LIBRARIES),$(if $(LIBRARY_PARTS_$(name)),$(eval $(call library_parts_check,$(name)))))

# What NCCL's communicators are to the client, over a client library of the test's.
$(B)/cpu/library/nccl_kin_test: $(call objs,cpu/library/nccl_kin_test.c cpu/library/nccl_kin.c cpu/library/nccl_again.c)
	$(CC) $(LDFLAGS) -o $@ $^ -lcmocka
UNIT_TESTS += $(B)/cpu/library/nccl_kin_test

# What calls do to where a generator is.
$(B)/cpu/library/curand_sequence_test: $(call objs,cpu/library/curand_sequence_test.c cpu/library/curand_sequence.c)
	$(CC) $(LDFLAGS) -o $@ $^ -lcmocka
UNIT_TESTS += $(B)/cpu/library/curand_sequence_test
