# Rows of NVIDIA's libraries -> $(GEN): what client and server share, the client's entry points, what the server calls.

LIBRARIES := $(patsubst rpc/library/%.rows,%,$(sort $(wildcard rpc/library/*.rows)))
LIBRARY_MAKERS := $(filter-out %_test.py %_check.py %_propose.py %_header.py,$(wildcard rpc/gen/library*.py)) rpc/gen/generate.py

$(LIBRARIES:%=$(GEN)/library_%.stamp): $(GEN)/library_%.stamp: rpc/library/%.rows $(LIBRARY_MAKERS)
	@mkdir -p $(GEN)
	$(PYTHON) -B rpc/gen/library.py $(GEN) $<
$(foreach name,$(LIBRARIES),$(eval $(GEN)/flyt_lib_$(name).h $(GEN)/flyt_lib_$(name)_client.c $(GEN)/flyt_lib_$(name)_server.c: $(GEN)/library_$(name).stamp ;))
GENERATED += $(LIBRARIES:%=$(GEN)/flyt_lib_%.h)
# cuSOLVER's sparse matrices have cuSPARSE's descriptor.
$(GEN)/library_cusolver.stamp: rpc/library/cusparse.rows

# All of them: FLYT_LIBRARIES(X) is X(NAME) for each.
$(GEN)/flyt_libraries.h: $(LIBRARIES:%=rpc/library/%.rows) rpc/library/rules.mk
	@mkdir -p $(GEN)
	printf '/* Made by rpc/library/rules.mk from the names of rpc/library. */\n#define FLYT_LIBRARIES(X)$(foreach name,$(LIBRARIES), X($(name)))\n' >$@
GENERATED += $(GEN)/flyt_libraries.h

# A library's file is named as NVIDIA's.
$(foreach name,$(LIBRARIES),$(eval LIBRARY_FILE_$(name) := $(shell sed -n 's/^library [^ ]* \([^ ]*\).*/\1/p' rpc/library/$(name).rows)))

# The files that export some of a library's functions each, beside it.
$(foreach name,$(LIBRARIES),$(eval LIBRARY_PARTS_$(name) := $(shell grep -s '^lib' rpc/library/$(name).parts)))
define library_parts
$(GEN)/library_$(1)_parts.stamp: rpc/library/$(1).rows rpc/library/$(1).parts $(LIBRARY_MAKERS)
	@mkdir -p $(GEN)
	$(PYTHON) -B rpc/gen/library_parts.py $(GEN) rpc/library/$(1).rows rpc/library/$(1).parts
$(foreach part,$(LIBRARY_PARTS_$(1)),$(GEN)/$(firstword $(subst .so, ,$(part))).c): $(GEN)/library_$(1)_parts.stamp ;
endef
$(foreach name,$(LIBRARIES),$(if $(LIBRARY_PARTS_$(name)),$(eval $(call library_parts,$(name)))))

# What flyt-server has of them.
LIBRARY_SERVER_OBJS := $(LIBRARIES:%=$(GEN)/flyt_lib_%_server.o)

$(B)/rpc/gen/library_rows_test: rpc/gen/library_rows_test.py $(LIBRARY_MAKERS) $(LIBRARIES:%=rpc/library/%.rows)
	@mkdir -p $(@D)
	printf '#!/bin/sh\nexec $(PYTHON) -B $(CURDIR)/rpc/gen/library_rows_test.py\n' >$@ && chmod +x $@
UNIT_TESTS += $(B)/rpc/gen/library_rows_test
rpc_library_tests := $(patsubst %.c,$(B)/%,$(wildcard rpc/library/*_test.c))
$(rpc_library_tests): $(B)/%: $(B)/%.o
	$(CC) $(LDFLAGS) -o $@ $^ -lcmocka
UNIT_TESTS += $(rpc_library_tests)
