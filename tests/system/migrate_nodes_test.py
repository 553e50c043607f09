#!/usr/bin/env python3
"""VMs move to another node, and back, while programs run in them that check themselves (two_nodes.py).

FLYT_SOAK=1 moves more often, one program 200 times, and more kinds of programs; FLYT_SEED=N takes the choices of an earlier
run, which printed it. One program that moves many times leaves nothing behind on either node nor in itself (growth.py).
"""
import growth
import movers
import two_nodes
from harness import expect, expect_equal, main, scenario
from steady import Steady, is_idle
from survivor import Survivor
from two_nodes import BATCH, COMMAND_S, IS_SOAK, PATIENCE, TwoNodes, ends

# Even: it is at the node where it began, when what is held is looked at.
MOVES = 200 if IS_SOAK else 20
WARM_UP = 20 if IS_SOAK else 4      # of these; what is there only once is there afterwards
WARM = 1                            # servers that are ready at each node when nothing is under way


@scenario
def there_and_back():
    """The program that has one of everything; sometimes with work that is under way. Every time over other connections,
    packed otherwise. Nothing is left behind at either node."""
    with TwoNodes() as system:
        program, before = Survivor(system, 0), {}
        pid = program.process.pid
        program.does("check", "right 1")
        for i in range(MOVES):
            if i % 2:
                program.does("leave", "left")
            system.moves("--streams", 1 + i % 8, "--pack", ("none", "lz4", "zstd")[i % 3])
            program.does("check", "right %d" % (i + 2))
            if i + 1 == WARM_UP:
                before = {node: growth.at_rest(system, pid, WARM, node) for node in ("node-0", "node-1")}
        for node, held in before.items():
            growth.is_bounded(system, pid, held, growth.OVER_MOVES, node)
        ends(system, program)
        last = system.over()
        print("    the last of %d: standstill %.1f ms, %d KiB copied" % (MOVES, last["standstill_us"] / 1000,
                                                                       last["copied_bytes"] >> 10))


@scenario
def encrypted():
    """Channels and what goes between the nodes."""
    with TwoNodes(cluster={"encrypted": True}) as system:
        program = Survivor(system, 0)
        program.does("check", "right 1")
        for i in range(4):
            system.moves("--streams", 1 + i)
            expect_equal((system.over()["encrypted"], system.flytctl("sessions")[0]["encrypted"]), (True, True), "encrypted")
            program.does("check", "right %d" % (i + 2))
        ends(system, program)


@scenario
def programs_of_all_kinds():
    """Several at a time in one VM."""
    chosen = movers.seed()
    with TwoNodes() as system:
        batches = movers.batches(movers.cases("fault", "code"), BATCH)
        for batch in batches if IS_SOAK else batches[::4]:
            movers.under(system, 0, batch, lambda _: system.moves(), 4 if IS_SOAK else 2, chosen)
        is_idle(system)


@scenario
def addresses_of_code_in_memory():
    """Software GPUs of every node have code and variables at the same addresses: programs that know them move, but for
    those whose variables would come to be elsewhere (movers.STAY), which are refused with the variable's name."""
    chosen = movers.seed()
    if two_nodes.HARDWARE:
        print("    real GPUs may have them elsewhere")
        return
    with TwoNodes() as system:
        movers.under(system, 0, movers.code_cases(), lambda _: system.moves(), 4 if IS_SOAK else 2, chosen)

        def is_refused():
            before = system.place()
            result = system.migrates(system.elsewhere())
            expect_equal(result.status, 1, "flytctl migrate", result)
            expect(movers.STAY_REASON in result.err, "why it was refused:", result)
            system.is_at(before)

        for case in movers.staying_cases():
            movers.stays(system, 0, case, chosen, is_refused)
        is_idle(system)


@scenario
def a_node_is_emptied():
    """drain --migrate takes a node's VMs to the other one; programs that begin are there."""
    with TwoNodes() as system:
        programs = [Steady(system, 0) for _ in range(2)]
        for program in programs:
            program.takes(32)
        result = system.flytctl_run("drain", "node-0", "--migrate", *PATIENCE, timeout=COMMAND_S)
        expect_equal(result.status, 0, "the draining", result)
        system.is_at("node-1")
        programs.append(Steady(system, 0))
        for program in programs:
            program.goes_on()
            program.ends_right()
        is_idle(system)


if __name__ == "__main__":
    main()
