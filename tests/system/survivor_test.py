#!/usr/bin/env python3
"""The program that has one of everything (programs/survivor.cu), with nothing that disturbs it: what it says of itself
is what the tests that do disturb it compare with."""
from harness import environment, expect_equal, helper, main, run, scenario, server, through_flyt


@scenario
def everything_is_there_every_time():
    for kind in ("unix", "tcp"):
        with server(kind) as s:
            result = run(through_flyt(s.url, helper("survivor")), environment(), timeout=240,
                         stdin=b"check\ncheck\nend\n")
            expect_equal((result.status, result.out), (0, "ready\nright 1\nright 2\nended\n"), kind, result)


if __name__ == "__main__":
    main()
