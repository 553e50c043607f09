# Flyt's build. GNU make; everything it makes is under $(B). `make help` lists the targets.
# Each folder says in its rules.mk what is built from it; this file has what they share.

.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

# Where the toolkit is not in its usual place, it is where the nvcc of PATH comes from.
usual_cuda := /usr/local/cuda
CUDA_PATH ?= $(or $(wildcard $(usual_cuda)),$(patsubst %/bin/nvcc,%,$(realpath $(shell command -v nvcc))),$(usual_cuda))
export CUDA_PATH
PYTHON    ?= python3
CC        := $(if $(filter default undefined,$(origin CC)),gcc,$(CC))
NVCC      ?= $(CUDA_PATH)/bin/nvcc
export NVCC
SANITIZE  ?=
DEBUG     ?=
COVERAGE  ?=

# One build folder per flavour, so that switching flavours rebuilds nothing.
comma  := ,
flavour := $(if $(DEBUG),-debug)$(if $(COVERAGE),-coverage)$(if $(SANITIZE),-$(subst $(comma),-,$(SANITIZE)))$(if $(filter clang%,$(notdir $(CC))),-clang)
B      ?= build$(flavour)
GEN    := $(B)/gen

VERSION := $(shell git describe --always --dirty 2>/dev/null || echo 0.1)

warnings := -Wall -Wextra -Wshadow -Wmissing-prototypes -Wvla -Wno-unused-parameter -Werror
# Sanitized code is for tests: -O1 compiles it in half the time, and of its symbols reports need the lines alone.
optimise := $(if $(DEBUG)$(COVERAGE),-O0 -g3,$(if $(SANITIZE),-O1 -g1,-O2 -g))
sanitize := $(if $(SANITIZE),-fsanitize=$(SANITIZE) -fno-omit-frame-pointer -fno-sanitize-recover=undefined) $(if $(COVERAGE),--coverage)

CPPFLAGS += -D_GNU_SOURCE -I. -I$(GEN) -I$(CUDA_PATH)/include -I/usr/include/tirpc
CFLAGS   += -std=gnu11 -fPIC -fvisibility=hidden -pthread $(optimise) $(warnings) $(sanitize)
# Half of what a sanitized program takes is its linking, which gold does in half of the time.
quick_ld := $(if $(SANITIZE),$(if $(shell command -v ld.gold),-fuse-ld=gold))
LDFLAGS  += -pthread $(sanitize) $(quick_ld) -Wl,--as-needed -Wl,-z,relro -Wl,-z,now

# What the folders' rules.mk add to.
#   ALL         what `make all` builds            UNIT_TESTS  cmocka programs, run by `make test`
#   CLIENT      the client's part of ALL          SERVER      the server's part of ALL
#   CONTROL     the control plane's part of ALL: needs no CUDA toolkit
#   GENERATED   headers that sources include: made before any object is compiled
#   WIRE        those of them that need no CUDA toolkit: all that rpc/ and control/ include
ALL :=
CLIENT :=
SERVER :=
CONTROL :=
UNIT_TESTS :=
GENERATED :=
WIRE :=
TEST_DEPS :=

# $(call objs,SOURCES) names the objects of SOURCES.
objs = $(patsubst %.c,$(B)/%.o,$(1))

# rpc's first: the others name its objects.
FRAGMENTS := $(sort $(wildcard rpc/*/rules.mk))
FRAGMENTS += $(filter-out $(FRAGMENTS),$(sort $(wildcard */rules.mk */*/rules.mk)))
include $(FRAGMENTS)

.PHONY: all client server control
all: $(ALL) $(CLIENT) $(SERVER) $(CONTROL)
client: $(CLIENT)
server: $(SERVER)
control: $(CONTROL)

# Generated sources are not ours to format: they have their own warning flags (no -Werror on style).
$(GEN)/%.o: $(GEN)/%.c | $(WIRE)
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) -Wno-error -w -MMD -MP -c -o $@ $<

compile = @mkdir -p $(@D); printf "%s\n" "$(notdir $(CC)) $<"; $(CC) $(CPPFLAGS) $(CFLAGS) $($(subst /,_,$(dir $<))CFLAGS) -MMD -MP -c -o $@ $<
$(B)/%.o: %.c Makefile | $(GENERATED) toolkit
	$(compile)
$(B)/rpc/%.o: rpc/%.c Makefile | $(WIRE)
	$(compile)
$(B)/control/%.o: control/%.c Makefile | $(WIRE)
	$(compile)

.PHONY: toolkit
toolkit:
	@test -e $(CUDA_PATH)/include/cuda.h || { echo "flyt: no CUDA toolkit in $(CUDA_PATH): install CUDA 13 or set CUDA_PATH=FOLDER" >&2; exit 2; }

-include $(shell find $(B) -name '*.d' 2>/dev/null)

.PHONY: clean
clean:
	rm -rf build build-*

# ---- what a person types ----

.PHONY: demo test soak coverage gpu-test torch-test vm-test bench bundle install install-client-lib restore-client-lib man format lint help bootstrap

bootstrap:
	@CUDA_PATH=$(CUDA_PATH) sh scripts/bootstrap.sh

# $(call built,VARIABLES AND TARGETS) builds them in a make of its own, because the set-up must be complete before the
# build is even read. Its output goes to a file and is shown where it fails. The + in front of it hands on the jobs
# of `make -j`: without it make does not see that a make is called, and that one would do one thing at a time.
jobs = $(if $(findstring jobserver,$(MAKEFLAGS)),,-j$(shell nproc))
built = mkdir -p $(B) && echo "building $(strip $(1)) (output in $(B)/build.log)" && \
	{ $(MAKE) --no-print-directory $(jobs) $(1) >$(B)/build.log 2>&1 || { tail -n 40 $(B)/build.log; exit 1; }; }

demo: bootstrap
	+@$(call built,all demo-programs)
	@sh scripts/demo.sh $(B)

test: bootstrap
	+@$(call built,all test-apps bench-programs)
	+@$(call built,SANITIZE=address$(comma)undefined server client control unit-tests)
	@tests/run $(B) $(B)-address-undefined

# SEED= repeats the choices of an earlier run, which printed it; KILLS= kills daemons and servers so often.
soak: bootstrap
	+@$(call built,all unit-tests test-apps bench-programs)
	+@$(call built,SANITIZE=address$(comma)undefined server client control unit-tests)
	+@$(call built,SANITIZE=thread $(THREAD_TESTS:%=$(B)-thread/%))
	+@! git cat-file -e '$(PREVIOUS)^{commit}' 2>/dev/null || { $(call built,previous); }
	@for test in $(THREAD_TESTS:%=$(B)-thread/%); do TSAN_OPTIONS=halt_on_error=1 $$test || exit 1; done
	@FLYT_SOAK=1 $(SEED:%=FLYT_SEED=%) $(KILLS:%=FLYT_KILLS=%) tests/run $(B) $(B)-address-undefined

# Of memory that processes and threads share, under ThreadSanitizer. ledger_claim_test has one thread, and changes stacks.
THREAD_TESTS := rpc/base/time_slices_test rpc/base/ledger_test

.PHONY: unit-tests
unit-tests: $(UNIT_TESTS)

.PHONY: test-list
test-list:
	@printf '%s\n' $(UNIT_TESTS)

# The lines of the cluster manager that its unit tests execute.
coverage: bootstrap
	+@$(call built,COVERAGE=1 coverage-tests)
	@$(PYTHON) -B tests/coverage.py $(B)-coverage control/cluster
.PHONY: coverage-tests
coverage-tests: $(filter $(B)/control/cluster/%,$(UNIT_TESTS))

bundle: all test-apps bench-programs
	@sh scripts/bundle.sh $(B) $(CUDA_PATH) $(VERSION)

gpu-test: bundle
	@sh $(B)/bundle/flyt/bin/flyt-gpu-test
	@for test in tests/system/*_gpu_test.py; do \
	    echo "== $$test"; FLYT_BUILD=$(B) PYTHONDONTWRITEBYTECODE=1 python3 $$test || [ $$? = 77 ] || exit 1; done

torch-test: bundle
	@tests/torch/run $(B)/bundle/flyt || [ $$? = 77 ]

# What it needs besides is installed or fetched where that is possible: it says itself what is missing, and is skipped.
vm-test: bootstrap
	@sh scripts/bootstrap.sh vm || [ $$? = 2 ]
	@tests/vm/kernel.sh $(B)/vm-kernel || [ $$? = 2 ]
	+@$(call built,all test-apps bench-programs $(B)/rpc/transport/vsock_test)
	@FLYT_BUILD=$(B) PYTHONDONTWRITEBYTECODE=1 python3 tests/vm/vm_test.py || [ $$? = 77 ]

bench: all bench-programs
	@sh tests/bench/run $(B)
	@FLYT_BUILD=$(B) PYTHONDONTWRITEBYTECODE=1 tests/bench/textbook.py
	@FLYT_BUILD=$(B) PYTHONDONTWRITEBYTECODE=1 tests/bench/control.py
	@FLYT_BUILD=$(B) PYTHONDONTWRITEBYTECODE=1 tests/bench/limits.py
	@FLYT_BUILD=$(B) PYTHONDONTWRITEBYTECODE=1 tests/bench/migrations.py

PREFIX  ?= /usr/local
DESTDIR ?=
DEST    ?=
install: all
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/lib/flyt $(DESTDIR)$(PREFIX)/share/man/man1
	install -m 755 $(B)/bin/flyt-server scripts/flyt-run scripts/flyt-client-lib scripts/flyt-pki $(DESTDIR)$(PREFIX)/bin/
	install -m 755 $(B)/lib/libflyt-client.so.1 $(B)/lib/libcu*.so.[0-9]* $(B)/lib/libnccl.so.2 $(B)/lib/libflyt-softgpu.so $(B)/lib/libflyt-softgpu-libraries.so $(DESTDIR)$(PREFIX)/lib/flyt/
	echo '$(VERSION)' >$(DESTDIR)$(PREFIX)/lib/flyt/VERSION && chmod 644 $(DESTDIR)$(PREFIX)/lib/flyt/VERSION
	install -m 644 $(wildcard config/man/*.1) $(DESTDIR)$(PREFIX)/share/man/man1/

install-client-lib: client
	@FLYT_LIB_DIR=$(abspath $(B))/lib sh scripts/flyt-client-lib install $(DEST)
restore-client-lib:
	@sh scripts/flyt-client-lib restore $(DEST)

C_FILES = $(shell git ls-files '*.c' '*.h' ':!tests/apps')
man: control
	@scripts/man-pages $(B)
format:
	@clang-format -i $(C_FILES)
lint: all
	@clang-format --dry-run -Werror $(C_FILES)
	@FLYT_BUILD=$(B) sh tests/lint.sh documents && echo 'lint: nothing found'

help:
	@echo 'make all                 everything, in $(B)/'
	@echo 'make control             the control plane: managers and flytctl; needs no CUDA toolkit'
	@echo 'make client | server     the libraries for programs | flyt-server and the software GPU'
	@echo 'make demo                builds and runs CUDA programs through Flyt, on the GPU or without one'
	@echo 'make test                all tests that take seconds each (no GPU needed)'
	@echo 'make soak                the same, and those that take long; SEED=N as an earlier run, KILLS=N (1000)'
	@echo 'make previous            what runs of the version before (tests/previous), for the test of upgrades'
	@echo 'make coverage            which share of the cluster manager'"'"'s lines its unit tests execute (gcov)'
	@echo 'make gpu-test            every test program natively and through Flyt, on this machine'"'"'s GPU'
	@echo 'make vm-test             CUDA programs in a virtual machine that QEMU emulates (skipped where it, or a kernel for it, cannot be had)'
	@echo 'make bench               the measurements of the README, beside native where there is a GPU; the software GPU; the control plane; moves and images'
	@echo 'make torch-test          PyTorch natively and through Flyt on this machine'"'"'s GPU, with its own PyTorch; without a GPU, what a software GPU can run, and Numba; monitors'
	@echo 'make bundle              one folder that runs anywhere: $(B)/bundle/flyt'
	@echo 'make install             into PREFIX=$(PREFIX) (DESTDIR is honoured): what direct mode needs'
	@echo 'make install-cluster     what the machine of the cluster manager needs: programs, units, /etc/flyt/cluster.conf'
	@echo 'make install-node | install-client   the same for a GPU node | a VM'
	@echo 'make install-client-lib  puts our libraries in the place of NVIDIA'"'"'s, in DEST=FOLDER (a site-packages) or the system'
	@echo 'make restore-client-lib  puts NVIDIA'"'"'s back'
	@echo 'make man                 the parts of manual pages and completion that programs tell: settings, options, commands'
	@echo 'make format | lint       clang-format | its check, and the check of who uses whom'
	@echo 'make clean               removes all build folders'
	@echo 'variables: CUDA_PATH=$(CUDA_PATH) CC=$(CC) DEBUG=1 SANITIZE=address,undefined B=$(B)'
