#!/usr/bin/env python3
"""No kernel of NVIDIA's libraries leaves its VM's SMs, before a resize and after it, by the clock registers of the SMs of another
VM (programs/canary.cu). That these would tell is shown by the same libraries on the canary's own SMs. Needs a GPU and MPS;
FLYT_TEST_SOFTWARE=1 tries the steps on a software GPU, whose clocks tell nothing. The canary tells of a library by windows of its
arithmetic that take longer, or, of kernels that never run beside another (cuSPARSELt's on an H200), by launches that start later."""
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
STARTS = 5 if IS_SOFTWARE else 20000
WAYS = ("windows", "starts")
BUSY_MS = 200 if IS_SOFTWARE else 3000
SHARES = 6          # by how much windows are longer than usual: by a 64th, a 32nd … a half; starts: by once, twice … 32 times
# Of a million: what an SM may have by itself; how many times that a neighbour brings, to be told of; and how many times
# it may be while nobody is there.
QUIET = {"windows": 20, "starts": 5000}
TIMES_SEEN, TIMES_QUIET = 10, 3
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

    def windows(self):
        """Slow windows in a million, on all of the VM's SMs, for each share; None: not all of them were watched."""
        self.say("watch %d %d" % (WINDOWS, WAIT_US))
        sms, watched, usual, *slow = (int(word) for word in self.line("watch", 120).split()[1:])
        expect(usual > 0 and len(slow) == SHARES, "its clocks go", usual, slow)
        if not IS_SOFTWARE and watched < sms:
            print("    %d of %d SMs were watched" % (watched, sms))
            return None
        return slow

    def starts(self):
        """Late starts in a million, for each share."""
        self.say("starts %d" % STARTS)
        _, _, usual, *slow = (int(word) for word in self.line("starts", 120).split()[1:])
        expect(usual > 0 and len(slow) == SHARES, "its launches start", usual, slow)
        return slow

    def _seen(self, begin):
        """{way: what it sees by it}, of a time in which all SMs were watched; each begins with `begin`, which returns what ends it."""
        for _ in range(TRIES):
            end = begin()
            seen = {"windows": self.windows(), "starts": self.starts()}
            end()
            if seen["windows"] is not None:
                return seen
        raise AssertionError("at no time were all SMs watched")

    def alone(self):
        seen = [self._seen(lambda: lambda: None) for _ in range(3)]
        return {way: worst(one[way] for one in seen) for way in WAYS}

    def beside(self, program, name):
        """What it sees while the program uses that library; None: there is none, and it is skipped."""
        program.say("%s %s 1" % (BUSY, name))
        if program.line("busy", 120).split()[1] == "0":      # its kernels are loaded, and its handles there
            print("    no %s: %s" % (name, said(program.process.stderr)))
            return None

        def begin():
            program.say("%s %s %d" % (BUSY, name, BUSY_MS))
            return lambda: expect(int(program.line("busy", 120).split()[1]) > 0, name, "is at work")
        return self._seen(begin)


def said(stream):
    """What has come of it so far."""
    got = b""
    while select.select([stream], [], [], 0)[0] and (part := os.read(stream.fileno(), 65536)):
        got += part
    return got.decode(errors="replace").strip()


def told(quiet, seen):
    """(way, share) by which the canary tells most clearly that others are there, by windows if it can; None: by none."""
    if IS_SOFTWARE:
        return "windows", 0
    for way in WAYS:
        times, share = max((seen[way][i] / max(QUIET[way], quiet[way][i]), -i) for i in range(SHARES))
        if times >= TIMES_SEEN:
            return way, -share
    return None


def resize(system, i, sms):
    system.flytctl("resize", system.vm_ip(i), "--sm", sms)
    within(60, lambda: allocation(system, i)["switch_state"] == "vacated", "nothing is left on other SMs")


def worst(all_slow):
    return [max(numbers) for numbers in zip(*all_slow)]


def ways_told(system, canary, quiet):
    """{library: (way, share) by which the canary tells of it} of those that it sees on its own SMs."""
    beside, ways, absent = Program(system, 1, "handles"), {}, []
    beside.ask("steps 2")
    for name in NAMES:
        seen = canary.beside(beside, name)
        if seen is None:
            absent.append(name)
            continue
        how = told(quiet, seen)
        print("    %s on the canary's SMs: %s: %s" % (name, seen, "it says nothing" if how is None else "%s, share %d" % how))
        if how is not None:
            ways[name] = how
    expect_equal(beside.ends().status, 0)
    expect_equal(sorted(NAMES), sorted([*ways, *absent]), "the canary tells of each")
    expect(len(ways) >= 9, "what is missing:", absent)
    return ways


def nothing_leaves(canary, program, ways, where):
    """Each library is looked at before any is judged."""
    quiet = canary.alone()
    print("    on %s: nobody computes: %s" % (where, quiet))
    outside = {}
    for name, (way, share) in ways.items():
        seen = canary.beside(program, name)
        print("    on %s: %s: %s, by %s, share %d" % (where, name, seen, way, share))
        if seen is None or seen[way][share] > TIMES_QUIET * max(QUIET[way], quiet[way][share]):
            outside[name] = seen
    expect(IS_SOFTWARE or not outside, "kernels outside of", where, outside)


@scenario
def no_kernel_leaves_the_partition():
    with whole_system() as system:
        system.flytctl("vm", "add", system.vm_ip(0), "--sm", 64, "--memory", "3G", "--sessions", 4)
        system.flytctl("vm", "add", system.vm_ip(1), "--sm", 32, "--memory", "3G", "--sessions", 4)
        program, canary = Program(system, 0, "handles"), Canary(system, 1)
        quiet = canary.alone()
        print("    nobody computes: %s slow ones in a million" % quiet)
        ways = ways_told(system, canary, quiet)
        for own, other in ((64, 32), (24, 96), (56, 72)):
            # Whoever loses SMs first: the canary then gets those on which the libraries were made.
            for i, sms in sorted(((0, own), (1, other)), key=lambda pair: pair[1] > allocation(system, pair[0])["sms_now"]):
                resize(system, i, sms)
            nothing_leaves(canary, program, ways, "%d SMs beside the canary's %d" % (own, other))
        for one in (program, canary):
            expect_equal(one.ends().status, 0)


if __name__ == "__main__":
    main()
