"""Programs that call NVIDIA's libraries and do a number of steps when they are asked (programs/descent.cu,
programs/spectrum.cu)."""
import harness
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
