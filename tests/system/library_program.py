"""Programs that call NVIDIA's libraries and do a number of steps when they are asked (programs/descent.cu,
programs/spectrum.cu, programs/handles.cu)."""
import os

import harness
from harness import expect_equal
from steady import Steady

STEPS = 40


class Program(Steady):
    def __init__(self, system, i, helper):
        self.system, self.name = system, "%s in VM %d" % (helper, i)
        self.process = system.start_in_vm(i, harness.helper(helper))
        self._said = b""
        self.wait_ready()

    def steps(self):
        return self.ask("steps %d" % STEPS)[0]

    def ends(self):
        self.say("end")
        return harness.finish(self.process)


class Handles(Program):
    """command: which libraries it uses in its rounds, "steps" or "all"."""

    def __init__(self, system, i=0, command="steps"):
        super().__init__(system, i, "handles")
        self.command = command

    def rounds(self, count=2):
        self.asked(count)
        self.answered(count)

    def asked(self, count):
        self.say("%s %d" % (self.command, count))

    def answered(self, count):
        expect_equal(self.line(self.command, 120), "%s %d" % (self.command, count), "all results are right, and no library is missing")


def works(folder, pid):
    """{context: (SMs, what libraries and kernels had executed there)} of the server's contexts."""
    with open(os.path.join(folder, str(pid)), encoding="ascii") as file:
        lines = [dict((k, int(v)) for k, v in (word.split("=") for word in line.split())) for line in file]
    return {one["context"]: (one["sms"] if one["green"] else 0, one["works"] + one["launches"]) for one in lines}
