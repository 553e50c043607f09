#!/usr/bin/env python3
"""Makes the sources of a library's parts: files of NVIDIA's that export some of its functions each, under symbol versions of
their own. A function of a part jumps to the library's.

usage: library_parts.py OUTPUT_FOLDER NAME.rows NAME.parts
"""
import sys
from dataclasses import dataclass, field
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


@dataclass
class Part:
    """A part's functions; and what NVIDIA's file exports beside them and ours does not: a name, or the beginning of names with a
    `*` behind it, with the reason."""
    names: list = field(default_factory=list)
    absent: dict = field(default_factory=dict)


def read(path):
    """{a part's file: Part}."""
    parts, part, reason = {}, None, None
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), 1):
        text = line.split("#")[0].rstrip()
        depth = len(text) - len(text.lstrip())
        if not text:
            continue
        if depth and part is None:
            raise RowError(f"{path}:{number}: functions before the name of a file")
        if not depth:
            if text in parts:
                raise RowError(f"{path}:{number}: {text} stands there twice")
            part, reason = parts.setdefault(text, Part()), None
        elif text.strip().startswith("absent "):
            reason, is_ended, rest = text.strip()[len("absent "):].partition(":")
            if not is_ended or rest:
                raise RowError(f"{path}:{number}: expected absent REASON:, and names in the lines below")
        elif depth > 4 and reason:
            part.absent.update({name: reason for name in text.split()})
        else:
            part.names += text.split()
    return parts


def check(parts, exported, path):
    """Each function of the library is in one part, and absent from none."""
    named = [name for part in parts.values() for name in part.names]
    absent = {name for part in parts.values() for name in part.absent}
    for what, names in (("is no function of the library", set(named) - exported), ("is in no part", exported - set(named)),
                        ("is in two parts", {name for name in named if named.count(name) > 1}),
                        ("is a function of the library and absent", exported & absent)):
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
    for file, part in parts.items():
        stem = file.split(".so")[0]
        write(out / f"{stem}.c", banner + "".join(JUMP.format(name=name, whole=library.soname) for name in part.names))
        write(out / f"{stem}.map", f"{banner}{file} {{\nglobal:\n    " + ";\n    ".join(part.names) + ";\nlocal:\n    *;\n};\n")
    (out / f"library_{library.name}_parts.stamp").touch()


if __name__ == "__main__":
    main()
