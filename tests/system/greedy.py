"""programs/greedy.cu and programs/sequences.cu in a VM of a whole system: programs that take all the memory that there is, told
what to do in the manner of steady.py."""
import harness
from harness import expect_equal, helper
from steady import Steady


class Greedy(Steady):
    """programs/greedy.cu; Steady's manner of asking."""

    def __init__(self, system, i, threads=8, rounds=40):
        self.system, self.name = system, "the greedy program in VM %d" % i
        self.process = system.start_in_vm(i, helper("greedy"), str(threads), str(rounds))
        self._said = b""
        self.wait_ready()

    def ends(self):
        self.process.stdin.close()
        self.process.stdin = None
        result = harness.finish(self.process)
        expect_equal((result.status, result.err), (0, ""), self.name, result)


class Sequences(Greedy):
    """programs/sequences.cu."""

    def __init__(self, system, i, seed, steps, threads):
        self.system, self.name = system, "the program of sequences, seed %d" % seed
        self.process = system.start_in_vm(i, helper("sequences"), str(seed), str(steps), str(threads))
        self._said = b""
        self.wait_ready()

    def wait_done(self):
        answer = self.line("done", 600).split()
        expect_equal(answer[0], "done", self.name, answer)
        return [int(word) for word in answer[1:]]
