#!/usr/bin/env python3
"""What tests/run shows of a test that fails: the assertion, whatever is said before and behind it; and how it runs tests
often, beside load, and half of them."""
import contextlib
import importlib.machinery
import importlib.util
import io
import os
import signal
import subprocess
import sys
import tempfile

import harness
from harness import expect, expect_equal, helper, main, scenario, within

loader = importlib.machinery.SourceFileLoader("runner", os.path.join(harness.ROOT, "tests", "run"))
runner = importlib.util.module_from_spec(importlib.util.spec_from_loader("runner", loader))
loader.exec_module(runner)


@scenario
def a_unit_test_that_dies_when_it_is_torn_down():
    outcome = runner.execute(runner.unit_test("torn_down", helper("torn_down"), 60))
    expect(outcome.status, "it passes")
    said = runner.shown(outcome.output)
    expect("0x1267 != 0x11" in said and "torn_down.c:" in said, "what failed:", said)


@scenario
def what_failed_is_in_the_middle():
    noise = ["word %d" % i for i in range(500)]
    for line in ("FAIL a_scenario: why", "[   LINE   ] --- x_test.c:7: error: Failure!", "[  FAILED  ] test_x",
                 "==7==ERROR: AddressSanitizer: heap-use-after-free", "x.c:7:9: runtime error: signed integer overflow"):
        expect(line in runner.shown("\n".join([*noise, line, *noise])), "not shown:", line)


def outcomes_of(*endings):
    """What the runner's report says of a test that ended so, and so again when it ran alone."""
    report, said = runner.Report(), io.StringIO()
    test = runner.Test("a test", ["true"], 60)
    with contextlib.redirect_stdout(said):
        report.add(test, runner.Outcome(endings[0][0], endings[0][1], 1.0, 0.5))
        for status, output in endings[1:] if report.again else ():
            report.add_again(test, runner.Outcome(status, output, 1.0, 0.5))
    return (report.passed, report.failed, len(report.again), report.unstable), said.getvalue()


@scenario
def what_runs_once_more():
    """A wait that was too short may be the machine's fault; what a sanitizer found and what a signal ended is not."""
    counts, said = outcomes_of((1, "FAIL x: not within 60 s"), (0, ""))
    expect_equal(counts, (1, 0, 1, ["a test"]), "counts of a test that passed alone")
    expect("not within 60 s" in said and "UNSTABLE a test" in said, "what is said of it:", said)
    expect_equal(outcomes_of((1, "FAIL x: not within 60 s"), (1, "FAIL"))[0], (0, 1, 1, []), "counts of one that failed twice")
    for status, output in ((1, "==7==ERROR: LeakSanitizer: detected memory leaks"), (-11, ""), (-6, "x"),
                           (1, "x.c:7:9: runtime error: signed integer overflow")):
        expect_equal(outcomes_of((status, output), (0, ""))[0], (0, 1, 0, []), "counts after", status, output)


@scenario
def several_times_in_a_row():
    """Each time counts, and nothing runs once more."""
    with tempfile.NamedTemporaryFile(dir=harness.WORK) as runs:
        each_second = 'echo x >> "$0"; test $(($(wc -l < "$0") % 2)) = 1'
        report, said = runner.Report(times=5), io.StringIO()
        with contextlib.redirect_stdout(said):
            report.run(runner.Test("changing", ["sh", "-c", each_second, runs.name], 60))
            report.run(runner.Test("left out", ["sh", "-c", "exit 77"], 60))
    expect_equal((report.passed, report.failed, report.skipped, report.again), (3, 2, 5, []), said.getvalue())
    expect_equal(list(report.each()), ["3 of 5 passed: changing", "0 of 5 passed, 5 skipped: left out"])
    for line in ("ok changing (3 of 5)", "FAIL changing (4 of 5)", "skip left out (5 of 5)"):
        expect(line in said.getvalue(), "not said:", line, said.getvalue())
    expect_equal(list(runner.Report().each()), [], "of tests that ran once")


def used_ticks(pid):
    with open("/proc/%d/stat" % pid) as f:
        return int(f.read().rsplit(")", 1)[1].split()[11])


def is_beside(count, runner_pid):
    """The processes that compute beside a run, when there are so many and all have computed."""
    loops = harness.descendants(runner_pid)
    return loops if len(loops) == count and all(used_ticks(pid) > 2 for pid in loops) else None


@scenario
def beside_processes_that_compute():
    """They compute while the tests run, and have gone when the run has ended, also when it is told to end or killed."""
    with runner.beside(3):
        loops = within(60, lambda: is_beside(3, os.getpid()), "three that compute")
    expect_equal([pid for pid in loops if harness.is_alive(pid)], [], "loops that are left")
    code = "import importlib.machinery as m, signal, time\n" \
           "r = m.SourceFileLoader('runner', '%s').load_module()\n" \
           "signal.signal(signal.SIGTERM, r.interrupted)\n" \
           "with r.beside(2):\n    time.sleep(3600)\n" % loader.path
    for number in (signal.SIGTERM, signal.SIGKILL):
        process = harness.start([sys.executable, "-B", "-W", "ignore", "-c", code], stderr=subprocess.PIPE)
        loops = within(60, lambda: process.poll() is not None or is_beside(2, process.pid), "two that compute")
        expect(process.poll() is None, "it ended:", process)
        os.kill(process.pid, number)
        expect_equal(harness.finish(process).status, -number, "how it ends")
        within(60, lambda: not [pid for pid in loops if harness.is_alive(pid)], "its loops have gone")


@scenario
def nothing_begins_when_it_is_told_to_end():
    """The tests that run end with it, and those that were to follow them are not begun."""
    with tempfile.TemporaryDirectory(dir=harness.WORK) as folder:
        code = "import importlib.machinery as m, signal, threading, time\n" \
               "r = m.SourceFileLoader('runner', '%s').load_module()\n" \
               "signal.signal(signal.SIGTERM, r.interrupted)\n" \
               "tests = [r.Test(str(i), ['sh', '-c', 'echo > %s/$$; trap \"sleep 1; exit 1\" TERM; while :; do sleep 0.1; done'], 600)" \
               " for i in range(2)]\n" \
               "report = r.Report(times=5)\n" \
               "for test in tests:\n    threading.Thread(target=report.run, args=(test,), daemon=True).start()\n" \
               "time.sleep(3600)\n" % (loader.path, folder)
        process = harness.start([sys.executable, "-B", "-W", "ignore", "-c", code], stderr=subprocess.PIPE,
                                stdout=subprocess.PIPE)
        within(60, lambda: len(os.listdir(folder)) == 2, "two tests have begun")
        process.terminate()
        expect_equal(harness.finish(process).status, -signal.SIGTERM, "how it ends")
        expect_equal(len(os.listdir(folder)), 2, "tests that have begun")
        expect_equal([pid for pid in os.listdir(folder) if harness.is_alive(int(pid))], [], "tests that are left")


@scenario
def half_of_them():
    tests = [runner.Test("test %d" % i, ["true"], 60) for i in range(41)]
    half = [test.name for test in runner.half(tests, "7")]
    expect_equal(len(half), 21, "tests")
    expect_equal(sorted(half, key=lambda name: int(name.split()[1])), half, "their order stays")
    expect_equal({test.name for test in runner.half(tests[::-1], "7")}, set(half), "the seed alone says which")
    expect(any({test.name for test in runner.half(tests, str(seed))} != set(half) for seed in range(5)), "another seed, others")


if __name__ == "__main__":
    main()
