#!/usr/bin/env python3
"""Libraries of NVIDIA's that cannot be forwarded load, fail, say so in one sentence, and leave the program to go on: CUPTI
(programs/profiled.cu), and cuFile, of which ours refuses everything."""
import os
import sys

import harness
from harness import environment, expect, expect_equal, main, run, scenario, server, through_flyt

CUFILE = """
import ctypes
class Outcome(ctypes.Structure):
    _fields_ = [("code", ctypes.c_int), ("cuda", ctypes.c_int)]
file = ctypes.CDLL("libcufile.so.0")
file.cuFileDriverOpen.restype = file.cuFileDriverClose.restype = file.cuFileHandleRegister.restype = Outcome
file.cuFileRead.restype = ctypes.c_ssize_t
handle = ctypes.c_void_p()
for outcome in (file.cuFileDriverOpen(), file.cuFileHandleRegister(ctypes.byref(handle), None), file.cuFileDriverClose()):
    print(outcome.code, outcome.cuda)
print(file.cuFileRead(handle, None, ctypes.c_size_t(1), 0, 0), file.cuFileUseCount())
"""


@scenario
def cupti():
    with server("unix") as s:
        result = run(through_flyt(s.url, harness.helper("profiled")), env=environment())
        expect_equal((result.status, result.out), (0, "refused 4 flushed 0 cuda 0 sum 8128\n"), result)
        expect_equal(result.err.count("libcupti.so.13 cannot look at a GPU from here"), 1, result)
        expect_equal(len(harness.lines(result.err)), 1, result)


@scenario
def cufile():
    with server("unix") as s:
        result = run(through_flyt(s.url, sys.executable, "-c", CUFILE), env=environment())
        expect_equal((result.status, result.out), (0, "5007 0\n" * 3 + "-5007 0\n"), result)
        expect_equal(result.err.count("cuFile is not supported"), 1, result)


@scenario
def cufile_has_what_programs_link():
    """By the names that NVIDIA documents; PyTorch links six of them."""
    listed = run(["nm", "-D", "--defined-only", os.path.join(harness.BUILD, "lib", "libcufile.so.0")]).out
    for name in ("DriverOpen", "DriverClose", "HandleRegister", "HandleDeregister", "BufRegister", "BufDeregister", "Read", "Write"):
        expect(" T cuFile%s\n" % name in listed, name, listed)


if __name__ == "__main__":
    main()
