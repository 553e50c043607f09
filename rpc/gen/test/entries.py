#!/usr/bin/env python3
"""Entry points of a table whose functions a header of its own declares.

usage: entries.py TABLE.api HEADER.h INCLUDE_FOLDER
"""
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import entries  # noqa: E402
import prototypes  # noqa: E402
import rows  # noqa: E402


def main():
    table, header, include = sys.argv[1:]
    text = subprocess.run(["gcc", "-E", "-P", f"-I{include}", header], capture_output=True, text=True, check=True).stdout
    print(entries.library_c("cuda", rows.load([table]).entries, prototypes.parse(text), (), ["flyt_client_rows.h"], ""))


if __name__ == "__main__":
    main()
