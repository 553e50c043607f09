# Tables and .x files -> $(GEN): the generator's files first, then rpcgen's.

API_TABLES := $(sort $(wildcard rpc/api/*.api))

$(GEN)/stamp: rpc/gen/generate.py rpc/gen/rows.py rpc/gen/extents.py rpc/gen/wire.py rpc/gen/driver_rows.py rpc/gen/kinds.py rpc/gen/test_values.py rpc/proto/flyt.x rpc/proto/limits.h $(API_TABLES)
	@mkdir -p $(GEN)
	$(PYTHON) -B rpc/gen/generate.py $(GEN) rpc/proto/flyt.x rpc/proto/limits.h $(API_TABLES)

GEN_FROM_TABLES := $(addprefix $(GEN)/,flyt_api_types.x flyt_api_procedures.x flyt_signatures.h flyt_signatures.c \
	flyt_ids.h flyt_objects.h flyt_objects.c flyt_objects_all.c flyt_procedures.h flyt_procedures.c flyt_test_svc.c flyt_test_values.c \
	flyt_layouts.h flyt_encoders.h flyt_client_calls.h flyt_client_records.h flyt_client_asks.h flyt_client_rows.h flyt_client_rows.c flyt_driver_rows.h flyt_driver_rows.c flyt_serve.h flyt_serve.c)
$(GEN_FROM_TABLES): $(GEN)/stamp ;

# rpcgen runs cpp without an include path: its input stands beside what it includes.
$(GEN)/flyt.x: rpc/proto/flyt.x rpc/proto/limits.h $(GEN_FROM_TABLES)
	cp rpc/proto/limits.h $(GEN)/flyt_limits.h
	cp rpc/proto/flyt.x $@
$(GEN)/flyt.h: $(GEN)/flyt.x
	rm -f $@ && cd $(GEN) && rpcgen -M -C -h -o flyt.h flyt.x
$(GEN)/flyt_xdr.c: $(GEN)/flyt.x
	rm -f $@ && cd $(GEN) && rpcgen -M -C -c -o flyt_xdr.c flyt.x
$(GEN)/flyt_clnt.c: $(GEN)/flyt.x
	rm -f $@ && cd $(GEN) && rpcgen -M -C -l -o flyt_clnt.c flyt.x
# The server's dispatch. The program that it calls in the client is left out: nobody in the server serves it.
$(GEN)/flyt_svc.c: $(GEN)/flyt.x rpc/gen/rules.mk
	sed '/^program FLYT_BACK_PROGRAM/,/^}/d' $< >$(GEN)/flyt_forward.x
	rm -f $@ && cd $(GEN) && rpcgen -M -C -m -o flyt_svc.c flyt_forward.x
	sed -i 's/flyt_forward\.h/flyt.h/' $@

WIRE += $(GEN)/flyt.h $(GEN_FROM_TABLES)

# The control plane's programs: XDR routines only, their dispatch is a table (control/base/peer.h).
$(GEN)/control.x: rpc/proto/control.x rpc/proto/control_limits.h
	@mkdir -p $(GEN)
	cp rpc/proto/control_limits.h $(GEN)/flyt_control_limits.h
	cp rpc/proto/control.x $@
$(GEN)/control.h: $(GEN)/control.x
	rm -f $@ && cd $(GEN) && rpcgen -M -C -h -o control.h control.x
$(GEN)/control_xdr.c: $(GEN)/control.x
	rm -f $@ && cd $(GEN) && rpcgen -M -C -c -o control_xdr.c control.x
$(GEN)/control_xdr.o: CPPFLAGS += -Dxdr_string=flyt_xdr_string

WIRE += $(GEN)/control.h

# What stands in a checkpoint image: XDR routines only.
$(GEN)/checkpoint.x: rpc/proto/checkpoint.x rpc/proto/checkpoint_limits.h
	@mkdir -p $(GEN)
	cp rpc/proto/checkpoint_limits.h $(GEN)/flyt_checkpoint_limits.h
	cp rpc/proto/checkpoint.x $@
$(GEN)/checkpoint.h: $(GEN)/checkpoint.x
	rm -f $@ && cd $(GEN) && rpcgen -M -C -h -o checkpoint.h checkpoint.x
$(GEN)/checkpoint_xdr.c: $(GEN)/checkpoint.x
	rm -f $@ && cd $(GEN) && rpcgen -M -C -c -o checkpoint_xdr.c checkpoint.x
$(GEN)/checkpoint_xdr.o: CPPFLAGS += -Dxdr_string=flyt_xdr_string

WIRE += $(GEN)/checkpoint.h
GENERATED += $(WIRE)

# Tables and toolkit -> version scripts, refusing stubs, the table of cuGetProcAddress, names of errors, coverage.
SYMBOL_MAKERS := $(filter-out rpc/gen/generate.py rpc/gen/wire.py rpc/gen/driver_rows.py rpc/gen/kinds.py rpc/gen/test_values.py %_test.py,$(wildcard rpc/gen/*.py))
COVERED_ROWS := $(sort $(wildcard rpc/library/*.rows)) cpu/nvml/nvml.rows
$(GEN)/symbols.stamp: $(SYMBOL_MAKERS) $(API_TABLES) $(COVERED_ROWS) rpc/api/errors.txt | toolkit
	@mkdir -p $(GEN)
	$(PYTHON) -B rpc/gen/symbols.py $(GEN) $(CUDA_PATH) rpc/api/errors.txt $(API_TABLES) $(COVERED_ROWS)

GEN_FROM_SYMBOLS := $(addprefix $(GEN)/,libcuda.map libcudart.map cuda_stubs.c cudart_stubs.c cuda_entries.c cudart_entries.c coverage.md \
	flyt_entry_points.h flyt_entry_points.c flyt_error_names.h flyt_error_names.c)
$(GEN_FROM_SYMBOLS): $(GEN)/symbols.stamp ;

# These call what is written by hand, with types of the toolkit: they are compiled as strictly as that.
$(GEN)/%_entries.o: $(GEN)/%_entries.c | $(GENERATED)
	$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<

GENERATED += $(GEN)/flyt_entry_points.h $(GEN)/flyt_error_names.h

# Tests: scripts that a test runner can start like any other program.
$(B)/rpc/gen/symbols_test: rpc/gen/symbols_test.py $(SYMBOL_MAKERS) $(API_TABLES) $(COVERED_ROWS) rpc/api/errors.txt | toolkit
	@mkdir -p $(@D)
	printf '#!/bin/sh\nexec $(PYTHON) -B $(CURDIR)/rpc/gen/symbols_test.py $(CUDA_PATH)\n' > $@ && chmod +x $@

$(B)/rpc/gen/rows_test: rpc/gen/rows_test.py $(wildcard rpc/gen/*.py) $(API_TABLES) rpc/proto/flyt.x rpc/proto/limits.h
	@mkdir -p $(@D)
	printf '#!/bin/sh\nexec $(PYTHON) -B $(CURDIR)/rpc/gen/rows_test.py\n' > $@ && chmod +x $@

$(B)/rpc/gen/exports_test: rpc/gen/exports_test.py rpc/gen/elf.py $(B)/lib/libcuda.so.1 $(B)/lib/libcudart.so.13
	@mkdir -p $(@D)
	printf '#!/bin/sh\ncd $(CURDIR) || exit 1\n$(PYTHON) -B rpc/gen/exports_test.py %s %s flyt_client_marker &&\nexec $(PYTHON) -B rpc/gen/exports_test.py %s %s\n' \
	    $(B)/lib/libcuda.so.1 $(CUDA_PATH)/lib64/stubs/libcuda.so $(B)/lib/libcudart.so.13 $(CUDA_PATH)/lib64/libcudart.so > $@ && chmod +x $@

# A kind of object that no driver has (test/valve.api), beside all others: what its rows make is compiled, and called.
VALVE := $(B)/rpc/gen/test/made
VALVE_TABLES := $(API_TABLES) rpc/gen/test/valve.api
$(VALVE)/stamp: $(wildcard rpc/gen/*.py rpc/gen/test/*) rpc/proto/flyt.x rpc/proto/limits.h $(API_TABLES) rpc/gen/rules.mk | toolkit
	@mkdir -p $(VALVE)
	$(PYTHON) -B rpc/gen/generate.py $(VALVE) rpc/proto/flyt.x rpc/proto/limits.h $(VALVE_TABLES)
	$(PYTHON) -B rpc/gen/test/entries.py rpc/gen/test/valve.api rpc/gen/test/fake_driver.h $(CUDA_PATH)/include >$(VALVE)/valve_entries.c
	cp rpc/proto/limits.h $(VALVE)/flyt_limits.h && cp rpc/proto/flyt.x $(VALVE)
	cd $(VALVE) && rm -f flyt.h flyt_xdr.c && rpcgen -M -C -h -o flyt.h flyt.x && rpcgen -M -C -c -o flyt_xdr.c flyt.x
	touch $@
valve_sources := $(addprefix $(VALVE)/,valve_entries.c flyt_client_rows.c flyt_driver_rows.c flyt_objects.c flyt_objects_all.c flyt_serve.c \
	flyt_procedures.c flyt_xdr.c) $(wildcard rpc/gen/test/*.c) rpc/base/error.c rpc/base/idtable.c rpc/base/sparse.c rpc/transport/xdr_string.c \
	rpc/transport/xdr_late.c cpu/client/core/table.c cpu/client/core/restore_call.c cpu/server/core/object.c cpu/server/move/common/counts.c \
	rpc/base/fault_point.c rpc/base/log.c
$(B)/rpc/gen/test/valve_test: $(VALVE)/stamp $(filter-out $(VALVE)/%,$(valve_sources)) | $(GENERATED)
	$(CC) -I$(VALVE) $(CPPFLAGS) -Dxdr_string=flyt_xdr_string -include rpc/gen/test/fake_driver.h $(CFLAGS) -w -ffunction-sections \
		$(LDFLAGS) -Wl,--gc-sections -o $@ $(valve_sources) -ltirpc -lcmocka
UNIT_TESTS += $(B)/rpc/gen/test/valve_test

UNIT_TESTS += $(B)/rpc/gen/rows_test $(B)/rpc/gen/symbols_test $(B)/rpc/gen/exports_test
