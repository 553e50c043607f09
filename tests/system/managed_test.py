#!/usr/bin/env python3
"""Managed memory: what goes over the wire is what has changed; it is charged to the VM. Programs that have some while their
SMs change and while they move are among programs/movers."""
import os
import platform
import re
import sys

import harness
from cluster import System
from harness import FLYT_RUN, app, environment, expect, expect_equal, helper, main, run, scenario, server, through_flyt
from steady import add_vm, is_idle

SPARSE = helper("managed_sparse")
PAGE = 64 << 10             # what a change of one byte costs at most in each direction
HASHES = 1024 * 16          # of 64 MiB
MEGABYTE = 1 << 20


def bytes_of(url, rounds, **changes):
    """(sent, received) by a program that changes a byte on either side in each round."""
    path = os.path.join(harness.WORK, "managed-stats-%d" % rounds)
    result = run(through_flyt(url, SPARSE, str(rounds)), environment(FLYT_STATS=path, **changes))
    expect_equal((result.status, result.out), (0, "ok %d\n" % rounds), result)
    with open(path, encoding="utf-8") as f:
        line = f.read()
    os.unlink(path)
    return [int(re.search(r"%s_bytes=(\d+)" % word, line).group(1)) for word in ("sent", "received")]


@scenario
def few_bytes_travel():
    """The memory is zero on both sides at first: that does not travel. A byte that was changed costs its page, and once a
    round the hashes of all pages come."""
    rounds = 20
    with server("tcp") as s:
        first, last = bytes_of(s.url, 1), bytes_of(s.url, 1 + rounds)
    sent, received = ((b - a) // rounds for a, b in zip(first, last))
    expect(PAGE <= sent < PAGE + 16384, "bytes sent for a page that was changed:", sent)
    expect(PAGE + HASHES <= received < PAGE + HASHES + 4096, "bytes received for one:", received)
    expect(first[0] < MEGABYTE and first[1] < MEGABYTE, "bytes of a program that does it once:", first)


# Has the kernel refuse userfaultfd, as containers do, and becomes the command.
REFUSING = """
import ctypes, os, sys
class Step(ctypes.Structure):
    _fields_ = [("code", ctypes.c_ushort), ("jt", ctypes.c_ubyte), ("jf", ctypes.c_ubyte), ("k", ctypes.c_uint)]
class Program(ctypes.Structure):
    _fields_ = [("count", ctypes.c_ushort), ("steps", ctypes.POINTER(Step))]
steps = (Step * 4)(Step(0x20, 0, 0, 0), Step(0x15, 0, 1, int(sys.argv[1])), Step(6, 0, 0, 0x50001), Step(6, 0, 0, 0x7fff0000))
libc = ctypes.CDLL(None, use_errno=True)
if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, ctypes.byref(Program(4, steps)), 0, 0):
    sys.exit("prctl: " + os.strerror(ctypes.get_errno()))
if libc.syscall(int(sys.argv[1]), 0) != -1 or ctypes.get_errno() != 1:
    sys.exit("userfaultfd is not refused")
os.execv(sys.argv[2], sys.argv[2:])
"""
USERFAULTFD = {"x86_64": "323", "aarch64": "282"}


@scenario
def where_the_kernel_does_not_tell():
    """What the host has written is found all the same."""
    number = USERFAULTFD.get(platform.machine())
    if not number:
        print("    no number of userfaultfd on", platform.machine())
        return
    with server("unix") as s:
        for name in ("managed", "managed_attach"):
            command = through_flyt(s.url, app(name))
            result = run([sys.executable, "-c", REFUSING, number, *command], environment(FLYT_TEST_FORWARDED="1"), timeout=120)
            expect_equal((result.status, result.err), (0, ""), name, result)


ON_THE_HOST = {"FLYT_MANAGED_MEMORY": "host", "FLYT_TEST_FORWARDED": "1"}
IN_BOTH_PLACES = ("managed", "managed_advise", "managed_attach", "managed_ends", "managed_devices", "managed_library",
                  "pool_managed")
SKIPPED = 77


@scenario
def on_the_host():
    """Programs find what they find in device memory, and use it beside their kernels; nothing of it travels. Where no memory
    is shared it is in device memory."""
    with server("unix", ("--soft", "2")) as s:
        for name in (*IN_BOTH_PLACES, "managed_concurrent"):
            result = run(through_flyt(s.url, app(name)), environment(**ON_THE_HOST), timeout=120)
            expect_equal((result.status, result.err), (0, ""), name, result)
        with_many = run([FLYT_RUN, "--server", s.url, "--managed-memory", "host", "--", app("managed_concurrent")], environment(),
                        timeout=120)
        expect_equal((with_many.status, with_many.err), (0, ""), with_many)
        first, last = (bytes_of(s.url, rounds, **ON_THE_HOST) for rounds in (1, 21))
        for which in (0, 1):
            expect((last[which] - first[which]) / 20 < 1024, "bytes of a round:", first, last)
    with server("tcp") as s:
        result = run(through_flyt(s.url, app("managed_concurrent")), environment(**ON_THE_HOST))
        expect_equal(result.status, SKIPPED, "over TCP", result)
        result = run(through_flyt(s.url, app("managed_attach")), environment(**ON_THE_HOST), timeout=120)
        expect_equal((result.status, result.err), (0, ""), "over TCP", result)


@scenario
def what_it_cannot():
    with server("unix") as s:
        result = run(through_flyt(s.url, helper("managed_refused")), environment())
        expect_equal((result.status, result.out), (0, "module=0 library=0 kernel=0 body=801 free=801 concurrent=0\n"), result)
        result = run(through_flyt(s.url, helper("managed_refused")), environment(**ON_THE_HOST))
        expect_equal((result.status, result.out), (0, "module=801 library=801 kernel=0 body=801 free=801 concurrent=1\n"), result)
        for name in ("counter", "both"):
            expect("variable %s of device 0 is refused: it is managed" % name in result.err, result)


@scenario
def on_the_host_it_is_page_locked_memory():
    """No more than a session may have page-locked; what is freed can be had again."""
    with server("unix", ("--soft", "1", "--locked-memory", str(100 << 20))) as s:
        for mib, status, said in ((64, 0, ""), (120, 1, "cudaErrorMemoryAllocation")):
            result = run(through_flyt(s.url, SPARSE, "1", str(mib)), environment(**ON_THE_HOST))
            expect_equal(result.status, status, mib, "MiB of 100", result)
            expect(said in result.err, mib, "MiB of 100", result)


@scenario
def it_is_charged():
    with System(vms=1, gpus=1, sms=64, memory="1G") as system:
        add_vm(system, 0, "--name", "alice", "--sessions", 4, sm=16, memory="256M")
        for mib, status, said in ((64, 0, ""), (300, 1, "cudaErrorMemoryAllocation")):
            result = harness.finish(system.start_in_vm(0, SPARSE, "1", str(mib)))
            expect_equal(result.status, status, mib, "MiB of 256", result)
            expect(said in result.err, mib, "MiB of 256", result)
        is_idle(system)


if __name__ == "__main__":
    main()
