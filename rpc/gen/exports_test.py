#!/usr/bin/env python3
"""Compares what a replaced library exports with NVIDIA's: every name, its version, and nothing else.

usage: exports_test.py OURS NVIDIAS [OWN_NAME…]
"""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import elf  # noqa: E402


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    ours, theirs = (set(elf.exported(Path(path))) for path in sys.argv[1:3])
    ours = {symbol for symbol in ours if symbol.name not in sys.argv[3:]}
    for what, symbols in (("lacks", theirs - ours), ("exports beyond NVIDIA's", ours - theirs)):
        for symbol in sorted(symbols, key=lambda one: one.name):
            print(f"{sys.argv[1]} {what} {symbol.name}@@{symbol.version}")
    own = set(sys.argv[3:]) - {symbol.name for symbol in elf.exported(Path(sys.argv[1]))}
    for name in own:
        print(f"{sys.argv[1]} lacks {name}")
    print(f"{sys.argv[1]}: {len(ours & theirs)} of {len(theirs)} symbols as in {sys.argv[2]}")
    sys.exit(1 if ours != theirs or own else 0)


main()
