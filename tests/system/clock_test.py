#!/usr/bin/env python3
"""The wall clock is stepped under all daemons, forth and back: nothing that holds depends on it."""
import os
import time

import harness
from cluster import System, metric_values
from harness import expect, expect_equal, helper, main, scenario, within
from steady import OUT_OF_MEMORY, OWN, Steady, add_vm, all_agree, all_is_free, allocation, allocations, nodes_up, uses
from trust import Trusted

STEPS_S = (3600, -1800, 0)
BACKDATED_S = 300               # certificates are valid from so long before they are made
DAY_S = 86400
LINGER_S = 3000                 # longer than this test takes, and shorter than a step


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
    stepped_forth_and_back(tls=False)


@scenario
def stepped_under_all_with_tls():
    stepped_forth_and_back(tls=True)


def stepped_forth_and_back(tls):
    clock = Clock(harness.WORK)
    with System(vms=2, memory="512M", tls=tls, namespaces=False, env=clock.environment(),
                cluster={"allocation_linger_s": LINGER_S, "heartbeat_s": 0.3}) as system:
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
            if tls and seconds < -BACKDATED_S:
                continue        # nobody makes a new connection before his certificate's begin: see the last scenario
            system.kill("node-0")
            nodes_up(system)
            program.goes_on()
            uses(system, 0, 16 + OWN)
        # While no manager is there, only the wall clock can say how long something has been idle.
        clock.step(3600)
        system.kill("cluster")
        nodes_up(system)
        program.goes_on()
        within(30, lambda: not allocations(system, 1), "the idle allocation has gone")
        uses(system, 0, 16 + OWN)
        # A client manager that has no cluster manager yet gives programs what it was granted by the one before.
        within(30, lambda: all(v["connected"] for v in system.flytctl("vms")), "the client managers are connected")
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


def over_tcp(system, files):
    """harness.Result of flytctl as an operator with this certificate and key."""
    certificate, key = files
    return harness.run([system.program("flytctl"), "--authority", system.authority, "--certificate", certificate, "--key",
                        key, "--manager", system.manager_url, "nodes"], system.env)


def is_refused(system, files, why):
    refused = metric_values(system.metrics("cluster"), "flyt_manager_certificates_refused_total")[0][1]
    result = over_tcp(system, files)
    expect(result.status != 0 and len(harness.lines(result.err)) == 1, "flytctl with a certificate that", why, result)
    within(20, lambda: metric_values(system.metrics("cluster"), "flyt_manager_certificates_refused_total")[0][1] > refused,
           "the refusal is counted")
    expect("its certificate is refused: certificate " + why in system.log("cluster"), "the cluster manager's log")


def everybody_goes_on(system, program):
    """Connections and sessions of before a step: heartbeats, programs, tickets, changes."""
    heard = system.flytctl("nodes")[0]["last_seen_ms"]
    within(30, lambda: system.flytctl("nodes")[0]["last_seen_ms"] != heard, "heartbeats after the step")
    expect_equal([n["state"] for n in system.flytctl("nodes")], ["up"], "the node")
    program.goes_on()
    Steady(system, 0).ends_right()          # a ticket knows no time
    mib = 100 + len(system.events("vm.resized"))
    system.flytctl("resize", system.vm_ip(0), "--memory", "%dM" % mib)
    expect_equal(program.total(), mib, "a resize after the step")


@scenario
def beyond_what_certificates_are_valid_for():
    """Far forth and back: what is connected stays, new connections are refused in words, and come when the clock is right."""
    clock = Clock(harness.WORK)
    with Trusted(nodes=1, vms=1, memory="512M", env=clock.environment()) as system:
        add_vm(system, 0, memory="128M")
        program = Steady(system, 0)
        long_lived, soon_over = system.certificate("operator", "alice"), system.certificate("operator", "bob", "--days", "1")
        for files in (long_lived, soon_over):
            system.flytctl("member", "admit", files[0])
            expect_equal(over_tcp(system, files).status, 0, "an operator before")
        first, generation = (allocation(system, 0)[field] for field in ("id", "generation"))
        for seconds, files, why in ((2 * DAY_S, soon_over, "has expired"), (-2 * DAY_S, None, "is not yet valid"),
                                    (400 * DAY_S, None, "has expired")):
            clock.step(seconds)
            everybody_goes_on(system, program)
            if files:
                is_refused(system, files, why)
                expect_equal(over_tcp(system, long_lived).status, 0, "an operator whose certificate is valid")
                system.restart("node-0")        # those of daemons are valid for a year
            else:
                result = over_tcp(system, long_lived)
                expect(result.status != 0 and "certificate " + why in result.err, "a new connection", result)
                system.restart("vm-0")
                within(20, lambda: "its certificate is refused: certificate " + why in system.log("vm-0"),
                       "the client manager says why it does not connect")
                expect_equal([v["connected"] for v in system.flytctl("vms")], [False], "the client manager")
                program.goes_on()
            clock.step(0)
            within(40, lambda: [v["connected"] for v in system.flytctl("vms")] == [True], "the client manager is let in")
            nodes_up(system)
            everybody_goes_on(system, program)
            expect_equal(over_tcp(system, soon_over).status, 0, "an operator after the clock was set right")
        row = allocation(system, 0)
        expect_equal((row["id"], row["generation"]), (first, generation), "the allocation, and its tickets' generation")
        for daemon, name in (("node-0", "flyt_node_certificate_expiry_seconds"),
                             ("vm-0", "flyt_certificate_expiry_timestamp_seconds")):
            ends = metric_values(system.metrics(daemon), name)[0][1]
            expect(abs(ends - time.time() - 365 * DAY_S) < DAY_S, "when the certificate of", daemon, "ends:", ends)
        program.ends_right()


main()
