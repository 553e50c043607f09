#!/usr/bin/env python3
"""The whole system with this machine's NVIDIA GPUs, without MPS and under it: programs of two VMs, limits, a resize, the
death of the node manager. Needs a GPU; FLYT_TEST_SOFTWARE=1 tries the scenarios on software GPUs."""
import os
import re
import statistics
import subprocess
import time

import harness
from cluster import System
from harness import app, expect, expect_equal, finish, helper, main, scenario, skip, within
from greedy import Greedy, Sequences
from steady import Steady, allocation, is_idle
from survivor import Survivor, its_server_is_killed

MIB = 1 << 20
GROWING = os.path.join(harness.BUILD, "tests", "demo", "growing")
IS_SOFTWARE = os.environ.get("FLYT_TEST_SOFTWARE") == "1"
PROGRAMS = ("memory", "events", "streams", "launch", "host_functions", "atomics", "launch_cooperative", "pinned_chain")
ATTACHES = 15
CHANGES = 40
ROUNDS = 40      # of allocating, for each thread
STEPS = 1000 if IS_SOFTWARE else 10000     # of random sequences

if not IS_SOFTWARE and not os.path.exists("/dev/nvidiactl"):
    skip("no NVIDIA GPU here")


def system(mps, **options):
    node = {"mps": mps, "warm": 2} if not IS_SOFTWARE else {"warm": 2}
    if mps == "start":
        node["mps_dir"] = os.path.join(harness.WORK, "mps")
    return System(nodes=1, vms=2, hardware=not IS_SOFTWARE, namespaces=False, sms=132, memory="4G", node=node, **options)


def ways():
    return ("off",) if IS_SOFTWARE else ("off", "start")


def allocation_of(whole, i):
    return [a for a in whole.flytctl("allocations") if a["vm_ip"] == whole.vm_ip(i)][0]


@scenario
def programs_of_two_vms():
    for mps in ways():
        with system(mps) as whole:
            gpus = whole.flytctl("gpus")
            if not IS_SOFTWARE:
                listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True).stdout
                expect_equal(sorted(g["uuid"] for g in gpus), sorted(re.findall(r"GPU-[-0-9a-f]{36}", listed)), "UUIDs")
            print("    %s: %s" % (mps, [(g["type"], g["sms"], g["groups"], g["memory_bytes"] // MIB, g["client_slots"])
                                        for g in gpus]))
            for i in range(2):
                whole.flytctl("vm", "add", whole.vm_ip(i), "--sm", "32", "--memory", "1G", "--sessions", "8")
            running = [(i, name, whole.start_in_vm(i, app(name))) for name in PROGRAMS[:4] for i in range(2)]
            running += [(0, name, whole.start_in_vm(0, app(name))) for name in PROGRAMS[4:]]
            for i, name, program in running:
                result = finish(program, 120)
                expect_equal(result.status, 0, name, "in VM", i, result)
            within(30, lambda: sum(a["sessions"] for a in whole.flytctl("allocations")) == 0, "the end of all sessions")
            expect_equal([a["memory_used_bytes"] for a in whole.flytctl("allocations")], [0, 0], "memory in use afterwards")


@scenario
def limits_hold_and_change():
    for mps in ways():
        with system(mps) as whole:
            whole.flytctl("vm", "add", whole.vm_ip(0), "--sm", "32", "--memory", "1G")
            program = whole.start_in_vm(0, GROWING)
            program.stdout.readline()
            held = int(program.stdout.readline().decode().split()[1]) * MIB
            # In blocks of 128 MiB; besides them the driver has its own, as it was charged and as NVML tells.
            expect(held in (768 * MIB, 896 * MIB), "the program takes its limit", held)
            def is_known():
                return held < allocation_of(whole, 0)["memory_used_bytes"] <= 1024 * MIB + (64 << 20)
            within(30, is_known, "the report of all that is in use")
            refused = whole.flytctl_run("resize", whole.vm_ip(0), "--memory", "512M")
            expect_equal(refused.status, 1, "less than is in use", refused)
            whole.kill("node-0")
            within(30, lambda: whole.log("node-0").count("registered with the cluster manager") == 2, "the node's return")
            within(30, is_known, "its memory, known again")
            before = time.monotonic()
            whole.flytctl("resize", whole.vm_ip(0), "--memory", "2G")
            print("    %s: flytctl resize took %.0f ms, its process included" % (mps, (time.monotonic() - before) * 1e3))
            result = finish(program, 120)
            expect(result.status == 0 and re.search(r"holds (1[789]\d\d) of 2048 MiB", result.out) and "correct" in result.out, result)


class Resized(Steady):
    """programs/resized.cu in VM `i`: four streams of kernels, every result compared."""

    def __init__(self, whole, i):
        self.system, self.name, self._said = whole, "the program in VM %d" % i, b""
        self.process = whole.start_in_vm(i, helper("resized"), "4")
        self.wait_ready()


@scenario
def sms_change_under_a_program():
    """What a driver does with events, modules and streams when the green context in which they were made has gone."""
    for mps in ways():
        with system(mps) as whole:
            whole.flytctl("vm", "add", whole.vm_ip(0), "--sm", "16", "--memory", "1G", "--sessions", "4")
            program, idle = Resized(whole, 0), Resized(whole, 0)
            program.goes_on()
            took = []
            for i in range(CHANGES):
                before = time.monotonic()
                whole.flytctl("resize", whole.vm_ip(0), "--sm", (64, 32, 120, 8)[i % 4])
                took.append((time.monotonic() - before) * 1e3)
            within(60, lambda: allocation_of(whole, 0)["switch_state"] == "vacated", "the end of work on earlier SMs")
            program.goes_on()
            again = Resized(whole, 0)
            for p in (program, idle, again):
                p.goes_on()
                p.ends_right()
            print("    %s: flytctl resize took %.1f ms at the median, %.1f to %.1f" % (
                mps, statistics.median(took), min(took), max(took)))


@scenario
def memory_limits_hold_for_all_together():
    """Eight programs with eight threads each never pass their VM's limit; random sequences over everything that takes
    memory end with nothing charged to them."""
    for mps in ways():
        with system(mps) as whole:
            whole.flytctl("vm", "add", whole.vm_ip(0), "--sm", "32", "--memory", "1G", "--sessions", "16")
            crowd = [Greedy(whole, 0, rounds=ROUNDS) for _ in range(8)]
            for program in crowd:
                program.say("go")
            answers = [[int(word) for word in program.line("done", 300).split()[1:]] for program in crowd]
            expect(all(taken for taken, refused in answers) and any(refused for taken, refused in answers), answers)
            row = allocation(whole, 0)
            expect(row["memory_peak_bytes"] <= 1024 * MIB, "the most that was charged:", row)
            for program in crowd:
                program.ends()
            is_idle(whole)
            begin = time.monotonic()
            crowd = [Sequences(whole, 0, i + 1, STEPS // 4, 2) for i in range(2)]
            counts = [program.wait_done() for program in crowd]
            print("    %s: %d steps, %s taken and refused, in %.1f s; the most of 1024 MiB that was charged before: %d MiB" % (
                mps, STEPS, counts, time.monotonic() - begin, row["memory_peak_bytes"] // MIB))
            asker = Greedy(whole, 0)

            def nothing_is_charged():
                asker.ask("fill 2")     # a server that takes longer than 2 s gives the rest back when it is asked again
                rows = whole.flytctl("sessions")
                left[:] = [row["memory_bytes"] for row in rows if row["program"] == "sequences"]
                return left == [0, 0]
            left = []
            try:
                within(60, nothing_is_charged, "nothing is charged to them any more")
            except harness.Failed as failed:
                raise harness.Failed("%s: %s" % (failed, left))
            asker.say("drop")
            asker.line("drop")
            for program in crowd + [asker]:
                program.ends()
            is_idle(whole)


class Counting(Steady):
    """programs/turns.cu in VM `i`: kernels without a pause, counted as their ends are seen."""

    def __init__(self, whole, i):
        self.system, self.name, self._said = whole, "the program in VM %d" % i, b""
        self.process = whole.start_in_vm(i, helper("turns"))
        self.wait_ready()

    def count(self):
        return self.ask("count")[0]


@scenario
def suspended_vms_stand_still():
    """Under full load, with SMs of its own and with SMs that it shares in time; the neighbour goes on."""
    for mps in ways():
        with system(mps) as whole:
            for i in range(2):
                whole.flytctl("vm", "add", whole.vm_ip(i), "--sm", "32", "--memory", "1G")
            program, other = Counting(whole, 0), Counting(whole, 1)
            took = []
            for _ in range(5):
                within(60, lambda at=program.count(): program.count() > at + 20, "it works")
                before = time.monotonic()
                whole.flytctl("suspend", whole.vm_ip(0))
                took.append((time.monotonic() - before) * 1e3)
                at, beside = program.count(), other.count()
                within(60, lambda: other.count() > beside + 100, "the neighbour works")
                expect(program.count() <= at + 4, "kernels of a suspended VM:", at, program.count())
                whole.flytctl("resume", whole.vm_ip(0))
                whole.flytctl("resize", whole.vm_ip(0), "--priority", -2 if len(took) % 2 else 0)
            program.ends_right()
            other.ends_right()
            print("    %s: flytctl suspend took %.1f ms at the median, %.1f to %.1f" % (
                mps, statistics.median(took), min(took), max(took)))


@scenario
def killed_servers_are_replaced():
    """The program that has one of everything goes on at another server, three times, with every byte as it was."""
    for mps in ways():
        with system(mps) as whole:
            whole.flytctl("vm", "add", whole.vm_ip(0), "--sm", "32", "--memory", "4G")
            program = Survivor(whole, 0)
            program.does("check", "right 1")
            for i in range(3):
                its_server_is_killed(whole)
                program.does("check", "right %d" % (i + 2))
            program.does("end", "ended")
            result = finish(program.process)
            expect_equal((result.status, result.err), (0, ""), result)
            is_idle(whole)


@scenario
def encrypted_programs():
    with system("off", cluster={"encrypted": True}) as whole:
        whole.flytctl("vm", "add", whole.vm_ip(0), "--sm", "32", "--memory", "1G")
        for name in ("memory", "pinned_chain", "host_functions"):
            result = whole.run_in_vm(0, app(name))
            expect_equal(result.status, 0, name, result)


@scenario
def attaching_is_quick():
    """Wall time of a short program in a VM, first to last; figures only."""
    with system(ways()[-1]) as whole:
        whole.flytctl("vm", "add", whole.vm_ip(0), "--sm", "32", "--memory", "1G")
        times = []
        for _ in range(ATTACHES):
            result = whole.run_in_vm(0, helper("echo"))
            expect_equal(result.status, 0, result)
            times.append(result.seconds * 1e3)
        print("    a short program: %.1f ms at the median, %.1f to %.1f" % (statistics.median(times), min(times), max(times)))


main()
