#!/usr/bin/env python3
"""What a build is called: all programs and the client library say the same, another name is taken in without compiling
anything, and the same name does nothing."""
import os
import re
import subprocess

import harness
from harness import expect, expect_equal, main, scenario

PROGRAMS = ("flyt-server", "flyt-cluster-manager", "flyt-node-manager", "flyt-client-manager", "flytctl", "flyt-smi")
LIBRARY = "libflyt-client.so.1"
HOLDER = "gen/flyt_build_name.c"


def make(*words):
    """Its output. Not as a part of the make that runs the tests."""
    env = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    result = subprocess.run(["make", "--no-print-directory", *words], cwd=harness.ROOT, env=env, capture_output=True,
                            text=True)
    expect_equal(result.returncode, 0, "make", *words, result.stderr)
    return result.stdout


def name_in(path):
    with open(path) as f:
        return re.search(r'flyt_build_name\[\] = "(.+)";', f.read())[1]


@scenario
def all_say_the_same():
    name = name_in(os.path.join(harness.BUILD, HOLDER))
    for program in PROGRAMS:
        result = harness.run([os.path.join(harness.BUILD, "bin", program), "--version"])
        expect_equal((result.status, result.out), (0, "%s %s\n" % (program, name)), program, "--version")
    with open(os.path.join(harness.BUILD, "lib", LIBRARY), "rb") as f:
        expect(name.encode() + b"\0" in f.read(), LIBRARY, "does not have the name", name)


@scenario
def only_another_name_is_written():
    folder = os.path.join(harness.WORK, "named")
    path = os.path.join(folder, HOLDER)
    written = []
    for name in ("one", "one", "two"):
        make("B=" + folder, "VERSION=" + name, path)
        expect_equal(name_in(path), name, "the name")
        written.append(os.stat(path).st_mtime_ns)
        os.utime(path, ns=(0, 0))
    expect_equal([at == 0 for at in written], [False, True, False], "left as it was", written)


@scenario
def what_is_made_again_for_it():
    """By make's own list of what depends on what: each program and the library link it, no test does."""
    build = os.path.relpath(harness.BUILD, harness.ROOT)
    rules = re.findall(r"^(\S+): (.*)$", make("-n", "-p", "B=" + build, "all", "unit-tests"), re.M)
    holders = {target for target, needed in rules if os.path.join(build, HOLDER) in needed.split()}
    expect_equal(holders, {os.path.join(build, HOLDER[:-1] + "o")}, "compiled for it")
    expect_equal({target for target, needed in rules if holders & set(needed.split())},
                 {os.path.join(build, "bin", program) for program in PROGRAMS} | {os.path.join(build, "lib", LIBRARY)},
                 "linked for it")


if __name__ == "__main__":
    main()
