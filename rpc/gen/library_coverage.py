#!/usr/bin/env python3
"""Counts how the functions of NVIDIA's libraries are answered, by library and class, and why others are refused.

usage: library_coverage.py COVERAGE.md NAME.rows…
"""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import library_rows  # noqa: E402
from generate import write  # noqa: E402

# class -> what it means; the classes of one meaning stand together.
MEANINGS = {("stream",): "work in a stream; not awaited once its like has succeeded", ("sync", "cached", "more", "aside"): "asked of the server",
            ("new", "end"): "makes or ends an object",
            ("set", "get", "attributes", "make", "unmake", "fill", "tell"): "kept and answered in the client", ("hand",): "by hand, for the reason in its row",
            ("none",): "refused by name"}


def table(libraries):
    names = [library.soname for library in libraries]
    out = ["| class | " + " | ".join(f"`{name}`" for name in names) + " | meaning |", "|---|" + "---:|" * len(names) + "---|"]
    for kinds, meaning in MEANINGS.items():
        counts = [sum(call.kind in kinds for call in library.calls) for library in libraries]
        out.append(f"| {', '.join(f'`{kind}`' for kind in kinds)} | " + " | ".join(map(str, counts)) + f" | {meaning} |")
    out.append("| **all** | " + " | ".join(f"**{len(library.calls)}**" for library in libraries) + " | |")
    return out


def reasons(libraries):
    out = ["| refused | library | functions |", "|---|---|---:|"]
    for library in libraries:
        counts = {}
        for call in library.calls:
            if call.kind == "none":
                counts[call.reason] = counts.get(call.reason, 0) + 1
        out += [f"| {reason} | `{library.soname}` | {count} |" for reason, count in sorted(counts.items())]
    return out


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    libraries = [library_rows.load(path) for path in sys.argv[2:]]
    known = {kind for kinds in MEANINGS for kind in kinds}
    unknown = library_rows.CLASSES - known
    if unknown:
        sys.exit(f"library_coverage.py: no meaning of {' '.join(sorted(unknown))}")
    write(Path(sys.argv[1]), "\n".join(["<!-- Made by rpc/gen/library_coverage.py. -->", "", *table(libraries), "", *reasons(libraries)]) + "\n")


if __name__ == "__main__":
    main()
