#!/usr/bin/env python3
"""VMs move to another node while programs run in them that check themselves (two_nodes.py), and each step of that fails, what is
between the nodes is cut, each manager is killed: the programs go on, at one node.

FLYT_SOAK=1 does all of it, and more often; FLYT_SEED=N takes the choices of an earlier run, which printed it.
"""
import os
import random
import signal
import time

import harness
import movers
from harness import expect, expect_equal, main, scenario, within
from sender import Sender
from steady import Steady, is_idle
from survivor import Survivor
from two_nodes import IS_SOAK, PATIENCE, TwoNodes, ends

REFUSED_BY_NODE = 4     # flytctl: what the node lets fail before anything has begun

# Where a step fails, and on which side (control/node/POINTS.md, cpu/server/move/POINTS.md).
FAULTS = [("node-0", "node.send.accept"), ("node-0", "node.send.connect"),
          ("node-0", "node.send.hand_over"), ("node-0", "node.send.stop"),
          ("node-0", "node.send.arrive"), ("node-0", "node.send.switch"),
          ("node-1", "node.receive.accept"), ("node-1", "node.receive.connect"),
          ("node-1", "node.load.prepare"), ("node-1", "node.load.begin"),
          ("node-1", "node.load.made"), ("node-1", "node.receive.switch"),
          ("node-0", "sending.frame"), ("node-0", "sending.answer"), ("node-0", "move.drain"),
          ("node-0", "move.stopped"), ("node-1", "receiving.begin"), ("node-1", "receiving.frame"),
          ("node-1", "receiving.compare"), ("node-1", "receiving.answer")]


def two_programs(system):
    """One that has one of everything and waits, and one that calls its GPU without a pause."""
    program = Survivor(system, 0)
    program.does("check", "right 1")
    return program, Sender(system, 0)


def both_are_right(system, program, sender, what):
    program.does("check", "right 2")
    sender.ends_right(what)
    ends(system, program)


@scenario
def each_step_fails():
    """One side says no at each step: the program goes on where it was."""
    for name, point in FAULTS if IS_SOAK else FAULTS[::3]:
        with TwoNodes({name: point + ":error"}) as system:
            program = Survivor(system, 0)
            program.does("check", "right 1")
            result = system.migrates("node-1")
            expect(result.status in (1, REFUSED_BY_NODE), "flytctl migrate with", point, result)
            expect(result.err.strip(), "why it failed with", point, result)
            system.is_at("node-0")
            program.does("check", "right 2")
            ends(system, program)


@scenario
def settings_that_are_missing_of_one():
    """Of one program an attribute of a kernel is not set again at the other node: those that could go on there wait for it,
    and all go back."""
    with TwoNodes({"node-1": "prepare.setting:error"}) as system:
        batch = [case for case in movers.cases() if case.name in ("linked_list", "many_streams", "large_shared_memory")]
        expect_equal(len(batch), 3, "programs")

        def moves_in_vain(_):
            said = system.log("node-1").count("and it had set ")
            result = system.migrates("node-1")
            expect_equal(result.status, 1, "flytctl migrate", result)
            expect(system.log("node-1").count("and it had set ") > said, "why it does not go on there")
            system.is_at("node-0")

        movers.under(system, 0, batch, moves_in_vain, 2, movers.seed())
        is_idle(system)


@scenario
def the_server_that_is_left_dies():
    """Between its word that the program has stopped and the program's way, or it cannot be told: the program goes on at the
    other node, where all of it is."""
    for point in ("move.told:kill", "move.leave:kill", "move.moved:kill", "node.send.leave:error"):
        with TwoNodes({"node-0": point}) as system:
            program, sender = two_programs(system)
            system.moves()
            words = "cannot be told" if point.endswith("error") else "made to end by FLYT_FAULT"
            expect_equal(system.log("node-0").count(words), 2, words, point)
            both_are_right(system, program, sender, point)


@scenario
def the_connection_ends_without_a_word():
    """The program's connection ends when its server is told that it leaves, before the program is: it goes on at the other
    node; or where it was, for the other node fails when it comes."""
    for target, fault in (("node-1", None), ("node-0", "node.load.client:error")):
        with TwoNodes({"node-0": "move.leave:error", **({"node-1": fault} if fault else {})}) as system:
            program, sender = two_programs(system)
            result = system.migrates("node-1")
            expect_equal(result.status, 1 if fault else 0, "flytctl migrate", result)
            system.is_at(target)
            expect_equal(system.log("node-0").count("goes on where it was"), 2 if fault else 0, "who was given back")
            both_are_right(system, program, sender, target)


@scenario
def nothing_between_the_nodes():
    """What is between them is cut while memory is copied: the program goes on where it was; mended, it moves."""
    with TwoNodes() as system:
        if not system.network:
            print("    no network namespaces here: nothing between the nodes can be cut")
            return
        program = Steady(system, 0)
        program.takes(256)
        system.cut()
        result = system.migrates("node-1", patience=("--timeout", "10"))
        expect_equal(result.status, 1, "a migration with nothing between the nodes", result)
        system.is_at("node-0")
        program.goes_on()
        system.mend()
        system.flytctl("migrate", "alice", "--to", "node-1", *PATIENCE, "--detach")
        within(60, lambda: system.flytctl("migrations")[-1]["phase"] != "preparing", "it copies")
        system.cut()
        last = system.over()
        system.mend()
        system.is_at("node-1" if last["phase"] == "done" else "node-0")
        program.goes_on()
        if last["phase"] == "failed":
            system.moves()
        program.goes_on()
        program.ends_right()


def killed_while_moving(name, times, count):
    """A daemon is killed at moments by chance: whatever becomes of it, so many programs go on, at one node."""
    chance = random.Random(movers.seed())
    with TwoNodes() as system:
        programs = [Steady(system, 0) for _ in range(count)]
        for program in programs:
            program.takes(32)
        outcomes = []
        for number in range(times):
            target = system.elsewhere()
            within(120, lambda: system.flytctl_run("migrate", "alice", "--to", target, "--detach").status == 0, "it begins")
            time.sleep(chance.random() * 0.6)
            system.kill(name)
            last = system.over()
            outcomes.append(last["phase"])
            system.is_at(last["target" if last["phase"] == "done" else "source"].split(":")[0])
            for program in programs:
                program.goes_on()
        print("    %s killed: %s" % (name, " ".join(outcomes)))
        for program in programs:
            program.ends_right()


@scenario
def cluster_manager_killed():
    killed_while_moving("cluster", 20 if IS_SOAK else 5, 2)


@scenario
def node_managers_killed():
    for name in ("node-0", "node-1"):
        killed_while_moving(name, 20 if IS_SOAK else 3, 3)


def all_went(system, programs):
    """Every one of them is at node-1, and has what it had."""
    expect_equal(system.over()["phase"], "done", "the migration")
    system.is_at("node-1")
    expect_equal(len(system.flytctl("sessions")), len(programs), "programs that go on")
    for program in programs:
        program.goes_on()
        program.ends_right()


@scenario
def killed_when_a_client_comes():
    """The target's node manager, at each second client that comes to it: two times for three of them."""
    with TwoNodes({"node-1": "node.load.client:kill:2"}) as system:
        programs = [Steady(system, 0) for _ in range(3)]
        for program in programs:
            program.takes(32)
        system.flytctl("migrate", "alice", "--to", "node-1", *PATIENCE, "--detach")
        all_went(system, programs)
        expect_equal(system.log("node-1").count("made to end by FLYT_FAULT"), 2, "how often it was killed")


@scenario
def killed_before_clients_come():
    """The target's node manager, when it is to answer that programs may go on there, and again when one does: two are slow,
    and come after that. The second time the cluster manager is killed with it."""
    with TwoNodes({"node-1": "node.receive.switched:hang"}) as system:
        programs = [Steady(system, 0) for _ in range(3)]
        for program in programs:
            program.takes(32)
        system.flytctl("migrate", "alice", "--to", "node-1", *PATIENCE, "--detach")
        within(120, lambda: "made to hang by FLYT_FAULT" in system.log("node-1"), "node-1 is to answer")
        for program in programs[1:]:
            harness.stop(program.process.pid)
        system.kill("node-1")
        within(120, lambda: [s["node"] for s in system.flytctl("sessions") if s["node"] == "node-1"], "one goes on there")
        system.supervisor.signal("cluster", signal.SIGKILL)
        system.kill("node-1")
        system.supervisor.wait_ready("cluster")
        for program in programs[1:]:
            os.kill(program.process.pid, signal.SIGCONT)
        all_went(system, programs)


if __name__ == "__main__":
    main()
