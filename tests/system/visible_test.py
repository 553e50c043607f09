#!/usr/bin/env python3
"""CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER: any order, any choice, by number and by UUID, on software GPUs of which each
is known by the addresses of its memory (programs/ordinals.cu). The choice holds over moves."""
import sys

import harness
from cluster import System
from harness import environment, expect, expect_equal, finish, main, run, scenario, server, start, through_flyt
from steady import Steady, add_vm

SEEN = [        # CUDA_VISIBLE_DEVICES of three devices; the server's numbers of those that are seen
    (None, (0, 1, 2)), ("2,0", (2, 0)), ("1", (1,)), ("2,1,0", (2, 1, 0)), ("1,2", (1, 2)), ("0,2,7,1", (0, 2)),
]
NOTHING = ["", "-1", "none", "3", "0,0", "GPU-0123456789abcdef", "MIG-GPU-1/0/0"]
INVALID_DEVICE = 100    # cudaErrorNoDevice


class Ordinals(Steady):
    def __init__(self, process, name):
        self.process, self.name, self._said = process, name, b""
        self.wait_ready()

    def checks(self, count, word="check"):
        expect_equal(self.ask(word), [count], self.name)

    def uuid(self, device):
        self.say("uuid %d" % device)
        digits = self.line("a UUID").split()[1]
        return "GPU-" + "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))

    def ends(self):
        self.say("end")
        result = finish(self.process)
        expect_equal((result.status, result.err), (0, ""), self.name, result)


def changes(visible, order=None):
    return {**({"CUDA_VISIBLE_DEVICES": visible} if visible is not None else {}), **({"CUDA_DEVICE_ORDER": order} if order else {})}


def program(url, windows, visible=None, order=None):
    process = start(through_flyt(url, harness.helper("ordinals"), *map(str, windows)), environment(**changes(visible, order)),
                    stdin=-1, stdout=-1, stderr=-1)
    return Ordinals(process, "with CUDA_VISIBLE_DEVICES=%s" % visible)


@scenario
def any_choice_in_any_order():
    with server("unix", ("--soft", "3")) as s:
        for visible, windows in SEEN:
            one = program(s.url, windows, visible)
            one.checks(len(windows), "whole")
            one.ends()
        for visible in NOTHING:
            result = run(through_flyt(s.url, harness.helper("ordinals")), env=environment(**changes(visible)))
            expect_equal((result.status, result.out), (0, "count 0 %d\n" % INVALID_DEVICE), visible, result)
            expect_equal("no parts of GPUs by MIG" in result.err, visible.startswith("MIG-"), visible, result)


@scenario
def by_uuid():
    with server("unix", ("--soft", "3")) as s:
        every = program(s.url, (0, 1, 2))
        uuids = [every.uuid(i) for i in range(3)]
        every.ends()
        expect_equal(len(set(uuids)), 3, "UUIDs differ", uuids)
        for visible, windows in ((uuids[2], (2,)), ("%s,%s" % (uuids[1], uuids[0].upper()), (1, 0)),
                                 ("%s,GPU-,%s" % (uuids[2], uuids[0]), (2,))):
            one = program(s.url, windows, visible)
            for i, window in enumerate(windows):
                expect_equal(one.uuid(i), uuids[window], "the UUID of what was asked for by it")
            one.checks(len(windows))
            one.ends()


@scenario
def orders():
    with server("unix", ("--soft", "3")) as s:
        for order in ("PCI_BUS_ID", "FASTEST_FIRST"):   # all are alike, and in the order of their addresses
            one = program(s.url, (2, 1), "2,1", order)
            one.checks(2)
            one.ends()


LOADING_MODE = """
import ctypes
cuda, mode = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(-1)
print(cuda.cuInit(0), cuda.cuModuleGetLoadingMode(ctypes.byref(mode)), mode.value)
"""


@scenario
def when_modules_are_loaded():
    with server("unix") as s:
        for wish, mode in (({}, 2), ({"CUDA_MODULE_LOADING": "LAZY"}, 2), ({"CUDA_MODULE_LOADING": "EAGER"}, 1)):
            result = run(through_flyt(s.url, sys.executable, "-c", LOADING_MODE), env=environment(**wish))
            expect_equal((result.status, result.out), (0, "0 0 %d\n" % mode), wish, result)


@scenario
def in_a_vm_over_moves():
    with System(vms=1, gpus=6, sms=32, memory="512M") as system:
        add_vm(system, 0, "--name", "alice", "--devices", 3, "--sessions", 8, sm=8, memory="64M")
        for visible, windows in (("2,0", (2, 0)), ("1", (1,))):
            process = system.start_in_vm(0, harness.helper("ordinals"), *map(str, windows), CUDA_VISIBLE_DEVICES=visible)
            one = Ordinals(process, "in a VM, with CUDA_VISIBLE_DEVICES=%s" % visible)
            one.checks(len(windows))
            uuids = [one.uuid(i) for i in range(len(windows))]
            for _ in range(2):
                moved = system.flytctl_run("migrate", "alice", "--stop-timeout", "60000", timeout=300)
                expect_equal(moved.status, 0, "the move", moved)
                one.checks(len(windows))
                expect_equal([one.uuid(i) for i in range(len(windows))], uuids, "UUIDs after the move")
            expect(system.flytctl("migrations")[-1]["phase"] == "done", "migrations")
            one.ends()


if __name__ == "__main__":
    main()
