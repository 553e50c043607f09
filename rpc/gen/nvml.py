#!/usr/bin/env python3
"""Makes what is regular of libnvidia-ml.so.1 from its rows: the version script, and the functions that refuse or always
give the same number.

usage: nvml.py OUTPUT_FOLDER nvml.rows
"""
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from generate import write  # noqa: E402

ROW = re.compile(r"own (?P<own>nvml\w+)|value (?P<value>nvml\w+) (?P<number>\d+)|none (?P<device>device )?(?P<none>nvml\w+)")
EXPORT = '__attribute__((visibility("default"))) int'


class RowError(Exception):
    """A row that says nothing, or something twice."""


def load(path):
    """{name: what its row says, with `reason`}, in order."""
    rows, reason = {}, None
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        if line.startswith("reason: "):
            reason = line[len("reason: "):]
            continue
        match = ROW.fullmatch(line)
        if not match or not reason:
            raise RowError(f"{path}:{number}: {'no row' if not match else 'no reason stands above it'}: {line}")
        name = match["own"] or match["value"] or match["none"]
        if name in rows:
            raise RowError(f"{path}:{number}: {name} stands there twice")
        rows[name] = {**match.groupdict(), "reason": reason}
    return rows


def coverage(rows):
    """Lines of a table: how many functions are answered, and for which reasons others are refused."""
    counts = {}
    for row in rows.values():
        words = (f"refused: {row['reason']}" if row["none"] else "answered from the grant and the client manager" if row["own"] else
                 "answered with what is always so")
        counts[words] = counts.get(words, 0) + 1
    return [f"| {words} | {count} |" for words, count in sorted(counts.items())] + [f"| **all** | **{len(rows)}** |"]


def function_c(name, row):
    """The function of a row that is not written by hand. It ignores what it has no use for: the caller takes its own
    arguments off the stack."""
    if row["value"]:
        return f'{EXPORT} {name}(const void *device, unsigned *value) {{ return flyt_nvml_give(device, value, {row["number"]}); }}'
    if row["device"]:
        return f'{EXPORT} {name}(const void *device) {{ return flyt_nvml_refuse_device("{name}", device); }}'
    return f'{EXPORT} {name}(void) {{ return flyt_nvml_refuse("{name}"); }}'


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    out, path = Path(sys.argv[1]), sys.argv[2]
    try:
        rows = load(path)
    except (RowError, OSError) as error:
        sys.exit(f"nvml.py: {error}")
    banner = f"/* Made from {path} by rpc/gen/nvml.py: edit that. */"
    names = "\n".join(f"    {name};" for name in sorted(rows))
    write(out / "libnvidia-ml.map", f"{banner}\n{{\nglobal:\n{names}\nlocal:\n    *;\n}};\n")
    made = [function_c(name, row) for name, row in sorted(rows.items()) if not row["own"]]
    write(out / "nvml_stubs.c", "\n".join([banner, '#include "cpu/nvml/refuse.h"', "", *made]) + "\n")
    (out / "nvml.stamp").touch()


if __name__ == "__main__":
    main()
