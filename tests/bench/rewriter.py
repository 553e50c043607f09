"""tests/bench/rewrite, in a VM of a whole system or without Flyt: a program whose memory changes at a known rate."""
import json
import subprocess
import time

import figures
import harness
from harness import expect, expect_equal
from steady import Steady

REWRITE = figures.bench_program("rewrite")
ANSWER_S = 300          # the most that it takes to fill or compare its memory, or to be stopped
WORK = "1056,30000" if figures.HAS_GPU else "32,2000"       # a round: below or about a millisecond


def now_us():
    """CLOCK_MONOTONIC, as the program's."""
    return time.clock_gettime(time.CLOCK_MONOTONIC) * 1e6


class Rewriter(Steady):
    """Starts it in VM 0, natively where system is None, and waits until it is ready."""

    def __init__(self, system, bytes_, share, *more):
        words = ["--bytes", str(bytes_), "--share", share, "--work", WORK, *more]
        self.system, self.name, self._said = system, "rewrite " + " ".join(words), b""
        if system:
            self.process = system.start_in_vm(0, REWRITE, *words)
        else:
            self.process = harness.start([REWRITE, *words], figures.native_environment(), stdin=subprocess.PIPE,
                                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.pages = self.hear("ready")["pages"]

    def hear(self, event):
        said = json.loads(self.line(event, ANSWER_S))
        expect_equal(said.get("event"), event, self.name, "said", said)
        expect("error" not in said, self.name, "said", said)
        return said

    def span(self, from_us, to_us):
        """Its rounds and longest gaps in that time; a span of no rounds has no gaps."""
        self.say("span %.1f %.1f" % (from_us, to_us))
        return self.hear("span")

    def graphs(self, are_wanted):
        """Whether it has those of --graphs from now on; how many it has."""
        self.say("graphs on" if are_wanted else "graphs off")
        return self.hear("graphs")["count"]

    def after(self, seconds):
        """Waits so long, and for a round after that; the time when the waiting was over."""
        time.sleep(seconds)
        end = now_us()
        harness.within(ANSWER_S, lambda: self.span(end, now_us() + 1)["rounds"] > 0, self.name + " goes on")
        return end

    def ends(self):
        """Ends it: what it says of its memory. A failure where something was not intact."""
        self.say("end")
        said = self.hear("end")
        result = harness.finish(self.process, ANSWER_S)
        expect(said["intact"], self.name, "is not intact:", said, result)
        expect_equal(result.status, 0, self.name, result)
        return said

    def remains(self, seconds):
        """Ends one that something has failed with, and kills it where it has not ended in that time: what it said."""
        said = ""
        if self.process.stdout.closed:
            return self.name + " has ended"
        if seconds:
            try:
                self.say("end")
                said = self.line("end", seconds)
                return "%s ended by itself: %s %r" % (self.name, said, harness.finish(self.process, seconds))
            except (OSError, harness.Failed) as failure:
                said += " %s" % failure
        if self.process.stdout.closed:
            return "%s: %s" % (self.name, said)
        harness.kill_group(self.process)
        return "%s was killed: %s %r" % (self.name, said, harness.finish(self.process))
