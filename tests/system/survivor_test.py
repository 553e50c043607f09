#!/usr/bin/env python3
"""The program that has one of everything (programs/survivor.cu): undisturbed, and when its server process is killed while
it leaves its GPU alone. Where it cannot go on, its program has an error that says why, and nothing is left of it."""
import os
import re
import signal

import harness
from cluster import System
from harness import environment, expect, expect_equal, helper, main, run, scenario, server, through_flyt, within
from steady import Steady, add_vm, allocation, events, is_idle
from survivor import Survivor, is_quiet, its_server_is_killed, session

DEATHS = 20 if os.environ.get("FLYT_SOAK") else 2


def replacements(system):
    """[{step: µs since the server's end began}] of all sessions that have gone on at another one."""
    return [{step: int(us) for step, us in re.findall(r"(\w+)_us=(\d+)", line)}
            for line in system.log("node-0").splitlines() if ": was replaced, " in line]


@scenario
def everything_is_there_every_time():
    for kind in ("unix", "tcp"):
        with server(kind) as s:
            result = run(through_flyt(s.url, helper("survivor")), environment(), timeout=240,
                         stdin=b"check\nleave\ncheck\nend\n")
            expect_equal((result.status, result.out), (0, "ready\nright 1\nleft\nright 2\nended\n"), kind, result)


@scenario
def everything_is_there_at_another_server():
    with System(vms=1, gpus=1, sms=48, memory="1G") as system:
        add_vm(system, 0, memory="512M")
        program = Survivor(system, 0)
        program.does("check", "right 1")
        its_server_is_killed(system)
        program.does("check", "right 2")
        program.does("leave", "left")   # the GPU ends it, and nobody waits for that
        its_server_is_killed(system)
        its_server_is_killed(system)    # without a call in between
        program.does("check", "right 3")
        program.does("end", "ended")
        result = harness.finish(program.process)
        expect_equal((result.status, result.err), (0, ""), result)
        is_idle(system)


@scenario
def many_deaths_of_an_encrypted_session():
    with System(vms=1, gpus=1, sms=48, memory="1G", cluster={"encrypted": True}) as system:
        add_vm(system, 0, memory="512M")
        program = Survivor(system, 0)
        program.does("check", "right 1")
        first = session(system)["id"]
        for i in range(DEATHS):
            its_server_is_killed(system)
            program.does("check", "right %d" % (i + 2))
        kinds = [e["kind"] for e in system.flytctl("events") if e["object"] == first]
        expect_equal([kinds.count("session.server_lost"), kinds.count("session.resumed")], [DEATHS, DEATHS], kinds)
        within(60, lambda: len(replacements(system)) == DEATHS, "the node tells what each took")
        for took in replacements(system):
            expect(took["gone"] <= took["session"] and took["come"] <= took["session"], took)
            expect(took["give"] <= took["session"] <= took["go_on"], took)
        program.does("end", "ended")
        result = harness.finish(program.process)
        expect_equal((result.status, result.err), (0, ""), result)
        is_idle(system)


@scenario
def what_it_may_have_by_then_is_what_holds():
    """A resize between the last sign of life and the death, and one afterwards."""
    with System(vms=1, gpus=1, sms=48, memory="1G") as system:
        add_vm(system, 0, "--name", "alice", sm=32, memory="640M")
        program = Survivor(system, 0)
        program.does("check", "right 1")
        system.flytctl("resize", "alice", "--sm", 16, "--memory", "512M")
        its_server_is_killed(system)
        program.does("check", "right 2")
        row = allocation(system, 0)
        expect_equal((row["sms"], row["memory_bytes"]), (16, 512 << 20), "SMs and memory", row)
        system.flytctl("resize", "alice", "--sm", 48, "--memory", "768M")
        program.does("check", "right 3")
        program.does("end", "ended")
        expect_equal(harness.finish(program.process).status, 0, "its end")
        is_idle(system)


class Holding(Steady):
    """programs/resized.cu in VM `i`, with a kernel that does not end."""

    def __init__(self, system, i):
        self.system, self.name, self._said = system, "the program in VM %d" % i, b""
        self.process = system.start_in_vm(i, helper("resized"), "4")
        self.wait_ready()
        expect_equal(self.ask("hold"), [0], "an endless kernel")


@scenario
def unfinished_work_ends_with_an_error():
    with System(vms=1, gpus=1, sms=48, memory="1G") as system:
        add_vm(system, 0, memory="512M")
        program = Holding(system, 0)
        one = session(system)
        os.kill(one["server_pid"], signal.SIGKILL)
        code, said = program.ends_with_error()
        expect_equal(code, 46, "the code of a lost connection", said)
        expect("connection lost" in said, "what the program is told:", said)
        within(60, lambda: not system.flytctl("sessions"), "its session has ended")
        is_idle(system)


class Heap(Survivor):
    """programs/heap.cu in VM `i`."""

    def __init__(self, system, i):
        self.system, self.name, self._said = system, "the program in VM %d" % i, b""
        self.process = system.start_in_vm(i, helper("heap"))
        self.wait_ready()


@scenario
def what_only_its_server_has_is_named():
    """A heap on the device: `sessions` says that it stands against going on, a move and a checkpoint are refused by that name
    and harm nothing, and its server's death ends it with an error."""
    reason = "a library allocates memory in kernels"
    with System(vms=1, gpus=1, sms=48, memory="1G") as system:
        add_vm(system, 0, "--name", "alice", memory="512M")
        program = Heap(system, 0)
        program.does("check", "right 1")
        one = within(60, lambda: [s for s in system.flytctl("sessions") if s["why_not"]], "the reason")[0]
        expect(not one["replaceable"] and reason in one["why_not"], one)
        gpu = system.flytctl("gpus")[0]
        for words in (("migrate", "alice", "--to", "%s:%d" % (gpu["node"], gpu["index"]), "--force"),
                      ("checkpoint", "alice", "--to", harness.WORK)):
            result = system.flytctl_run(*words, timeout=120)
            expect_equal(result.status, 1, words, result)
            expect(reason in result.err, "why it is refused:", words, result)
        program.does("check", "right 2")
        expect_equal(session(system)["server_pid"], one["server_pid"], "its server")
        os.kill(one["server_pid"], signal.SIGKILL)
        program.say("check")
        code, said = program.ends_with_error()
        expect_equal(code, 46, "the code of a lost connection", said)
        expect("connection lost" in said and reason in said, "what the program is told:", said)
        within(60, lambda: not system.flytctl("sessions"), "its session has ended")
        within(60, lambda: [event for event in events(system, "session.ended") if reason in event["text"]],
               "the event says why it could not go on")
        is_idle(system)


@scenario
def constants_that_cannot_be_written_again_are_named():
    """One that a copy has written whose data nobody keeps, or of which the program has the address: `sessions` says so,
    also where the program was moved to, and the death of its server ends it with an error."""
    for words, answer, reason in (("later", "written", "a constant was copied to or from by its address"),
                                  ("address", "told", "the program has the address of a library's variable")):
        with System(vms=1, gpus=1, sms=48, memory="1G") as system:
            add_vm(system, 0, "--name", "alice", memory="512M")
            program = Survivor(system, 0)
            program.does("check", "right 1")
            within(60, lambda: session(system)["replaceable"], "constants written by the host do not count")
            program.does(words, answer)
            within(60, lambda: reason in (session(system)["why_not"] or ""), "the reason")
            gpu = system.flytctl("gpus")[0]
            before = session(system)["server_pid"]
            moved = system.flytctl_run("migrate", "alice", "--to", "%s:%d" % (gpu["node"], gpu["index"]), "--force",
                                       "--stop-timeout", "60000", "--timeout", "240", timeout=300)
            expect_equal(moved.status, 0, moved)
            program.does("check", "right 2")
            one = within(60, lambda: (lambda s: s["server_pid"] != before and reason in (s["why_not"] or "") and s)(
                session(system)), "the reason at another server")
            expect(not one["replaceable"], one)
            os.kill(one["server_pid"], signal.SIGKILL)
            program.say("check")
            code, said = program.ends_with_error()
            expect_equal(code, 46, "the code of a lost connection", said)
            expect(reason in said, "what the program is told:", said)
            within(60, lambda: not system.flytctl("sessions"), "its session has ended")
            is_idle(system)


@scenario
def a_client_that_does_not_come_back():
    """What it had is kept for a while, and then given back."""
    with System(vms=1, gpus=1, sms=48, memory="1G") as system:
        add_vm(system, 0, memory="512M")
        program = Survivor(system, 0)
        program.does("check", "right 1")
        before = within(60, lambda: is_quiet(system), "nothing is under way")
        harness.stop(program.process.pid)
        os.kill(before["server_pid"], signal.SIGKILL)
        within(60, lambda: events(system, "session.server_lost", before["id"]), "its session waits")
        harness.kill_group(program.process)
        within(60, lambda: not system.flytctl("sessions"), "its session has ended")
        is_idle(system)


if __name__ == "__main__":
    main()
