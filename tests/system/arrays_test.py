#!/usr/bin/env python3
"""CUDA arrays: they are charged to the VM, and stand against going on at another server when theirs has died. Programs that
have some, and textures and surfaces of them, while their SMs change and while they move, are among programs/movers."""
import harness
import movers
from cluster import System
from harness import expect, expect_equal, helper, main, scenario, within
from steady import add_vm, is_idle

ARRAYS = helper("array_memory")


def whole_system():
    system = System(vms=1, gpus=1, sms=64, memory="1G")
    try:
        add_vm(system, 0, "--name", "alice", "--sessions", 4, sm=16, memory="256M")
    except BaseException:
        system.close()
        raise
    return system


@scenario
def they_are_charged():
    """What was given back can be had again at once: who finds no memory waits for arrays that are about to go."""
    with whole_system() as system:
        for mib, said in ((64, "ok"), (160, "ok"), (400, "cudaErrorMemoryAllocation")):
            result = harness.finish(system.start_in_vm(0, ARRAYS, str(mib)))
            expect_equal((result.status, result.out), (0, said + "\n"), mib, "MiB of 256", result)
        is_idle(system)


@scenario
def they_stand_against_replacement():
    with whole_system() as system:
        case, = [case for case in movers.cases() if case.name == "array_contents"]
        seen = []

        def look(_):
            sessions = within(60, lambda: (lambda found: len(found) == 1 and found[0]["why_not"] and found)(
                system.flytctl("sessions")), "the node tells of the session")
            seen.append((sessions[0]["replaceable"], "CUDA arrays" in sessions[0]["why_not"]))

        movers.under(system, 0, [case], look, 1, movers.seed())
        expect(seen and all(one == (False, True) for one in seen), "of its session:", seen)
        is_idle(system)


if __name__ == "__main__":
    main()
