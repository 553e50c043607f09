"""programs/named.cu in a VM of a whole system (cluster.py): a program that says what it is told of its GPUs, and takes memory; and
the interpreter that may have monitors for it."""
import os
import subprocess
import sys

from harness import expect, expect_equal, finish, helper

PYTHON = os.environ.get("FLYT_NVML_PYTHON", sys.executable)


def has_module(name):
    return not subprocess.run([PYTHON, "-c", "import " + name], capture_output=True, check=False).returncode


class Named:
    """programs/named.cu in VM i."""

    def __init__(self, system, i=0):
        self.process = system.start_in_vm(i, helper("named"))
        self.pid = int(self.line().split()[1])

    def line(self):
        line = self.process.stdout.readline().decode()
        expect(line, "the program ended:", finish(self.process) if not line else "")
        return line.strip()

    def say(self, words):
        self.process.stdin.write(words.encode() + b"\n")
        self.process.stdin.flush()

    def ask(self, words):
        self.say(words)
        return int(self.line().split()[1])

    def names(self):
        """[(UUID, bus id, numbers of the address, compute capability, name)]"""
        self.say("names")
        said = []
        while (line := self.line()) != "end":
            uuid, bus_id, domain, bus, device, major, minor, name = line.split(" ", 8)[1:]
            said.append((uuid, bus_id, (int(domain), int(bus), int(device)), "%s.%s" % (major, minor), name))
        return said

    def end(self):
        result = finish(self.process)
        expect_equal(result.status, 0, "the program", result)
