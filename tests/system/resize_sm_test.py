#!/usr/bin/env python3
"""SMs that change while programs compute: the operator is answered when new work goes to the new ones, everything that
the programs compute is right, and what was taken is given to others when nothing runs on it any more."""
import subprocess

import harness
from cluster import System
from harness import expect, expect_equal, main, scenario, within
from steady import RECORDED, Steady, add_vm, allocation, events, is_idle, refused

STREAMS = 4
CHANGES = 30


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
            refused(system, "resize", "bob", "--sm", 56)
            if last:
                holder.close()
            else:
                expect_equal(holder.ask("release"), [0], "the kernel's end")
            row = has_switched(system, 0, 8)
            within(30, lambda: system.flytctl("gpus")[0]["groups_allocated"] == 3, "what was left is free")
            system.flytctl("resize", "bob", "--sm", 56)
            theirs = set(has_switched(system, 1, 56)["sm_groups"])
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
        expect_equal((answer["sms_draining"], [d["program"] for d in answer["draining"]]), (16, ["resized"]), answer)
        sessions = {s["id"]: s["client_pid"] for s in system.flytctl("sessions")}
        expect_equal(sessions.get(answer["draining"][0]["session"]), answer["draining"][0]["client_pid"], answer)
        draining = answer["draining"][0]["session"]
        expect_equal(allocation(system, 0)["sms_draining"], 16, "in the table")
        text = system.flytctl_run("resize", "alice", "--sm", 24)
        expect_equal(text.status, 0, text)
        expect("\n24 SMs draining\n" in text.out, text)
        # Who waits hears which programs they are, and nothing happens to these.
        said = refused(system, "resize", "alice", "--sm", 16, "--wait", "vacated", "--deadline", "0.5", status=RECORDED)
        expect("32 SMs draining: resized (pid " in said, said)
        expect_equal(len(system.flytctl("sessions")), 2, "nobody was ended")
        # It waits for as long as that takes: it has ended when the kernel has.
        waiting = harness.start([system.program("flytctl"), "--manager", system.operator_url, "resize", "alice", "--sm",
                                 "8", "--wait", "vacated", "--deadline", "60"], system.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
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
        answer = system.flytctl("resize", "alice", "--sm", 16, "--wait", "vacated", "--deadline", "0.5", "--kill")
        expect_equal([d["session"] for d in answer["ended"]], [draining], answer)
        expect_equal((answer["sms_draining"], allocation(system, 0)["sms_draining"]), (0, 0), answer)
        event = events(system, "session.killed", draining)
        expect(len(event) == 1 and "resized" in event[0]["text"] and "operator" in event[0]["who"], event)
        holder.ends_with_error()
        program.goes_on()
        expect_equal(len(system.flytctl("sessions")), 1, "the other program goes on")
        program.ends_right()
        is_idle(system)


@scenario
def over_a_restart_of_the_node():
    """The node manager is killed in the middle of changes: afterwards programs have what was recorded."""
    with System(sms=64, memory="512M") as system:
        add_vm(system, 0, "--name", "alice", sm=16)
        program = Resized(system, 0)
        for sms in (64, 24, 48):
            result = system.flytctl_run("resize", "alice", "--sm", sms, "--timeout", "0")
            expect(result.status in (0, RECORDED), result)
            system.kill("node-0")
            within(60, lambda: allocation(system, 0)["revision_applied"] == allocation(system, 0)["revision"], "applied")
            within(60, lambda: (allocation(system, 0)["sms_now"], allocation(system, 0)["switch_state"]) ==
                   (sms, "vacated"), "vacated")
            program.goes_on()
        program.ends_right()
        is_idle(system)


if __name__ == "__main__":
    main()
