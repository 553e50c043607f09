#!/usr/bin/env python3
"""No kernel of NVIDIA's libraries leaves its VM's SMs, before a resize and after it, by the clock registers of the SMs of another
VM (programs/canary.cu). That these would tell is shown by the same libraries on the canary's own SMs. Needs a GPU and MPS;
FLYT_TEST_SOFTWARE=1 tries the steps on a software GPU, whose clocks tell nothing. On an H200 they told nothing of cuSPARSELt:
no window was slow beside any of the 28 algorithms that it has for a product of halves."""
import os
import select

import harness
from cluster import System
from harness import expect, expect_equal, main, scenario, skip, within
from library_program import Program
from steady import allocation

IS_SOFTWARE = os.environ.get("FLYT_TEST_SOFTWARE") == "1"
NAMES = ("blas", "lt", "fft", "rand", "solver", "eigen", "sparse", "solver_sparse", "solver_refactor", "dnn", "sparse_lt", "nccl")
WINDOWS = 20 if IS_SOFTWARE else 300000
BUSY = "busy" if IS_SOFTWARE else "wide"      # how much the libraries have to do at a time
WAIT_US = 1000 if IS_SOFTWARE else 200000
BUSY_MS = 200 if IS_SOFTWARE else 3000
SHARES = 6          # by how much windows are longer than usual: by a 64th, a 32nd … a half
# Of a million windows: what an SM may have by itself; how many times that a neighbour brings, to be told of; and how many times
# it may be while nobody is there.
QUIET, TIMES_SEEN, TIMES_QUIET = 20, 10, 3
TRIES = 5

if not IS_SOFTWARE and not os.path.exists("/dev/nvidiactl"):
    skip("no NVIDIA GPU here")


def whole_system():
    node = {"warm": 2} if IS_SOFTWARE else {"mps": "start", "warm": 2, "mps_dir": os.path.join(harness.WORK, "mps")}
    if not IS_SOFTWARE and os.environ.get("FLYT_LIBRARIES"):
        node["libraries"] = os.environ["FLYT_LIBRARIES"]      # cuDNN's folder, which the loader need not know
    return System(nodes=1, vms=2, hardware=not IS_SOFTWARE, namespaces=False, sms=132, memory="8G", node=node)


class Canary(Program):
    def __init__(self, system, i):
        super().__init__(system, i, "canary")

    def slow(self):
        """Slow windows in a million, on all of the VM's SMs, for each share; None: not all of them were watched."""
        self.say("watch %d %d" % (WINDOWS, WAIT_US))
        sms, watched, usual, *slow = (int(word) for word in self.line("watch", 120).split()[1:])
        expect(usual > 0 and len(slow) == SHARES, "its clocks go", usual, slow)
        if not IS_SOFTWARE and watched < sms:
            print("    %d of %d SMs were watched" % (watched, sms))
            return None
        return slow

    def slow_of_all(self, begin):
        """The same, of a time in which all SMs were watched; each begins with `begin`, which returns what ends it."""
        for _ in range(TRIES):
            end = begin()
            slow = self.slow()
            end()
            if slow is not None:
                return slow
        raise AssertionError("at no time were all SMs watched")

    def alone(self):
        return self.slow_of_all(lambda: lambda: None)

    def beside(self, program, name):
        """What it sees while the program uses that library; None: there is none, and it is skipped."""
        program.say("%s %s 1" % (BUSY, name))
        if program.line("busy", 120).split()[1] == "0":      # its kernels are loaded, and its handles there
            print("    no %s: %s" % (name, said(program.process.stderr)))
            return None

        def begin():
            program.say("%s %s %d" % (BUSY, name, BUSY_MS))
            return lambda: expect(int(program.line("busy", 120).split()[1]) > 0, name, "is at work")
        return self.slow_of_all(begin)


def said(stream):
    """What has come of it so far."""
    got = b""
    while select.select([stream], [], [], 0)[0] and (part := os.read(stream.fileno(), 65536)):
        got += part
    return got.decode(errors="replace").strip()


def told_share(quiet, slow):
    """The smallest share of which the canary tells that others are there; None: of none."""
    if IS_SOFTWARE:
        return 0
    return next((i for i in range(SHARES) if slow[i] >= TIMES_SEEN * max(QUIET, quiet[i])), None)


def resize(system, i, sms):
    system.flytctl("resize", system.vm_ip(i), "--sm", sms)
    within(60, lambda: allocation(system, i)["switch_state"] == "vacated", "nothing is left on other SMs")


def worst(all_slow):
    return [max(numbers) for numbers in zip(*all_slow)]


def seen_shares(system, canary, quiet):
    """{library: the share of which the canary tells} of those that it sees on its own SMs."""
    beside, shares = Program(system, 1, "handles"), {}
    beside.ask("steps 2")
    for name in NAMES:
        slow = canary.beside(beside, name)
        share = told_share(quiet, slow) if slow else None
        print("    %s on the canary's SMs: %s%s" % (name, slow, "" if share is not None else ", which says nothing"))
        if share is not None:
            shares[name] = share
    expect_equal(beside.ends().status, 0)
    expect(len(shares) >= 10, "what the canary tells of:", sorted(shares))
    return shares


def nothing_leaves(canary, program, shares, where):
    """Each library is looked at before any is judged."""
    quiet = worst(canary.alone() for _ in range(2))
    print("    on %s: nobody computes: %s" % (where, quiet))
    outside = {}
    for name, share in shares.items():
        slow = canary.beside(program, name)
        print("    on %s: %s: %s, the share looked at is %d" % (where, name, slow, share))
        if slow is None or slow[share] > TIMES_QUIET * max(QUIET, quiet[share]):
            outside[name] = slow
    expect(IS_SOFTWARE or not outside, "kernels outside of", where, outside)


@scenario
def no_kernel_leaves_the_partition():
    with whole_system() as system:
        system.flytctl("vm", "add", system.vm_ip(0), "--sm", 64, "--memory", "3G", "--sessions", 4)
        system.flytctl("vm", "add", system.vm_ip(1), "--sm", 32, "--memory", "3G", "--sessions", 4)
        program, canary = Program(system, 0, "handles"), Canary(system, 1)
        quiet = worst(canary.alone() for _ in range(3))
        print("    nobody computes: %s slow windows in a million" % quiet)
        shares = seen_shares(system, canary, quiet)
        for own, other in ((64, 32), (24, 96), (56, 72)):
            # Whoever loses SMs first: the canary then gets those on which the libraries were made.
            for i, sms in sorted(((0, own), (1, other)), key=lambda pair: pair[1] > allocation(system, pair[0])["sms_now"]):
                resize(system, i, sms)
            nothing_leaves(canary, program, shares, "%d SMs beside the canary's %d" % (own, other))
        for one in (program, canary):
            expect_equal(one.ends().status, 0)


if __name__ == "__main__":
    main()
