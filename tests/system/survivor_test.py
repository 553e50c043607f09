#!/usr/bin/env python3
"""The program that has one of everything (programs/survivor.cu): undisturbed, and when its server process is killed while
it leaves its GPU alone."""
import os
import signal
import time

import harness
from cluster import System
from harness import environment, expect_equal, helper, main, run, scenario, server, through_flyt, within
from steady import Steady, add_vm, is_idle


class Survivor(Steady):
    def __init__(self, system, i):
        self.system, self.name = system, "the program in VM %d" % i
        self.process = system.start_in_vm(i, helper("survivor"))
        self._said = b""
        self.wait_ready()

    def does(self, words, answer):
        self.say(words)
        expect_equal(self.line(words, 120), answer, self.name, words)


@scenario
def everything_is_there_every_time():
    for kind in ("unix", "tcp"):
        with server(kind) as s:
            result = run(through_flyt(s.url, helper("survivor")), environment(), timeout=240,
                         stdin=b"check\nleave\ncheck\nend\n")
            expect_equal((result.status, result.out), (0, "ready\nright 1\nleft\nright 2\nended\n"), kind, result)


def session(system):
    found = system.flytctl("sessions")
    expect_equal(len(found), 1, found)
    return found[0]


def is_quiet(system):
    """The session, where nothing has happened in it between two of the server's reports, which come every second."""
    before = session(system)
    time.sleep(2.5)
    after = session(system)
    fields = ("calls", "gpu_time_us", "replaceable")
    return after["replaceable"] and all(after[f] == before[f] for f in fields) and after


def its_server_is_killed(system):
    """Once nothing is under way; returns when the session goes on at another server."""
    before = within(60, lambda: is_quiet(system), "nothing is under way")
    os.kill(before["server_pid"], signal.SIGKILL)
    after = within(60, lambda: (lambda s: s["state"] == "serving" and s["server_pid"] != before["server_pid"] and s)(
        session(system)), "the session goes on at another server")
    expect_equal(after["id"], before["id"], "the session")


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


if __name__ == "__main__":
    main()
