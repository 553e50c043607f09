"""programs/pinned.cu beside a server on a unix socket, with which it shares memory (direct mode)."""
import os
import subprocess

import harness
from harness import environment, expect_equal, finish, helper, start
from steady import Steady


def environment_of(s, **changes):
    return environment(FLYT_SERVER=s.url, LD_LIBRARY_PATH=os.path.join(harness.BUILD, "lib"), FLYT_TEST_FORWARDED="1", **changes)


class Pinned(Steady):
    """programs/pinned.cu in direct mode."""

    def __init__(self, s):
        self.name, self._said, self.checks = "the program", b"", 0
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        self.process = start([helper("pinned")], environment_of(s), **pipes)
        self.pid = self.process.pid
        self.wait_ready()

    def does(self, words, answer):
        self.say(words)
        expect_equal(self.line(words, 120), answer, words)

    def is_right(self):
        self.checks += 1
        self.does("check", "right %d" % self.checks)

    def ends(self, said=""):
        """With this on stderr."""
        self.does("end", "ended")
        result = finish(self.process)
        expect_equal((result.status, result.err), (0, said), result)
