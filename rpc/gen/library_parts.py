#!/usr/bin/env python3
"""Makes the sources of a library's parts: files of NVIDIA's that export some of its functions each, under symbol versions of
their own. A function of a part jumps to the library's.

usage: library_parts.py OUTPUT_FOLDER NAME.rows NAME.parts
"""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import library_rows  # noqa: E402
from generate import write  # noqa: E402
from library_rows import RowError  # noqa: E402

JUMP = """__asm__(".symver whole_{name}, {name}@{whole}\\n"
        ".pushsection .text\\n"
        ".globl {name}\\n"
        ".type {name}, @function\\n"
        ".p2align 4\\n"
        "{name}:\\n"
        "    endbr64\\n"
        "    jmp *whole_{name}@GOTPCREL(%rip)\\n"
        ".size {name}, . - {name}\\n"
        ".popsection\\n");
"""


def read(path):
    """{a part's file: the names of its functions}."""
    parts, names = {}, None
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), 1):
        text = line.split("#")[0].rstrip()
        if text.startswith(" "):
            if names is None:
                raise RowError(f"{path}:{number}: functions before the name of a file")
            names += text.split()
        elif text:
            if text in parts:
                raise RowError(f"{path}:{number}: {text} stands there twice")
            names = parts[text] = []
    return parts


def check(parts, exported, path):
    """Each function of the library is in one part."""
    named = [name for names in parts.values() for name in names]
    for what, names in (("is no function of the library", set(named) - exported), ("is in no part", exported - set(named)),
                        ("is in two parts", {name for name in named if named.count(name) > 1})):
        if names:
            raise RowError(f"{path}: {what}: {' '.join(sorted(names))}")


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    out, rows, path = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    try:
        library, parts = library_rows.load(rows), read(path)
        # Those of a later release are in the library's own file alone.
        check(parts, {call.symbol for call in library.calls if not call.reason.startswith("of a later release")}, path)
    except (RowError, OSError) as error:
        sys.exit(f"library_parts.py: {error}")
    banner = f"/* Made from {path} by rpc/gen/library_parts.py: edit that. */\n"
    for file, names in parts.items():
        stem = file.split(".so")[0]
        write(out / f"{stem}.c", banner + "".join(JUMP.format(name=name, whole=library.soname) for name in names))
        write(out / f"{stem}.map", f"{banner}{file} {{\nglobal:\n    " + ";\n    ".join(names) + ";\nlocal:\n    *;\n};\n")
    (out / f"library_{library.name}_parts.stamp").touch()


if __name__ == "__main__":
    main()
