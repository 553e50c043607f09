#!/usr/bin/env python3
"""Client slots of a GPU that MPS shares: warm servers count, what is taken is shown, and who finds none is refused with
the reason, before the driver refuses a context (808). The software GPU's own bound is as low as the node's. A program
that begins right after another one of its VM has ended gets its place."""
import os
import tempfile

import harness
from cluster import System
from harness import expect, expect_equal, helper, main, scenario, within
from steady import Steady, add_vm, is_idle

SLOTS = 4
ONE_BY_ONE = 30
LOOP = 'i=0; while [ $i -lt %d ]; do "$0" $i </dev/null || exit 1; i=$((i + 1)); done' % ONE_BY_ONE


@scenario
def slots_are_scheduled():
    env = harness.environment()
    env["FLYT_SOFT_CLIENT_SLOTS"] = str(SLOTS)
    env["FLYT_SOFT_CLIENT_FOLDER"] = tempfile.mkdtemp(prefix="clients-", dir=harness.WORK)
    with System(vms=2, memory="512M", env=env, node={"client_slots": SLOTS, "warm": 1}) as system:
        add_vm(system, 0, "--sessions", 3, memory="64M")
        add_vm(system, 1, "--sessions", 3, memory="64M")
        programs = [Steady(system, 0) for _ in range(SLOTS - 1)]
        gpu = system.flytctl("gpus")[0]
        expect_equal((gpu["client_slots"], gpu["client_slots_allocated"]), (SLOTS - 1, 3), "what is granted", gpu)
        within(20, lambda: system.flytctl("gpus")[0]["servers"] == SLOTS, "servers, the warm one included")
        expect_equal([n["server_uids"] for n in system.flytctl("nodes")], [str(os.geteuid())], "whose the servers are")
        wide = system.flytctl_run("gpus", "-o", "wide").out
        expect("SLOTS" in wide and "3/3" in wide and "SERVERS" in wide, wide)
        result = system.run_in_vm(1, helper("echo"))
        expect(result.status != 0 and "slots" in result.err, "one program too many is refused, and why:", result)
        # A server that ends has its slot until its process is gone: nobody is started before.
        for _ in range(8):
            programs.pop(0).ends_right()
            programs.append(Steady(system, 0))
        expect("cuda_result=808" not in system.log("node-0"), "the driver had to refuse one", system.log("node-0")[-2000:])
        expect_equal([g["health"] for g in system.flytctl("gpus")], ["ok"], "the GPU")
        for program in programs:
            program.ends_right()
        is_idle(system)


@scenario
def one_after_the_other():
    with System(vms=1, memory="256M") as system:
        add_vm(system, 0, "--sessions", 1, memory="64M")
        result = system.run_in_vm(0, "sh", "-c", LOOP, helper("echo"), timeout=300)
        expect_equal((result.status, result.err), (0, ""), "a script of programs", result)
        expect_equal(harness.lines(result.out), ["[%d]" % i for i in range(ONE_BY_ONE)], "what they said")
        running = Steady(system, 0)
        result = system.run_in_vm(0, helper("echo"))
        expect(result.status != 0 and "as many as its allocation allows" in result.err, "one beside another:", result)
        running.ends_right()
        is_idle(system)


main()
