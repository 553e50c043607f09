#!/usr/bin/env python3
"""Every row of NVIDIA's libraries, called through the client's library: the node's gets what the program gave, and the
program what the node's library wrote. In the place of that is one which writes down its calls; both and the program are
made from the rows (rpc/gen/library_recorder.py)."""
import collections
import os

import harness
from harness import environment, expect, expect_equal, main, run, scenario, server

RECORDED = os.path.join(harness.HELPERS, "recorded")


BY_HAND = {"nccl"}      # all their rows are: nothing is recorded, and the program calls what is refused


def lines(path):
    if not os.path.exists(path):
        return []
    with open(path) as f:
        return f.read().splitlines()


def names():
    """The libraries for which there is a program."""
    return sorted(name[:-len("_caller.c")] for name in os.listdir(RECORDED) if name.endswith("_caller.c"))


def compare(name, got, wanted):
    """Calls that the server's threads make have no order among them."""
    missing, extra = collections.Counter(wanted) - collections.Counter(got), collections.Counter(got) - collections.Counter(wanted)
    for line in sorted(missing):
        words = line.split()
        seen = next((other.split() for other in sorted(extra) if other.split()[0] == words[0]), [])
        expect(False, name, words[0], "should have got", [word for word in words if word not in seen], "and got",
               [word for word in seen if word not in words])
    expect(not extra, name, "got more calls:", sorted(extra)[:3])


@scenario
def each_row_comes_as_it_was_called():
    expect(names(), "no library's program is built")
    for name in names():
        record, expected = (os.path.join(harness.WORK, "%s.%s" % (name, what)) for what in ("record", "expected"))
        arguments = ("--soft", "1", "--libraries", os.path.join(RECORDED, "lib"))
        with server(arguments=arguments, env=environment(FLYT_RECORD=record)) as node:
            program = harness.through_flyt(node.url, os.path.join(RECORDED, name))
            result = run(program, environment(FLYT_EXPECTED=expected))
            expect_equal((result.status, result.out), (0, ""), name, result)
            said = [line for line in result.err.splitlines() if not line.endswith(" is not supported")]
            expect_equal(said, [], name, "is silent but for what is refused")
            got, wanted = lines(record), lines(expected)
            expect(len(wanted) > 10 or name in BY_HAND and not wanted, name, "was called", len(wanted), "times")
            compare(name, got, wanted)


if __name__ == "__main__":
    main()
