"""programs/sharer.cu in a VM of a whole system (cluster.py): a program that shares memory and events with others as it is
told."""
import select

import harness
from harness import expect, expect_equal

MIB = 1 << 20
# Of cluster.System, and of the VM: sharing_gpu_test.py has others.
OPTIONS = {"sms": 64, "memory": "1G"}
VM_MEMORY = "256M"


class Sharer:
    """programs/sharer.cu, started somewhere."""

    def __init__(self, process, name):
        self.process, self.name = process, name
        self.hears("ready")

    def hears(self, *wanted):
        line = self.process.stdout.readline().decode().split()
        if not line:
            raise harness.Failed("%s ended: %r" % (self.name, harness.finish(self.process)))
        expect_equal(line[:len(wanted)], list(wanted), self.name)
        return line

    def hears_nothing(self, seconds=1):
        """What it was told is not done yet, as far as can be seen."""
        said = select.select([self.process.stdout], [], [], seconds)[0]
        expect(not said, self.name, "is answered:", said and self.process.stdout.readline())

    def says(self, *words):
        self.process.stdin.write((" ".join(map(str, words)) + "\n").encode())
        self.process.stdin.flush()

    def does(self, *words):
        self.says(*words)
        return (self.hears("ok") + [""])[1]

    def is_refused(self, error, *words):
        self.says(*words)
        self.hears(error)

    def ends(self):
        self.process.stdin.close()
        expect_equal(self.process.wait(60), 0, self.name)

    def kill(self):
        self.process.kill()
        self.process.wait(60)


def total(seed, size):
    count = size // 4
    return str(sum((seed + i) % 2**32 for i in range(count)))


def sharers(system, count, i=0):
    program = harness.helper("sharer")
    return [Sharer(system.start_in_vm(i, program), "%s of VM %d" % (name, i)) for name in "ABC"[:count]]
