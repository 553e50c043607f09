#!/usr/bin/env python3
"""VMs move to another GPU, and to new server processes on the same one, while programs of all kinds run in them
(programs/movers, programs/survivor.cu): every one goes on and finds everything right.

FLYT_SOAK=1 moves more often, one program 200 times, with random choices of its own; FLYT_SEED=N takes those of an earlier
run, which printed it. One program that moves many times leaves nothing behind on the node nor in itself (growth.py).
"""
import copy
import os

import growth
import harness
import movers
from cluster import System, metric_values
from harness import expect, expect_equal, main, scenario
from steady import add_vm, allocation, is_idle
from survivor import Survivor

IS_SOAK = bool(os.environ.get("FLYT_SOAK"))
BATCH = 8                           # programs at a time, in one VM
MOVES = 20 if IS_SOAK else 1        # of each batch
MOVES_OF_ONE = 200 if IS_SOAK else 10
WARM_UP = 20 if IS_SOAK else 4      # of these; what is there only once is there afterwards
# A busy machine: what is found changed in a round, and what a program still has to end, may take its time.
HARDWARE = {}                       # of cluster.System, by migrate_gpu_test.py
PATIENCE = ("--stop-timeout", "60000", "--timeout", "240")
COMMAND_S = 300


def whole_system(shares=True, faults=None):
    """One node with two software GPUs (HARDWARE: with the machine's) and one VM, alice, with room for a batch. shares: GPUs
    are those of several processes at the same time; a real one ends them all when one breaks its context. faults: points
    at which daemons and servers fail."""
    options, memory = copy.deepcopy(HARDWARE), "768M"
    if HARDWARE:
        node, memory = options["node"], "8G"        # real modules and local memory take more
        if not shares:
            node["mps"] = "off"
        if node["mps"] == "start":
            node["mps_dir"] = os.path.join(harness.WORK, "mps")
    if faults:
        options["env"] = harness.environment(FLYT_FAULT=faults)
    system = System(vms=1, gpus=2, sms=64, memory="1G", **options)
    try:
        add_vm(system, 0, "--name", "alice", "--sessions", 2 * BATCH, sm=16, memory=memory)
    except BaseException:
        system.close()
        raise
    return system


def gpu_names(system):
    """{key: "node:index"} of all GPUs."""
    return {gpu["uuid"]: "%s:%d" % (gpu["node"], gpu["index"]) for gpu in system.flytctl("gpus")}


def place(system):
    """"node:index" of the GPU that alice has."""
    return gpu_names(system)[allocation(system, 0)["gpu"]]


def elsewhere(system):
    """Another GPU; None: there is but one."""
    here = place(system)
    return next((name for name in sorted(gpu_names(system).values()) if name != here), None)


def migrates(system, target, *words):
    """flytctl migrate, to its end: its harness.Result."""
    return system.flytctl_run("migrate", "alice", "--to", target, *PATIENCE, *words, timeout=COMMAND_S)


def moves(system, target, *words):
    """The programs run there afterwards."""
    result = migrates(system, target, *words)
    expect_equal(result.status, 0, "flytctl migrate --to", target, *words, result)
    expect_equal(place(system), target, "where alice is, by her allocation")


def measures(system, count):
    """The node tells of each of so many migrations."""
    values = system.metrics("node-0")
    ended = {labels["outcome"]: number for labels, number in metric_values(values, "flyt_node_migrations_total")}
    expect_equal(ended, {"done": count, "failed": 0}, "migrations that have ended")
    for name in ("standstill_seconds", "copied_bytes", "rounds"):
        seen = metric_values(values, "flyt_node_migration_%s_count" % name)
        expect_equal([number for _, number in seen], [count], name, "of so many")
    expect(metric_values(values, "flyt_node_migration_standstill_seconds_sum")[0][1] > 0, "they stood still")


def servers(system):
    """{session: process} of alice's programs."""
    return {s["id"]: s["server_pid"] for s in system.flytctl("sessions")}


def moves_to_other_gpu(system):
    """Or to new servers, where there is none."""
    target = elsewhere(system)
    if target:
        moves(system, target)
    else:
        moves_to_new_servers(system)


def moves_to_new_servers(system):
    before = servers(system)
    moves(system, place(system), "--force")
    after = servers(system)
    expect_equal(set(after), set(before), "sessions")
    expect(all(after[id] != pid for id, pid in before.items()), "server processes:", before, after)


@scenario
def programs_of_all_kinds():
    """To the other GPU and to new servers on the same one, in turns."""
    chosen, made = movers.seed(), []
    with whole_system() as system:
        def moves_in_turns(_):
            made.append(None)
            (moves_to_other_gpu if len(made) % 2 else moves_to_new_servers)(system)

        for batch in movers.batches(movers.cases("fault", "code"), BATCH):
            movers.under(system, 0, batch, moves_in_turns, MOVES, chosen)
        is_idle(system)


@scenario
def through_host_memory():
    """Programs of all kinds, and the one that has one of everything, between GPUs that cannot reach each other's memory."""
    chosen = movers.seed()
    with whole_system(faults="copying.peer:error") as system:
        if len(gpu_names(system)) < 2:
            print("    there is but one GPU")
            return
        ways = []

        def moves_that_way(_):
            moves_to_other_gpu(system)
            ways.append(system.log("node-0").count(": goes through host memory, "))
            expect_equal(ways, list(range(1, len(ways) + 1)), "migrations that went through host memory")

        for batch in movers.batches(movers.cases("fault", "code"), BATCH)[:None if IS_SOAK else 1]:
            movers.under(system, 0, batch, moves_that_way, MOVES, chosen)
        if not HARDWARE:
            movers.under(system, 0, movers.code_cases(), moves_that_way, MOVES, chosen)
        program = Survivor(system, 0)
        program.does("check", "right 1")
        for i in range(2):
            moves_that_way(program)
            program.does("check", "right %d" % (i + 2))
        last = system.flytctl("migrations")[-1]
        expect(last["phase"] == "done" and last["copied_bytes"] > 0, "what is told of it:", last)
        program.does("end", "ended")
        result = harness.finish(program.process)
        expect_equal((result.status, result.err), (0, ""), result)
        if not HARDWARE:
            for case in movers.staying_cases():
                movers.stays(system, 0, case, chosen, lambda: refuses_to_move(system, elsewhere(system)))
        is_idle(system)


@scenario
def addresses_of_code_in_memory():
    """They move where the target has the same addresses, as every software GPU has them: all at the same time, to the other
    GPU and to new servers. Those that have them elsewhere after a move (movers.STAY) are refused with the variable's name,
    wherever they are to go. A real GPU may have them elsewhere: there each case moves or is refused so. All is right in any
    case."""
    chosen, made = movers.seed(), []
    with whole_system() as system:
        if HARDWARE:
            for case in movers.code_cases() + movers.staying_cases():
                movers.under(system, 0, [case], lambda _: moves_or_is_refused(system), MOVES, chosen)
            is_idle(system)
            return

        def moves_in_turns(_):
            made.append(None)
            (moves_to_other_gpu if len(made) % 2 else moves_to_new_servers)(system)

        movers.under(system, 0, movers.code_cases(), moves_in_turns, 2 * MOVES, chosen)
        for case in movers.staying_cases():
            def is_refused():
                for words in ([], ["--force"]):
                    refuses_to_move(system, place(system) if words else elsewhere(system), *words)
            movers.stays(system, 0, case, chosen, is_refused)
        is_idle(system)


def refuses_to_move(system, target, *words):
    """By the variable's name."""
    before = place(system)
    result = migrates(system, target, *words)
    expect_equal(result.status, 1, "flytctl migrate --to", target, *words, result)
    expect(movers.STAY_REASON in result.err, "why it was refused:", result)
    expect_equal(place(system), before, "where alice is")


def moves_or_is_refused(system):
    before = place(system)
    target = elsewhere(system) or before
    result = migrates(system, target, *(["--force"] if target == before else []))
    expect(result.status in (0, 1), "flytctl migrate", result)
    expect_equal(place(system), before if result.status else target, "where alice is", result)
    expect(not result.status or "has come to be elsewhere" in result.err, "why it was refused:", result)


@scenario
def a_broken_context_stays():
    """It is refused with the reason, and the program's error stays the one that it was."""
    chosen = movers.seed()
    with whole_system(shares=False) as system:
        for case in movers.cases("code", "-"):
            expect_equal(case.flags, "fault", case)

            def is_refused(_):
                before = place(system)
                target = elsewhere(system) or before
                result = migrates(system, target, *(["--force"] if target == before else []))
                expect_equal(result.status, 1, "flytctl migrate", result)
                expect(result.err.strip(), "a reason:", result)
                expect_equal(place(system), before, "where alice is")

            movers.under(system, 0, [case], is_refused, 2, chosen)
        is_idle(system)


@scenario
def one_program_many_times():
    """The one that has one of everything; every third time to new servers on the same GPU. Nothing is left behind."""
    with whole_system() as system:
        program = Survivor(system, 0)
        pid, warm = program.process.pid, len(gpu_names(system)) * HARDWARE.get("node", {}).get("warm", 1)
        program.does("check", "right 1")
        for i in range(MOVES_OF_ONE):
            if i % 2:
                program.does("leave", "left")
            if i % 3 == 2:
                moves_to_new_servers(system)
            else:
                moves_to_other_gpu(system)
            program.does("check", "right %d" % (i + 2))
            measures(system, i + 1)
            if i + 1 == WARM_UP:
                before = growth.at_rest(system, pid, warm)
        growth.is_bounded(system, pid, before, growth.OVER_MOVES)
        program.does("end", "ended")
        result = harness.finish(program.process)
        expect_equal((result.status, result.err), (0, ""), result)
        is_idle(system)


if __name__ == "__main__":
    main()
