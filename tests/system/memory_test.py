#!/usr/bin/env python3
"""Memory of VMs: no number of programs and threads gets over a limit together, all of them are told the same of it, and
nobody reads what another one has left."""
import os
import random

import harness
from cluster import System
from harness import expect, expect_equal, helper, main, scenario, within
from greedy import Greedy, Sequences
from steady import MIB, OWN, add_vm, allocation, is_idle

SIZES = ["65536", "3145728", "20971520"]


def dirty():
    """Software GPUs that hand out memory with leftovers in every byte."""
    env = harness.environment()
    env["FLYT_SOFT_DIRTY"] = "1"
    return env


def leftovers(system, i):
    result = system.run_in_vm(i, helper("leftovers"), "look", "2", *SIZES)
    expect_equal((result.status, result.err), (0, ""), "a program that looks", result)
    return int(result.out.split()[1])


@scenario
def nothing_is_left_for_others():
    """One VM's program is killed with its memory full; another's finds none of it, however it reads first."""
    with System(vms=2, memory="256M", env=dirty()) as system:
        for i in range(2):
            add_vm(system, i, memory="96M")
        writer = system.start_in_vm(0, helper("leftovers"), "write", str(64 << 20))
        expect_equal(writer.stdout.readline(), b"written\n", "it has written")
        expect_equal(leftovers(system, 1), 0, "words that are not 0, beside it")
        harness.kill_group(writer)
        writer.wait()
        is_idle(system)
        for i in (1, 0):
            expect_equal(leftovers(system, i), 0, "words that are not 0, after it")
        is_idle(system)


@scenario
def only_scrubbing_hides_it():
    """Where the driver is trusted, and should not be, there is something to be found: the other scenario can fail."""
    with System(memory="256M", env=dirty(), node={"scrub": False}) as system:
        add_vm(system, 0, memory="96M")
        expect(leftovers(system, 0) > 0, "a dirty GPU is found clean")


@scenario
def a_limit_holds_for_all_together():
    """Eight processes with eight threads each, all at once: most is in use, never more than the limit, and nothing is
    left. What one frees, another gets."""
    with System(vms=2, memory="1G") as system:
        add_vm(system, 0, "--sessions", 8, memory="192M")
        add_vm(system, 1, memory="64M")
        crowd = [Greedy(system, 0) for _ in range(8)]
        other = Greedy(system, 1)
        for program in crowd:
            program.say("go")
        answers = [[int(word) for word in program.line("done", 120).split()[1:]] for program in crowd]
        row = allocation(system, 0)
        expect(all(taken for taken, refused in answers), "everybody got some:", answers)
        expect(any(refused for taken, refused in answers), "the limit was met:", answers)
        within(30, lambda: allocation(system, 0)["memory_refused"] > 0, "refusals are counted")
        row = allocation(system, 0)
        expect(128 * MIB < row["memory_peak_bytes"] <= 192 * MIB, "the most that was charged:", row)
        expect_equal(other.ask("info")[1:], [64, 64], "the neighbour's")
        # All is free again, whoever caches it: one of them can have nearly everything, then another one. Of what the
        # first has cached itself, in pieces of up to 6 MiB, 8 MiB are laid across pieces: that leaves parts of some
        # unused, less than 6 MiB for each block. When it is refused, all have given back all, and the next ones find
        # everything.
        counts = []
        for program in crowd[:3] + crowd[:1]:
            counts.append(program.ask("fill 8")[0])
            program.say("drop")
            program.line("drop")
        expect(counts[0] >= 12, "blocks of 8 MiB of 192 MiB for the first one:", counts)
        expect(min(counts[1:]) >= 18 and len(set(counts[1:])) == 1, "blocks of 8 MiB of 192 MiB for one alone:", counts)
        for program in crowd + [other]:
            program.ends()
        is_idle(system)
        row = allocation(system, 0)
        expect(row["memory_peak_bytes"] <= 192 * MIB, "the most that was charged:", row)


@scenario
def everybody_is_told_the_same():
    """cudaMemGetInfo and cudaDeviceProp in every process, also while the limit changes."""
    with System(memory="1G") as system:
        add_vm(system, 0, "--name", "alice", "--sessions", 8, memory="128M")
        crowd = [Greedy(system, 0) for _ in range(4)]

        def figures():
            def same():
                answers = [program.ask("info") for program in crowd]
                return answers[0] if len(set(map(tuple, answers))) == 1 else None
            return within(20, same, "four processes are told the same")

        for limit in (128, 256, 96):
            if limit != 128:
                system.flytctl("resize", "alice", "--memory", "%dM" % limit)
            free, total, properties = figures()
            expect_equal((total, properties), (limit, limit), "MiB in all")
            expect(free <= limit, "MiB free:", free)
            # What one takes is gone for all.
            count = crowd[0].ask("fill 8")[0]
            less = figures()[0]
            expect(less < 8 and count * 8 <= limit, "MiB free when no more is to be had:", less, count)
            crowd[0].say("drop")
            crowd[0].line("drop")
            late = Greedy(system, 0)
            expect_equal(late.ask("info")[1:], [limit, limit], "a new process")
            late.ends()
        for program in crowd:
            program.ends()
        is_idle(system)


@scenario
def nothing_remains_charged():
    """Random sequences over everything that takes memory: when a program of the same VM has asked for what the other
    ones keep for later, their entries in the ledger are at zero, to the byte, and so are their extents."""
    steps = 10000 if os.environ.get("FLYT_SOAK") else 1000
    seed = int(os.environ.get("FLYT_SEED") or random.randrange(1 << 20))
    print("    FLYT_SEED=%d" % seed, flush=True)
    with System(memory="512M") as system:
        # So little that any of the four threads meets the limit alone, however they take turns: each comes to 24 things
        # of 1.2 MiB on average; of 6,000 times four random sequences, the greatest of four always came above 20 MiB.
        add_vm(system, 0, "--sessions", 8, memory="16M")
        crowd = [Sequences(system, 0, seed + i, steps // 2, 2) for i in range(2)]
        counts = [program.wait_done() for program in crowd]
        expect(all(taken > steps // 4 for taken, refused in counts), "taken and refused:", counts)
        expect(any(refused for taken, refused in counts), "the limit was met:", counts)
        asker = Greedy(system, 0)
        # All of the limit, but for the module of the one that asks.
        expect(asker.ask("fill 2")[0] * 2 >= 16 - OWN, "what one can have when the others have given back")
        def remains():
            return [s["memory_bytes"] for s in system.flytctl("sessions") if s["program"] == "sequences"]
        within(30, lambda: remains() == [0, 0], "nothing is charged to them any more")
        asker.say("drop")
        asker.line("drop")
        for program in crowd + [asker]:
            program.ends()
        is_idle(system)


main()
