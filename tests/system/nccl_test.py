#!/usr/bin/env python3
"""NCCL: ranks in one program by several devices and threads, ranks in several programs of one machine, and what the others
hear when one of them ends."""
import os
import subprocess
import tempfile

import harness
from cluster import System
from harness import expect, expect_equal, main, scenario, server, through_flyt
from steady import add_vm


class Rank:
    """A process with one rank (programs/communicator.cu)."""

    def __init__(self, command):
        self.process = harness.start(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def hears(self):
        return self.process.stdout.readline().decode().strip()

    def say(self, word):
        self.process.stdin.write(word.encode() + b"\n")
        self.process.stdin.flush()

    def ends(self):
        self.say("end")
        result = harness.finish(self.process)
        expect_equal(result.status, 0, result)


def ranks_on(url, count):
    path = os.path.join(tempfile.mkdtemp(dir=harness.WORK), "id")
    ranks = [Rank(through_flyt(url, harness.helper("communicator"), str(i), str(count), path)) for i in range(count)]
    for rank in ranks:
        expect_equal(rank.hears(), "ready")
    return ranks


def all_add(ranks):
    for rank in ranks:
        rank.say("reduce")
    for rank in ranks:
        expect_equal(rank.hears(), "sum %d" % (len(ranks) * (len(ranks) + 1) // 2))


@scenario
def one_program_has_several_devices():
    for devices in (1, 2, 3):
        with server("tcp", ("--soft", str(devices))) as s:
            result = harness.run(through_flyt(s.url, harness.app("nccl")))
            expect_equal((result.status, result.out, result.err), (0, "%d ranks\n" % devices, ""), result)


@scenario
def several_programs_add():
    with server("tcp", ("--soft", "1", "--warm", "3")) as s:
        ranks = ranks_on(s.url, 3)
        for _ in range(20):
            all_add(ranks)
        for rank in ranks:
            rank.ends()


@scenario
def the_others_can_abort_when_one_is_killed():
    """Each of two ranks in its turn, the one whose server has made the id, too; the other one waits in an operation."""
    for victim in (1, 0):
        with server("tcp", ("--soft", "1", "--warm", "2")) as s:
            ranks = ranks_on(s.url, 2)
            all_add(ranks)
            other = ranks[1 - victim]
            other.say("reduce.")
            expect_equal(other.hears(), "begun 0")
            harness.kill_group(ranks[victim].process)
            other.say("error")
            expect_equal(other.hears(), "error 6", "ncclRemoteError")
            other.say("abort")
            expect_equal(other.hears(), "aborted 0")
            other.process.stdin.close()
            result = other.process.wait(harness.PATIENCE_S)
            expect_equal(result, 0)


@scenario
def an_operation_after_that_is_an_error():
    with server("tcp", ("--soft", "1", "--warm", "2")) as s:
        first, second = ranks_on(s.url, 2)
        harness.kill_group(second.process)
        first.say("error")
        expect_equal(first.hears(), "error 6")
        first.say("reduce.")
        expect_equal(first.hears(), "begun 6", "ncclRemoteError")


@scenario
def a_communicator_stands_against_a_move():
    with System(vms=1, gpus=2, sms=64, memory="1G") as system:
        add_vm(system, 0, "--name", "alice", "--sessions", 8, sm=16, memory="512M")
        path = os.path.join(tempfile.mkdtemp(dir=harness.WORK), "id")
        process = system.start_in_vm(0, harness.helper("communicator"), "0", "1", path)
        expect_equal(process.stdout.readline(), b"ready\n")
        here = system.flytctl("allocations")[0]["gpu"]
        target = next(g for g in system.flytctl("gpus") if g["uuid"] != here)
        moved = system.flytctl_run("migrate", "alice", "--to", "%s:%d" % (target["node"], target["index"]), timeout=120)
        expect(moved.status != 0 and "NCCL communicator" in moved.err, moved)
        process.stdin.write(b"reduce\n")
        process.stdin.flush()
        expect_equal(process.stdout.readline(), b"sum 1\n", "it goes on")
        process.stdin.write(b"end\n")
        process.stdin.flush()
        expect_equal(harness.finish(process).status, 0)


if __name__ == "__main__":
    main()
