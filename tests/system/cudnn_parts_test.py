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
    """As rpc/library/cudnn.rows has it, and the software GPU's library."""
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


def told(number):
    """As cudnnGetVersion and cudnnGetProperty say it."""
    return "%d %d.%d.%d" % (number, number // 10000, number // 100 % 100, number % 100)


def versions(url):
    """What a program is told before its first CUDA call, and after it."""
    result = run(through_flyt(url, helper("parts"), "versions"))
    expect_equal((result.status, result.err), (0, ""), result)
    return lines(result.out)


@scenario
def the_version_is_that_of_the_node():
    """Of a library that is newer than the client's (programs/graph_library.c), once there is a server."""
    with server() as s:
        expect_equal(versions(s.url), [told(version())] * 2, "of the software GPU's library")
    with server(arguments=("--soft", "1", "--libraries", os.path.join(harness.HELPERS, "graph"))) as s:
        expect_equal(versions(s.url), [told(version()), told(92103)], "of the node's library")


@scenario
def nothing_is_asked_for_the_version_alone():
    """A program that has no server is told the client's, and the CUDA call after that is what finds that there is none."""
    result = run(through_flyt("tcp://127.0.0.1:1", helper("parts"), "versions"))
    expect_equal(lines(result.out)[0], told(version()), result)
    expect_equal(lines(result.out)[1].split()[:2], ["error", "802"], result)


main()
