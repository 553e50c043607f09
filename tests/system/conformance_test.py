#!/usr/bin/env python3
"""Every function that the toolkit's headers declare, called with arguments that are wrong in some way (tests/conformance): none
blocks or ends the process, none leaves its error to a later call, and the server serves on."""
import os
import re
import sys

import harness
from harness import environment, expect, expect_equal, main, scenario, server

FOLDER = os.path.join(harness.ROOT, "tests", "conformance")
sys.path.insert(0, FOLDER)
import run  # noqa: E402

PROGRAM = os.path.join(harness.BUILD, "tests", "conformance", "conformance")


def undefined():
    """{(function, way)} that may end the process."""
    with open(os.path.join(FOLDER, "undefined.txt"), encoding="utf-8") as f:
        lines = [line for line in f.read().splitlines() if line and not line.startswith("#")]
    found = [re.fullmatch(r"(\w+) (\w+): \S.*", line) for line in lines]
    expect(all(found), "lines of undefined.txt:", lines)
    return {(one[1], one[2]) for one in found}


def wrong(results):
    """(function, way, result) of calls after which a program does not go on as it should."""
    for name, ways in results.items():
        for way, result in ways.items():
            if not re.fullmatch(r"\d+", result):
                yield name, way, result


@scenario
def calls_with_wrong_arguments():
    with server(kind="unix", arguments=("--soft", "2", "--warm", "4")) as s:
        env = environment(FLYT_SERVER=s.url, LD_LIBRARY_PATH=os.path.join(harness.BUILD, "lib"))
        names = run.functions(PROGRAM, env)
        expect(len(names) > 900, "functions of the headers:", len(names))
        results = dict(run.call_all(PROGRAM, names, env))
        expect_equal({(name, way) for name, way, _ in wrong(results)}, undefined(), [one for one in wrong(results)])
        # A driver's functions have all eight ways, the runtime's six.
        expect_equal({name: len(ways) for name, ways in results.items() if len(ways) not in (6, 8)}, {}, "calls that were not made")
        expect_equal(results["cuMemAlloc_v2"], {"uninitialized": "3", "bare": "201", "zero": "1", "room": "1", "wrong": "0", "high": "2",
                                                "ones": "2", "ended": "1"}, "cuMemAlloc")
        expect_equal(results["cudaStreamDestroy"]["ended"], "400", "a stream that has ended")
        expect(s.process.poll() is None, "the server has ended")


main()
