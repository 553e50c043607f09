#!/usr/bin/env python3
"""Which share of the lines of a folder, and of those below it, its unit tests execute.

usage: tests/coverage.py BUILD FOLDER

BUILD has been made with COVERAGE=1. Runs each unit test in BUILD/FOLDER, and prints a Markdown table of the folders: lines
that can be executed, and how many of them were (gcov). Tests themselves do not count. Exit status 1 where a test failed.
"""
import collections
import json
import os
import subprocess
import sys
from pathlib import Path


def run_tests(build, folder):
    """The tests that failed. What earlier runs have counted is forgotten."""
    for path in build.rglob("*.gcda"):
        path.unlink()
    tests = [path for path in sorted((build / folder).rglob("*_test")) if os.access(path, os.X_OK)]
    return [path for path in tests if subprocess.run([path], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode]


def executed_lines(build, folder):
    """{source: {line: how often}}, of all objects that a line was compiled into together."""
    lines = collections.defaultdict(collections.Counter)
    for notes in sorted((build / folder).rglob("*.gcno")):
        said = subprocess.run(["gcov", "--json-format", "--stdout", notes], check=True, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True).stdout
        for document in said.splitlines():
            for file in json.loads(document)["files"]:
                for line in file["lines"]:
                    lines[file["file"]][line["line_number"]] += line["count"]
    return lines


def is_counted(source, folder):
    name = Path(source).name
    return source.startswith(folder + "/") and not name.endswith("_test.c") and not name.startswith("test_")


def main(build, folder):
    failed = run_tests(Path(build), folder)
    modules = {source: (len(lines), sum(count > 0 for count in lines.values()))
               for source, lines in executed_lines(Path(build), folder).items() if is_counted(source, folder)}
    print("| folder | module | lines | executed |\n|---|---|---:|---:|")
    for below in sorted({os.path.dirname(source) for source in modules}):
        own = {source: counts for source, counts in modules.items() if os.path.dirname(source) == below}
        total, executed = (sum(counts[i] for counts in own.values()) for i in (0, 1))
        print("| %s | all | %d | %.0f %% |" % (below, total, 100 * executed / total))
        for source, (count, hit) in sorted(own.items()):
            print("| | %s | %d | %.0f %% |" % (os.path.basename(source), count, 100 * hit / count))
    for test in failed:
        print("%s failed" % test, file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
