#!/usr/bin/env python3
"""The whole system with real daemons: programs in VMs find their GPU, keep it over the death of every daemon, and get
more of it while they run."""
import os
import subprocess

import harness
import netns
from cluster import System, metric_values
from harness import app, expect, expect_equal, finish, helper, lines, main, scenario, within
from mongod import Mongod
from steady import nodes_up

GROWING = os.path.join(harness.BUILD, "tests", "demo", "growing")
MIB = 1 << 20


def starts_growing(system, i):
    """The program that takes all memory and waits for more; it has taken it when this returns."""
    program = system.start_in_vm(i, GROWING)
    expect(b"runs on" in program.stdout.readline(), "the program's first line", system.log("node-0"))
    said = program.stdout.readline().decode()
    expect("out of memory" in said, "the program said", said)
    return program, int(said.split()[1]) * MIB


def allocation_of(system, i):
    found = [a for a in system.flytctl("allocations") if a["vm_ip"] == system.vm_ip(i)]
    expect_equal(len(found), 1, "allocations of VM", i)
    return found[0]


def in_both_ways():
    """With every VM a namespace, where that is possible, and on the loopback interface."""
    return [True, False] if netns.is_possible() else [False]


@scenario
def programs_in_vms():
    for namespaces in in_both_ways():
        with System(nodes=2, vms=3, namespaces=namespaces) as system:
            for i in range(2):
                system.flytctl("vm", "add", system.vm_ip(i), "--sm", 8 * (i + 1), "--memory", "256M", "--policy", "spread")
            programs = [system.start_in_vm(i, app("memory")) for i in range(2)]
            for program in programs:
                result = finish(program)
                expect_equal((result.status, result.err), (0, ""), "a program in a VM", result)
            for i in range(2):
                result = system.run_in_vm(i, app("events"))
                expect_equal(result.status, 0, "a further program", result)
            expect_equal({allocation_of(system, i)["node"] for i in range(2)}, {"node-0", "node-1"}, "nodes, spread")
            expect_equal([allocation_of(system, i)["sms"] for i in range(2)], [8, 16], "SMs")
            stranger = system.run_in_vm(2, helper("echo"))
            expect(stranger.status != 0 and len(lines(stranger.err)) == 1 and "client manager" in stranger.err,
                   "a VM without a document", stranger)
            # What was granted is what both managers measure.
            held = metric_values(system.metrics("cluster"), "flyt_allocation_memory_bytes")
            expect_equal(sorted((labels["vm_ip"], value) for labels, value in held),
                         sorted((system.vm_ip(i), 256.0 * MIB) for i in range(2)), "limits at the cluster manager")
            for i in range(2):
                node = allocation_of(system, i)["node"]
                held = metric_values(system.metrics(node), "flyt_node_allocation_memory_limit_bytes")
                expect_equal([(labels["vm_ip"], value) for labels, value in held], [(system.vm_ip(i), 256.0 * MIB)],
                             "limits at", node)


@scenario
def every_daemon_dies():
    """A program that uses its GPU does not notice; afterwards it is given more, and everybody agrees on what it has."""
    with System(nodes=1, vms=1) as system:
        system.flytctl("vm", "add", system.vm_ip(0), "--sm", "8", "--memory", "256M", "--name", "alice")
        program, held_bytes = starts_growing(system, 0)
        # In blocks of 32 MiB: the code of its kernels takes 2 of the 256.
        expect_equal(held_bytes, 224 * MIB, "memory that it got")
        for name in ("cluster", "vm-0", "node-0"):
            for strike in (system.kill, system.restart):
                before = system.supervisor.get(name)["pid"]
                expect(strike(name)["pid"] != before, name, "is the same process")
                expect_equal(program.poll(), None, "the program ended with", name)
        nodes_up(system)
        within(30, lambda: allocation_of(system, 0)["sessions"] == 1, "the session to be known again")
        expect_equal(allocation_of(system, 0)["memory_used_bytes"], held_bytes + 2 * MIB, "memory in use, as the node knows it")
        system.flytctl("resize", "alice", "--memory", "512M")
        result = finish(program, 60)
        expect(result.status == 0 and "480 of 512 MiB" in result.out and "correct" in result.out, result)
        again = system.run_in_vm(0, app("memory"))
        expect_equal(again.status, 0, "a program afterwards", again)


@scenario
def managers_are_away():
    """Without cluster manager a VM that has its grant goes on starting programs."""
    with System(nodes=1, vms=1) as system:
        system.flytctl("vm", "add", system.vm_ip(0), "--sm", "8", "--memory", "256M")
        expect_equal(system.run_in_vm(0, helper("echo")).status, 0, "the first program")
        system.supervisor.stop("cluster")
        result = system.run_in_vm(0, helper("echo"))
        expect_equal(result.status, 0, "a program while the cluster manager is away", result)
        system.restart("cluster")
        nodes_up(system)
        expect_equal(allocation_of(system, 0)["memory_bytes"], 256 * MIB, "the allocation afterwards")


@scenario
def store_in_mongodb():
    """The same with MongoDB (its stand-in): a document written by hand, and a manager that dies."""
    mongod = Mongod()
    with System(nodes=1, vms=1, store=mongod.uri("flyt")) as system:
        mongod.client.insert("flyt", "vm_required_resources", {"vm_ip": system.vm_ip(0), "compute_units": 5, "memory": 0.25})
        within(20, lambda: any(vm["sms"] for vm in system.flytctl("vms")), "the document to be seen")
        expect_equal(system.run_in_vm(0, app("memory")).status, 0, "a program in the VM")
        held = allocation_of(system, 0)
        expect_equal((held["sms"], held["memory_bytes"]), (8, 256 * MIB), "granted, in whole groups of 8")
        system.kill("cluster")
        # The one that died has the lease for some seconds: until then nobody answers for the cluster.
        within(30, lambda: system.flytctl_run("nodes").status == 0, "a manager that leads")
        nodes_up(system)
        expect_equal(system.run_in_vm(0, app("memory")).status, 0, "a program afterwards")
        expect_equal(allocation_of(system, 0)["id"], held["id"], "allocation afterwards")


@scenario
def encrypted_channels():
    """A program that transfers much gets the same results."""
    with System(cluster={"encrypted": True}) as system:
        system.flytctl("vm", "add", system.vm_ip(0), "--sm", "8", "--memory", "256M")
        program, _ = starts_growing(system, 0)
        within(20, lambda: system.flytctl("sessions"), "the session")
        sessions = system.flytctl("sessions")
        expect_equal([s["encrypted"] for s in sessions], [True], "encrypted")
        for who, line in (("flyt-node-manager", "session %s: started, vm="), ("flyt-server", "session %s: started, client_pid=")):
            expect(who + ": " + line % sessions[0]["id"] in system.log(system.node_name(0)), "one form of the id:", who)
        harness.kill_group(program)
        result = system.run_in_vm(0, app("memory"))
        expect_equal((result.status, result.err), (0, ""), "a program", result)


@scenario
def nothing_stays():
    with System(nodes=1, vms=1) as system:
        namespaces = [system.hub, *system.network.vms] if system.network else []
        system.flytctl("vm", "add", system.vm_ip(0), "--sm", "8", "--memory", "256M")
        program, _ = starts_growing(system, 0)
        servers = harness.descendants(system.supervisor.process.pid)
        expect(len(servers) > 3, "daemons and servers:", servers)
    within(20, lambda: not any(harness.is_alive(pid) for pid in servers), "the end of all processes")
    expect(finish(program).status != 0, "a program without a server")
    there = subprocess.run(["ip", "netns"], capture_output=True, text=True).stdout if namespaces else ""
    expect(not any(name in there for name in namespaces), "namespaces that stay:", there)


main()
