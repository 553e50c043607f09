#!/usr/bin/env python3
"""The bundle: made from the build, moved elsewhere, it runs with an empty environment and resolves nothing outside itself
but glibc."""
import os
import re
import shutil
import socket
import subprocess
import sys

import harness
from harness import app, environment, expect, expect_equal, lines, main, run, scenario

GLIBC = re.compile(r"(libc|libm|libdl|libpthread|librt|libresolv)\.so\.\d+$|ld-linux-x86-64\.so\.2$|linux-vdso\.so\.1$")
LIMIT_KB = 48 * 1024
moved = None


def files(*folders):
    for folder in folders:
        for name in sorted(os.listdir(os.path.join(moved, folder))):
            yield os.path.join(moved, folder, name)


def is_elf(path):
    with open(path, "rb") as f:
        return f.read(4) == b"\x7fELF"


@scenario
def made_and_moved():
    global moved
    result = run(["sh", os.path.join(harness.ROOT, "scripts", "bundle.sh"), harness.BUILD, harness.CUDA, "test"],
                 cwd=harness.ROOT, timeout=120)
    expect_equal(result.status, 0, "bundle.sh", result)
    moved = os.path.join(harness.WORK, "moved")
    shutil.copytree(os.path.join(harness.BUILD, "bundle", "flyt"), moved, symlinks=True)
    used = run(["du", "-sk", moved])
    expect(int(used.out.split()[0]) <= LIMIT_KB, "%s KiB, more than 48 MiB" % used.out.split()[0])


@scenario
def what_is_inside():
    for name in ("bin/flyt-server", "bin/flyt-run", "bin/flyt-client-lib", "bin/flyt-gpu-test",
                 "bin/flyt-cluster-manager", "bin/flyt-node-manager", "bin/flyt-client-manager", "bin/flytctl",
                 "bin/flyt-pki", "bin/flyt-smi", "nvml/libnvidia-ml.so.1", "lib/libflyt-client.so.1",
                 "lib/libcudart.so.13", "lib/libcuda.so.1", "lib/libcudnn_ops.so.9", "lib/libflyt-softgpu.so", "native/libcudart.so.13", "LICENSE",
                 "VERSION"):
        expect(os.path.isfile(os.path.join(moved, name)), name, "is missing")
    for folder in ("tests", "bench"):
        source = os.path.join(harness.BUILD, "tests", "apps" if folder == "tests" else "bench")
        built = [n for n in os.listdir(source) if "." not in n and os.path.isfile(os.path.join(source, n))
                 and n != "control_load"]      # measures the control plane, on machines that build
        missing = set(built) - set(os.listdir(os.path.join(moved, folder)))
        expect(built and not missing, "missing in", folder, missing)


@scenario
def nothing_of_the_build_remains():
    """No object looks for libraries where it was built, none needs another architecture's or a newer glibc."""
    for path in files("bin", "lib", "nvml"):
        if not is_elf(path):
            continue
        said = run(["readelf", "-dW", path]).out
        for runpath in re.findall(r"R(?:UN)?PATH.*\[(.*)\]", said):
            expect(all(part.startswith("$ORIGIN") for part in runpath.split(":")), path, "has the path", runpath)
        versions = re.findall(r"GLIBC_(\d+)\.(\d+)", run(["readelf", "-VW", path]).out)
        newest = max(((int(a), int(b)) for a, b in versions), default=(0, 0))
        expect(newest <= (2, 36), path, "needs glibc %d.%d" % newest)


@scenario
def a_server_takes_none_of_flyts_libraries_for_nvidias():
    for changes, is_ours in (({}, False), ({"LD_LIBRARY_PATH": os.path.join(moved, "lib")}, True)):
        said = run([os.path.join(moved, "bin", "flyt-server"), "--library-versions"], environment(**changes))
        expect_equal("libcublas.so.13: what the loader finds is Flyt's own" in said.out + said.err, is_ours, changes, said)


@scenario
def libraries_come_from_the_bundle():
    for path in files("bin", "lib", "nvml"):
        if not is_elf(path):
            continue
        result = subprocess.run(["env", "-i", "/lib64/ld-linux-x86-64.so.2", "--list", path], capture_output=True, text=True,
                                check=True)
        for line in lines(result.stdout):
            name, _, where = line.strip().partition(" => ")
            name = name.split()[0]
            if GLIBC.search(name):
                continue
            expect(where.startswith(moved + "/") or os.path.realpath(where.split()[0]).startswith(moved + "/"), path,
                   "takes", line.strip())


def manager_socket():
    """A socket in a client manager's place, at which nobody answers."""
    path = os.path.join(harness.WORK, "nobody.sock")
    if not os.path.exists(path):
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        listener.close()
    return path


@scenario
def programs_run_with_an_empty_environment():
    for name in ("memory", "launch", "module_rdc", "module_dlopen", "device_malloc", "process_ends"):
        result = run(["env", "-i", "TMPDIR=" + harness.WORK, os.path.join(moved, "bin", "flyt-run"), "--soft", "1", "--",
                      os.path.join(moved, "tests", name)], cwd="/")
        expect_equal((result.status, result.err), (0, ""), name, result)
    # NVML is answered by a client manager: in direct mode programs find none of ours, and where there is no driver none at all.
    code = ("import ctypes\ntry:\n    ctypes.CDLL('libnvidia-ml.so.1')\nexcept OSError:\n    pass\n"
            "print(any(%r in line for line in open('/proc/self/maps')))" % os.path.join(moved, "nvml"))
    for words, is_ours in ((["--soft", "1"], "False"), ([], "True")):
        result = run(["env", "-i", "TMPDIR=" + harness.WORK, "FLYT_CLIENT_SOCKET=" + manager_socket(),
                      os.path.join(moved, "bin", "flyt-run"), *words, "--", sys.executable, "-c", code])
        expect_equal(result.out.strip(), is_ours, "whether NVML is the bundle's, through its flyt-run", words, result)
    result = run(["env", "-i", "FLYT_CLIENT_SOCKET=/nowhere", os.path.join(moved, "bin", "flyt-smi")])
    expect_equal(result.status, 9, "flyt-smi without a client manager", result)
    version = run(["env", "-i", os.path.join(moved, "bin", "flyt-run"), "--version"])
    expect_equal(version.out, "test\n", "version", version)


@scenario
def gpu_test_without_a_gpu():
    if os.path.exists("/dev/nvidiactl"):
        return
    result = run(["env", "-i", os.path.join(moved, "bin", "flyt-gpu-test")])
    expect(result.status == 2 and len(lines(result.err)) == 1 and "no NVIDIA GPU" in result.err, result)


main()
