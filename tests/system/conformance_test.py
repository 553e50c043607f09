#!/usr/bin/env python3
"""Every function that the toolkit's headers declare, called with arguments that are wrong in some way (tests/conformance): none
blocks or ends the process, none leaves its error to a later call, and the server serves on. What it answers is what NVIDIA's driver
answers (native.txt), but where differences.txt has a reason.

FLYT_CONFORMANCE_PRINT=1 prints the differences as differences.txt has them."""
import os
import re
import sys

import harness
from harness import environment, expect, expect_equal, main, scenario, server

FOLDER = os.path.join(harness.ROOT, "tests", "conformance")
sys.path.insert(0, FOLDER)
import run  # noqa: E402

REFUSED = "801"
PROGRAM = os.path.join(harness.BUILD, "tests", "conformance", "conformance")


def undefined():
    """{(function, way)} that may end the process."""
    with open(os.path.join(FOLDER, "undefined.txt"), encoding="utf-8") as f:
        lines = [line for line in f.read().splitlines() if line and not line.startswith("#")]
    found = [re.fullmatch(r"(\w+) (\w+): \S.*", line) for line in lines]
    expect(all(found), "lines of undefined.txt:", lines)
    return {(one[1], one[2]) for one in found}


def lines_of(name):
    with open(os.path.join(FOLDER, name), encoding="utf-8") as f:
        return [line for line in f.read().splitlines() if line and not line.startswith("#")]


def native():
    """{function: {way: result}} of NVIDIA's driver."""
    return {words[0]: dict(word.split("=") for word in words[1:]) for words in map(str.split, lines_of("native.txt"))}


def explained():
    """{(function, way): (native, Flyt's)} of differences.txt."""
    found = {}
    for name, ways, theirs, ours in map(str.split, lines_of("differences.txt")):
        found.update(((name, way), (theirs, ours)) for way in ways.split(","))
    return found


def differences(results):
    """The same of the results. Where the driver ends the process or blocks, nothing is compared, and nothing where it is called
    but Flyt refuses the function in every way."""
    found = {}
    for name, ways in native().items():
        if set(results[name].values()) <= {REFUSED}:
            continue
        for way, theirs in ways.items():
            if theirs.isdigit() and theirs != results[name][way]:
                found[name, way] = theirs, results[name][way]
    return found


def print_differences(found):
    ways = {}
    for (name, way), results in found.items():
        ways.setdefault((name, *results), []).append(way)
    for (name, theirs, ours), of in ways.items():
        print("    %s %s %s %s" % (name, ",".join(of), theirs, ours))


def wrong(results):
    """(function, way, result) of calls after which a program does not go on as it should."""
    for name, ways in results.items():
        for way, result in ways.items():
            if not re.fullmatch(r"\d+", result):
                yield name, way, result


@scenario
def calls_with_wrong_arguments():
    with server(kind="unix", arguments=("--soft", "1", "--warm", "4")) as s:
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
        found, known = differences(results), explained()
        if os.environ.get("FLYT_CONFORMANCE_PRINT"):
            print_differences(found)
        expect(len(native()) > 900, "functions of native.txt:", len(native()))
        expect_equal({one: found[one] for one in found if known.get(one) != found[one]}, {}, "differences without a reason")
        expect_equal({one: known[one] for one in known if one not in found}, {}, "differences that are none any more")


main()
