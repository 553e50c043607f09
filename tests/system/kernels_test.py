#!/usr/bin/env python3
"""Libraries with many kernels, or kernels with long names: more than one reply of the server can tell."""
import os

from harness import expect_equal, helper, main, run, scenario, server, through_flyt


def check(count, name_bytes, timeout):
    with server("unix") as s:
        for _ in range(2):
            result = run(through_flyt(s.url, helper("many_kernels"), str(count), str(name_bytes)), timeout=timeout)
            expect_equal((result.status, result.out), (0, "%d kernels\n" % count), "a library", result)
        expect_equal(run(through_flyt(s.url, helper("echo"))).status, 0, "a program afterwards")


@scenario
def names_that_fill_six_replies():
    check(3000, 2000, 60)


@scenario
def names_of_the_longest_kind():
    """64 KiB, the protocol's bound for a name; one more is refused by its code and harms nothing."""
    check(20, 65536, 60)
    with server("unix") as s:
        result = run(through_flyt(s.url, helper("many_kernels"), "2", "65537"))
        expect_equal((result.status, result.out), (0, "refused 801\n"), "a name that is too long", result)


@scenario
def more_than_65536_kernels():
    """FLYT_SOAK=1: the software GPU takes a while to compile so many."""
    if os.environ.get("FLYT_SOAK"):
        check(65537, 20, 120)


main()
