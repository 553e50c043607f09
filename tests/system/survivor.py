"""programs/survivor.cu, or another program that answers words, in a VM of a whole system, and the death of its server."""
import os
import signal
import time

from harness import expect_equal, finish, helper, within
from steady import Steady, allocation, is_idle


class Survivor(Steady):
    def __init__(self, system, i, prefix=(), program="survivor", **environment):
        self.system, self.name = system, "the program in VM %d" % i
        self.process = system.start_in_vm(i, *prefix, helper(program), **environment)
        self._said = b""
        self.wait_ready()

    def does(self, words, answer):
        self.say(words)
        expect_equal(self.line(words, 120), answer, self.name, words)


def rests(system, i):
    """Waits until VM i's one program could go on at another server; its session."""
    def is_resting():
        seen = []
        for _ in range(2):
            seen.append([s for s in system.flytctl("sessions") if s["vm_ip"] == system.vm_ip(i)])
            time.sleep(1.5)
        calls = [[(s["calls"], s["gpu_time_us"], s["replaceable"]) for s in sessions] for sessions in seen]
        return len(seen[0]) == 1 and calls[0] == calls[1] and calls[0][0][2] and seen[0][0]
    return within(60, is_resting, "the program of VM %d rests" % i)


def session(system):
    """The only one, when the cluster manager knows of it."""
    return within(60, lambda: (lambda found: len(found) == 1 and found)(system.flytctl("sessions")), "there is one session")[0]


def is_quiet(system):
    """The session, where nothing has happened in it between two of the server's reports, which come every second."""
    if not system.flytctl("sessions"):
        return None     # its node has not told of it yet
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


def ends(program, system):
    """It is told to, and leaves nothing behind."""
    program.does("end", "ended")
    result = finish(program.process)
    expect_equal((result.status, result.err), (0, ""), result)
    is_idle(system)


def moves(system):
    """Alice, to the other one of two GPUs."""
    here = allocation(system, 0)["gpu"]
    there = next("%s:%d" % (gpu["node"], gpu["index"]) for gpu in system.flytctl("gpus") if gpu["uuid"] != here)
    result = system.flytctl_run("migrate", "alice", "--to", there, "--stop-timeout", "60000", "--timeout", "240", timeout=300)
    expect_equal(result.status, 0, "flytctl migrate --to", there, result)


def resizes(system, sms):
    """alice's, until nothing is left on SMs that she had."""
    system.flytctl("resize", "alice", "--sm", sms)
    within(30, lambda: allocation(system, 0)["switch_state"] == "vacated", "nothing is left on other SMs")
