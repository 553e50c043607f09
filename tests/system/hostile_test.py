#!/usr/bin/env python3
"""Programs that were taken over (programs/hostile.cu) write random words over the rings and the region that they share with their
servers: such a session ends or goes on, and the server serves others all the time, rightly."""
import os
import re

from cluster import DAEMON_BUILD, REPORT
from harness import environment, expect, expect_equal, helper, main, run, scenario, server, within
from rings import Pinned, environment_of

SEEDS = range(1, 81 if os.environ.get("FLYT_SOAK") else 9)
LOST = 46
SAID = re.compile(r"writes (\d+) rounds (\d+) errors (\d+) code (\d+)\n")


@scenario
def words_over_all_that_is_shared():
    with server("unix", ("--soft", "1", "--warm", "2"), environment(), DAEMON_BUILD) as s:
        other = Pinned(s)
        at_start = s.settle()
        ended = {}
        for where in ("heads", "calls", "replies", "all", "region"):
            for seed in SEEDS if where != "region" else SEEDS[:1]:
                result = run([helper("hostile"), where, str(seed)], environment_of(s))
                said = SAID.fullmatch(result.out)
                expect(result.status == 0 and said, where, seed, result)
                writes, _, errors, code = map(int, said.groups())
                expect(writes > 0, where, seed, "has written nothing", result)
                expect(where != "region" or not errors, "errors by what lies in page-locked memory", result)
                ended[where] = ended.get(where, 0) + (code == LOST)
                expect(s.process.poll() is None, "the server after", where, seed)
            other.is_right()
        for where in ("heads", "calls", "replies", "all"):
            expect(ended[where], "no session has ended by words over", where, ended)
        late = Pinned(s)
        for program in (late, other):
            program.is_right()
            program.ends()
        within(30, lambda: len(s.children()) <= at_start, "the end of the hostile programs' servers")
        report = REPORT.search(s.log())
        expect(not report, "a sanitizer's report", report and s.log()[report.start():][:6000])


main()
