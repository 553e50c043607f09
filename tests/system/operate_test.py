#!/usr/bin/env python3
"""What an operator does to a running system: refusals with their reasons, cordon and drain, quotas, removing VMs, ending
programs, and how long an allocation stays."""
import time

from cluster import System
from harness import expect, expect_equal, helper, lines, main, scenario, within
from steady import (MIB, Steady, add_vm, all_agree, all_is_free, allocation, allocations, events, is_idle, refused, vm)


def is_refused(system, i, *reasons):
    """A new program of VM i fails, and its one line on stderr has these words. Returns the line."""
    result = system.run_in_vm(i, helper("steady"))
    expect(result.status != 0 and len(lines(result.err)) == 1, "a program that is to be refused", result)
    for reason in reasons:
        expect(reason in result.err, "the reason", repr(reason), "of", result)
    return result.err


@scenario
def refusals():
    """No document, too much of everything, somewhere else: nothing is given, and a person is told why."""
    with System(vms=1, sms=16, memory="256M") as system:
        ip = system.vm_ip(0)
        is_refused(system, 0, ip, "no document")
        add_vm(system, 0, sm=64, memory="64M")
        is_refused(system, 0, "not enough SMs (needs 64, 16 free at most)")
        # It is shown until something changes, also when the document is read again, which happens twice a second.
        end = time.monotonic() + 2
        while time.monotonic() < end:
            shown = vm(system, 0)
            expect(shown["state"] == "refused" and "not enough SMs" in (shown["reason"] or ""), "the VM is shown as", shown)
        expect_equal(allocations(system), [], "allocations")
        sentences = [row["sentence"] for row in system.flytctl("explain", ip)]
        expect(any("not enough SMs" in s for s in sentences), sentences)
        system.flytctl("vm", "set", ip, "--sm", "8", "--memory", "1G")
        within(20, lambda: vm(system, 0)["sms"] == 8, "the document is read")
        expect_equal((vm(system, 0)["state"], vm(system, 0)["reason"]), ("waiting", None), "after it was changed")
        is_refused(system, 0, "memory")
        system.flytctl("vm", "set", ip, "--memory", "64M", "--include-type", "H200")
        within(20, lambda: vm(system, 0)["memory_bytes"] == 64 * MIB, "the document is read")
        is_refused(system, 0, "type")
        system.flytctl("vm", "set", ip, "--include-type", "", "--sessions", "1")
        within(20, lambda: not vm(system, 0).get("include_types"), "the document is read")
        program = Steady(system, 0)
        is_refused(system, 0, "1 program")
        program.ends_right()
        is_idle(system)
        Steady(system, 0).ends_right()
        # What flytctl does not find, or cannot do: exit codes.
        for words, status in ((("vm", "set", "10.9.9.9", "--sm", "8"), 3), (("resize", "nobody", "--sm", "8"), 3),
                              (("session", "kill", "0123456789abcdef"), 3), (("vm", "add", ip, "--sm", "8", "--memory", "1G"), 1),
                              (("resize", ip, "--sm", "80"), 1), (("gpu", "set", "node-0:0", "--group-size", "2"), 1)):
            refused(system, *words, status=status)


@scenario
def cordon_and_drain():
    with System(nodes=2, vms=2, memory="256M") as system:
        for i in range(2):
            add_vm(system, i, memory="64M")
        first = Steady(system, 0)
        node = allocation(system, 0)["node"]
        other = "node-1" if node == "node-0" else "node-0"
        expect_equal(system.flytctl("drain", other), [], "nothing has to end on", other)
        system.flytctl("cordon", node)
        is_refused(system, 1, "cordoned", "draining")
        first.goes_on()
        listed = system.flytctl("drain", node)
        expect_equal([row["vm_ip"] for row in listed], [system.vm_ip(0)], "what must end or move")
        first.goes_on()
        second = Steady(system, 0)      # its VM has its allocation, which stays of use
        second.ends_right()
        system.flytctl("uncordon", other)
        moved = Steady(system, 1)
        expect_equal(allocation(system, 1)["node"], other, "the node that is left")
        gpu = other + ":0"
        system.flytctl("cordon", gpu)
        expect_equal([g["schedule"] for g in system.flytctl("gpus", gpu)], ["cordoned"])
        system.flytctl("uncordon", gpu)
        # It outlives the manager.
        system.kill("cluster")
        expect_equal({n["name"]: n["schedule"] for n in system.flytctl("nodes")}, {node: "draining", other: "active"})
        system.flytctl("uncordon", node)
        expect(len(events(system, "node.schedule")) >= 4, system.flytctl("events"))
        for program in (first, moved):
            program.ends_right()
        is_idle(system)


@scenario
def quotas():
    """Of a tenant, over its VMs; a raised one takes hold at once, and resizes count."""
    with System(vms=3, memory="1G") as system:
        system.flytctl("tenant", "set", "red", "--sm", "16", "--memory", "256M")
        for i in range(3):
            add_vm(system, i, "--tenant", "red" if i < 2 else "blue", sm=8, memory="192M")
        first = Steady(system, 0)
        is_refused(system, 1, "tenant red", "256", "192")
        sentences = [row["sentence"] for row in system.flytctl("explain", system.vm_ip(1))]
        expect(any("cannot be placed now" in s and "tenant red" in s for s in sentences), sentences)
        other = Steady(system, 2)       # another tenant's
        text = refused(system, "resize", system.vm_ip(0), "--memory", "300M")
        expect("red" in text, text)
        expect_equal(first.total(), 192)
        system.flytctl("resize", system.vm_ip(0), "--memory", "64M")
        second = Steady(system, 1)
        text = refused(system, "resize", system.vm_ip(0), "--memory", "128M")
        system.flytctl("tenant", "set", "red", "--memory", "512M")
        within(20, lambda: system.flytctl("tenants", "red")[0]["memory_bytes"] == 512 * MIB, "the quota is read")
        system.flytctl("resize", system.vm_ip(0), "--memory", "128M")
        expect_equal(first.total(), 128)
        red = system.flytctl("tenants", "red")[0]
        expect_equal((red["memory_allocated_bytes"], red["sms_allocated"], red["vms_allocated"]), (320 * MIB, 16, 2), red)
        for program in (first, second, other):
            program.ends_right()


@scenario
def vms_are_removed():
    """New programs are refused, running ones go on; --kill ends them with a sentence. Others notice nothing."""
    with System(vms=3, memory="1G") as system:
        for i in range(3):
            add_vm(system, i, memory="64M")
        programs = [Steady(system, i) for i in range(3)]
        programs[0].takes(16)
        system.flytctl("vm", "remove", system.vm_ip(0))
        is_refused(system, 0, "removed")
        programs[0].goes_on()
        programs[0].takes(16)
        expect_equal(allocation(system, 0)["state"], "blocked")
        system.flytctl("vm", "remove", system.vm_ip(1), "--kill")
        code, said = programs[1].ends_with_error()
        expect(code != 0 and "the allocation of this VM was taken back" in said, "what the program was told:", code, said)
        within(60, lambda: not allocations(system, 1), "the allocation has gone")
        is_refused(system, 1, "no document")
        programs[0].ends_right()
        within(60, lambda: not allocations(system, 0), "a removed VM's allocation goes with its last program")
        programs[2].goes_on()
        add_vm(system, 0, memory="96M")
        again = Steady(system, 0)
        expect_equal(again.total(), 96, "a VM that is there again")
        for program in (again, programs[2]):
            program.ends_right()
        is_idle(system)
        all_agree(system)


@scenario
def a_session_is_killed():
    with System(vms=1) as system:
        add_vm(system, 0, memory="128M")
        victim, other = Steady(system, 0), Steady(system, 0)
        victim.takes(32)
        other.takes(16)
        sessions = within(30, lambda: [s for s in system.flytctl("sessions") if s["memory_bytes"] >= 32 * MIB], "its session")
        expect_equal(len(sessions), 1, sessions)
        system.flytctl("session", "kill", sessions[0]["id"])
        code, said = victim.ends_with_error()
        expect(code != 0 and "an operator has ended this session" in said, "what the program was told:", code, said)
        other.goes_on()
        within(30, lambda: allocation(system, 0)["sessions"] == 1, "one session is left")
        within(30, lambda: allocation(system, 0)["memory_used_bytes"] < 32 * MIB, "its memory is free")
        expect_equal(len(events(system, "session.killed")), 1, "events")
        other.takes(96)
        other.ends_right()
        is_idle(system)


@scenario
def how_long_they_stay():
    """An allocation goes when it lingered, is another one afterwards, and stays where it is reserved."""
    with System(vms=2, memory="256M", cluster={"allocation_linger_s": 1.5}) as system:
        add_vm(system, 0, memory="192M")
        add_vm(system, 1, "--reserved", memory="64M")
        reserved = within(20, lambda: allocations(system, 1), "a reserved one is granted without a program")[0]
        program = Steady(system, 0)
        before = allocation(system, 0)["id"]
        program.ends_right()
        within(60, lambda: not allocations(system, 0), "it has lingered")
        expect(events(system, "allocation.removed", before), "an event", system.flytctl("events"))
        expect_equal(allocation(system, 1)["id"], reserved["id"], "the reserved one")
        again = Steady(system, 0)
        expect(allocation(system, 0)["id"] != before, "another allocation")
        again.ends_right()
        Steady(system, 1).ends_right()
        expect_equal(allocation(system, 1)["id"], reserved["id"], "the reserved one")
        system.flytctl("vm", "set", system.vm_ip(1), "--no-reserved")
        all_is_free(system)


main()
