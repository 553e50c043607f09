#!/usr/bin/env python3
"""The cluster manager that leads is killed or paused (several.py): another one takes over, programs notice nothing,
daemons and flytctl find who leads, nobody gives anything twice."""
import signal
import time

import by_hand
import harness
from by_hand import array, opaque, u32, u64
from harness import expect, expect_equal, helper, main, scenario, within
from several import Several, add, begins, ends, runs

GIB = 1 << 30
NUMBER, TEXT, NAMES = u32(0) + u64(0), u32(0) + opaque(""), u32(0) + array()


@scenario
def leaders_killed():
    """Three managers, two of them killed one after the other."""
    with Several(managers=3, vms=3) as system:
        for i in range(2):
            add(system, i)
        program = begins(system, 0)
        runs(system, 1, "a program")
        system.identity("operator", "alice")
        for strike in range(2):
            old, epoch = system.leader(), max(system.hello_of(i)[1] for i in range(3))
            before = system.granted()
            since = time.monotonic()
            system.supervisor.signal(old, signal.SIGKILL)
            runs(system, 1, "a program while nobody leads")
            new = system.taken_over(old, since)
            expect(system.hello_of(system.number(new))[1] > epoch, "the epoch of", new)
            system.wait_registered()
            expect_equal(system.granted(), before, "allocations after the takeover")
            result = system.ask_all("allocations", "-o", "json")
            expect_equal(result.status, 0, "flytctl of who does not know who leads", result)
            expect_equal(program.poll(), None, "the running program")
            runs(system, 1, "a program after the takeover")
        add(system, 2)
        runs(system, 2, "the first program of a VM after two takeovers")
        expect_equal(len(system.granted()), 3, "allocations")
        ends(program, "the program that ran all the time")
        # Who comes back stands by, and takes part.
        system.supervisor.restart(old)
        expect_equal((system.leader(), system.hello_of(system.number(old))[0]), (new, False), "who leads")
        result = system.ask_all("nodes", "-o", "json")
        expect_equal(result.status, 0, "flytctl", result)


@scenario
def leader_paused():
    """SIGSTOP, takeover, SIGCONT: what was asked of the old one meanwhile has no effect, and it knows."""
    with Several(managers=2, vms=2) as system:
        for i in range(2):
            add(system, i)
        program = begins(system, 0)
        allocation = int([a for a in system.flytctl("allocations") if a["vm_ip"] == system.vm_ip(0)][0]["id"], 16)
        before = system.granted()
        old = system.leader()
        is_set = u32(1) + u64(16)
        calls = {
            31: u32(0) + opaque("10.0.0.66") + TEXT * 3 + is_set + u32(1) + u64(GIB) + NUMBER * 3 + TEXT * 2 + NAMES * 4 +
            NUMBER * 4 + TEXT + NUMBER + TEXT + NAMES, 32: opaque(system.vm_ip(0)) + u32(1), 33: opaque("red") + is_set * 4 + u32(0),
            34: opaque(system.vm_ip(0)) + is_set + NUMBER * 6 + u32(0) * 3, 35: u32(1) + opaque("node-0") + u32(2),
            37: u64(allocation) + u32(2), 39: u32(3) + opaque("mallory") + u32(600), 42: u32(1) + opaque("node-0"),
        }
        peers = {number: system.operator() for number in calls}
        wanted = system.by_hand("find", "vm_required_resources")
        since = time.monotonic()
        system.freeze(old)
        for number, args in calls.items():
            peers[number].send(by_hand.mark(by_hand.call_head(77, by_hand.CONTROL, number) + args))
        runs(system, 0, "a program while the leader is paused")
        new = system.taken_over(old, since)
        system.wait_registered()
        system.thaw(old)
        for number, peer in peers.items():
            try:
                status, text = peer.answer().outcome
                expect(status in ("NOT_LEADER", "UNAVAILABLE"), "call", number, "of the old leader:", status, text)
                expect(text, "call", number, "of the old leader says nothing")
            except ConnectionError:
                pass
            peer.close()
        within(20, lambda: not system.hello_of(system.number(old))[0], "the old one knows that it leads no longer")
        result = harness.run([system.program("flytctl"), "--manager", "unix://" + system.path(old, "sock"), "vm", "remove",
                              system.vm_ip(0), "--kill"], system.env)
        expect(result.status != 0, "flytctl at the old leader", result)
        expect_equal(system.leader(), new, "who leads")
        expect_equal(system.granted(), before, "allocations")
        expect_equal(sorted(d["vm_ip"] for d in system.by_hand("find", "vm_required_resources")),
                     sorted(d["vm_ip"] for d in wanted), "documents")
        expect_equal([n["schedule"] for n in system.flytctl("nodes")], ["active"], "the node")
        expect_equal([t for t in system.flytctl("tenants") if t["name"] == "red"], [], "tenants")
        expect_equal(program.poll(), None, "the running program")
        system.wait_registered()
        ends(program, "the running program")
        runs(system, 1, "a program afterwards")


@scenario
def revoked_at_a_standby():
    """Who was revoked while he was connected to a standby is not let in when that one leads."""
    with Several(managers=2, vms=0) as system:
        old = system.leader()
        other = system.urls[1 - system.number(old)]
        files = system.identity("operator", "mallory")
        peer = system.connect(files, url=other)
        expect_equal(peer.hello("operator", "mallory").outcome[0], "OK", "HELLO at the standby")
        system.flytctl("operator", "revoke", "mallory")
        expect(peer.is_open(), "the standby knows no members")
        status, _ = peer.call(33, opaque("red") + (u32(1) + u64(16)) * 4 + u32(0)).outcome
        expect_equal(status, "NOT_LEADER", "a change asked of the standby")
        since = time.monotonic()
        system.supervisor.signal(old, signal.SIGKILL)
        system.taken_over(old, since)
        expect(by_hand.wait_closed(peer), "the connection from before the takeover")


if __name__ == "__main__":
    main()
