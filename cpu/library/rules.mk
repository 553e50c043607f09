# The replaced libraries of NVIDIA's: entry points made from rpc/library, and by hand what is here, over libflyt-client.so.1.

# Entry points have NVIDIA's prototypes, whose headers are not needed to build them.
cpu_library_CFLAGS := -Wno-missing-prototypes

# A library's file is named as NVIDIA's: LIBRARY_FILE_NAME.
LIBRARY_FILE_cublas := libcublas.so.13
LIBRARY_FILE_cublaslt := libcublasLt.so.13
LIBRARY_FILE_cudnn := libcudnn.so.9

# $(1): the library; $(2): its file.
define replaced_library
$(B)/lib/$(2): $(GEN)/flyt_lib_$(1)_client.o $(call objs,$(wildcard cpu/library/$(1).c cpu/library/$(1)_*.c) cpu/library/status.c) $(B)/lib/libflyt-client.so.1
	@mkdir -p $$(@D)
	$$(CC) -shared $$(LDFLAGS) -Wl,-soname,$(2) -Wl,--version-script=$(GEN)/$(firstword $(subst .so, ,$(2))).map \
		-Wl,-Bsymbolic-functions $(if $(SANITIZE),,-Wl$(comma)-z$(comma)defs) -Wl,-rpath,'$$$$ORIGIN' -o $$@ $$(filter %.o,$$^) \
		$(B)/lib/libflyt-client.so.1
CLIENT += $(B)/lib/$(2)
endef
$(foreach name,$(LIBRARIES),$(eval $(call replaced_library,$(name),$(LIBRARY_FILE_$(name)))))
