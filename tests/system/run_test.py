#!/usr/bin/env python3
"""What tests/run shows of a test that fails: the assertion, whatever is said before and behind it."""
import contextlib
import importlib.machinery
import importlib.util
import io
import os

import harness
from harness import expect, expect_equal, helper, main, scenario

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
        report.add(test, runner.Outcome(endings[0][0], endings[0][1], 1.0))
        for status, output in endings[1:] if report.again else ():
            report.add_again(test, runner.Outcome(status, output, 1.0))
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


if __name__ == "__main__":
    main()
