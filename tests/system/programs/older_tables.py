#!/usr/bin/env python3
"""Makes the call tables of an imagined older build out of today's (rpc/api/*.api): some rows and a structure are not there
yet, one has other arguments, and one is there that was given up since.

usage: older_tables.py OUTPUT_FOLDER TABLE.api…
"""
import re
import sys
from pathlib import Path

LACKING = ("event_elapsed", "kernel_cluster_occupancy", "profiler_set", "session_all_sent",
           "session_stopped", "session_is_whole", "session_left_at", "session_resume_fail", "library_symbol", "constant_write", "constant_read",
           "stream_memory_ops", "kernel_traits")
NEW_STRUCT = "stream_op"  # is of a row that is lacking
OTHER = "kernel_available_shared"
GIVEN_UP = "\nproc 65000 given_up sync\n    arg u32 device\n    moves as nothing\n    by hand: it is of a test\n"


def older(text):
    """The text, and how many of the rows above it had."""
    text = re.sub(rf"^struct {NEW_STRUCT}\n(?:    .*\n)*", "", text, flags=re.M)
    parts = re.split(r"^(?=proc )", text, flags=re.M)
    kept, count = parts[:1], 0
    for part in parts[1:]:
        name = part.split()[2]
        if name in LACKING:
            count += 1
            part = re.sub(r"\Aproc.*\n(?:    .*\n)*", "", part)
        elif name == OTHER:
            count += 1
            part = re.sub(r"\A(proc.*\n)", r"\1    arg u32 since_forgotten\n", part)
        kept.append(part)
    return "".join(kept), count


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    folder, total = Path(sys.argv[1]), 0
    folder.mkdir(parents=True, exist_ok=True)
    for path in map(Path, sys.argv[2:]):
        text, count = older(path.read_text())
        total += count
        (folder / path.name).write_text(text + (GIVEN_UP if path.name == "kernel.api" else ""))
    if total != len(LACKING) + 1:
        sys.exit("older_tables.py: %d of the rows %s are in the tables" % (total, " ".join((*LACKING, OTHER))))


if __name__ == "__main__":
    main()
