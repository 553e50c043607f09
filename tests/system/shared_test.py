#!/usr/bin/env python3
"""Page-locked memory of a program on its GPU's own machine (programs/pinned.cu): its server has the program's region, also the
next one, where the session goes on after a death, a move to another GPU, and a resize; a node that it goes to over TCP has not,
and copies travel until the program is back. What kernels may reach stays on its node."""
import concurrent.futures
import contextlib
import glob
import os
import re
import signal

import harness
import movers
from cluster import System
from connections import goes_over
from harness import environment, expect, expect_equal, finish, helper, main, run, scenario, server, shared_memory, through_flyt, within
from steady import add_vm
from survivor import Survivor, its_server_is_killed, session
from two_nodes import PATIENCE, TwoNodes, ends

OPTIONS = {"vms": 1, "gpus": 2, "sms": 48, "memory": "1G"}
OTHER = 1           # the other GPU of node-0; the same one is a move to a new server, too
NOT_SUPPORTED = 801
WAYS = ("asked", "flag", "plain", "graph", "update", "library")       # for kernels to come to an address: words of programs/pinned.cu
ELSEWHERE = {"local": True, "node": lambda i: {"socket": ""} if i else {}}    # node-1 has no socket


def shares(system, program, is_shared=True):
    """Whether the session's server has the region that the program has, and the program the rings that its server has."""
    goes_over(system, program, "unix" if is_shared else "tcp")
    server_pid = session(system)["server_pid"]
    for name, count in (("flyt-region", 1), ("flyt-rings", int(is_shared))):
        own = within(30, lambda: (lambda seen: len(seen) == count and (seen or {0}))(shared_memory(program.process.pid, name)),
                     "%d %s of the program: those of before have gone" % (count, name)) - {0}
        expect_equal(shared_memory(server_pid, name), own if is_shared else set(), name, "of the server")


class Pinned(Survivor):
    def __init__(self, system, **environment):
        super().__init__(system, 0, program="pinned", **environment)
        self.checks = 0

    def is_right(self, *words):
        for word, answer in words:
            self.does(word, answer)
        self.checks += 1
        self.does("check", "right %d" % self.checks)


@scenario
def at_each_server_of_the_node():
    with System(local=True, **OPTIONS) as system:
        add_vm(system, 0, memory="4G" if OPTIONS.get("hardware") else "512M")
        program = Pinned(system)
        program.is_right()
        shares(system, program)
        its_server_is_killed(system)
        shares(system, program)
        program.is_right(("more", "buffers 3"))
        for i in range(4):
            program.does("leave", "left")
            system.flytctl("migrate", system.vm_ip(0), "--to", "node-0:%d" % (0 if i % 2 else OTHER), "--force", *PATIENCE)
            shares(system, program)
            program.is_right(("take", "taken"), ("mapped", "mapped 0"), *((("less", "buffers 2"), ("more", "buffers 3")) if i % 2 else ()))
        system.flytctl("resize", system.vm_ip(0), "--sm", "32")
        program.is_right()
        for strike in (system.kill, system.restart):        # of the node manager
            strike("node-0")
            its_server_is_killed(system)
            shares(system, program)
            program.is_right()
        ends(system, program)


def gone_on(system, count):
    """What servers say of so many sessions that have gone on at them: pieces that were locked ahead, and while they stood still."""
    def found():
        lines = re.findall(r"goes on, .* locked_ahead=(\d+) locked=(\d+) ", system.log("node-0"))
        return len(lines) == count and [tuple(map(int, line)) for line in lines]
    return within(30, found, "%d sessions have gone on" % count)


def all_were_locked_before_the_stop(system, count):
    """Of the program that has moved so often, by its new server and by its node manager; how many pieces."""
    moved = [int(found) for found in re.findall(r"has moved, .* locked_ahead=(\d+)", system.log("node-0"))]
    expect_equal(gone_on(system, count)[-1], (moved[-1], 0), "pieces that were locked ahead, and while it stood still", moved)
    return moved[-1]


@scenario
def locked_ahead():
    """What is page-locked is locked at the next server before the program stops."""
    with System(local=True, **OPTIONS) as system:
        add_vm(system, 0, memory="4G" if OPTIONS.get("hardware") else "512M")
        program = Pinned(system)
        counts = []
        for words in ((), (("more", "buffers 3"), ("more", "buffers 4")), (("mapped", "mapped 0"),), (("less", "buffers 3"),)):
            program.is_right(*words)
            system.flytctl("migrate", system.vm_ip(0), "--to", "node-0:%d" % (0 if len(counts) % 2 else OTHER), "--force", *PATIENCE)
            shares(system, program)
            counts.append(all_were_locked_before_the_stop(system, len(counts) + 1))
            program.is_right(("asked", "asked 0"))
        expect_equal([count - counts[0] for count in counts], [0, 2, 2, 1], "buffers more than at the first move", counts)
        ends(system, program)


AHEAD = re.compile(r"page-locked memory ahead of its client locked=(\d+) missed=(\d+) unlocked=(\d+)")


def ahead(system):
    """What servers have locked ahead so far: (locked, missed, unlocked) for each time that one was told."""
    return [tuple(map(int, found)) for found in AHEAD.findall(system.log("node-0"))]


def servers_with(region):
    """The server processes that have a program's region."""
    pids = (int(path.split("/")[2]) for path in glob.glob("/proc/[0-9]*/maps"))
    return {pid for pid in pids if region & shared_memory(pid, "flyt-region") and command(pid) == "flyt-server"}


def command(pid):
    with contextlib.suppress(OSError), open("/proc/%d/comm" % pid) as f:
        return f.read().strip()
    return None


@contextlib.contextmanager
def a_move_that_waits(system, program, other):
    """A move of two programs' VM at the point where the one's memory is locked ahead, and the other's server says nothing, so that
    nobody is stopped yet. It goes on behind this; yields what flytctl will have returned."""
    pids = {s["client_pid"]: s["server_pid"] for s in within(60, lambda: (lambda all: len(all) == 2 and all)(system.flytctl("sessions")),
                                                             "both are known")}
    before = len(ahead(system))
    os.kill(pids[other.process.pid], signal.SIGSTOP)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        try:
            moving = pool.submit(system.flytctl_run, "migrate", system.vm_ip(0), "--to", "node-0:%d" % OTHER, "--force", *PATIENCE, timeout=300)
            within(50, lambda: len(ahead(system)) > before, "it is locked ahead")
            yield moving
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pids[other.process.pid], signal.SIGCONT)


@contextlib.contextmanager
def two_programs():
    with System(**{"local": True, **OPTIONS}, env=environment(FLYT_LOG="debug")) as system:
        add_vm(system, 0, "--sessions", 4, memory="6G" if OPTIONS.get("hardware") else "768M")
        program, other = Pinned(system), Pinned(system)
        program.is_right(("more", "buffers 3"))
        other.is_right()
        yield system, program, other
        for one in (program, other):
            one.is_right(("more", "buffers %d" % (4 if one is program else 3)), ("mapped", "mapped 0"))
            one.does("end", "ended")
            expect_equal(finish(one.process).status, 0, "a program's end")


@scenario
def freed_between_locking_ahead_and_the_stop():
    """Its pages leave the region's file, and others come to be at their place: the next server lets go of the ones, and locks the
    others when the program has come."""
    with two_programs() as (system, program, other):
        with a_move_that_waits(system, program, other) as moving:
            expect_equal(ahead(system)[-1], (3, 0, 0), "what is locked ahead")
            program.is_right(("less", "buffers 2"), ("more", "buffers 3"), ("less", "buffers 2"), ("more", "buffers 3"))
            within(30, lambda: ahead(system)[-1] == (0, 0, 1), "one is unlocked there")
        expect_equal(moving.result().status, 0, moving.result())
        expect_equal(sum(unlocked for _, _, unlocked in ahead(system)), 1, "pieces that were unlocked at the next server", ahead(system))
        expect_equal(gone_on(system, 2), [(2, 0), (2, 0)], "what was locked ahead when they went on, and then")
        program.is_right()


@scenario
def a_move_that_fails_when_memory_is_locked_ahead():
    """It has harmed nobody: what the one that was to come has locked is gone with it, and the next move locks it again."""
    with two_programs() as (system, program, other):
        region = shared_memory(program.process.pid, "flyt-region")
        before = servers_with(region)
        expect_equal(len(before), 1, "servers that have the region", before)
        with a_move_that_waits(system, program, other) as moving:
            coming = servers_with(region) - before
            expect_equal(len(coming), 1, "servers that have the region ahead", coming)
            os.kill(*coming, signal.SIGKILL)
            expect(moving.result().status, "the move", moving.result())
            program.is_right(("less", "buffers 2"), ("more", "buffers 3"))
        within(30, lambda: servers_with(region) == before, "the server that it was at has the region alone")
        program.is_right()
        other.is_right()
        system.flytctl("migrate", system.vm_ip(0), "--to", "node-0:%d" % OTHER, "--force", *PATIENCE)
        expect_equal(sorted(gone_on(system, 2)), [(2, 0), (3, 0)], "what was locked ahead when they went on, and then")
        within(30, lambda: not servers_with(region) & before, "the server that it has left has ended")


@scenario
def the_programs_of_a_vm_have_one_bound():
    """vm.memory_host: what they have page-locked counts together, and of each once: while they move, also behind a restart of the
    node manager, behind the death of a server, and until one ends."""
    given = OPTIONS.get("node", lambda i: {})
    with System(**{"local": True, **OPTIONS, "memory": "8G", "node": lambda i: {**given(i), "vm.memory_host": "1G"}},
                client=lambda i: {"managed_memory": "host"}) as system:
        add_vm(system, 0, "--sessions", 4, memory="6G")
        one, other = Pinned(system), Pinned(system)
        one.does("large 600", "large 0")
        other.does("large 600", "large 2")
        other.does("large 300", "large 0")

        def is_full():
            other.does("large 600", "large 2")
            other.does("large 300", "large 0")
            for program in (one, other):
                program.is_right()

        is_full()
        for i in range(2):
            system.flytctl("migrate", system.vm_ip(0), "--to", "node-0:%d" % (0 if i % 2 else OTHER), "--force", *PATIENCE)
            is_full()
        expect_equal([locked for _, locked in gone_on(system, 4)], [0] * 4, "pieces that were locked while they stood still")
        system.restart("node-0")
        within(60, lambda: system.log("node-0").count("is there again") == 2, "both are there again")
        is_full()
        last = Pinned(system)
        last.does("large 600", "large 2")
        last.does("end", "ended")
        expect_equal(finish(last.process).status, 0, "a program's end")
        one.does("end", "ended")
        expect_equal(finish(one.process).status, 0, "a program's end")
        within(60, lambda: len(system.flytctl("sessions")) == 1, "one is left")
        its_server_is_killed(system)
        other.is_right()
        other.does("large 700", "large 0")
        last = Pinned(system)
        last.does("large 600", "large 2")
        for program in (other, last):
            program.does("end", "ended")
            expect_equal(finish(program.process).status, 0, "a program's end")


@scenario
def forbidden():
    """shared_memory = false in node.conf."""
    given = OPTIONS.get("node", lambda i: {})
    with System(**{"local": True, **OPTIONS, "node": lambda i: {**given(i), "shared_memory": False}}) as system:
        add_vm(system, 0, memory="4G" if OPTIONS.get("hardware") else "512M")
        program = Pinned(system)
        program.is_right(("mapped", "mapped %d" % NOT_SUPPORTED), ("virtual", "virtual %d" % NOT_SUPPORTED), ("managed", "managed 0"))
        goes_over(system, program, "unix")
        for pid in (program.process.pid, session(system)["server_pid"]):
            expect_equal([shared_memory(pid, name) for name in ("flyt-region", "flyt-rings")], [set(), set()], "memory that is shared")
        program.is_right()
        program.does("end", "ended")
        result = finish(program.process)
        expect_equal((result.status, result.err), (0, "flyt: mapped host memory is not supported\n"
                                                         "flyt: physical memory of the host (cuMemCreate) is not supported\n"), result)


@scenario
def away_and_back():
    with TwoNodes(**ELSEWHERE) as system:
        program = Pinned(system)
        program.is_right()
        shares(system, program)
        for i in range(3):
            program.does("leave", "left")
            system.moves()
            shares(system, program, False)
            program.is_right(("take", "taken"), ("less", "buffers 1"), ("more", "buffers 2"), ("more", "buffers 3"))
            program.does("leave", "left")
            system.moves()
            within(60, lambda: session(system)["state"] == "serving", "it goes on")
            if session(system)["transport"] == "unix":      # a busy machine's socket may have been slow
                shares(system, program)
            program.is_right(("take", "taken"), ("less", "buffers 2"))
        ends(system, program)


BUFFER_BYTES = 300007 * 4       # of the two that programs/pinned.cu begins with


def bytes_of_checks(url, count):
    """What the program's connection sends and receives, all in all."""
    path = os.path.join(harness.WORK, "pinned-stats-%d" % count)
    result = run(through_flyt(url, helper("pinned")), environment(FLYT_STATS=path),
                 stdin=b"check\n" * count + b"end\n")
    expect(result.status == 0 and "right %d\n" % count in result.out, result)
    with open(path, encoding="utf-8") as f:
        line = f.read()
    os.unlink(path)
    return sum(int(re.search(r"%s_bytes=(\d+)" % word, line).group(1)) for word in ("sent", "received"))


@scenario
def copies_of_it_send_no_byte():
    """At each check two buffers go to the GPU and come back: over TCP they travel, over shared memory nothing of them does."""
    for transport in ("unix", "tcp"):
        with server(transport) as s:
            once, often = bytes_of_checks(s.url, 1), bytes_of_checks(s.url, 11)
        each = (often - once) // 10
        expect(each < 16384 if transport == "unix" else each > 4 * BUFFER_BYTES, "bytes of a check over", transport, each)


@scenario
def an_address_in_device_memory_alone():
    """Kernels go on using it at each server of the node, and it keeps the program there as long as it is there."""
    with TwoNodes(**ELSEWHERE) as system:
        program = Survivor(system, 0, program="reached")
        for checks in range(1, 4):
            program.does("check", "right %d" % checks)
            if checks == 2:
                its_server_is_killed(system)
            elif checks == 1:
                expect_equal(system.migrates("node-0:0", "--force").status, 0, "a move within the node")
        ends(system, program)
        program = Survivor(system, 0, program="reached")
        result = system.migrates_when_connected("node-1")
        expect(result.status and "kernels may reach host memory of the program" in result.err, result)
        program.does("check", "right 1")
        program.does("forget", "forgotten")
        result = system.migrates_when_connected("node-1")
        expect_equal(result.status, 0, "without the address in its memory", result)
        ends(system, program)


@scenario
def managed_memory_on_the_host():
    """It is used by host and kernels at once at each server of the node, and keeps the program there. The VM's client manager
    says so, where the program does not."""
    with TwoNodes(**ELSEWHERE, client=lambda i: {"managed_memory": "host"}) as system:
        other = Pinned(system, FLYT_MANAGED_MEMORY="device")
        other.is_right(("managed", "managed 0"))
        ends(system, other)
        program = Pinned(system)
        program.is_right(("managed", "managed 1"))
        shares(system, program)
        stays(system, "managed")
        program.is_right()
        result = system.migrates("node-0:0", "--force")
        expect_equal(result.status, 0, "a move within the node", result)
        shares(system, program)
        program.is_right()
        its_server_is_killed(system)
        shares(system, program)
        program.is_right()
        ends(system, program)


@scenario
def where_managed_memory_lies_is_read_again():
    """The next program has it where the client manager's configuration says now."""
    with System(**{"local": True, **OPTIONS}) as system:
        add_vm(system, 0)
        path = system.path("vm-0", "client.conf")
        with open(path) as configuration:
            said = configuration.read()
        for round_, place in enumerate(("host", "device"), 1):
            with open(path, "w") as configuration:
                configuration.write('%s\nmanaged_memory = "%s";\n' % (said, place))
            os.kill(system.supervisor.get("vm-0")["pid"], signal.SIGHUP)
            within(60, lambda: system.log("vm-0").count("configuration read again") == round_, "it is read")
            program = Pinned(system)
            program.is_right(("managed", "managed %d" % (place == "host")))
            ends(system, program)


@scenario
def what_a_program_maps_of_the_host():
    """Memory of the host at an address of the program's is there for both, at each server of the node, and stays there."""
    with TwoNodes(**ELSEWHERE) as system:
        program = Pinned(system)
        program.is_right(("virtual", "virtual 0"))
        shares(system, program)
        stays(system, "virtual")
        program.is_right()
        result = system.migrates("node-0:0", "--force")
        expect_equal(result.status, 0, "a move within the node", result)
        shares(system, program)
        program.is_right()
        its_server_is_killed(system)
        program.is_right()
        ends(system, program)


@scenario
def managed_memory_on_the_host_away():
    """A program that was told that it may use managed memory beside kernels, and has none yet, moves to a node that shares none
    with it: there it gets none."""
    with TwoNodes(**ELSEWHERE) as system:
        program = Pinned(system, FLYT_MANAGED_MEMORY="host")
        program.is_right()
        shares(system, program)
        system.moves()
        shares(system, program, False)
        program.is_right()
        program.does("managed", "error %d" % NOT_SUPPORTED)
        result = finish(program.process)
        expect("managed memory that lies on the host, at a server that shares none with it, is not supported" in result.err, result)


@scenario
def programs_with_managed_memory_on_the_host_move():
    """What works on managed memory, in the region of each, finds it as it left it at each server of the node: moved, resized."""
    cases = [case for case in movers.cases("fault") if case.family == "managed"]
    expect_equal(len(cases), 3, "cases")
    with System(**{"local": True, **OPTIONS}, client=lambda i: {"managed_memory": "host"}) as system:
        add_vm(system, 0, "--name", "alice", "--sessions", len(cases), sm=24, memory="6G" if OPTIONS.get("hardware") else "768M")
        done = 0

        def disturb(chance):
            nonlocal done
            done += 1
            if done % 2:
                system.flytctl("resize", "alice", "--sm", chance.choice((16, 24, 32)))
            else:
                system.flytctl("migrate", system.vm_ip(0), "--to", "node-0:%d" % (OTHER if done % 4 else 0), "--force", *PATIENCE)
            for one in within(60, lambda: (lambda all: len(all) == len(cases) and all)(system.flytctl("sessions")), "sessions"):
                expect_equal((one["transport"], len(shared_memory(one["server_pid"], "flyt-region"))), ("unix", 1), "how it goes on", one)

        movers.under(system, 0, cases, disturb, 6, movers.seed())


def stays(system, way="mapped"):
    """The program, whose kernels may have come to an address in this way, is at node-0, and the refusal to move it says why."""
    result = system.migrates_when_connected("node-1")
    expect(result.status and "kernels may reach host memory of the program" in result.err, way, result)
    expect_equal(system.place(), "node-0", "where it is", way)


@scenario
def what_kernels_reach_stays():
    with TwoNodes(**ELSEWHERE) as system:
        program = Pinned(system)
        program.is_right(("mapped", "mapped 0"))
        shares(system, program)
        stays(system)
        program.is_right(("mapped", "mapped 0"))
        result = system.migrates("node-0:0", "--force")
        expect_equal(result.status, 0, "a move within the node", result)
        shares(system, program)
        program.is_right(("mapped", "mapped 0"))
        its_server_is_killed(system)
        shares(system, program)
        program.is_right(("mapped", "mapped 0"))
        ends(system, program)
        for way in WAYS:
            program = Pinned(system)
            program.is_right((way, way + " 0"))
            shares(system, program)
            stays(system, way)
            program.is_right()
            ends(system, program)



if __name__ == "__main__":
    main()
