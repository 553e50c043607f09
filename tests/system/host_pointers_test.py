#!/usr/bin/env python3
"""A kernel that follows an address of the program's own memory ends in an illegal address, as far as the GPU goes. What it
was, and which parameter of which kernel, is told on stderr; no address is, and nothing where none was given."""
import re

from harness import app, environment, expect, expect_equal, helper, lines, main, run, scenario, server, through_flyt

KINDS = {
    "pinned": "pinned memory of the program",
    "registered": "registered memory of the program",
    "heap": "memory of the program's heap",
    "mapped": "ordinary memory of the program (malloc, mmap)",
    "stack": "memory of the program's stack",
    "variable": "variables or mapped files of the program",
}
SENTENCE = "flyt: kernel %s was given the address of %s, which a GPU cannot reach through Flyt: parameter=%u offset_bytes=%u"


def fault(s, kind):
    """What the program's stderr had, line by line."""
    result = run(through_flyt(s.url, helper("host_pointer"), kind))
    expect_equal((result.status, result.out), (0, "700\n"), kind, result)
    expect(not re.search(r"0x[0-9a-f]{4}", result.err), "an address on stderr", result)
    return lines(result.err)


@scenario
def each_kind_is_named():
    with server() as s:
        for kind, words in KINDS.items():
            expect_equal(fault(s, kind), [SENTENCE % ("_Z4fillPfmf", words, 0, 0)], kind)


@scenario
def inside_of_a_structure():
    with server() as s:
        expect_equal(fault(s, "held"), [SENTENCE % ("_Z9fill_heldf6holder", KINDS["pinned"], 1, 8)], "held")


@scenario
def without_randomized_addresses():
    """A server elsewhere may have the same addresses: what is told is the program's."""
    with server() as s:
        result = run(["setarch", "-R", *through_flyt(s.url, helper("host_pointer"), "pinned")])
        expect_equal(lines(result.err), [SENTENCE % ("_Z4fillPfmf", KINDS["pinned"], 0, 0)], result)


@scenario
def other_faults_say_nothing():
    with server() as s:
        expect_equal(fault(s, "none"), [], "none")
        for name in ("fault_address", "fault_misaligned"):
            result = run(through_flyt(s.url, app(name)), environment(FLYT_TEST_FORWARDED="1"))
            expect_equal(result.status, 0, name, result)
            expect("was given the address" not in result.err, name, result)


main()
