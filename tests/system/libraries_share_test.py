#!/usr/bin/env python3
"""Three programs of one VM at once that call NVIDIA's libraries (programs/handles.cu) have its memory and its SMs together: never
more than its limits, whoever asks; one that is refused memory, and one that is killed, do the others no harm."""
import contextlib
import tempfile
import threading

import harness
from cluster import System
from harness import expect, expect_equal, main, scenario, within
from library_program import Handles, works
from steady import MIB, OUT_OF_MEMORY, add_vm, allocation, is_idle

LIMIT, RAISED = 384, 512        # MiB
OWN = 44                        # MiB that a program has besides its blocks, at most: operands, cuBLAS's workspace of 32, extents that are not full
BLOCK = 16                      # MiB
ROUNDS = 50                     # that last as long as what happens meanwhile


class Sharer(Handles):
    """Its blocks hold numbers of its own: a look at another one's would tell."""

    def __init__(self, system, exponent):
        super().__init__(system)
        self.exponent = exponent

    def asks(self, count):
        self.say("take %d %d %d" % (count, BLOCK, self.exponent))

    def told(self):
        """(blocks, CUDA status of the last one)"""
        answer = self.line("take", 120).split()
        expect_equal(answer[0], "take", self.name, answer)
        return tuple(map(int, answer[1:]))

    def takes(self, count):
        self.asks(count)
        return self.told()


@contextlib.contextmanager
def watched(system):
    """Meanwhile what flytctl shows of the VM's memory is never above its limit; a list of what it showed."""
    ended, seen, wrong = threading.Event(), [], []

    def watch():
        while not ended.is_set():
            row = allocation(system, 0)
            seen.append(row["memory_used_bytes"])
            if row["memory_used_bytes"] > max(row["memory_bytes"], row["memory_now_bytes"]):
                wrong.append(row)
    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        thread.join()
    expect(not wrong, "more than the limit is held:", wrong[:1])
    expect(seen, "somebody looked")


def sums_are_within(system, mib):
    """What all sessions hold is what the VM is told to use, once nothing changes: sessions are counted one after another."""
    def sums():
        held, used = sum(s["memory_bytes"] for s in system.flytctl("sessions")), allocation(system, 0)["memory_used_bytes"]
        return held == used and [used]
    expect(within(30, sums, "sessions hold what the VM uses")[0] <= mib * MIB, "more than the limit is held")


def peak_is_within(system, mib):
    peak = allocation(system, 0)["memory_peak_bytes"]
    expect(peak <= mib * MIB, "the most that was ever charged:", peak)
    return peak


@contextlib.contextmanager
def three_programs(**options):
    with System(sms=64, memory="1G", **options) as system:
        add_vm(system, 0, "--name", "alice", "--sessions", 8, sm=24, memory="%dM" % LIMIT)
        programs = [Sharer(system, exponent) for exponent in range(3)]
        for program in programs:
            program.rounds(1)
        yield system, programs
        for program in programs:
            result = program.ends()
            expect_equal((result.status, result.err), (0, ""), result)
        is_idle(system)


@scenario
def one_that_asks_for_more_is_refused_and_the_others_go_on():
    with three_programs() as (system, programs), watched(system) as seen:
        first, second, third = programs
        for program in programs:
            expect_equal(program.takes(4), (4, 0), "blocks within the limit")
        for program in (first, second):
            program.asked(ROUNDS)
        expect_equal(third.takes(99)[1], OUT_OF_MEMORY, "the status where no more is to be had")
        for program in (first, second):
            program.answered(ROUNDS)
        third.rounds()
        expect_equal(first.takes(1), (0, OUT_OF_MEMORY), "blocks that another program has")
        first.rounds()
        expect(peak_is_within(system, LIMIT) > (LIMIT - BLOCK - 3 * OWN) * MIB, "nearly all was had")
        within(30, lambda: allocation(system, 0)["memory_refused"] >= 2, "refusals are counted")
        within(30, lambda: seen[-1] >= 12 * BLOCK * MIB, "what the programs hold is seen")
        sums_are_within(system, LIMIT)


@scenario
def all_ask_at_once():
    with three_programs() as (system, programs), watched(system):
        for _ in range(4):
            for program in programs:
                program.asks(99)
            answers = [program.told() for program in programs]
            expect_equal([status for _, status in answers], [OUT_OF_MEMORY] * 3, "how it ends", answers)
            count = sum(count for count, _ in answers)
            expect(LIMIT - BLOCK - 3 * OWN <= count * BLOCK <= LIMIT, "MiB in blocks, together:", answers)
            for program in programs:
                program.rounds(1)
            sums_are_within(system, LIMIT)
            for program in programs:
                expect_equal(program.ask("drop 99"), [0], "blocks left")
        peak_is_within(system, LIMIT)


@scenario
def what_a_killed_one_held_comes_back():
    with three_programs() as (system, programs), watched(system):
        for program in programs:
            expect_equal(program.takes(4), (4, 0), "blocks within the limit")
        first, second, victim = programs
        expect_equal(victim.takes(99)[1], OUT_OF_MEMORY, "the status where no more is to be had")
        expect_equal(first.takes(1), (0, OUT_OF_MEMORY), "blocks while the other one lives")
        for program in programs:
            program.asked(ROUNDS)
        victim.close()
        programs.remove(victim)
        for program in programs:
            program.answered(ROUNDS)
        within(60, lambda: len(system.flytctl("sessions")) == 2, "two programs are left")
        counts = [program.takes(99) for program in (first, second)]
        expect_equal([status for _, status in counts], [OUT_OF_MEMORY] * 2, counts)
        expect(counts[0][0] >= 4, "blocks that the killed one had:", counts)
        for program in programs:
            program.rounds()
        sums_are_within(system, LIMIT)
        peak_is_within(system, LIMIT)


@scenario
def limits_change_under_them():
    with tempfile.TemporaryDirectory(dir=harness.WORK) as folder:
        with three_programs(env={**harness.environment(), "FLYT_SOFT_ACCOUNT": folder}) as (system, programs), watched(system):
            pids = [s["server_pid"] for s in system.flytctl("sessions")]
            expect_equal(len(set(pids)), 3, "servers")
            for program in programs:
                program.takes(4)
                program.asked(ROUNDS)
            for memory, sms in ((RAISED, 40), (RAISED, 8), (RAISED, 56), (LIMIT, 16)):
                system.flytctl("resize", "alice", "--memory", "%dM" % memory, "--sm", sms)
            for program in programs:
                program.answered(ROUNDS)
                expect_equal(program.ask("info")[1], LIMIT, "MiB, as cudaMemGetInfo says")
            system.flytctl("resize", "alice", "--memory", "%dM" % RAISED)
            last = programs[-1]
            expect_equal(last.takes(8), (8, 0), "blocks that were added")
            expect_equal(programs[0].takes(99)[1], OUT_OF_MEMORY, "the status where no more is to be had")
            runs_on_these_sms_alone(system, folder, pids, programs, 16)
            sums_are_within(system, RAISED)
            peak_is_within(system, RAISED)


def runs_on_these_sms_alone(system, folder, pids, programs, sms):
    """By the software GPU's accounts: all that grows while all three compute is on so many SMs."""
    within(30, lambda: allocation(system, 0)["switch_state"] == "vacated", "nothing is left on other SMs")
    before = {pid: works(folder, pid) for pid in pids}
    for program in programs:
        program.asked(2)
    for program in programs:
        program.answered(2)

    def grown(pid):
        now = works(folder, pid)
        return {width for context, (width, count) in now.items() if count > before[pid].get(context, (0, 0))[1]}
    for pid in pids:
        expect_equal(within(10, lambda pid=pid: grown(pid), "work is seen"), {sms}, "the SMs on which it grew")


if __name__ == "__main__":
    main()
