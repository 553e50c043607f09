#!/usr/bin/env python3
"""NCCL: ranks in one program by several devices and threads, which move while they compute; ranks in several programs of one
machine, which do not, and what the others hear when one of them ends. FLYT_SOAK=1 moves more often."""
import os
import subprocess
import tempfile

import harness
from cluster import System
from harness import expect, expect_equal, main, scenario, server, through_flyt
from steady import Steady, add_vm, is_idle
from survivor import its_server_is_killed
from two_nodes import IS_SOAK, TwoNodes

MOVES = 40 if IS_SOAK else 4
HARDWARE = {}            # of cluster.System, where GPUs are NVIDIA's (nccl_gpu_test.py)
PATIENCE = ("--stop-timeout", "20000", "--timeout", "120")


class Rank:
    """A process with one rank (programs/communicator.cu)."""

    def __init__(self, process):
        self.process = process

    @classmethod
    def by(cls, command):
        return cls(harness.start(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE))

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
    ranks = [Rank.by(through_flyt(url, harness.helper("communicator"), str(i), str(count), path)) for i in range(count)]
    for rank in ranks:
        expect_equal(rank.hears(), "ready")
    return ranks


def all_add(ranks, word="reduce"):
    for rank in ranks:
        rank.say(word)
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
        for word in 20 * ("replay", "reduce"):
            all_add(ranks, word)
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


def whole_system(gpus=4, **options):
    """alice has two devices, on which she is not where she could be."""
    system = System(**{"vms": 1, "gpus": gpus, "sms": 64, "memory": "1G", **HARDWARE, **options})
    try:
        add_vm(system, 0, "--name", "alice", "--devices", 2, "--sessions", 8, sm=16, memory="8G" if HARDWARE else "256M")
    except BaseException:
        system.print_logs()
        system.close()
        raise
    return system


class Ensemble(Steady):
    """programs/ensemble.cu"""

    def __init__(self, system, way):
        self.system, self.name = system, "ensemble " + way
        self.process = system.start_in_vm(0, harness.helper("ensemble"), way)
        self._said = b""
        self.wait_ready()

    def does(self, *words):
        for word in words:
            expect_equal(self.ask(word), [0], word)

    def ends_right(self):
        self.say("end")
        result = harness.finish(self.process)
        expect_equal((result.status, result.out, result.err), (0, "", ""), result)


def migrate(system, *words):
    return system.flytctl_run("migrate", "alice", *words, *PATIENCE, timeout=300)


def servers(system):
    return {s["server_pid"] for s in system.flytctl("sessions")}


def moves(system, program, *words):
    before = servers(system)
    result = migrate(system, *words)
    expect_equal(result.status, 0, "flytctl migrate", *words, result)
    expect(not before & servers(system), "another server")
    program.goes_on(5)


def stays(system, program, *words):
    result = migrate(system, *words)
    expect(result.status != 0 and "NCCL communicator" in result.err, "it is refused by name", result)
    program.goes_on(2)


def interfaces_of_servers(system):
    """What the servers of alice's programs were started with."""
    found = []
    for pid in servers(system):
        with open("/proc/%d/cmdline" % pid, encoding="utf-8") as file:
            words = file.read().split("\0")
        found.append([words[i + 1] for i, word in enumerate(words) if word == "--nccl-interfaces"])
    return found


@scenario
def servers_hear_which_networks_the_operator_allows():
    """What follows from that: cpu/server/library/served_test.c."""
    for node, wanted in (({}, []), ({"nccl_interfaces": "flyt7,flyt8"}, ["flyt7,flyt8"])):
        with whole_system(2, node=node) as system:
            program = Ensemble(system, "all")
            harness.within(20, lambda: servers(system), "its session is known")
            expect_equal(interfaces_of_servers(system), [wanted], node)
            program.ends_right()


@scenario
def ranks_of_one_program_move_while_they_compute():
    """To other GPUs and to other servers of the same ones, with a thread for all ranks, and with one for each."""
    for way in ("all", "threads"):
        with whole_system() as system:
            program = Ensemble(system, way)
            for i in range(MOVES):
                moves(system, program, "--to", "node-0", *(["--force"] if i % 2 else []))
            program.ends_right()
            is_idle(system)


@scenario
def ranks_of_one_program_move_between_nodes():
    with TwoNodes(gpus=2, devices=2) as system:
        for way in ("all", "threads"):
            program = Ensemble(system, way)
            for i in range(MOVES):
                target = "node-0" if i % 2 else "node-1"
                result = system.migrates_when_connected(target, "--streams", 1 + i, "--pack", ("none", "lz4", "zstd")[i % 3])
                expect_equal(result.status, 0, "flytctl migrate --to", target, result)
                program.goes_on(5)
            program.ends_right()
            is_idle(system)


@scenario
def ranks_of_one_program_go_on_from_an_image():
    with whole_system(gpus=2) as system:
        for way in ("all", "threads"):
            program, folder, before = Ensemble(system, way), tempfile.mkdtemp(dir=harness.WORK), servers(system)
            for words in (("checkpoint", "alice", "--to", folder, *PATIENCE), ("restore", folder)):
                result = system.flytctl_run(*words, timeout=300)
                expect_equal(result.status, 0, "flytctl", *words, result)
            program.goes_on(5)
            expect(not before & servers(system), "another server")
            program.ends_right()
            is_idle(system)


@scenario
def ranks_of_one_program_outlive_their_server():
    with whole_system(gpus=2) as system:
        for way in ("all", "threads"):
            program = Ensemble(system, way)
            for _ in range(3):
                program.does("rest")
                its_server_is_killed(system)
                program.does("go")
                program.goes_on(5)
            program.ends_right()
            is_idle(system)


@scenario
def what_cannot_be_made_again_stands_against_a_move_as_long_as_it_is_there():
    with whole_system() as system:
        program = Ensemble(system, "all")
        for begin, end in (("make finalize", "destroy"), ("make abort", "destroy"), ("id", "use")):
            program.does(*begin.split())
            stays(system, program, "--to", "node-0")
            program.does(end)
            moves(system, program, "--to", "node-0")
        program.does("make")
        moves(system, program, "--to", "node-0")
        program.does("destroy")
        program.ends_right()
        is_idle(system)


@scenario
def ranks_in_two_programs_stand_against_a_move():
    with System(vms=1, gpus=2, sms=64, memory="1G") as system:
        add_vm(system, 0, "--name", "alice", "--sessions", 8, sm=16, memory="512M")
        path = os.path.join(tempfile.mkdtemp(dir=harness.WORK), "id")
        ranks = [Rank(system.start_in_vm(0, harness.helper("communicator"), str(i), "2", path)) for i in range(2)]
        for rank in ranks:
            expect_equal(rank.hears(), "ready")
        here = system.flytctl("allocations")[0]["gpu"]
        target = next(g for g in system.flytctl("gpus") if g["uuid"] != here)
        moved = migrate(system, "--to", "%s:%d" % (target["node"], target["index"]))
        expect(moved.status != 0 and "NCCL communicator" in moved.err, moved)
        all_add(ranks)
        for rank in ranks:
            rank.ends()


if __name__ == "__main__":
    main()
