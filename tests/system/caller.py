"""Processes that are spoken to by lines, and programs/cluster_call.c: a caller of the cluster manager as anybody."""
import contextlib
import json
import queue
import subprocess
import threading

import harness
from harness import expect_equal, helper, start, within


class Lines:
    """A process that is spoken to by lines."""

    def __init__(self, command):
        self.process = start(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self.seen, self._queue = [], queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.seen.append(line.rstrip("\n"))
            self._queue.put(line.rstrip("\n"))

    def say(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def next(self, what, seconds=harness.PATIENCE_S):
        try:
            return self._queue.get(timeout=seconds)
        except queue.Empty:
            raise harness.Failed("nothing came within %g s: %s" % (seconds, what)) from None

    def kill(self):
        harness.kill_group(self.process)
        self.process.wait()

    def close(self):
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        self.process.wait(timeout=60)


class Caller(Lines):
    def __init__(self, url, kind, name):
        super().__init__([helper("cluster_call"), url, kind, name])
        self.orders = []
        self.hello = self.answer("HELLO")

    def answer(self, what):
        while True:
            answer = json.loads(self.next(what, 60))
            if "order" not in answer:
                return answer
            self.orders.append(answer)

    def call(self, line, status="OK"):
        self.say(line)
        answer = self.answer(line)
        expect_equal(answer["status"], status, line, answer["text"])
        return answer

    def view(self, line):
        return self.call("view " + line)["view"]

    def order(self, reason):
        """Waits for an order whose reason has this word."""
        def came():
            with contextlib.suppress(queue.Empty):
                while True:
                    self.orders.append(json.loads(self._queue.get_nowait()))
            return [o for o in self.orders if reason in o.get("reason", "")]
        return within(10, came, "an order '%s' came" % reason)
