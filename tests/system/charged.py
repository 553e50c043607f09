"""programs/modules.cu in a VM whose memory is limited."""
from harness import expect, expect_equal, finish, helper
from steady import allocations

LIMIT = "256M"


def add_modules_vm(system, gpus=1):
    system.flytctl("vm", "add", system.vm_ip(0), "--sm", "8", "--memory", LIMIT, "--devices", str(gpus))


def used_bytes(system):
    """On all GPUs of the VM."""
    return sum(a["memory_used_bytes"] for a in allocations(system, 0))


class Modules:
    def __init__(self, system):
        self.process = system.start_in_vm(0, helper("modules"))

    def line(self):
        return self.process.stdout.readline().decode().split()

    def refusals(self):
        """(spelling, answer) of each text that declares 1 GiB."""
        answers = []
        while not answers or answers[-1][0] != "container-first":
            words = self.line()
            expect(len(words) == 3, "an answer", words)
            answers.append(tuple(words[1:]))
        return answers

    def ask(self, text):
        self.process.stdin.write(("%s\n" % text).encode())
        self.process.stdin.flush()
        words = self.line()
        expect(words and words[0] == text.split()[0], "the answer to", text, words)
        return words[1]

    def ends(self):
        self.process.stdin.close()
        self.process.stdin = None
        expect_equal(finish(self.process, 60).status, 0, "the program's end")
