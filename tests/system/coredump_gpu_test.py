#!/usr/bin/env python3
"""The scenarios of coredump_test.py with this machine's NVIDIA GPUs: dumps that the driver writes, of VMs that have a GPU to
themselves and of those that share one under MPS. Needs a GPU and nvidia-cuda-mps-control.
"""
import os

import coredump_test
from harness import expect, main, skip

if not os.path.exists("/dev/nvidiactl"):
    skip("no NVIDIA GPU here")


def content(path):
    """What the driver writes is an ELF file, in which memory lies as it is."""
    with open(path, "rb") as f:
        data = f.read()
    expect(data.startswith(b"\x7fELF"), "an ELF file", path, data[:16])
    return data


coredump_test.HARDWARE = True
coredump_test.SERVER = ()
coredump_test.DIRECT_ENV = {}
coredump_test.SYSTEM = {"hardware": True, "namespaces": False}
coredump_test.STRICT = {"isolation": "strict", "warm": 2}
coredump_test.SHARED = {"mps": "start", "warm": 2}
coredump_test.VM_MEMORY = "8G"
coredump_test.OTHER_GPU = "node-0:1" if os.path.exists("/dev/nvidia1") else None
coredump_test.CONTENT = content
# The driver (580) leaves memory out that is mapped (cuMemMap), as servers have it: a section of other memory tells that it
# was to be there, and all dumps are of about 17 MB.
coredump_test.MARK = b".cudbg.global."
coredump_test.BYTES_MAX = 24 << 20

if __name__ == "__main__":
    main()
