#!/usr/bin/env python3
"""A server process that was taken over (programs/scribbler.c) writes random bytes over all memory that it shares with others,
again and again: the programs of other VMs compute and compare, get their memory and their time, resizes are carried out,
new programs are let in, and the node manager lives."""
import os
import tempfile

import harness
from cluster import System
from harness import expect, expect_equal, helper, main, scenario, within
from steady import Steady, add_vm, allocations, events, server_of, uses
from survivor import Survivor

ROUNDS = 300            # of the hostile server over all that it shares
MEMORY = (512, 128, 128)        # MiB


def lines_of(path):
    if not os.path.exists(path):
        return []
    with open(path) as f:
        return f.read().split()


def resize(system, i, mib):
    """The hostile one's ledger says anything of what it uses: by that its own resize may be refused, which is an answer."""
    result = system.flytctl_run("resize", system.vm_ip(i), "--memory", "%dM" % mib)
    is_refused = i == 0 and result.status == 1 and "are in use" in result.err + result.out
    expect(result.status == 0 or is_refused, "a resize of VM", i, result)


@scenario
def a_server_that_writes_over_all_that_it_shares():
    told = os.path.join(tempfile.mkdtemp(dir=harness.WORK), "hostile")
    os.chmod(os.path.dirname(told), 0o777)      # servers may be users of their own
    env = harness.environment(LD_PRELOAD=helper("scribbler.so"), FLYT_TEST_SCRIBBLE=told)
    with System(vms=3, sms=16, memory="2G", env=env, cluster={"allocation_linger_s": 2}) as system:
        # The hostile one and the second share SMs in time; the third has its own.
        add_vm(system, 0, "--minimum-share", 50, sm=8, memory="%dM" % MEMORY[0])
        add_vm(system, 1, "--minimum-share", 50, sm=8, memory="%dM" % MEMORY[1])
        add_vm(system, 2, sm=8, memory="%dM" % MEMORY[2])
        hostile, sharer, other = Survivor(system, 0), Steady(system, 1), Steady(system, 2)
        for program in (sharer, other):
            program.takes(16)
            program.goes_on()
        manager = system.supervisor.get("node-0")["pid"]
        with open(told, "w") as f:
            f.write(str(server_of(system, 0)))
        within(60, lambda: lines_of(told + ".rounds"), "it writes")

        rounds = turn = 0
        while rounds < ROUNDS or turn < 6:      # each VM is made larger and smaller again, the hostile one, too
            for program in (sharer, other):
                program.goes_on()
                program.takes(8)
                program.gives_back()
            late = Steady(system, 1)
            late.takes(8)
            late.ends_right()
            resize(system, turn % 3, MEMORY[turn % 3] + 16 * (turn // 3 % 2))
            turn += 1
            expect_equal(system.flytctl("nodes")[0]["state"], "up", "the node")
            rounds = int((lines_of(told + ".rounds") or ["0"])[0])
        written, refused = (set(lines_of(told + suffix)) for suffix in (".written", ".refused"))
        expect({"flyt-ledger", "flyt-time-slice"} <= written, "memory that it could write:", written)
        expect("flyt-time-slices" in refused and "flyt-time-slices" not in written, "memory that it could not:", refused, written)
        expect_equal(system.supervisor.get("node-0")["pid"], manager, "the node manager's process")
        expect_equal(events(system, "node.lost"), [], "nodes that were lost")

        # It is ended, and what it had is the others'.
        os.unlink(told)
        hostile.close()
        within(60, lambda: {s["vm_ip"] for s in system.flytctl("sessions")} == {system.vm_ip(1), system.vm_ip(2)},
               "its session has ended")
        for program in (sharer, other):
            program.goes_on()
            program.ends_right()
        for i in (1, 2):
            uses(system, i, 0)
        # The account that it has spoiled is its own VM's, and goes with the allocation.
        system.flytctl("vm", "remove", system.vm_ip(0))
        within(60, lambda: not allocations(system, 0), "its allocation has gone")
        within(60, lambda: system.flytctl("gpus")[0]["memory_used_bytes"] == 0, "nothing is in use")


if __name__ == "__main__":
    main()
