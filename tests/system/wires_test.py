#!/usr/bin/env python3
"""Wires between machines are taken out, or lose everything without a word: between VM and node for a moment, which
programs outlast, and for longer than client_lost_s, after which their sessions end and theirs is free; between cluster
manager and node, after which all agree again. Machines are network namespaces; the cluster manager has its own."""
import contextlib
import time

import netns
from cluster import System
from harness import expect, expect_equal, main, scenario, skip, within
from steady import MIB, Steady, add_vm, all_agree, allocation, events, is_idle, nodes_up, uses

LOST_S = 20     # longer than a machine stands still whose wires nobody has touched
SHORT_S = 3     # a cut that is to be outlasted, and LONG_S what a busy machine may make of it
LONG_S = 60
SETTINGS = {"client_lost_s": LOST_S, "heartbeat_s": 0.3, "node_lost_s": 20}


class Apart(System):
    """The cluster manager on a machine of its own, whose wire is cut with cut_cluster()."""
    further_machines = 1

    @property
    def manager_host(self):
        return netns.vm_address(self.vm_count)

    def in_cluster(self):
        return ["ip", "netns", "exec", self.network.vms[self.vm_count]]

    def namespace(self, name):
        return self.network.vms[self.vm_count] if name == "cluster" else super().namespace(name)

    def cut_cluster(self):
        self.network.drop(self.vm_count)

    def mend_cluster(self):
        self.network.mend(self.vm_count)


def began(system, count=1):
    """Two programs in each VM: one that computes and one that waits for its user, and their sessions."""
    for i in range(system.vm_count):
        add_vm(system, i, memory="128M")
    programs = [[Steady(system, i), Steady(system, i, "3600000")] for i in range(system.vm_count)]
    for busy, silent in programs:
        busy.takes(16)
        silent.takes(16)
    within(20, lambda: len(system.flytctl("sessions")) == 2 * system.vm_count, "all sessions")
    return programs


def both_go_on(programs):
    programs[0].goes_on()
    expect_equal(programs[1].total(), 128, "MiB of the silent program")


@scenario
def for_a_moment():
    """VM 0 is cut off for less than client_lost_s, twice: its programs notice nothing but a pause."""
    with Apart(vms=2, memory="512M", cluster={**SETTINGS, "client_lost_s": LONG_S}) as system:
        programs = began(system)
        sessions = sorted(s["id"] for s in system.flytctl("sessions"))
        for how in ("cut", "drop"):
            getattr(system.network, how)(0)
            begin = time.monotonic()
            while time.monotonic() < begin + SHORT_S:
                programs[1][0].goes_on(1)
            system.network.mend(0)
            both_go_on(programs[0])
            both_go_on(programs[1])
            expect_equal(sorted(s["id"] for s in system.flytctl("sessions")), sessions, "sessions after", how)
        late = Steady(system, 0)
        for program in [late] + programs[0]:
            program.ends_right()
        both_go_on(programs[1])
        expect_equal(system.log("node-0").count("the client has not answered"), 0, "what the servers say")
        all_agree(system)


@scenario
def for_too_long():
    """Nothing comes from VM 0 for client_lost_s: what its programs had is free, also of the one that owed no answer; the
    programs are told when the wire is mended, and the VM's next ones get in."""
    with Apart(vms=2, memory="512M", cluster=SETTINGS) as system:
        programs = began(system)
        before = allocation(system, 0)
        begin = time.monotonic()
        system.network.drop(0)
        within(120, lambda: len(system.flytctl("sessions")) == 2, "VM 0's sessions end")
        took = time.monotonic() - begin
        print("    both sessions had gone %.1f s after the wire was cut (client_lost_s = %d)" % (took, LOST_S), flush=True)
        expect(took > SHORT_S, "sessions ended", took, "s after a cut")
        uses(system, 0, 0)
        # The server's own check or the kernel's keepalive, whichever comes first; nothing else.
        log = system.log("node-0")
        expect_equal(log.count("the client has not answered for %d s" % LOST_S) +
                     log.count("the client does not answer any more, "), 2, log[-3000:])
        both_go_on(programs[1])
        expect_equal(allocation(system, 0)["id"], before["id"], "its allocation lingers")
        system.network.mend(0)
        code, said = programs[0][0].ends_with_error(180)
        expect(code != 0 and "flyt:" in said, "what the busy program was told:", code, said)
        # It may have been in the round behind its last command, and know already.
        with contextlib.suppress(BrokenPipeError):
            programs[0][1].say("info")
        answer = programs[0][1].line("what the silent one finds", 180)
        expect(answer.startswith("error "), "the silent program said", answer)
        late = Steady(system, 0)
        expect_equal(late.total(), 128, "MiB of a new one")
        late.takes(112)
        for program in [late] + programs[1]:
            program.ends_right()
        is_idle(system)
        all_agree(system)


@scenario
def cluster_manager_and_node():
    """The cluster manager is cut off from all: its node is lost, programs go on and begin, what was wished meanwhile
    holds when the wire is mended, and nothing is given twice."""
    with Apart(vms=2, memory="512M", cluster=SETTINGS) as system:
        programs = began(system)
        before = [allocation(system, i)["id"] for i in range(2)]
        system.cut_cluster()
        within(120, lambda: [n["state"] for n in system.flytctl("nodes")] == ["lost"], "the node is lost")
        expect_equal([allocation(system, i)["id"] for i in range(2)], before, "allocations stay bound")
        for pair in programs:
            pair[0].goes_on()
        late = Steady(system, 0)
        late.ends_right()
        result = system.flytctl_run("resize", system.vm_ip(0), "--memory", "160M")
        expect(result.status != 0 and result.err, "a resize while the node is lost", result)
        system.flytctl("vm", "set", system.vm_ip(0), "--memory", "160M")
        system.mend_cluster()
        nodes_up(system)
        within(30, lambda: allocation(system, 0)["memory_now_bytes"] == 160 * MIB, "what was wished meanwhile holds")
        expect_equal([allocation(system, i)["id"] for i in range(2)], before, "the same allocations")
        expect_equal(programs[0][0].total(), 160, "MiB that the program sees")
        within(30, lambda: all(v["connected"] for v in system.flytctl("vms")), "the client managers are connected")
        all_agree(system)
        expect_equal([e for e in events(system, "allocation.orphan")], [], "orphans")
        for program in programs[0] + programs[1]:
            program.ends_right()
        is_idle(system)
        all_agree(system)


if not netns.is_possible():
    skip("network namespaces cannot be made here")
main()
