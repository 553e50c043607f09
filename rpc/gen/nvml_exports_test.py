#!/usr/bin/env python3
"""libnvidia-ml.so.1 exports what its rows say and nothing else, and the rows have what NVIDIA's library has: its stub in
the toolkit, or else the toolkit's nvml.h; where the toolkit has neither, the first half alone.

usage: nvml_exports_test.py LIBRARY nvml.rows CUDA_PATH
"""
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import elf  # noqa: E402
import nvml  # noqa: E402

DECLARED = re.compile(r"\bDECLDIR\s+(?:\w+\s*\*\s*)?(nvml\w+)\s*\(")


def compare(what, ours, theirs, of):
    for name in sorted(theirs - ours):
        print(f"{what} lacks {name} of {of}")
    for name in sorted(ours - theirs):
        print(f"{what} has {name}, which {of} has not")
    print(f"{what}: {len(ours & theirs)} of {len(theirs)} names as in {of}")
    return ours == theirs


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    library, path, cuda = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    names = set(nvml.load(path))
    is_right = compare(library, {symbol.name for symbol in elf.exported(Path(library))}, names, path)
    stub, header = cuda / "lib64/stubs/libnvidia-ml.so", cuda / "include/nvml.h"
    if stub.exists():
        is_right &= compare(path, names, {symbol.name for symbol in elf.exported(stub)}, str(stub))
    elif header.exists():
        text = re.sub(r"/\*.*?\*/", "", header.read_text(encoding="utf-8"), flags=re.S)
        is_right &= compare(path, names, set(DECLARED.findall(text)), str(header))
    else:
        print(f"{cuda} has neither libnvidia-ml.so nor nvml.h: the rows are compared with nothing")
    sys.exit(0 if is_right else 1)


main()
