#!/usr/bin/env python3
"""No kernel of NVIDIA's libraries leaves its VM's SMs, before a resize and after it, by the clock registers of the SMs of another
VM (programs/canary.cu). That these would tell is shown by the same libraries on the canary's own SMs. Needs a GPU and MPS;
FLYT_TEST_SOFTWARE=1 tries the steps on a software GPU, whose clocks tell nothing."""
import os

import harness
from cluster import System
from harness import expect, expect_equal, main, scenario, skip, within
from library_program import Program
from steady import allocation

IS_SOFTWARE = os.environ.get("FLYT_TEST_SOFTWARE") == "1"
NAMES = ("blas", "fft", "rand", "solver", "eigen", "sparse", "dnn")
WINDOWS = 20 if IS_SOFTWARE else 100000
BUSY_MS = 200 if IS_SOFTWARE else 3000
# Of a million windows: what an SM has by itself (measured before each), and what is certainly a neighbour's.
QUIET, SEEN = 20, 200

if not IS_SOFTWARE and not os.path.exists("/dev/nvidiactl"):
    skip("no NVIDIA GPU here")


def whole_system():
    node = {"warm": 2} if IS_SOFTWARE else {"mps": "start", "warm": 2, "mps_dir": os.path.join(harness.WORK, "mps")}
    return System(nodes=1, vms=2, hardware=not IS_SOFTWARE, namespaces=False, sms=132, memory="8G", node=node)


class Canary(Program):
    def __init__(self, system, i):
        super().__init__(system, i, "canary")

    def starts(self):
        self.say("watch %d" % WINDOWS)

    def tells(self):
        """Slow windows in a million, on all of the VM's SMs."""
        words = [int(word) for word in self.line("watch", 120).split()[1:]]
        blocks, sms, usual, slow = words
        expect(usual > 0, "its clocks go", words)
        if not IS_SOFTWARE:
            expect_equal(sms, blocks, "a block on each SM")
        return slow


def slow_beside(canary, program, name):
    """What the canary sees while the program uses that library; None: there is none."""
    program.say("busy %s %d" % (name, BUSY_MS))
    canary.starts()
    slow = canary.tells()
    answer = program.line("busy", 120).split()
    expect_equal(answer[0], "busy", answer)
    return slow if int(answer[1]) else None


def resize(system, i, sms):
    system.flytctl("resize", system.vm_ip(i), "--sm", sms)
    within(60, lambda: allocation(system, i)["switch_state"] == "vacated", "nothing is left on other SMs")


@scenario
def no_kernel_leaves_the_partition():
    with whole_system() as system:
        system.flytctl("vm", "add", system.vm_ip(0), "--sm", 64, "--memory", "2G", "--sessions", 4)
        system.flytctl("vm", "add", system.vm_ip(1), "--sm", 32, "--memory", "2G", "--sessions", 4)
        program, canary = Program(system, 0, "handles"), Canary(system, 1)
        program.ask("steps 2")
        canary.starts()
        alone = canary.tells()
        expect(IS_SOFTWARE or alone <= QUIET, "slow windows in a million while nobody computes:", alone)
        # The canary's own VM has the libraries on its SMs: it tells of them.
        beside = Program(system, 1, "handles")
        beside.ask("steps 2")
        told = {name: slow_beside(canary, beside, name) for name in NAMES}
        print("    on the canary's SMs: %s" % told)
        beside.ends()
        seen = [name for name, slow in told.items() if slow is not None and (IS_SOFTWARE or slow >= SEEN)]
        expect("blas" in seen and "solver" in seen, "what the canary tells of", told)
        unseen = [name for name, slow in told.items() if slow is not None and name not in seen]
        if unseen:
            print("    too short to be told of, and so not looked at: %s" % ", ".join(unseen))
        for own, other in ((64, 32), (24, 96), (56, 72)):
            # Whoever loses SMs first: the canary then gets those on which the libraries were made.
            for i, sms in sorted(((0, own), (1, other)), key=lambda pair: pair[1] > allocation(system, pair[0])["sms_now"]):
                resize(system, i, sms)
            slow = {name: slow_beside(canary, program, name) for name in seen}
            print("    on %d SMs beside the canary's %d: %s" % (own, other, slow))
            expect(IS_SOFTWARE or all(one is not None and one <= QUIET for one in slow.values()), "kernels outside", own, "SMs:", slow)
        for one in (program, canary):
            expect_equal(one.ends().status, 0)


if __name__ == "__main__":
    main()
