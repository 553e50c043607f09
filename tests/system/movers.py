"""programs/movers: dozens of ordinary CUDA programs that check themselves, run in a VM of a whole system while something
is done to what is below them at random moments: a disturbance, any function of a random.Random.

    under(system, 0, batch, lambda chance: system.flytctl("resize", "alice", "--sm", chance.choice((8, 32))), times=3)
"""
import collections
import os
import random
import tempfile
import time

import harness
from harness import expect, expect_equal
from steady import Steady

MOVERS = harness.helper("movers")
PAUSE_S = 0.4               # the most between two disturbances
# Of a program between two rounds: they share the machine, with other tests where it is no soak.
RESTS_MS = (0, 10, 30) if os.environ.get("FLYT_SOAK") else (10, 40, 100)
ANSWER_S = 120              # the most that a busy machine takes for a round
FIXED_SEED = 20261122

# flags: "fault": its context is broken on purpose; "code": it knows addresses of code or variables.
Case = collections.namedtuple("Case", "name family flags what")


# Cases that know addresses of variables, and have loaded modules in another order than that in which a server loads them
# anew, so that variables come to be elsewhere: each module that is replaced leaves a hole, which a later one fills.
STAY = ("many_modules",)
STAY_ROUNDS = 30            # after so many that is so: each replaces one of twelve, by chance
STAY_REASON = "the variable counter has come to be elsewhere, and the program may have its address"


def code_cases():
    """Those that know addresses of code or variables and can move all the same: software GPUs have them at the same
    places."""
    found = [case for case in cases("fault") if "code" in case.flags.split(",")]
    expect(len(found) > 8 and set(STAY) < {case.name for case in found}, "cases that know addresses:", found)
    return [case for case in found if case.name not in STAY]


def staying_cases():
    return [case for case in cases() if case.name in STAY]


def cases(*left_out):
    """All of them but those with one of these flags."""
    result = harness.run([MOVERS, "--list"], harness.environment(LD_LIBRARY_PATH=os.path.join(harness.BUILD, "lib")))
    expect_equal(result.status, 0, "movers --list", result)
    found = [Case(*line.split(" ", 3)) for line in harness.lines(result.out)]
    expect(len(found) > 30, "cases:", found)
    expect_equal(len({case.name for case in found}), len(found), "names of cases")
    return [case for case in found if not set(left_out) & set(case.flags.split(","))]


def batches(of, count):
    """So many at a time, of different families."""
    step = -(-len(of) // count)
    return [of[i::step] for i in range(step)]


def seed():
    """Of FLYT_SEED; the same in every run but a soak. It is printed, and named by what fails."""
    chosen = int(os.environ.get("FLYT_SEED") or (random.SystemRandom().randrange(1 << 31) if os.environ.get("FLYT_SOAK")
                                                 else FIXED_SEED))
    print("    FLYT_SEED=%d" % chosen, flush=True)
    return chosen


class Mover(Steady):
    """A case in VM `i`, until it is to end. It is not ready yet: wait_ready()."""

    def __init__(self, system, i, case, chosen, rest_ms=0):
        self.system, self.name, self._said = system, "%s (--seed %d) in VM %d" % (case.name, chosen, i), b""
        self.case = case
        self._end = os.path.join(tempfile.mkdtemp(prefix="mover-", dir=harness.WORK), "end")
        self.process = system.start_in_vm(i, MOVERS, case.name, "--until-file", self._end, "--seed", str(chosen),
                                          "--rest", str(rest_ms))

    def wait_ready(self):
        said = self.line("ready", ANSWER_S)
        if said != "ready":
            raise harness.Failed("%s said %r: %r" % (self.name, said, harness.finish(self.process)))
        self.round = 0

    def _hear(self):
        """The next line: a round, or its last one."""
        said = self.line("its rounds", ANSWER_S)
        kind, _, rest = said.partition(" ")
        if kind == "round":
            expect(int(rest) > self.round, self.name, "says", said, "after round", self.round)
            self.round = int(rest)
            return None
        if kind != "ok":
            raise harness.Failed("%s said %r: %r" % (self.name, said, harness.finish(self.process)))
        return said

    def goes_on(self):
        """Waits for a round that begins after this."""
        self.reads_all()
        while b"\n" in self._said:
            expect(not self._hear(), self.name, "has ended")
        # One that it was just writing, and one after it.
        for _ in range(2):
            expect(not self._hear(), self.name, "has ended")

    def ends_right(self):
        """Ends it; what it found was right every time. How many rounds."""
        with open(self._end, "w", encoding="ascii"):
            pass
        said = None
        while not said:
            said = self._hear()
        result = harness.finish(self.process, ANSWER_S)
        expect_equal((result.status, result.err), (0, ""), self.name, result)
        name, rounds = said.split()[1:]
        expect_equal(name, self.case.name, said)
        return int(rounds.removeprefix("rounds="))


def stays(system, i, case, chosen, is_refused):
    """Runs a case of STAY in VM i until nothing can move it; is_refused() tries. It goes on and ends right."""
    program = Mover(system, i, case, chosen)
    try:
        program.wait_ready()
        while program.round < STAY_ROUNDS:
            program.goes_on()
        is_refused()
        program.goes_on()
        return program.ends_right()
    finally:
        if program.process.poll() is None:
            program.close()


def under(system, i, batch, disturb, times, chosen):
    """Runs a batch in VM i, all at the same time, disturbs it so many times at random moments, and sees that each goes on
    after each time and ends right. The number of rounds of all."""
    chance, programs, done = random.Random(chosen), [], 0
    try:
        for case in batch:
            programs.append(Mover(system, i, case, chance.randrange(1 << 31), chance.choice(RESTS_MS)))
        for program in programs:
            program.wait_ready()
        for done in range(1, times + 1):
            time.sleep(chance.uniform(0, PAUSE_S))
            disturb(chance)
            for program in programs:
                program.goes_on()
        return sum(program.ends_right() for program in programs)
    except harness.Failed as failure:
        ended = ["%s: %r" % (program.name, harness.finish(program.process)) for program in programs
                 if program.process.poll() is not None and not program.process.stdout.closed]
        raise harness.Failed("seed %d, disturbed %d times of %d: %s" % (
            chosen, done, times, "\n".join([str(failure), *ended]))) from None
    finally:
        for program in programs:
            if program.process.poll() is None:
                program.close()
