"""programs/steady.cu in a VM of a whole system (cluster.py): a program that computes and compares all the time, and does
what it is told; and what everybody must agree on about what such programs hold."""
import contextlib
import json
import os
import select
import sqlite3
import time

import cluster
import harness
from harness import expect, expect_equal, within

MIB = 1 << 20
OWN = 4                 # MiB of a program besides its blocks: its small allocations, the code of its module
OUT_OF_MEMORY = 2       # cudaErrorMemoryAllocation
RECORDED = 6            # flytctl: recorded, not acknowledged yet


class Steady:
    """Starts one in VM `i` and waits until it is ready; ready=False: not yet."""

    def __init__(self, system, i, *arguments, ready=True, **changes):
        self.system, self.name = system, "the program in VM %d" % i
        self.process = system.start_in_vm(i, harness.helper("steady"), *map(str, arguments), **changes)
        self._said = b""
        if ready:
            self.wait_ready()

    def wait_ready(self):
        said = self.line("ready")
        if said != "ready":
            raise harness.Failed("%s said %r: %r" % (self.name, said, harness.finish(self.process)))

    def _reads(self, seconds):
        """What it says within that time, which is added to what was said; None: nothing; empty: its output has ended."""
        if not select.select([self.process.stdout], [], [], seconds)[0]:
            return None
        chunk = os.read(self.process.stdout.fileno(), 4096)
        self._said += chunk
        return chunk

    def reads_all(self):
        """Takes what it has said so far, and returns what of it nobody has asked for."""
        while self._reads(0):
            pass
        return self._said.decode()

    def line(self, what, seconds=60):
        """The next line that it prints."""
        deadline = time.monotonic() + seconds
        while b"\n" not in self._said:
            left = deadline - time.monotonic()
            expect(left > 0, self.name, "said nothing within", seconds, "s:", what)
            if self._reads(left) == b"":
                result = harness.finish(self.process)
                raise harness.Failed("%s ended, %s: %s%r" % (self.name, what, self._said.decode(), result))
        line, self._said = self._said.split(b"\n", 1)
        return line.decode()

    def say(self, words):
        try:
            os.write(self.process.stdin.fileno(), words.encode() + b"\n")
        except BrokenPipeError:
            said = self.reads_all()
            raise harness.Failed("%s ended before %s: %s%r" % (self.name, words, said, harness.finish(self.process))) from None

    def ask(self, words):
        """The answer's numbers."""
        self.say(words)
        answer = self.line(words).split()
        expect_equal(answer[0], words.split()[0], self.name, "answered", answer)
        return [int(word) for word in answer[1:]]

    def alloc(self, mib):
        """The CUDA code."""
        return self.ask("alloc %d" % mib)[0]

    def takes(self, mib):
        expect_equal(self.alloc(mib), 0, self.name, "allocates", mib, "MiB")

    def gives_back(self):
        expect_equal(self.ask("free")[0], 0, self.name, "frees a block")

    def total(self):
        """MiB that cudaMemGetInfo says."""
        return self.ask("info")[1]

    def goes_on(self, rounds=2):
        """Waits until it has computed and compared so many more times."""
        begin = self.ask("rounds")[0]
        within(60, lambda: self.ask("rounds")[0] >= begin + rounds, self.name + " goes on")

    def ends_right(self):
        """Ends it; everything that it held was as it wrote it."""
        self.say("end")
        answer = self.line("end", 120)
        expect(answer.startswith("right "), self.name, "said", answer)
        result = harness.finish(self.process)
        expect_equal((result.status, result.err), (0, ""), self.name, result)
        return int(answer.split()[1])

    def ends_with_error(self, seconds=60):
        """(code, what stderr said) of one that lost its GPU."""
        answer = self.line("an error", seconds).split()
        expect_equal(answer[0], "error", self.name, "said", answer)
        result = harness.finish(self.process)
        expect_equal(result.status, 7, self.name, result)
        return int(answer[1]), result.err

    def close(self):
        harness.kill_group(self.process)
        harness.finish(self.process)


def allocations(system, i=None):
    return [a for a in system.flytctl("allocations") if i is None or a["vm_ip"] == system.vm_ip(i)]


def allocation(system, i):
    found = allocations(system, i)
    expect_equal(len(found), 1, "allocations of VM", i, found)
    return found[0]


def vm(system, i):
    found = [v for v in system.flytctl("vms") if v["vm_ip"] == system.vm_ip(i)]
    expect_equal(len(found), 1, "documents of VM", i)
    return found[0]


def add_vm(system, i, *words, sm=8, memory="256M"):
    system.flytctl("vm", "add", system.vm_ip(i), "--sm", sm, "--memory", memory, *words)


def refused(system, *words, status=1):
    """What flytctl says on stderr where it is to end with this status."""
    result = system.flytctl_run(*words)
    expect_equal(result.status, status, "flytctl", *words, result)
    expect_equal(len(harness.lines(result.err)), 1, "lines of", result)
    return result.err


def events(system, kind, thing=None):
    return [e for e in system.flytctl("events") if e["kind"] == kind and thing in (None, e["object"])]


def uses(system, i, mib):
    """Waits until the manager knows that VM i uses so much of its memory."""
    within(60, lambda: [a["memory_used_bytes"] for a in allocations(system, i)] == [mib * MIB],
           "VM %d uses %d MiB" % (i, mib))


def server_of(system, i):
    """The process that serves VM i's only program."""
    pids = [s["server_pid"] for s in system.flytctl("sessions") if s["vm_ip"] == system.vm_ip(i)]
    expect_equal(len(pids), 1, "servers of VM", i)
    return pids[0]


def is_idle(system):
    """Waits until no program is known and nothing is in use; allocations may stay."""
    def idle():
        rows = allocations(system)
        return not system.flytctl("sessions") and not any(a["sessions"] or a["memory_used_bytes"] for a in rows)
    within(60, idle, "nothing is in use")


def has_registered(system, i):
    """Node i's manager that runs now: the cluster manager may still have the word of the one before."""
    return "registered with the cluster manager" in system.log(system.node_name(i)).rsplit(": listening ", 1)[-1]


def nodes_up(system, count=None):
    within(60, lambda: [n["state"] for n in system.flytctl("nodes")] == ["up"] * (count or system.node_count) and
           (count or all(has_registered(system, i) for i in range(system.node_count))), "all nodes are up")


def stored(system, collection="gpus"):
    """The documents of a SQLite store, as another process sees them."""
    path = system.path("cluster", "cluster.db")
    with contextlib.closing(sqlite3.connect("file:%s?mode=ro" % path, uri=True, timeout=60)) as database:
        return [json.loads(row[0]) for row in
                database.execute("SELECT body FROM documents WHERE collection=?", (collection,))]


def all_agree(system):
    """Waits until store, flytctl and nodes say the same of what is allocated, and no group is given twice."""
    def entries():
        shown = sorted((a["id"], a["memory_bytes"], tuple(a["sm_groups"])) for a in allocations(system))
        kept = sorted((e["id"], e["memory_bytes"], tuple(e["sm_groups"])) for g in stored(system) for e in g["allocations"])
        held = sorted((labels["allocation"], int(value)) for i in range(system.node_count) for labels, value in
                      cluster.metric_values(system.metrics(system.node_name(i)), "flyt_node_allocation_memory_limit_bytes"))
        return shown, kept, held
    last = []

    def agree():
        shown, kept, held = last[:] = entries()
        return shown == kept and held == [e[:2] for e in shown]
    try:
        within(60, agree, "all agree")
    except harness.Failed:
        raise harness.Failed("flytctl, store and nodes differ:\n%s\n%s\n%s" % tuple(last)) from None
    for gpu in stored(system):
        groups = [g for e in gpu["allocations"] for g in e["sm_groups"]]
        expect_equal(len(groups), len(set(groups)), "groups given twice", gpu)
        expect(sum(e["memory_bytes"] for e in gpu["allocations"]) <= gpu["memory_bytes"], "over capacity:", gpu)


def all_is_free(system):
    """Waits until nothing is allocated any more, as everybody says."""
    within(60, lambda: not allocations(system) and not system.flytctl("sessions"), "all allocations have gone")
    all_agree(system)
    expect_equal([(g["memory_allocated_bytes"], g["groups_allocated"], g["client_slots_allocated"])
                  for g in system.flytctl("gpus")], [(0, 0, 0)] * len(system.flytctl("gpus")), "what GPUs have given")
