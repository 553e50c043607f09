"""What cannot be forwarded loads and fails with the library's own error, says so in one sentence, and leaves the program as it is
to others: CUPTI, cuFile and NVSHMEM as PyTorch's wheels have them, and PyTorch's profiler and its interface of cuFile.

usage: unforwarded.py COMMAND…     COMMAND runs a program through Flyt: flyt-run --soft 1 --
A line for each: ok, FAIL with what was seen, or skip where the wheel is missing. Exit status 1 where one failed.
"""
import glob
import importlib.util
import os
import subprocess
import sys
import tempfile

LIMIT_S = 300       # importing PyTorch alone has taken a minute and a half on a machine with other work
COMMAND = sys.argv[1:]

CUPTI = """
import ctypes, sys
cupti, runtime = ctypes.CDLL(sys.argv[1]), ctypes.CDLL("libcudart.so.13")
callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p)(lambda *words: None)
CONCURRENT_KERNEL = 10
for status in (cupti.cuptiActivityEnable(CONCURRENT_KERNEL), cupti.cuptiSubscribe(ctypes.byref(ctypes.c_void_p()), callback, None)):
    name = ctypes.c_char_p()
    print(status != 0, cupti.cuptiGetResultString(status, ctypes.byref(name)), name.value.decode().startswith("CUPTI_ERROR_"))
print("goes on", runtime.cudaFree(None))
"""

CUFILE = """
import ctypes
class Outcome(ctypes.Structure):
    _fields_ = [("code", ctypes.c_int), ("cuda", ctypes.c_int)]
file, runtime = ctypes.CDLL("libcufile.so.0"), ctypes.CDLL("libcudart.so.13")
file.cuFileDriverOpen.restype = Outcome
for _ in range(2):
    print(file.cuFileDriverOpen().code)     # CU_FILE_PLATFORM_NOT_SUPPORTED
print("goes on", runtime.cudaFree(None))
"""

# nvshmemx_init_attr_t of one process, as nvshmem.h's initializers make it. NVSHMEM ends the program where it cannot begin.
NVSHMEM = """
import ctypes, sys
class UniqueIdArgs(ctypes.Structure):
    _fields_ = [("version", ctypes.c_int), ("id", ctypes.c_void_p), ("rank", ctypes.c_int), ("ranks", ctypes.c_int)]
class Args(ctypes.Structure):
    _fields_ = [("version", ctypes.c_int), ("uid", UniqueIdArgs), ("padding", ctypes.c_char * 96)]
class Attributes(ctypes.Structure):
    _fields_ = [("version", ctypes.c_int), ("mpi", ctypes.c_void_p), ("args", Args)]
def version_of(kind):
    return (1 << 16) + ctypes.sizeof(kind)
WITH_UNIQUEID = 8
nvshmem, runtime = ctypes.CDLL(sys.argv[1]), ctypes.CDLL("libcudart.so.13")
unique = (ctypes.c_int * 32)(version_of(ctypes.c_int * 32))
attributes = Attributes(version_of(Attributes), None, Args(version_of(Args), UniqueIdArgs(version_of(UniqueIdArgs))))
print(nvshmem.nvshmemx_get_uniqueid(unique), nvshmem.nvshmemx_set_attr_uniqueid_args(0, 1, unique, ctypes.byref(attributes)))
print("the program's own", runtime.cudaSetDevice(0), runtime.cudaFree(None), flush=True)
print("it began:", nvshmem.nvshmemx_hostlib_init_attr(WITH_UNIQUEID, ctypes.byref(attributes)), flush=True)
"""

PROFILER = """
import torch
from torch.profiler import profile, ProfilerActivity
one = torch.arange(64.0).repeat(64, 1)
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
    product = one @ one
print("right", torch.equal(product, one * 2016))
named = {event.key: event for event in seen.key_averages()}
print("on the CPU", named["aten::mm"].count, named["aten::mm"].cpu_time_total > 0)
print("on the GPU", sum(event.device_time_total for event in seen.key_averages()))
"""

GDS = """
import os, sys, torch
try:
    torch.cuda.gds.GdsFile(sys.argv[1], os.O_CREAT | os.O_RDWR)
    print("a file was registered")
except RuntimeError as error:
    print("RuntimeError", "cuFileHandleRegister" in str(error))
"""


def of_wheel(name):
    """The library's file; None: no wheel has it."""
    found = importlib.util.find_spec("nvidia")
    for root in found.submodule_search_locations if found else []:
        for path in glob.glob(os.path.join(root, "*", "lib", name)):
            return path
    return None


def run(code, *words):
    """(status, stdout, Flyt's sentences, all of stderr)"""
    done = subprocess.run([*COMMAND, sys.executable, "-W", "ignore", "-c", code, *words], capture_output=True, text=True, timeout=LIMIT_S,
                          check=False)
    return done.returncode, done.stdout, [line for line in done.stderr.splitlines() if line.startswith("flyt: ")], done.stderr


def is_said(sentences, name, reason):
    assert len(sentences) == 1 and name in sentences[0] and reason in sentences[0], sentences


def cupti(path):
    status, out, sentences, err = run(CUPTI, path)
    assert (status, out) == (0, "True 0 True\n" * 2 + "goes on 0\n"), (status, out, err)
    is_said(sentences, "libcupti.so.13", "cannot look at a GPU from here")


def cufile(_):
    status, out, sentences, err = run(CUFILE)
    assert (status, out) == (0, "5007\n5007\ngoes on 0\n"), (status, out, err)
    is_said(sentences, "libcufile", "files are on this machine and the GPU is on another")


def nvshmem(path):
    """It says what failed and ends the program, as it does natively where CUDA's calls fail."""
    status, out, sentences, err = run(NVSHMEM, path)
    assert out == "0 0\nthe program's own 0 0\n", (status, out, err)
    assert status == 255 and "cuda failed with operation not supported" in err, (status, err)
    is_said(sentences, "libnvshmem_host.so.3", "has a CUDA runtime of its own inside")


def profiler(_):
    status, out, sentences, err = run(PROFILER)
    assert (status, out) == (0, "right True\non the CPU 1 True\non the GPU 0\n"), (status, out, err)
    is_said(sentences, "libcupti.so.13", "what the program does on the CPU alone")


def gds(_):
    with tempfile.TemporaryDirectory() as folder:
        status, out, sentences, err = run(GDS, os.path.join(folder, "file"))
    assert (status, out) == (0, "RuntimeError True\n"), (status, out, err)
    is_said(sentences, "libcufile", "programs read and write files themselves")


TORCH = (importlib.util.find_spec("torch"), "PyTorch")
# (check, what it needs, what that is)
CHECKS = ((cupti, of_wheel("libcupti.so.13"), "a wheel with libcupti.so.13"), (cufile, "Flyt's", ""),
          (nvshmem, of_wheel("libnvshmem_host.so.3"), "a wheel with libnvshmem_host.so.3"), (profiler, *TORCH), (gds, *TORCH))


def main():
    failed = 0
    for check, needed, what in CHECKS:
        if not needed:
            print("skip %s: needs %s" % (check.__name__, what), flush=True)
            continue
        try:
            check(needed)
            print("ok", check.__name__, flush=True)
        except (AssertionError, subprocess.TimeoutExpired) as error:
            failed += 1
            print("FAIL %s: %s" % (check.__name__, error), flush=True)
    return failed != 0


if __name__ == "__main__":
    sys.exit(main() if COMMAND else __doc__)
