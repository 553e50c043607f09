#!/usr/bin/env python3
"""Programs and servers whose addresses are random, and such whose are not: variables of modules have addresses that the
server's driver chooses, where the program must have no memory of its own."""
import contextlib
import ctypes

from harness import app, environment, expect, expect_equal, main, run, scenario, server, skip, through_flyt

ADDR_NO_RANDOMIZE = 0x0040000
PROGRAMS = ("symbols", "symbols_placed", "module_driver", "module_rdc", "pointers_inside", "device_reset", "fork_child")


@contextlib.contextmanager
def randomization_off():
    """As `setarch -R` and debuggers do: what is started meanwhile inherits it."""
    libc = ctypes.CDLL(None, use_errno=True)
    before = libc.personality(0xffffffff)
    if before < 0 or libc.personality(before | ADDR_NO_RANDOMIZE) < 0:
        skip("the system does not let a process switch address space randomization off")
    try:
        yield
    finally:
        libc.personality(before)


def run_all(url):
    for name in PROGRAMS:
        result = run(through_flyt(url, app(name)), environment(FLYT_TEST_FORWARDED="1"))
        expect_equal(result.status, 0, name, result)


@scenario
def random_programs():
    with server() as s:
        run_all(s.url)


@scenario
def programs_without_randomization():
    with server() as s, randomization_off():
        run_all(s.url)


@scenario
def nothing_is_random():
    with randomization_off(), server() as s:
        run_all(s.url)


@scenario
def a_refused_variable_is_named():
    """The program maps memory where a process before it was told that the variable is."""
    with randomization_off(), server() as s:
        result = run(through_flyt(s.url, app("symbols_placed")), environment(FLYT_TEST_FORWARDED="1"))
        expect_equal(result.status, 0, "symbols_placed", result)
        expect_equal(result.err.count("variable table of device 0 is refused"), 1, "lines that name it", result)
        expect("0x" not in result.err, "an address on stderr", result)


main()
