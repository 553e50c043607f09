#!/usr/bin/env python3
"""The programs of programs/movers through Flyt: undisturbed, while their SMs change, and when their GPU is lost, which they
must say.

FLYT_SOAK=1 disturbs longer, with random choices of its own; FLYT_SEED=N takes those of an earlier run, which printed it.
"""
import os
import re
import signal
import subprocess

import harness
import movers
from cluster import System
from harness import environment, expect, expect_equal, main, scenario, server, through_flyt, within
from steady import RECORDED, add_vm, is_idle

BATCH = 8                   # programs at a time
SECONDS = 0.5               # of each, undisturbed
RESIZES = 50 if os.environ.get("FLYT_SOAK") else 3
LOST_CODE = 46              # of a lost connection: cudaErrorDevicesUnavailable, and the driver's


def started(s, case, *words):
    return harness.start(through_flyt(s.url, movers.MOVERS, case.name, *words), environment(),
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@scenario
def undisturbed():
    """Each on a server of its own, also those that break their context."""
    chosen = movers.seed()
    with server("unix") as s:
        for batch in movers.batches(movers.cases(), BATCH):
            programs = [(case, started(s, case, "--seconds", str(SECONDS), "--seed", str(chosen), "--rest", str(movers.RESTS_MS[0])))
                        for case in batch]
            for case, program in programs:
                result = harness.finish(program, movers.ANSWER_S)
                expect_equal(result.status, 0, case.name, "seed", chosen, result)
                last = harness.lines(result.out)[-1]
                expect(re.fullmatch(r"ok %s rounds=[1-9]\d*" % case.name, last), case.name, "said", last)
                expect_equal(result.err, "", case.name)


@scenario
def their_sms_change():
    chosen = movers.seed()
    with System(vms=1, gpus=1, sms=64, memory="1G") as system:
        add_vm(system, 0, "--name", "alice", "--sessions", BATCH, sm=16, memory="768M")

        def resize(chance):
            sms = chance.choice((8, 16, 24, 40, 64))
            result = system.flytctl_run("resize", "alice", "--sm", sms)
            expect(result.status in (0, RECORDED), "resize to", sms, "SMs:", result)

        for batch in movers.batches(movers.cases("fault"), BATCH):
            movers.under(system, 0, batch, resize, RESIZES, chosen)
        is_idle(system)


@scenario
def a_lost_gpu_is_said():
    """What they check can fail: each ends with the call that did, but for those that look only at the end."""
    with server("unix") as s:
        chosen = [case for case in movers.cases() if case.name in
                  ("linked_list", "module_comes_and_goes", "printed_lines", "threads_that_wait", "pinned_copies")]
        expect_equal(len(chosen), 5, "cases")
        programs = [started(s, case, "--seconds", "600") for case in chosen]
        for program in programs:
            expect_equal(program.stdout.readline(), b"ready\n", "the first line")
        for pid in s.children():
            os.kill(pid, signal.SIGKILL)
        for case, program in zip(chosen, programs):
            result = harness.finish(program, movers.ANSWER_S)
            last = harness.lines(result.out)[-1]
            expect_equal(result.status, 1, case.name, result)
            expect(re.fullmatch(r"FAIL %s round \d+ seed 1: \w+\.cu:\d+: .* gave %d .*" % (case.name, LOST_CODE), last),
                   case.name, "said", last)


@scenario
def words_that_are_refused():
    libraries = environment(LD_LIBRARY_PATH=os.path.join(harness.BUILD, "lib"))
    for words in (["no_such_case"], ["linked_list", "--seconds"], ["linked_list", "--seconds", "x"], ["--jobs", "0"],
                  ["linked_list", "sleeper"]):
        result = harness.run([movers.MOVERS, *words], libraries)
        expect_equal((result.status, result.out), (2, ""), words, result)
        expect("usage: movers CASE" in result.err, words, result)


if __name__ == "__main__":
    main()
