#!/usr/bin/env python3
"""What is written and when: a healthy run says nothing, FLYT_LOG and FLYT_STATS say what the manual promises."""
import os
import re
import time

import harness
from harness import environment, expect, expect_equal, app, helper, lines, main, run, scenario, server, through_flyt, within

STATS = re.compile(r'^program=(\S+) device="([^"]*)" calls=(\d+) replies=(\d+) sent_bytes=(\d+) received_bytes=(\d+) '
                   r'launches=(\d+) page_answers=(\d+) wall_ms=(\d+\.\d+)$')


@scenario
def healthy_runs_are_silent():
    with server() as s:
        for program in ("memory", "streams", "launch", "module_rdc", "threads_own_streams"):
            result = run(through_flyt(s.url, app(program)))
            expect_equal((result.status, result.err), (0, ""), program, result)
        private = run([harness.FLYT_RUN, "--soft", "1", "--", app("memory")])
        expect_equal((private.status, private.err), (0, ""), "with a private server", private)
        # The server: one line when a session starts and one when it ends, nothing else.
        within(30, lambda: "session 5: ended" in s.log(), "the end of the last session")
        strange = [line for line in lines(s.log()) if not re.match(r"flyt-server: session \d+: (started|ended),", line)]
        expect_equal(strange, [], "other lines in the server's log")


@scenario
def errors_of_threads_that_have_ended():
    """Each is told by a call of another thread, and a line says why that one."""
    with server() as s:
        result = run(through_flyt(s.url, app("errors_thread_ended")))
        expect_equal(result.status, 0, "exit status", result)
        said = [line for line in lines(result.err) if re.fullmatch(
            r"flyt: a call of a thread that has ended failed: the next call of any thread returns the error, "
            r"thread=\d+ cuda_result=1", line)]
        expect_equal(said, lines(result.err), "lines on stderr")
        expect_equal(len(said), 50, "lines for 50 errors")


@scenario
def errors_that_nobody_has_heard_of():
    """The program ends before a call could tell it."""
    with server() as s:
        result = run(through_flyt(s.url, helper("unheard")))
        expect_equal(result.status, 0, "exit status", result)
        expect(re.fullmatch(r"flyt: a call failed and the program has ended without hearing of it: thread=\d+ "
                            r"cuda_result=1\n", result.err), "stderr", result)


@scenario
def levels_of_the_log():
    with server() as s:
        said = {}
        for level in ("error", "warn", "info", "debug", "trace", "nonsense"):
            result = run(through_flyt(s.url, helper("echo")), environment(FLYT_LOG=level))
            expect_equal(result.status, 0, level, result)
            for line in lines(result.err):
                expect(line.startswith("flyt: "), "no line of ours: " + line)
            said[level] = result.err
        for level in ("error", "warn", "info", "nonsense"):
            expect_equal(said[level], "", "stderr at", level)
        begin = time.monotonic()
        result = run(through_flyt(s.url, app("not_supported")),
                     environment(FLYT_TEST_FORWARDED="1", FLYT_LOG="debug", FLYT_LOG_CLOCK="1"))
        times = [float(re.fullmatch(r"(\d+\.\d{6}) flyt: .+", line)[1]) for line in lines(result.err)]
        expect(times and begin <= times[0] and times[-1] <= time.monotonic(), "times of lines:", begin, result)
    with server(env=environment(FLYT_LOG="warn")) as s:
        expect_equal(run(through_flyt(s.url, helper("echo"))).status, 0, "a program")
        s.settle()
        expect_equal(s.log(), "", "the log of a server at warn")


@scenario
def what_is_not_supported_is_named_once():
    with server() as s:
        result = run(through_flyt(s.url, app("not_supported")), environment(FLYT_TEST_FORWARDED="1"))
        expect_equal(result.status, 0, "exit status", result)
        errors = lines(result.err)
        expect(errors, "no line on stderr")
        expect_equal(len(errors), len(set(errors)), "names that were said twice", result)
        for line in errors:
            expect(re.match(r"flyt: \S.* is not supported", line), line)
        quiet = run(through_flyt(s.url, app("not_supported")), environment(FLYT_TEST_FORWARDED="1", FLYT_LOG="error"))
        expect_equal((quiet.status, quiet.err), (0, ""), "at FLYT_LOG=error", quiet)


@scenario
def statistics():
    with server() as s:
        path = os.path.join(harness.WORK, "stats")
        for turn in (1, 2):
            result = run(through_flyt(s.url, helper("echo")), environment(FLYT_STATS=path))
            expect_equal((result.status, result.err), (0, ""), "exit status", result)
            with open(path) as f:
                said = f.read().splitlines()
            expect_equal(len(said), turn, "lines in the file")
        match = STATS.match(said[-1])
        expect(match, said[-1])
        expect_equal((match[1], match[7]), ("echo", "1"), "program and launches", said[-1])
        expect("software GPU" in match[2], said[-1])
        expect(0 < int(match[4]) <= int(match[3]) < 100, "calls and replies", said[-1])
        expect(0 < int(match[5]) < 100000 and 0 < int(match[6]) < 100000, "bytes", said[-1])
        result = run(through_flyt(s.url, helper("echo")), environment(FLYT_STATS="-"))
        expect(STATS.match(result.err.strip()) and len(lines(result.err)) == 1, "on stderr:", result)
        result = run(through_flyt(s.url, helper("echo")), environment(FLYT_STATS="/nonexistent/folder/file"))
        expect(result.status == 0 and len(lines(result.err)) == 1 and "/nonexistent" in result.err, result)
        # A program that never calls CUDA has nothing to report and no session.
        result = run(through_flyt(s.url, "true"), environment(FLYT_STATS="-"))
        expect_equal((result.status, result.err), (0, ""), "without CUDA", result)


main()
