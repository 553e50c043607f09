#!/usr/bin/env python3
"""Somebody is away, stuck or wrong: nodes, the store, wires, clocks, readers. Programs go on, changes are refused in
words, and afterwards everybody agrees."""
import contextlib
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import tempfile

import harness
import netns
from cluster import System
from harness import expect, expect_equal, main, scenario, within
from steady import (MIB, OWN, Steady, add_vm, all_agree, allocation, allocations, events, is_idle, nodes_up, refused,
                    uses)

LOST_SOON = {"heartbeat_s": 0.3, "node_lost_s": 8}


def without_the_word(system, node):
    """Who does not confirm that the node is dead does not fence it."""
    result = system.flytctl_run("node", "fence", node)
    expect(result.status == 2 and "--confirmed-dead" in result.err, "fencing without it", result)


def state_of(system, node):
    return {n["name"]: n["state"] for n in system.flytctl("nodes")}[node]


@scenario
def a_node_is_lost_and_back():
    """Its manager is frozen: programs go on, it stays charged, it is not fenced while it may live, and is back as it was."""
    with System(nodes=2, vms=2, memory="256M", cluster=LOST_SOON) as system:
        add_vm(system, 0, memory="128M")
        add_vm(system, 1, memory="128M")
        program = Steady(system, 0)
        program.takes(32)
        node = allocation(system, 0)["node"]
        before = allocation(system, 0)
        expect("up" in refused(system, "node", "fence", node, "--confirmed-dead"), "it is up")
        system.freeze(node)
        within(60, lambda: state_of(system, node) == "lost", "it is lost")
        program.goes_on()
        expect_equal(allocation(system, 0)["id"], before["id"], "the allocation stays bound")
        gpu = [g for g in system.flytctl("gpus") if g["node"] == node][0]
        expect_equal(gpu["memory_allocated_bytes"], 128 * MIB, "and charged")
        without_the_word(system, node)
        # Another VM is placed where somebody lives; a resize of the lost one is not.
        other = Steady(system, 1)
        expect(allocation(system, 1)["node"] != node, "placed on the lost node")
        system.thaw(node)
        nodes_up(system)
        program.goes_on()
        expect_equal(allocation(system, 0)["id"], before["id"], "the same one")
        uses(system, 0, 32 + OWN)
        program.takes(32)
        for p in (Steady(system, 0), program, other):
            p.ends_right()
        is_idle(system)
        all_agree(system)


@scenario
def a_node_is_fenced():
    """It is off for good: only then, and only by word, what it had is free."""
    with System(nodes=2, vms=1, memory="256M", cluster=LOST_SOON, node={"rejoin": 1}) as system:
        add_vm(system, 0, memory="128M")
        Steady(system, 0).ends_right()
        node = allocation(system, 0)["node"]
        other = "node-1" if node == "node-0" else "node-0"
        system.supervisor.stop(node)
        within(60, lambda: state_of(system, node) == "lost", "it is lost")
        without_the_word(system, node)
        expect_equal(allocation(system, 0)["node"], node, "still charged")
        system.flytctl("node", "fence", node, "--confirmed-dead")
        expect_equal((allocations(system), state_of(system, node)), ([], "fenced"), "afterwards")
        expect_equal([e["who"].split(":")[0] for e in events(system, "node.fenced")], ["operator"], "events")
        program = Steady(system, 0)
        expect_equal(allocation(system, 0)["node"], other, "placed again")
        # Against what was said it comes back: with what it still has, which is an orphan that nobody is given.
        system.restart(node)
        nodes_up(system)
        orphan = within(30, lambda: [a for a in allocations(system, 0) if a["node"] == node], "what it still has")[0]
        expect_equal(orphan["state"], "orphan", orphan)
        program.goes_on()
        Steady(system, 0).ends_right()
        system.flytctl("allocation", "kill", orphan["id"])
        within(60, lambda: [a["node"] for a in allocations(system, 0)] == [other], "the orphan has gone")
        program.ends_right()
        all_agree(system)


@contextlib.contextmanager
def older_store(system):
    """The cluster manager's store as it was before what happens inside."""
    path = system.path("cluster", "cluster.db")
    with contextlib.closing(sqlite3.connect(path)) as live, contextlib.closing(sqlite3.connect(path + ".old")) as copy:
        live.backup(copy)
    yield
    system.supervisor.stop("cluster")
    for name in (path, path + "-wal", path + "-shm"):
        if os.path.exists(name):
            os.unlink(name)
    shutil.move(path + ".old", path)
    system.restart("cluster")


@scenario
def orphans():
    """The store is an older copy: what it does not know is an orphan, charged and alive, until it is adopted or ended."""
    with System(vms=2, memory="512M") as system:
        for i in range(2):
            add_vm(system, i, memory="128M")
        epoch = system.flytctl("status")[0]["epoch"]
        with older_store(system):
            programs = [Steady(system, i) for i in range(2)]
            for program in programs:
                program.takes(16)
            ids = [allocation(system, i)["id"] for i in range(2)]
        within(60, lambda: sorted(a["state"] for a in allocations(system)) == ["orphan", "orphan"], "two orphans")
        for program in programs:
            program.goes_on()
        expect_equal(system.flytctl("gpus")[0]["memory_allocated_bytes"], 256 * MIB, "they are charged")
        system.flytctl("allocation", "adopt", ids[0])
        within(30, lambda: allocation(system, 0)["state"] == "active", "it is adopted")
        system.flytctl("allocation", "kill", ids[1])
        code, said = programs[1].ends_with_error()
        expect(code != 0 and "session ended" in said or "connection lost" in said, "what it was told:", code, said)
        within(30, lambda: not allocations(system, 1), "it has gone")
        programs[0].goes_on()
        system.flytctl("resize", system.vm_ip(0), "--memory", "192M")
        expect_equal(programs[0].total(), 192, "an adopted one can be resized")
        again = Steady(system, 1)
        for program in (again, programs[0]):
            program.ends_right()
        is_idle(system)
        all_agree(system)
        expect(epoch < system.flytctl("status")[0]["epoch"], "the epoch rises")


@scenario
def the_store_is_locked():
    """Another process holds SQLite's lock: changes are refused in words, everything else goes on."""
    with System(vms=2, memory="512M", cluster={"store_timeout_s": 0.5}) as system:
        for i in range(2):
            add_vm(system, i, memory="64M")
        program = Steady(system, 0)
        with contextlib.closing(sqlite3.connect(system.path("cluster", "cluster.db"), isolation_level=None)) as holder:
            holder.execute("BEGIN EXCLUSIVE")
            text = within(60, lambda: changes_are_refused(system), "changes are refused")
            expect("store" in text, text)
            status = system.flytctl("status")[0]
            expect_equal((status["leader"], status["nodes_up"]), (True, 1), "status")
            program.goes_on()
            program.takes(16)
            late = Steady(system, 0)        # its VM has its grant
            result = system.run_in_vm(1, harness.helper("steady"))
            expect(result.status != 0 and "store" in result.err, "a VM without a grant", result)
            late.ends_right()
            expect_equal(state_of(system, "node-0"), "up", "heartbeats go on")
            holder.execute("ROLLBACK")
        within(60, lambda: system.flytctl_run("vm", "set", system.vm_ip(1), "--sm", "16").status == 0, "changes are taken")
        other = Steady(system, 1)
        for p in (program, other):
            p.ends_right()
        is_idle(system)
        all_agree(system)


class SystemOfLittleRoom(System):
    """Its store is alone in a file system of 1 MiB, which only the cluster manager sees."""
    MOUNT = 'mount -t tmpfs -o size=1M flyt-store "$0" && exec "$@"'

    def start_daemon(self, name, program, path, prefix=(), **options):
        if name == "cluster":
            os.makedirs(self.path("store", ""), exist_ok=True)
            prefix = [*prefix, "unshare", "-m", "sh", "-c", self.MOUNT, self.path("store")]
        super().start_daemon(name, program, path, prefix, **options)

    def fill(self):
        """What takes all the room until it is unlinked."""
        filler = "/proc/%d/root%s/filler" % (self.supervisor.get("cluster")["pid"], self.path("store"))
        with open(filler, "wb", buffering=0) as f, contextlib.suppress(OSError):
            while f.write(bytes(512)):
                pass
        return filler


@scenario
def the_store_is_full():
    """No room on the disk: changes are refused in words, everything else goes on, and nothing is lost."""
    if not netns.is_possible():
        return
    folder = tempfile.mkdtemp(prefix="full-", dir=harness.WORK)
    with SystemOfLittleRoom(vms=2, memory="512M", folder=folder,
                            store="sqlite://" + os.path.join(folder, "store", "cluster.db")) as system:
        for i in range(2):
            add_vm(system, i, memory="64M")
        program = Steady(system, 0)
        filler = system.fill()
        # What is written over takes no room: a few changes may still be taken.
        text = within(60, lambda: changes_are_refused(system), "changes are refused")
        expect("store" in text, text)
        program.takes(16)
        program.goes_on()
        late = Steady(system, 0)
        late.ends_right()
        expect_equal(state_of(system, "node-0"), "up", "heartbeats go on")
        os.unlink(filler)
        within(60, lambda: system.flytctl_run("vm", "set", system.vm_ip(1), "--sm", "16").status == 0, "changes are taken")
        other = Steady(system, 1)
        expect_equal(other.ask("device"), [64, 16], "MiB and SMs")
        for p in (program, other):
            p.ends_right()
        is_idle(system)


def changes_are_refused(system):
    result = system.flytctl_run("vm", "set", system.vm_ip(1), "--sm", "8", "--name", "n%d" % random.randrange(1 << 30))
    return result.status in (1, 4) and result.err


@scenario
def a_wire_is_half_open():
    """A VM's wire is cut without a word: nobody else waits, and the VM goes on when it is mended."""
    if not netns.is_possible():
        return
    with System(vms=2, memory="512M") as system:
        for i in range(2):
            add_vm(system, i, memory="64M")
        program, other = Steady(system, 0), Steady(system, 1)
        program.takes(16)
        system.network.cut(0)
        other.goes_on(5)
        system.flytctl("resize", system.vm_ip(1), "--memory", "96M")
        expect_equal(other.total(), 96)
        system.network.mend(0)
        program.goes_on()
        Steady(system, 0).ends_right()
        for p in (program, other):
            p.ends_right()
        is_idle(system)


@scenario
def nobody_reads():
    """A client manager and a flytctl are frozen in the middle: nobody else notices."""
    with System(vms=2, memory="512M") as system:
        for i in range(2):
            add_vm(system, i, memory="64M")
        program = Steady(system, 0)
        follower = harness.start([system.program("flytctl"), "--manager", system.operator_url, "events", "--follow", "-o",
                                  "json"], system.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        expect(follower.stdout.readline(), "an event")
        system.freeze("vm-0")
        harness.stop(follower.pid)
        other = Steady(system, 1)
        for i in range(60):
            system.flytctl("resize", system.vm_ip(0), "--memory", "%dM" % (64 + i % 2))
        expect_equal(program.total(), 65, "a resize takes hold without its client manager")
        program.goes_on()
        os.kill(follower.pid, signal.SIGCONT)
        system.thaw("vm-0")
        Steady(system, 0).ends_right()
        for p in (program, other):
            p.ends_right()
        harness.kill_group(follower)
        harness.finish(follower)
        all_agree(system)


main()
