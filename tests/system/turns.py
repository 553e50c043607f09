"""programs/turns.cu in a VM of a whole system: a program that always has a kernel for its GPU, and counts those that have
ended; and programs/spin.cu: one kernel."""
import contextlib
import os

import harness
from harness import expect, expect_equal, within
from steady import Steady

SLOW = {"software_sm_rate": 200000}     # a GPU that is slower than the machine
LONG_STEPS = 400000                      # of programs/spin.cu: ten seconds and more of such a GPU


class Turns(Steady):
    """programs/turns.cu in VM `i`."""

    def __init__(self, system, i, ready=True):
        self.system, self.name = system, "the program in VM %d" % i
        self.process = system.start_in_vm(i, harness.helper("turns"))
        self._said = b""
        if ready:
            self.wait_ready()

    def count(self):
        return self.ask("count")[0]

    def goes_on(self, rounds=8):
        begin = self.count()
        within(60, lambda: self.count() >= begin + rounds, self.name + " goes on")

    def ends_after_its_server(self):
        """It got an error; or, where nothing of it was under way, it goes on at another server and ends right."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self.process.stdin.fileno(), b"end\n")
        answer = self.line("an error, or its end", 120).split()
        status = harness.finish(self.process).status
        expect((answer[0], status) in (("error", 7), ("right", 0)), self.name, "said", answer, "and ended with", status)


class Spin(Steady):
    """programs/spin.cu in VM `i`."""

    def __init__(self, system, i, steps):
        self.system, self.name, self._said = system, "the kernel in VM %d" % i, b""
        self.process = system.start_in_vm(i, harness.helper("spin"), str(steps))
        expect_equal(self.line("the launch"), "launched")
