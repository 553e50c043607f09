#!/usr/bin/env python3
"""Compares what the parts of a replaced library export with what NVIDIA's files of these names do. Skips, by name, what the
toolkit does not have.

usage: library_parts_check.py NAME.parts OUR_FOLDER NVIDIA_FOLDER
"""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import elf  # noqa: E402
import library_parts  # noqa: E402

SKIPPED = 77


def is_meant(pattern, name):
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


def differences(part, ours, theirs):
    """A sentence for each, of two sets of elf.Symbol."""
    absent = {symbol for symbol in theirs if any(is_meant(pattern, symbol.name) for pattern in part.absent)}
    unmet = [pattern for pattern in part.absent if not any(is_meant(pattern, symbol.name) for symbol in theirs)]
    return ([f"lacks {one.name}@@{one.version}" for one in sorted(theirs - ours - absent, key=lambda one: one.name)] +
            [f"exports beyond NVIDIA's {one.name}@@{one.version}" for one in sorted(ours - theirs, key=lambda one: one.name)] +
            [f"exports {one.name}, which stands as absent" for one in sorted(ours & absent, key=lambda one: one.name)] +
            [f"says that {pattern} is absent, which NVIDIA's has not either" for pattern in sorted(unmet)])


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    parts, built, real = library_parts.read(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
    missing = [file for file in parts if not (real / file).exists()]
    count = 0
    for file, part in parts.items():
        if file in missing:
            continue
        ours, theirs = set(elf.exported(built / file)), set(elf.exported(real / file))
        found = differences(part, ours, theirs)
        for text in found:
            print(f"{file} {text}")
        count += len(found)
        print(f"{file}: {len(ours & theirs)} symbols as in NVIDIA's, {len(found)} differences")
    if missing: # the last line is a test's reason
        print(f"{real} has no {' and no '.join(missing)}")
    sys.exit(1 if count else SKIPPED if missing else 0)


if __name__ == "__main__":
    main()
