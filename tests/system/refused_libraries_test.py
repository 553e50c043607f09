#!/usr/bin/env python3
"""Libraries of NVIDIA's that cannot be forwarded load, fail, say so in one sentence, and leave the program to go on: CUPTI
(programs/profiled.cu); cuFile and cuSOLVER over several GPUs, of which ours refuse everything; and NVIDIA's own cuFFTW and NVBLAS,
which are theirs over the replaced libraries."""
import os
import re
import sys

import harness
from harness import environment, expect, expect_equal, main, run, scenario, server, through_flyt

TOOLKIT = os.path.join(harness.CUDA, "lib64")
OWN_RUNTIME = "flyt: libcuda: %s has a CUDA runtime of its own inside and is not forwarded: its calls fail"

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

MG = """
import ctypes
solver, runtime, memory = ctypes.CDLL("libcusolverMg.so.12"), ctypes.CDLL("libcudart.so.13"), ctypes.c_void_p()
print([solver.cusolverMgCreate(ctypes.byref(memory)) for _ in range(2)], solver.cusolverMgDeviceSelect(None, 1, None), memory.value)
print(runtime.cudaMalloc(ctypes.byref(memory), 4096))
"""

# Both precisions; then the runtime of Flyt, as before.
CUFFTW = """
import ctypes, sys
fftw, runtime, memory = ctypes.CDLL(sys.argv[1]), ctypes.CDLL("libcudart.so.13"), ctypes.c_void_p()
room = (ctypes.c_double * 64)()
for plan in (fftw.fftw_plan_dft_1d, fftw.fftwf_plan_dft_1d):
    plan.restype = ctypes.c_void_p
    print(plan(8, room, room, -1, 64))
print(runtime.cudaMalloc(ctypes.byref(memory), 4096))
"""

NVBLAS = """
import ctypes, sys
runtime, memory, blas = ctypes.CDLL("libcudart.so.13"), ctypes.c_void_p(), ctypes.CDLL(sys.argv[1])
print(runtime.cudaMalloc(ctypes.byref(memory), 4096), flush=True)
n, one, room = ctypes.byref(ctypes.c_int(8)), ctypes.byref(ctypes.c_double(1)), (ctypes.c_double * 64)()
blas.dgemm_(b"N", b"N", n, n, n, one, room, n, room, n, one, room, n)
"""


def own_library(name):
    """NVIDIA's file in the toolkit, or None."""
    path = os.path.join(TOOLKIT, name)
    if os.path.exists(path):
        return path
    print("    skip: %s is not installed" % name)
    return None


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


@scenario
def cusolver_over_several_gpus():
    with server("unix") as s:
        result = run(through_flyt(s.url, sys.executable, "-c", MG), env=environment())
        expect_equal((result.status, result.out), (0, "[9, 9] 9 None\n0\n"), result)
        expect_equal(harness.lines(result.err), ["flyt: cusolverMgCreate is not supported", "flyt: cusolverMgDeviceSelect is not supported"],
                     result)


@scenario
def cusolver_over_several_gpus_has_what_programs_link():
    """All that the header declares, under NVIDIA's symbol version."""
    def exports(path):
        return set(re.findall(r" T (\S+)", run(["nm", "-D", "--defined-only", "--with-symbol-versions", path]).out))

    ours = exports(os.path.join(harness.BUILD, "lib", "libcusolverMg.so.12"))
    expect_equal(len(ours), 19, ours)
    theirs, header = own_library("libcusolverMg.so.12"), os.path.join(harness.CUDA, "include", "cusolverMg.h")
    expect(not theirs or ours <= exports(theirs), ours)
    if os.path.exists(header):
        with open(header, encoding="utf-8") as file:
            declared = set(re.findall(r"\b(cusolverMg\w+)\(", file.read()))
        expect_equal({name.split("@")[0] for name in ours}, declared, header)


@scenario
def cufftw():
    path = own_library("libcufftw.so.12")
    if not path:
        return
    with server("unix") as s:
        result = run(through_flyt(s.url, sys.executable, "-c", CUFFTW, path), env=environment())
        expect_equal((result.status, result.out), (0, "None\nNone\n0\n"), result)
        expect_equal(harness.lines(result.err), [OWN_RUNTIME % "libcufftw.so.12"], result)


@scenario
def nvblas():
    """It begins with the first product. NVIDIA's file then crashes, for it has neither cuBLASXt nor a BLAS of the CPU's from a
    configuration: who it is that cannot be served has been said before."""
    path = own_library("libnvblas.so.13")
    if not path:
        return
    with server("unix") as s:
        result = run(through_flyt(s.url, sys.executable, "-c", NVBLAS, path), env=environment())
        expect_equal(result.out, "0\n", result)
        expect_equal([line for line in harness.lines(result.err) if line.startswith("flyt: ")], [OWN_RUNTIME % "libnvblas.so.13"], result)


if __name__ == "__main__":
    main()
