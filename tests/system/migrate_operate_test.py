#!/usr/bin/env python3
"""What an operator does with GPUs that must be free, and VMs that need more than their GPU has, in a whole system whose
programs compute and compare all the time; and the death of the cluster manager and of the node manager while they move."""
import os
import random
import time

import harness
from cluster import System
from harness import expect, expect_equal, main, scenario, within
from steady import Steady
from survivor import session

SEED, SOAK = int(os.environ.get("FLYT_SEED", "1")), os.environ.get("FLYT_SOAK")


def whole_system(**options):
    return System(nodes=1, sms=32, memory="2G", **options)


def add(system, i, sms, *words):
    system.flytctl("vm", "add", system.vm_ip(i), "--sm", sms, "--memory", "256M", "--sessions", "2", *words)


def place(system, i):
    """node:index of the GPU that VM i has, alone and acknowledged."""
    def settled():
        rows = [a for a in system.flytctl("allocations") if a["vm_ip"] == system.vm_ip(i)]
        expect_equal(len(rows), 1, "allocations of VM", i, rows)
        return rows if not rows[0]["migration"] and rows[0]["revision"] == rows[0]["revision_applied"] else None
    uuid = within(60, settled, "VM %d is somewhere" % i)[0]["gpu"]
    return [n for n, g in gpus(system).items() if g["uuid"] == uuid][0]


def gpus(system):
    return {"%s:%d" % (g["node"], g["index"]): g for g in system.flytctl("gpus")}


def charged(system):
    """SMs by GPU, of those that have any."""
    return {name: g["sms_allocated"] for name, g in gpus(system).items() if g["sms_allocated"]}


def ended(system):
    """The last migration, when it is over. The cluster manager may just be starting."""
    def over():
        result = system.flytctl_run("migrations", "-o", "json")
        if result.status:
            return None
        last = system.flytctl("migrations")[-1]
        return last if last["phase"] in ("done", "failed") else None
    return within(120, over, "the migration ends")


@scenario
def a_gpu_is_emptied():
    """Two VMs leave a GPU together, and one that is granted later does not come there; one that may be nowhere else stays,
    is named, and goes on."""
    with whole_system(vms=4, gpus=2) as system:
        for i in range(2):
            add(system, i, 8)
        programs = [Steady(system, i) for i in (0, 1, 1)]
        for program in programs:
            program.takes(32)
        first = place(system, 0)
        expect_equal(place(system, 1), first, "both are on one GPU")
        other = next(name for name in gpus(system) if name != first)
        result = system.flytctl_run("drain", first, "--migrate", timeout=300)
        expect_equal(result.status, 0, "the draining", result)
        for i in range(2):
            expect("%s has moved to %s" % (system.vm_ip(i), other) in result.out, "it tells of VM", i, result)
            expect_equal(place(system, i), other, "where VM", i, "is")
        expect_equal(charged(system), {other: 16}, "SMs that are charged")
        expect_equal(system.flytctl("drain", first), [], "what is left there")
        for program in programs:
            program.goes_on()
        add(system, 2, 8)
        late = Steady(system, 2)
        expect_equal(place(system, 2), other, "a VM that is granted later")
        system.flytctl("uncordon", first)
        add(system, 3, 8, "--include-gpu", other)
        bound = Steady(system, 3)
        result = system.flytctl_run("drain", other, "--migrate", timeout=300)
        expect_equal(result.status, 1, "the draining where one cannot move", result)
        expect("%s stays where it is" % system.vm_ip(3) in result.out and "not among the GPUs wanted" in result.out,
               "the one that stays is named", result)
        expect("3 moved, 1 not" in result.err, "how many", result)
        expect_equal(charged(system), {first: 24, other: 8}, "SMs that are charged")
        for program in programs + [late, bound]:
            program.goes_on()
            program.ends_right()


@scenario
def more_than_its_gpu_has():
    """A resize for which there is no room moves the VM, with the new size, back and forth."""
    with whole_system(vms=2, gpus=2) as system:
        for i in range(2):
            add(system, i, 8)
        programs = [Steady(system, i) for i in range(2)]
        for program in programs:
            program.takes(64)
        first = place(system, 0)
        result = system.flytctl_run("resize", system.vm_ip(0), "--sm", "32", "--memory", "512M")
        expect_equal(result.status, 1, "a resize without room", result)
        result = system.flytctl_run("resize", system.vm_ip(0), "--sm", "32", "--memory", "512M", "--migrate", timeout=300)
        expect_equal(result.status, 0, "the same with --migrate", result)
        other = place(system, 0)
        expect(other != first, "it is elsewhere")
        expect_equal(charged(system), {first: 8, other: 32}, "SMs that are charged")
        within(60, lambda: programs[0].total() == 512, "the program sees its new memory")
        programs[0].takes(256)
        result = system.flytctl_run("migrate", system.vm_ip(0), "--to", first)
        expect(result.status == 1 and "not enough SMs" in result.err, "back with that size", result)
        result = system.flytctl_run("resize", system.vm_ip(0), "--sm", "16")
        expect_equal(result.status, 0, "a smaller size", result)
        result = system.flytctl_run("migrate", system.vm_ip(0), "--to", first, timeout=300)
        expect_equal(result.status, 0, "back with that", result)
        expect_equal((place(system, 0), charged(system)), (first, {first: 24}), "where it is")
        for program in programs:
            program.goes_on()
            program.ends_right()


@scenario
def a_kernel_without_an_end():
    """It is waited for; a second migration of the VM is refused meanwhile, the first one can be called off, and its time
    limit ends it. The program has the server that it had."""
    with whole_system(vms=1, gpus=2) as system:
        add(system, 0, 8)
        program = system.start_in_vm(0, harness.helper("poll"), "endless")
        expect_equal(program.stdout.readline(), b"working\n", "the program's first line")
        here, pid = place(system, 0), session(system)["server_pid"]

        def stays(result, words):
            expect_equal(result.status, 1, "flytctl migrate", result)
            expect(words in result.err, "why it stays:", result)

        patience = ("--stop-timeout", 3600000, "--timeout", 3600)
        first = system.flytctl("migrate", system.vm_ip(0), *patience, "--detach")
        stays(system.flytctl_run("migrate", system.vm_ip(0), *patience), "moves already: migration %s" % first["id"])
        result = system.flytctl_run("migrate", system.vm_ip(0), "--cancel", timeout=120)
        expect_equal(result.status, 0, "--cancel", result)
        stays(system.flytctl_run("migrate", system.vm_ip(0), "--stop-timeout", 200, "--timeout", 3, timeout=120),
              "stays where it is: ")
        failed = [e["text"] for e in system.flytctl("events") if e["kind"] == "migration.failed"]
        expect_equal(len(failed), 2, "events", failed)
        expect_equal((place(system, 0), system.flytctl("sessions")[0]["server_pid"]), (here, pid), "where it runs")
        expect(program.poll() is None, "the program has ended")
        print("    %s" % failed[-1])
        harness.kill_group(program)
        harness.finish(program)
        within(60, lambda: not system.flytctl("sessions"), "its session has ended")


def killed_while_moving(name, times):
    """A daemon is killed at moments by chance: whatever becomes of it, the programs go on, and the VM is at one GPU."""
    chance = random.Random(SEED)
    with whole_system(vms=1, gpus=2) as system:
        add(system, 0, 8)
        programs = [Steady(system, 0) for _ in range(2)]
        for program in programs:
            program.takes(64)
        outcomes = []
        for number in range(times):
            place(system, 0)
            within(120, lambda: system.flytctl_run("migrate", system.vm_ip(0), "--detach").status == 0, "it begins")
            time.sleep(chance.random() * 0.4)
            system.kill(name)
            last = ended(system)
            here = place(system, 0)
            outcomes.append(last["phase"])
            expect_equal(here, last["target" if last["phase"] == "done" else "source"], "where VM 0 is after", number, last)
            expect_equal(charged(system), {here: 8}, "SMs that are charged after", number, last)
            for program in programs:
                program.goes_on()
        print("    %s killed: %s" % (name, " ".join(outcomes)))
        for program in programs:
            program.ends_right()
        # And it moves as ever, when the node manager knows that nobody comes back to it any more.
        within(120, lambda: system.flytctl_run("migrate", system.vm_ip(0), timeout=300).status == 0, "it moves")


@scenario
def cluster_manager_killed():
    killed_while_moving("cluster", 8)


@scenario
def node_manager_killed():
    killed_while_moving("node-0", 8 if SOAK else 4)


if __name__ == "__main__":
    main()
