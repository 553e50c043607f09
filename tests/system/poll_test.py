#!/usr/bin/env python3
"""Programs that poll for the end of their work: on one host the progress page answers, without messages; over tcp the
server does; and neither hides an error, a lost connection, or bytes that have not arrived."""
import os
import re
import select
import subprocess

import harness
from harness import environment, expect, expect_equal, finish, helper, lines, main, run, scenario, server, start, through_flyt

PATIENCE_MS = 10  # the page's "not complete" is believed so long (cpu/client/core/retry_policy.h)
FIXED_REPLIES_MAX = 30  # what the program needs replies for besides queries
LOOPS = 50  # that end with a query which is answered by "complete"


def poll_work(url):
    """Runs the program; returns how often it has asked, and the line of counts by name."""
    result = run(through_flyt(url, helper("poll"), "work"), environment(FLYT_STATS="-"))
    expect_equal(result.status, 0, "exit status", result)
    said = dict(line.split() for line in lines(result.out))
    expect_equal(said.pop("other"), "cudaErrorNotReady", "a stream that waits for the host", result)
    expect_equal(sorted(said), ["beside", "event", "legacy", "stream"], "ways", result)
    counts = dict(re.findall(r"(\w+)=([0-9.]+)", lines(result.err)[-1]))
    return sum(map(int, said.values())), {name: float(value) for name, value in counts.items()}


@scenario
def the_page_answers_on_one_host():
    with server("unix") as s:
        polls, counts = poll_work(s.url)
        expect(counts["page_answers"] > 0, "the page has answered nothing", counts)
        # One message in ten milliseconds at most, however often the program asks.
        replies_max = FIXED_REPLIES_MAX + counts["wall_ms"] / PATIENCE_MS
        expect(counts["replies"] <= replies_max, "replies", counts, polls)
        expect(polls <= counts["page_answers"] + counts["replies"] + LOOPS, "polls that nobody answered", counts, polls)


@scenario
def the_server_answers_over_tcp():
    with server("tcp") as s:
        polls, counts = poll_work(s.url)
        expect_equal(counts["page_answers"], 0, "answers of a page", counts)
        expect(counts["replies"] >= polls - LOOPS, "replies", counts, polls)


@scenario
def a_fault_ends_the_polling():
    for kind in ("unix", "tcp"):
        with server(kind) as s:
            result = run(through_flyt(s.url, helper("poll"), "fault"))
            expect_equal(result.status, 7, kind, "exit status", result)
            expect_equal(result.out, "working\nquery 700\n", kind, "output", result)


@scenario
def a_lost_server_ends_the_polling():
    for kind in ("unix", "tcp"):
        with server(kind) as s:
            env = environment(FLYT_SERVER=s.url, LD_LIBRARY_PATH=os.path.join(harness.BUILD, "lib"))
            program = start([helper("poll"), "endless"], env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            expect(select.select([program.stdout], [], [], 30)[0], kind, "does not begin to work")
            expect_equal(program.stdout.readline(), b"working\n", kind, "first line")
            s.close()
            result = finish(program, 50)
            expect_equal(result.status, 7, kind, "exit status", result)
            expect_equal(result.out, "query 46\n", kind, "output", result)
            # The program may be over before another thread has said why.
            expect(len(lines(result.err)) <= 1, kind, "lines on stderr", result)


main()
