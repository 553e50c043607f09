#!/usr/bin/env python3
"""SMs that change while programs compute: the operator is answered when new work goes to the new ones, everything that
the programs compute is right, and what was taken is given to others when nothing runs on it any more."""
import json
import os
import subprocess
import tempfile

import harness
from cluster import System
from harness import expect, expect_equal, main, scenario, within
from steady import RECORDED, Steady, add_vm, all_agree, allocation, allocations, events, is_idle, refused, vm

STREAMS = 4
CHANGES = 1000 if os.environ.get("FLYT_SOAK") else 60
WARM_UP = 20            # changes until nothing new is made any more
GROWTH_KIB = 4096


class Resized(Steady):
    """programs/resized.cu in VM `i`."""

    def __init__(self, system, i):
        self.system, self.name = system, "the program on %d streams in VM %d" % (STREAMS, i)
        self.process = system.start_in_vm(i, harness.helper("resized"), str(STREAMS))
        self._said = b""
        self.wait_ready()


def has_switched(system, i, sms):
    """When flytctl has ended new work goes to the new SMs; soon nothing is left on others."""
    row = allocation(system, i)
    expect_equal((row["sms"], row["sms_now"]), (sms, sms), row)
    expect(row["switch_state"] in ("switched", "vacated"), row)
    return within(30, lambda: allocation(system, i)["switch_state"] == "vacated" and allocation(system, i), "vacated")


def resident(system):
    """KiB of the programs' servers."""
    def kib(pid):
        with open("/proc/%d/status" % pid, encoding="ascii") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))
    return {s["server_pid"]: kib(s["server_pid"]) for s in system.flytctl("sessions")}


@scenario
def under_a_program():
    """16, 64, 32 SMs, and back and forth: results are exact, nobody is harmed, programs that begin see what there is."""
    with System(sms=128, memory="512M") as system:
        add_vm(system, 0, "--name", "alice", sm=16)
        program, idle, steady = Resized(system, 0), Resized(system, 0), Steady(system, 0)
        program.goes_on()
        for sms in (64, 32):
            system.flytctl("resize", "alice", "--sm", sms)
            row = has_switched(system, 0, sms)
            expect_equal(len(row["sm_groups"]), sms // 8, row)
            program.goes_on()
        for i in range(CHANGES):
            system.flytctl("resize", "alice", "--sm", (8, 24, 64, 120)[i % 4])
            if i == WARM_UP:
                begun = resident(system)
        for process, kib in resident(system).items():
            expect(kib - begun[process] < GROWTH_KIB, process, "has grown by", kib - begun[process], "KiB")
        sms = (8, 24, 64, 120)[(CHANGES - 1) % 4]
        has_switched(system, 0, sms)
        program.goes_on()
        again = Steady(system, 0)
        expect_equal(again.ask("device")[1], sms, "SMs of a new program")
        for p in (program, idle, steady, again):
            p.ends_right()
        is_idle(system)


@scenario
def what_is_left_is_given_to_others():
    """A kernel that runs keeps its SMs, whatever is taken from its VM: until it has ended, or its program."""
    with System(vms=2, sms=64, memory="512M") as system:
        add_vm(system, 0, "--name", "alice", sm=48)
        add_vm(system, 1, "--name", "bob", sm=16)
        program, other = Resized(system, 0), Resized(system, 1)
        for last in (False, True):
            holder = Resized(system, 0)
            before = set(allocation(system, 0)["sm_groups"])
            expect_equal(holder.ask("hold"), [0], "the kernel")
            system.flytctl("resize", "alice", "--sm", 8)
            row = allocation(system, 0)
            expect_equal((row["sms"], row["sms_now"], row["switch_state"]), (8, 8, "switched"), row)
            program.goes_on()
            holder.goes_on()
            # Who wants them gets what is free of them, and the others by itself, later.
            said = refused(system, "resize", "bob", "--sm", 56, status=RECORDED)
            expect("16 of 56 SMs now, the others as other VMs' programs leave them" in said, said)
            row = allocation(system, 1)
            expect_equal((row["sms"], row["sms_now"], row["sms_wanted"]), (16, 16, 56), row)
            expect(not before & set(row["sm_groups"]), "nothing is given that is not free", row)
            expect("16 of 56" in vm(system, 1)["reason"], "it is told why")
            refused(system, "resize", "bob", "--sm", 57)
            if last:
                holder.close()
            else:
                expect_equal(holder.ask("release"), [0], "the kernel's end")
            row = has_switched(system, 0, 8)
            within(30, lambda: allocation(system, 1)["sms_now"] == 56, "it has grown")
            theirs = set(has_switched(system, 1, 56)["sm_groups"])
            within(30, lambda: not vm(system, 1)["reason"], "all is well")
            expect(before & theirs and not theirs & set(row["sm_groups"]), "groups of one are the other's:", row, theirs)
            other.goes_on()
            if not last:
                holder.ends_right()
                system.flytctl("resize", "bob", "--sm", 16)
                has_switched(system, 1, 16)
                within(30, lambda: system.flytctl("gpus")[0]["groups_allocated"] == 3, "what was left is free")
                system.flytctl("resize", "alice", "--sm", 48)
                has_switched(system, 0, 48)
        for p in (program, other):
            p.goes_on()
            p.ends_right()
        is_idle(system)


@scenario
def who_waits_for_what_is_left():
    """resize --wait vacated: SMs that a kernel keeps are named with its program; at the deadline that, and it alone, can
    be ended."""
    with System(sms=64, memory="512M") as system:
        add_vm(system, 0, "--name", "alice", sm=48)
        program, holder = Resized(system, 0), Resized(system, 0)
        expect_equal(holder.ask("hold"), [0], "the kernel")
        # Without a wait it is told what is left.
        answer = system.flytctl("resize", "alice", "--sm", 32)
        expect_equal((answer["sms_draining"], {d["program"] for d in answer["draining"]}), (16, {"resized"}), answer)
        # The other program has left them soon; asking again changes nothing.
        def is_one():
            again = system.flytctl("resize", "alice", "--sm", 32)
            return len(again["draining"]) == 1 and again
        answer = within(30, is_one, "one program drains")
        expect_equal((answer["sms_draining"], answer["revision"]), (16, allocation(system, 0)["revision"]), answer)
        sessions = {s["id"]: s["client_pid"] for s in system.flytctl("sessions")}
        expect_equal(sessions.get(answer["draining"][0]["session"]), answer["draining"][0]["client_pid"], answer)
        draining = answer["draining"][0]["session"]
        expect_equal(allocation(system, 0)["sms_draining"], 16, "in the table")
        text = system.flytctl_run("resize", "alice", "--sm", 24)
        expect_equal(text.status, 0, text)
        expect("\n24 SMs draining\n" in text.out, text)
        # Who waits hears which programs they are, and nothing happens to these.
        said = refused(system, "resize", "alice", "--sm", 16, "--wait", "vacated", "--deadline", "5", status=RECORDED)
        expect("32 SMs draining: resized (pid " in said, said)
        expect_equal(len(system.flytctl("sessions")), 2, "nobody was ended")
        # It waits for as long as that takes: it has ended when the kernel has.
        waiting = harness.start([system.program("flytctl"), "--manager", system.operator_url, "resize", "alice", "--sm", "8",
                                 "--wait", "vacated", "--deadline", "300"], system.env, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE)
        within(30, lambda: allocation(system, 0)["sms_now"] == 8, "the last one has switched")
        expect_equal(waiting.poll(), None, "it waits while the kernel runs")
        expect_equal(holder.ask("release"), [0], "the kernel's end")
        result = harness.finish(waiting)
        expect_equal(result.status, 0, result)
        expect_equal((allocation(system, 0)["switch_state"], allocation(system, 0)["sms_draining"]), ("vacated", 0))
        # At the deadline the program whose kernel it is is ended, no other one, and an event names it.
        system.flytctl("resize", "alice", "--sm", 48, "--wait", "vacated")
        holder.goes_on()
        expect_equal(holder.ask("hold"), [0], "the kernel")
        answer = system.flytctl("resize", "alice", "--sm", 16, "--wait", "vacated", "--deadline", "15", "--kill")
        expect_equal([d["session"] for d in answer["ended"]], [draining], answer)
        expect_equal((answer["sms_draining"], allocation(system, 0)["sms_draining"]), (0, 0), answer)
        event = events(system, "session.killed", draining)
        expect(len(event) == 1 and "resized" in event[0]["text"] and "operator" in event[0]["who"], event)
        holder.ends_with_error()
        program.goes_on()
        expect_equal(len(system.flytctl("sessions")), 1, "the other program goes on")
        program.ends_right()
        is_idle(system)


def accounts(folder, pid):
    """The software GPU's own accounts of a server, which stay when it has ended: {context: {what: number}}."""
    with open(os.path.join(folder, str(pid)), encoding="ascii") as file:
        lines = [dict((k, int(v)) for k, v in (word.split("=") for word in line.split())) for line in file]
    return {line["context"]: line for line in lines}


@scenario
def a_queue_takes_other_sms_soon():
    """150 kernels, all launched at once, of 0.1 s on 8 SMs: what the GPU has of them when its SMs change is a few, by its
    own accounts. The others have the new SMs, and nothing runs but on SMs that were given."""
    with tempfile.TemporaryDirectory(dir=harness.WORK) as folder:
        env = {**harness.environment(), "FLYT_SOFT_ACCOUNT": folder}
        with System(sms=64, memory="512M", env=env, node={"software_sm_rate": 1000000}) as system:
            add_vm(system, 0, "--name", "alice", sm=8)
            program = Steady.__new__(Steady)
            program.system, program.name, program._said = system, "the queue", b""
            program.process = system.start_in_vm(0, harness.helper("queue"), "150")
            program.wait_ready()
            expect_equal(program.line("the launches"), "queued")
            pid = within(30, lambda: system.flytctl("sessions"), "its session")[0]["server_pid"]
            def first():
                return [a for a in accounts(folder, pid).values() if a["green"] and a["launches"] >= 20]
            # More than it has at first, before it knows how long they take.
            old = within(60, first, "some have ended on the first SMs")[0]
            expect_equal(old["sms"], 8, old)
            system.flytctl("resize", "alice", "--sm", 64)
            switched = accounts(folder, pid)[old["context"]]["launches"]
            has_switched(system, 0, 64)
            left = accounts(folder, pid)[old["context"]]
            expect(left["launches"] - switched <= 2, "launches on the old SMs after the change", switched, left)
            expect(left["launches"] < 75, "most of the queue is still to come", left)
            expect_equal(program.line("the end", 120), "right 150")
            expect_equal(harness.finish(program.process).status, 0)
            last = accounts(folder, pid)[old["context"]]
            expect_equal((last["launches"], last["instructions"]), (left["launches"], left["instructions"]),
                         "what was vacated stays so")
            launches = {a["sms"]: a["launches"] for a in accounts(folder, pid).values() if a["green"]}
            expect_equal((launches[8] + launches[64], set(launches)), (150, {8, 64}), "launches by SMs", launches)
            expect(not any(a["launches"] for a in accounts(folder, pid).values() if not a["green"]), "outside its SMs")
            is_idle(system)


@scenario
def in_the_middle_of_a_wait():
    """A program that waits for its kernel, and one that does nothing at all: both have the new SMs, and the first one's
    wait ends when its kernel does, well."""
    with System(sms=64, memory="512M") as system:
        add_vm(system, 0, "--name", "alice", sm=48)
        waiting, idle = Resized(system, 0), Steady(system, 0)
        expect_equal(waiting.ask("wait"), [0], "a thread of it waits for its kernel")
        for sms in (16, 64, 8):
            system.flytctl("resize", "alice", "--sm", sms)
            # It hears of a change by its VM's client manager, and who ordered it perhaps before.
            within(20, lambda: idle.ask("device")[1] == sms, "the idle one is told of %d SMs" % sms)
            waiting.goes_on()
        # Its kernel began on 48; those that it had meanwhile are not told apart from these.
        expect_equal(allocation(system, 0)["sms_draining"], 56, "SMs that it has no more")
        waiting.say("release")
        expect_equal([waiting.line("the wait's end"), waiting.line("the kernel's end")], ["waited 0", "release 0"])
        has_switched(system, 0, 8)
        for program in (waiting, idle):
            program.goes_on()
            program.ends_right()
        is_idle(system)


@scenario
def groups_are_chosen_anew():
    """132 SMs: 15 groups of 8, and one of 12. Whose groups are scattered, or of a size that does not suit, has others after
    a resize where only that makes it fit, while its program computes."""
    with System(vms=3, sms=132, memory="768M") as system:
        for i, sms in enumerate((12, 40, 80)):
            add_vm(system, i, "--name", "vm%d" % i, sm=sms)
        programs = [Resized(system, i) for i in range(3)]
        expect_equal(allocation(system, 0)["sm_groups"], [15], "the odd group suits 12 SMs best")
        # All 132 are taken. One of 8 is freed: 8 + 8 SMs are no longer 12, so the odd one goes to who can use it.
        system.flytctl("resize", "vm1", "--sm", 32)
        has_switched(system, 1, 32)
        system.flytctl("resize", "vm0", "--sm", 8)
        row = has_switched(system, 0, 8)
        expect(15 not in row["sm_groups"], "8 SMs are one of the others", row)
        expect_equal(allocation(system, 2)["sms"], 80)
        # 92 SMs: ten groups of 8 and the odd one; 44: what fits best is four and the odd one, which another has.
        system.flytctl("resize", "vm2", "--sm", 92)
        row = has_switched(system, 2, 92)
        expect(15 in row["sm_groups"], row)
        refused(system, "resize", "vm1", "--sm", 40)
        # Whoever has the odd one gives it up for others where only these make a request exact.
        system.flytctl("resize", "vm2", "--sm", 24)
        row = has_switched(system, 2, 24)
        expect(15 not in row["sm_groups"] and len(row["sm_groups"]) == 3, "24 SMs are three groups of 8", row)
        for sms in (44, 20, 100, 12):
            answer = system.flytctl("resize", "vm1", "--sm", sms)
            expect_equal(allocation(system, 1)["sms"], sms, "exactly, with the odd group", answer)
            has_switched(system, 1, sms)
        for program in programs:
            program.goes_on()
            program.ends_right()
        all_agree(system)
        is_idle(system)


@scenario
def groups_of_two():
    """An operator's choice for an empty GPU: finer, told with what it costs."""
    with System(sms=32, memory="512M") as system:
        add_vm(system, 0, "--name", "alice", "--reserved", sm=8)
        within(30, lambda: allocations(system, 0), "it has its allocation")
        said = refused(system, "gpu", "set", "node-0:0", "--group-size", "2")
        expect("empty" in said and "clusters of more than 2 blocks" in said, said)
        help_text = system.flytctl_run("gpu", "set", "--help").out
        expect("clusters of more than 2 blocks cannot" in " ".join(help_text.split()), help_text)
        system.flytctl("vm", "remove", "alice", "--kill")
        within(30, lambda: system.flytctl("gpus")[0]["allocations"] == 0, "the GPU is empty")
        system.flytctl("gpu", "set", "node-0:0", "--group-size", "2")
        expect("clusters of up to 2 blocks" in events(system, "gpu.group_size")[0]["text"], "told in an event")
        add_vm(system, 0, "--name", "alice", sm=5)
        program = Resized(system, 0)
        row = allocation(system, 0)
        expect_equal((row["sms_wanted"], row["sms"], len(row["sm_groups"])), (5, 6, 3), row)
        text = system.flytctl_run("resize", "alice", "--sm", 9)
        expect("10 SMs (9 rounded up to whole groups)" in text.out, text)
        has_switched(system, 0, 10)
        program.goes_on()
        program.ends_right()
        is_idle(system)


@scenario
def without_green_contexts():
    """Nobody can be kept to SMs there: nobody gets any, and everybody is told why."""
    env = harness.environment()
    env["FLYT_SOFT_GREEN"] = "0"
    with System(sms=32, memory="512M", env=env) as system:
        add_vm(system, 0)
        gpu = within(30, lambda: [g for g in system.flytctl("gpus") if g["health"] == "failed"], "the GPU is of no use")[0]
        expect("no green contexts" in gpu["health_text"], gpu)
        result = system.run_in_vm(0, harness.helper("echo"))
        expect(result.status != 0, "no program runs", result)
        expect(not system.flytctl("allocations"), "nothing is allocated")
        expect("no green contexts" in json.dumps(system.flytctl("explain", system.vm_ip(0))), "explain tells why")


@scenario
def over_a_restart_of_the_node():
    """The node manager is killed in the middle of changes: afterwards programs have what was recorded."""
    with System(sms=64, memory="512M") as system:
        add_vm(system, 0, "--name", "alice", sm=16)
        program = Resized(system, 0)

        def is_begun(sms):
            result = system.flytctl_run("resize", "alice", "--sm", sms, "--timeout", "0")
            expect(result.status in (0, RECORDED) or "a resize of the VM before this one waits" in result.err, result)
            return result.status in (0, RECORDED)

        for sms in (64, 24, 48):
            within(60, lambda: is_begun(sms), "the change before has its answer")
            system.kill("node-0")
            within(60, lambda: allocation(system, 0)["revision_applied"] == allocation(system, 0)["revision"], "applied")
            within(60, lambda: (allocation(system, 0)["sms_now"], allocation(system, 0)["switch_state"]) ==
                   (sms, "vacated"), "vacated")
            program.goes_on()
        program.ends_right()
        is_idle(system)


if __name__ == "__main__":
    main()
