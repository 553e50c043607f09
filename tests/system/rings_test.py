#!/usr/bin/env python3
"""A program and a server on one unix socket share memory: calls go through rings, page-locked memory is mapped. Where that is
forbidden nothing is shared, and results are the same."""
import os
import struct
import subprocess
import sys

from harness import (PATIENCE_S, app, environment, expect, expect_equal, is_alive, lines, main, run, scenario, server,
                     shared_memory, start, within)
from rings import Pinned, environment_of

NAMES = ("flyt-region", "flyt-rings")
WRITTEN = (64, 256)     # of both rings: positions of their writers (rpc/transport/endpoint/rings.c)
NOT_SUPPORTED = 801
# Programs with parts for where kernels reach page-locked memory, and for where they do not.
OF_MAPPED_MEMORY = ("memory_mapped", "memory_host", "attributes_claims", "pool_host", "graph_memory")
# Its child, whose number it says, lives until standard input ends.
PARENT = """
import ctypes, os, sys
address = ctypes.c_void_p()
if ctypes.CDLL("libcudart.so.13").cudaMallocHost(ctypes.byref(address), ctypes.c_size_t(4096)):
    sys.exit(1)
child = os.fork()
if not child:
    sys.stdin.read()
    os._exit(0)
print(child, flush=True)
"""


def written(pid):
    """The positions of both writers of the rings that a process has mapped."""
    with open("/proc/%d/maps" % pid) as f:
        begin = next(int(line.split("-")[0], 16) for line in f if "/memfd:flyt-rings" in line)
    with open("/proc/%d/mem" % pid, "rb") as memory:
        return [struct.unpack("<Q", os.pread(memory.fileno(), 8, begin + at))[0] for at in WRITTEN]


@scenario
def calls_go_through_rings():
    with server("unix") as s:
        program = Pinned(s)
        serving = s.serving(program.pid)
        expect(serving, "the process that serves the program has its rings")
        for name in NAMES:
            expect_equal(len(shared_memory(program.pid, name)), 1, name, "of the program")
            expect_equal(shared_memory(serving, name), shared_memory(program.pid, name), name, "of the server")
        before = written(program.pid)
        program.is_right()
        after = written(program.pid)
        expect(all(b > a for a, b in zip(before, after)), "bytes in both directions", before, after)
        program.does("mapped", "mapped 0")
        program.ends()


@scenario
def forbidden():
    for arguments, word in ((("--no-shared-memory",), None), ((), "no")):
        with server("unix", ("--soft", "1", *arguments), environment(FLYT_SHARED_MEMORY=word)) as s:
            program = Pinned(s)
            program.is_right()
            program.does("mapped", "mapped %d" % NOT_SUPPORTED)
            for pid in (program.pid, *s.children()):
                expect_equal([shared_memory(pid, name) for name in NAMES], [set(), set()], arguments, word, "memory that is shared")
            program.is_right()
            program.ends("flyt: mapped host memory is not supported\n")
            for name in OF_MAPPED_MEMORY:
                result = run([app(name)], environment_of(s, FLYT_TEST_MAPPED="0"))
                expect_equal(result.status, 0, name, result)


@scenario
def registered_memory_is_not_mapped():
    """It is said, once for each of what was asked for."""
    said = ("CU_MEMHOSTREGISTER_DEVICEMAP", "CU_MEMHOSTREGISTER_IOMEMORY", "mapped host memory")
    with server("unix") as s:
        result = run([app("memory_host")], environment_of(s))
        expect_equal(result.status, 0, result)
        expect_equal(lines(result.err), ["flyt: %s is not supported" % name for name in said], "stderr")


@scenario
def a_child_outlives_its_parent():
    """The session ends with the parent, although the child still has what the parent shared with its server."""
    with server("unix") as s:
        at_start = s.settle()
        parent = start([sys.executable, "-c", PARENT], environment_of(s), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        child = int(parent.stdout.readline())
        expect_equal(parent.wait(PATIENCE_S), 0, "the parent's end")
        within(30, lambda: len(s.children()) <= at_start, "the session's end")
        expect(shared_memory(child, "flyt-region"), "the child has the region")
        parent.stdin.close()
        within(30, lambda: not is_alive(child), "the child's end")


main()
