#!/usr/bin/env python3
"""Programs that call NVIDIA's libraries (programs/descent.cu and its like) move with their VM, and outlive their server: what they come to
is, bit by bit, what they come to without that. Where the node has no such library they are told so, once."""
import os
import shutil
import tempfile

import harness
from cluster import System
from harness import expect, expect_equal, main, scenario, server
from library_program import Program
from steady import add_vm, allocation, is_idle
from survivor import its_server_is_killed

ROUNDS = 6
PATIENCE = ("--stop-timeout", "60000", "--timeout", "240")


def whole_system(**options):
    system = System(vms=1, gpus=2, sms=64, memory="1G", **options)
    try:
        add_vm(system, 0, "--name", "alice", "--sessions", 8, sm=16, memory="512M")
    except BaseException:
        system.print_logs()
        system.close()
        raise
    return system


def undisturbed(system, helper):
    program = Program(system, 0, helper)
    losses = [program.steps() for _ in range(ROUNDS)]
    result = program.ends()
    expect_equal((result.status, result.err), (0, ""), result)
    expect_equal(len(set(losses)), ROUNDS, "each round of steps changes what it comes to")
    return losses


def move(system, way):
    gpus = {g["uuid"]: "%s:%d" % (g["node"], g["index"]) for g in system.flytctl("gpus")}
    here = gpus[allocation(system, 0)["gpu"]]
    target = here if way == "same" else next(name for name in gpus.values() if name != here)
    return system.flytctl_run("migrate", "alice", "--to", target, *PATIENCE, *(["--force"] if way == "same" else []), timeout=300)


def stays_the_same_after_moves(helper):
    with whole_system() as system:
        wanted = undisturbed(system, helper)
        program, seen = Program(system, 0, helper), []
        for round_ in range(ROUNDS):
            seen.append(program.steps())
            if round_ < ROUNDS - 1:
                moved = move(system, "other" if round_ % 2 else "same")
                expect_equal(moved.status, 0, "the move", moved)
        result = program.ends()
        expect_equal((result.status, result.err), (0, ""), result)
        expect_equal(seen, wanted, "what it came to")
        is_idle(system)


@scenario
def what_they_come_to_is_the_same_after_moves():
    stays_the_same_after_moves("descent")


@scenario
def plans_made_in_parts_and_generators_move():
    stays_the_same_after_moves("spectrum")


@scenario
def sparse_matrices_move_and_their_analyses_stand_against_it():
    stays_the_same_after_moves("lattice")
    with whole_system() as system:
        program = Program(system, 0, "lattice")
        program.ask("hold")
        moved = move(system, "same")
        expect(moved.status != 0 and "stays where it is" in moved.err and moved.err.rstrip().endswith(
            "an object of NVIDIA's libraries that cannot be made again: a triangular system of cuSPARSE's"), moved)
        program.ask("let")
        moved = move(system, "same")
        expect_equal(moved.status, 0, "the move", moved)
        expect_equal(program.ends().status, 0)


@scenario
def networks_that_are_trained_move():
    stays_the_same_after_moves("retina")


@scenario
def pruned_matrices_are_multiplied():
    with server("tcp", ("--soft", "1")) as node:
        result = harness.run(harness.through_flyt(node.url, harness.app("sparse_lt")))
        expect_equal((result.status, result.out, result.err), (0, "", ""), result)


@scenario
def plans_for_pruned_matrices_move():
    stays_the_same_after_moves("pruned")


@scenario
def sparse_systems_and_generators_on_the_host_move_and_factors_stand_against_it():
    stays_the_same_after_moves("relaxation")
    with whole_system() as system:
        program = Program(system, 0, "relaxation")
        for begin, end in (("hold", "let"), ("refactor", "forget")):
            program.ask(begin)
            moved = move(system, "same")
            expect(moved.status != 0 and "stays where it is" in moved.err, moved)
            program.ask(end)
            moved = move(system, "same")
            expect_equal(moved.status, 0, "the move", moved)
        expect_equal(program.ends().status, 0)


@scenario
def a_generator_goes_on_when_servers_die():
    with whole_system() as system:
        wanted = undisturbed(system, "spectrum")
        program, seen = Program(system, 0, "spectrum"), []
        for round_ in range(ROUNDS):
            seen.append(program.steps())
            if round_ < ROUNDS - 1:
                its_server_is_killed(system)
        expect_equal(program.ends().status, 0)
        expect_equal(seen, wanted, "what it came to")


@scenario
def a_generator_that_is_nobody_knows_where_stands_against_a_move():
    with whole_system() as system:
        program = Program(system, 0, "spectrum")
        for what in ("poisson", "twister"):
            program.ask(what)
            moved = move(system, "same")
            expect(moved.status != 0 and "stays where it is" in moved.err, moved)
            expect("a generator of cuRAND's, whose place in its numbers is known to it alone" in moved.err, moved)
            program.ask("place")
            moved = move(system, "same")
            expect_equal(moved.status, 0, "the move", moved)
        result = program.ends()
        expect_equal((result.status, result.err), (0, ""), result)


def with_cudnn():
    """A system whose node has the stand-in for cuDNN, in a folder of its own."""
    folder = tempfile.mkdtemp(prefix="graph-", dir=harness.WORK)
    shutil.copy(os.path.join(harness.HELPERS, "graph", "libcudnn.so.9"), folder)
    return whole_system(node={"libraries": folder}), folder


@scenario
def plans_of_cudnn_are_the_same_after_moves():
    system, _ = with_cudnn()
    with system:
        program = Program(system, 0, "plans")
        wanted = program.ask("steps")
        for way in ("same", "other", "other"):
            moved = move(system, way)
            expect_equal(moved.status, 0, "the move", moved)
            expect_equal(program.ask("steps"), wanted, "what the plans are made of")
            expect_equal(program.ask("again"), [0], "a plan that is made there of what was brought is another one")
        result = program.ends()
        expect_equal((result.status, result.err), (0, ""), result)
        is_idle(system)


@scenario
def plans_of_cudnn_are_the_same_when_servers_die():
    system, _ = with_cudnn()
    with system:
        program = Program(system, 0, "plans")
        wanted = program.ask("steps")
        for _ in range(2):
            its_server_is_killed(system)
            expect_equal(program.ask("steps"), wanted, "what the plans are made of")
            expect_equal(program.ask("again"), [0])
        expect_equal(program.ends().status, 0)


@scenario
def heuristics_that_were_asked_stand_against_a_move():
    system, _ = with_cudnn()
    with system:
        program = Program(system, 0, "plans")
        program.ask("heuristics")
        moved = move(system, "same")
        expect(moved.status != 0 and "heuristics of cuDNN's that were asked" in moved.err, moved)
        program.ask("forget")
        moved = move(system, "same")
        expect_equal(moved.status, 0, "the move", moved)
        expect_equal(program.ends().status, 0)


@scenario
def what_the_target_lacks_is_said_by_name():
    """The library there makes a plan that needs more memory than the program has been told: it stays, and goes on."""
    system, folder = with_cudnn()
    with system:
        program = Program(system, 0, "plans")
        wanted = program.ask("steps")
        for way in ("same", "other"):
            more = os.path.join(folder, "more_workspace")
            with open(more, "w"):
                pass
            moved = move(system, way)
            expect(moved.status != 0 and "a backend of cudnn (its status is 3000) cannot be made again" in moved.err, moved)
            expect_equal(program.ask("steps"), wanted, "what it goes on with")
            os.remove(more)
            moved = move(system, way)
            expect_equal(moved.status, 0, "the move", moved)
            expect_equal(program.ask("steps"), wanted, "what the plans are made of")
        expect_equal(program.ends().status, 0)


@scenario
def what_they_come_to_is_the_same_when_servers_die():
    with whole_system() as system:
        wanted = undisturbed(system, "descent")
        is_idle(system)
        program, seen = Program(system, 0, "descent"), []
        for round_ in range(ROUNDS):
            seen.append(program.steps())
            if round_ < 2:
                its_server_is_killed(system)
        expect_equal(program.ends().status, 0)
        expect_equal(seen, wanted, "the losses")


@scenario
def a_node_without_the_library():
    nowhere = os.path.join(harness.WORK, "nowhere")
    with whole_system(node={"libraries": nowhere}) as system:
        result = harness.finish(system.start_in_vm(0, harness.helper("descent")))
        expect_equal((result.status, result.out), (7, "error CUBLAS_STATUS_NOT_SUPPORTED\n"), result)
        expect_equal(result.err.count("libcublas.so.13 is not there for this program: the node has no libcublas.so.13"), 1, result)


if __name__ == "__main__":
    main()
