#!/usr/bin/env python3
"""cuDNN's parts (libcudnn_ops.so.9 and its like): a program that is linked to them, and one that opens them, is served."""
import os
import subprocess

import harness
from harness import environment, expect_equal, helper, lines, main, run, scenario, server, through_flyt

PARTS = ("graph", "ops", "cnn", "adv")


def files():
    return ["libcudnn_%s.so.9" % part for part in PARTS]


def version():
    """As rpc/library/cudnn.rows has it."""
    with open(os.path.join(harness.ROOT, "rpc", "library", "cudnn.rows")) as f:
        words = next(line for line in f if line.startswith("library ")).split()
    major, minor = words[words.index("version") + 1].split(".")
    return int(major) * 10000 + int(minor) * 100


def ways(url):
    """Through flyt-run, and where the loader finds the libraries of itself."""
    yield through_flyt(url, helper("parts")), environment()
    yield [helper("parts")], environment(FLYT_SERVER=url, LD_LIBRARY_PATH=os.path.join(harness.BUILD, "lib"))


@scenario
def linked_to_the_parts_alone():
    needed = subprocess.run(["readelf", "-dW", helper("parts")], capture_output=True, text=True, check=True).stdout
    expect_equal([name for name in [*files(), "libcudnn.so.9"] if "[%s]" % name in needed], files(), "what the program needs")
    with server() as s:
        for command, env in ways(s.url):
            result = run(command, env)
            expect_equal((result.status, result.out, result.err), (0, "version %d\n" % version(), ""), command, result)


@scenario
def opened_when_the_program_runs():
    """Functions of a part are found in it by NVIDIA's version names, what it has from others by the part's handle."""
    with server() as s:
        for command, env in ways(s.url):
            result = run([*command, "opened"], env)
            expect_equal((result.status, result.err), (0, ""), command, result)
            expect_equal(lines(result.out), ["%s %d %s libcudnn.so.9" % (name, version(), name) for name in files()], command)


main()
