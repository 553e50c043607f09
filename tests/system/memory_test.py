#!/usr/bin/env python3
"""Memory of VMs: nobody reads what another one has left."""
import harness
from cluster import System
from harness import expect, expect_equal, helper, main, scenario
from steady import add_vm, is_idle

SIZES = ["65536", "3145728", "20971520"]


def dirty():
    """Software GPUs that hand out memory with leftovers in every byte."""
    env = harness.environment()
    env["FLYT_SOFT_DIRTY"] = "1"
    return env


def leftovers(system, i):
    result = system.run_in_vm(i, helper("leftovers"), "look", "2", *SIZES)
    expect_equal((result.status, result.err), (0, ""), "a program that looks", result)
    return int(result.out.split()[1])


@scenario
def nothing_is_left_for_others():
    """One VM's program is killed with its memory full; another's finds none of it, however it reads first."""
    with System(vms=2, memory="256M", env=dirty()) as system:
        for i in range(2):
            add_vm(system, i, memory="96M")
        writer = system.start_in_vm(0, helper("leftovers"), "write", str(64 << 20))
        expect_equal(writer.stdout.readline(), b"written\n", "it has written")
        expect_equal(leftovers(system, 1), 0, "words that are not 0, beside it")
        harness.kill_group(writer)
        writer.wait()
        is_idle(system)
        for i in (1, 0):
            expect_equal(leftovers(system, i), 0, "words that are not 0, after it")
        is_idle(system)


@scenario
def only_scrubbing_hides_it():
    """Where the driver is trusted, and should not be, there is something to be found: the other scenario can fail."""
    with System(memory="256M", env=dirty(), node={"scrub": False}) as system:
        add_vm(system, 0, memory="96M")
        expect(leftovers(system, 0) > 0, "a dirty GPU is found clean")


main()
