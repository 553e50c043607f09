#!/usr/bin/env python3
"""The wall clock is stepped under all daemons, forth and back: nothing that holds depends on it."""
import os

import harness
from cluster import System
from harness import expect_equal, helper, main, scenario, within
from steady import OUT_OF_MEMORY, Steady, add_vm, all_agree, all_is_free, allocation, allocations, nodes_up, uses

STEPS_S = (3600, -1800, 0)      # within what certificates are valid for


class Clock:
    def __init__(self, folder):
        self.path = os.path.join(folder, "clock")
        self.step(0)

    def environment(self):
        return harness.environment(LD_PRELOAD=helper("stepped_clock.so"), FLYT_TEST_CLOCK=self.path)

    def step(self, seconds):
        with open(self.path + ".new", "w") as f:
            f.write("%d" % seconds)
        os.rename(self.path + ".new", self.path)


@scenario
def stepped_under_all():
    clock = Clock(harness.WORK)
    with System(vms=2, memory="512M", tls=False, namespaces=False, env=clock.environment(),
                cluster={"allocation_linger_s": 30, "heartbeat_s": 0.3, "node_lost_s": 3}) as system:
        for i in range(2):
            add_vm(system, i, memory="128M")
        Steady(system, 1).ends_right()
        idle = allocation(system, 1)["id"]
        program = Steady(system, 0)
        program.takes(16)
        first = allocation(system, 0)["id"]
        for seconds in STEPS_S:
            clock.step(seconds)
            heard = system.flytctl("nodes")[0]["last_seen_ms"]
            within(30, lambda: system.flytctl("nodes")[0]["last_seen_ms"] != heard, "heartbeats after the step")
            program.goes_on()
            expect_equal(system.flytctl("nodes")[0]["state"], "up", "after a step to", seconds)
            mib = 160 + seconds // 600
            system.flytctl("resize", system.vm_ip(0), "--memory", "%dM" % mib)
            expect_equal(program.total(), mib, "a resize after a step to", seconds)
            late = Steady(system, 0)
            expect_equal(late.alloc(256), OUT_OF_MEMORY, "beyond the limit")
            late.ends_right()
            expect_equal([a["id"] for i in range(2) for a in allocations(system, i)], [first, idle],
                         "an idle allocation lingers by a clock of its own")
            system.kill("node-0")
            nodes_up(system)
            program.goes_on()
            uses(system, 0, 18)
        # While no manager is there, only the wall clock can say how long something has been idle.
        clock.step(3600)
        system.kill("cluster")
        nodes_up(system)
        program.goes_on()
        within(30, lambda: not allocations(system, 1), "the idle allocation has gone")
        uses(system, 0, 18)
        Steady(system, 1).ends_right()
        all_agree(system)
        program.ends_right()


@scenario
def stepped_back_while_it_lingers():
    """An idle allocation goes when it has lingered, not an hour later; an order that failed is mended likewise."""
    clock = Clock(harness.WORK)
    with System(vms=1, memory="512M", tls=False, namespaces=False, env=clock.environment(),
                cluster={"allocation_linger_s": 2}) as system:
        add_vm(system, 0, memory="64M")
        clock.step(3600)
        Steady(system, 0).ends_right()
        clock.step(0)
        all_is_free(system)


main()
