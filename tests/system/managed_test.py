#!/usr/bin/env python3
"""Managed memory: what goes over the wire is what has changed; it is charged to the VM. Programs that have some while their
SMs change and while they move are among programs/movers."""
import os
import re

import harness
from cluster import System
from harness import environment, expect, expect_equal, helper, main, run, scenario, server, through_flyt
from steady import add_vm, is_idle

SPARSE = helper("managed_sparse")
PAGE = 64 << 10             # what a change of one byte costs at most in each direction
HASHES = 1024 * 16          # of 64 MiB
MEGABYTE = 1 << 20


def bytes_of(url, rounds):
    """(sent, received) by a program that changes a byte on either side in each round."""
    path = os.path.join(harness.WORK, "managed-stats-%d" % rounds)
    result = run(through_flyt(url, SPARSE, str(rounds)), environment(FLYT_STATS=path))
    expect_equal((result.status, result.out), (0, "ok %d\n" % rounds), result)
    with open(path, encoding="utf-8") as f:
        line = f.read()
    os.unlink(path)
    return [int(re.search(r"%s_bytes=(\d+)" % word, line).group(1)) for word in ("sent", "received")]


@scenario
def few_bytes_travel():
    """The memory is zero on both sides at first: that does not travel. A byte that was changed costs its page, and once a
    round the hashes of all pages come."""
    rounds = 20
    with server("tcp") as s:
        first, last = bytes_of(s.url, 1), bytes_of(s.url, 1 + rounds)
    sent, received = ((b - a) // rounds for a, b in zip(first, last))
    expect(PAGE <= sent < PAGE + 16384, "bytes sent for a page that was changed:", sent)
    expect(PAGE + HASHES <= received < PAGE + HASHES + 4096, "bytes received for one:", received)
    expect(first[0] < MEGABYTE and first[1] < MEGABYTE, "bytes of a program that does it once:", first)


@scenario
def it_is_charged():
    with System(vms=1, gpus=1, sms=64, memory="1G") as system:
        add_vm(system, 0, "--name", "alice", "--sessions", 4, sm=16, memory="256M")
        for mib, status, said in ((64, 0, ""), (300, 1, "cudaErrorMemoryAllocation")):
            result = harness.finish(system.start_in_vm(0, SPARSE, "1", str(mib)))
            expect_equal(result.status, status, mib, "MiB of 256", result)
            expect(said in result.err, mib, "MiB of 256", result)
        is_idle(system)


if __name__ == "__main__":
    main()
