#!/usr/bin/env python3
"""Every daemon is restarted and killed while programs work: they notice nothing, their results are right, new ones start
afterwards, and what is allocated is what they hold.

A link between a node manager and a server is cut, and neither of them ends.

FLYT_SOAK=1 kills 200 times; FLYT_SEED=N takes the random choices of an earlier run, which has printed it.
"""
import ctypes
import os
import random
import socket

from cluster import System
from harness import expect, expect_equal, main, scenario, within
from steady import (MIB, OUT_OF_MEMORY, OWN, Steady, add_vm, all_agree, all_is_free, allocation, allocations, is_idle,
                    nodes_up, uses)

SOON = {"allocation_linger_s": 1}


def agrees_on_use(system, i, held_mib):
    """Waits until the allocation's ledger says what its servers say, which is at least what the programs hold."""
    def agrees():
        used = allocation(system, i)["memory_used_bytes"]
        mapped = sum(s["memory_bytes"] for s in system.flytctl("sessions") if s["vm_ip"] == system.vm_ip(i))
        return used == mapped >= held_mib * MIB
    within(60, agrees, "VM %d uses what its programs have, known again" % i)


@scenario
def each_daemon_under_load():
    with System(vms=2, cluster=SOON) as system:
        for i in range(2):
            add_vm(system, i, memory="128M", sm=8)
        programs = [Steady(system, 0), Steady(system, 0), Steady(system, 1)]
        for program in programs:
            program.takes(24)
        held = [2 * 26, 26]
        for name in ("cluster", "node-0", "vm-0"):
            for strike in (system.kill, system.restart):
                # Memory comes and goes while nobody listens.
                for program in programs:
                    program.say("alloc 8")
                strike(name)
                for program in programs:
                    expect_equal(program.line("alloc").split(), ["alloc", "0"], "memory while", name, "restarts")
                    program.gives_back()
                    program.goes_on()
                late = Steady(system, 0)
                expect_equal(late.alloc(128), OUT_OF_MEMORY, "beyond the limit after the end of", name)
                late.takes(8)
                late.ends_right()
        nodes_up(system)
        for i in range(2):
            agrees_on_use(system, i, held[i])
            within(60, lambda: allocation(system, i)["sessions"] == 2 - i, "sessions of VM %d" % i)
        all_agree(system)
        # No limit was forgotten: what is left of it can be had, no more.
        left = programs[0].ask("fill 2")
        expect_equal(left[1], OUT_OF_MEMORY, "beyond the limit")
        expect(2 * left[0] <= 128 - held[0], "more than the limit:", left)
        for program in programs:
            program.ends_right()
        all_is_free(system)


@scenario
def daemons_at_rest():
    """Nothing runs; an allocation is there. It stays what it is, and serves the next program."""
    with System(vms=1) as system:
        add_vm(system, 0, memory="128M")
        Steady(system, 0).ends_right()
        is_idle(system)
        before = allocation(system, 0)
        for name in ("cluster", "node-0", "vm-0"):
            for strike in (system.kill, system.restart):
                strike(name)
                nodes_up(system)
        after = within(60, lambda: allocations(system, 0), "the allocation")[0]
        expect_equal([after[k] for k in ("id", "sm_groups", "memory_bytes", "generation")],
                     [before[k] for k in ("id", "sm_groups", "memory_bytes", "generation")], "the allocation")
        program = Steady(system, 0)
        expect_equal(program.ask("device"), [128, 8], "MiB and SMs")
        program.takes(64)
        uses(system, 0, 64 + OWN)
        program.ends_right()
        is_idle(system)
        all_agree(system)


@scenario
def all_daemons_at_once():
    with System(vms=2) as system:
        for i in range(2):
            add_vm(system, i, memory="128M")
        programs = [Steady(system, i) for i in (0, 1)]
        for program in programs:
            program.takes(32)
        pids = {name: system.supervisor.get(name)["pid"] for name in system.daemons()}
        for pid in pids.values():
            os.kill(pid, 9)
        for name, pid in pids.items():
            system.supervisor.wait(name, lambda s: s["pid"] != pid and s["state"] == "ready", "ready again")
        nodes_up(system)
        for i, program in enumerate(programs):
            program.goes_on()
            uses(system, i, 32 + OWN)
            expect_equal(program.alloc(128), OUT_OF_MEMORY, "beyond the limit")
        for program in [Steady(system, 0), *programs]:
            program.ends_right()
        is_idle(system)
        all_agree(system)


PIDFD_GETFD = 438   # the system call


def cut_link(pid):
    """Ends the server's connection to its node manager, for both."""
    with open("/proc/%d/net/unix" % pid) as table:
        packets = {line.split()[6] for line in table.readlines()[1:] if line.split()[4] == "0005"}
    libc = ctypes.CDLL(None, use_errno=True)
    pidfd = os.pidfd_open(pid)
    found = 0
    for fd in map(int, os.listdir("/proc/%d/fd" % pid)):
        try:
            target = os.readlink("/proc/%d/fd/%d" % (pid, fd))
        except FileNotFoundError:
            continue
        if not target.startswith("socket:[") or target[8:-1] not in packets:
            continue
        copy = libc.syscall(PIDFD_GETFD, pidfd, fd, 0)
        expect(copy >= 0, "pidfd_getfd:", os.strerror(ctypes.get_errno()))
        with socket.socket(fileno=copy) as link:
            link.shutdown(socket.SHUT_RDWR)
        found += 1
    os.close(pidfd)
    expect_equal(found, 1, "links of server process", pid)


@scenario
def links_that_are_cut():
    """The server comes back to the node manager that still has it: its program notices nothing, and orders reach it."""
    with System(vms=2, cluster=SOON) as system:
        for i in range(2):
            add_vm(system, i, memory="128M", sm=8)
        programs = [Steady(system, 0), Steady(system, 1)]
        for program in programs:
            program.takes(24)
        sessions = within(60, lambda: (lambda s: len(s) == 2 and s)(system.flytctl("sessions")), "two sessions")
        before = {s["id"]: s["server_pid"] for s in sessions}
        for turn in range(3):
            for program in programs:
                program.say("alloc 8")
            for pid in before.values():
                cut_link(pid)
            for program in programs:
                expect_equal(program.line("alloc").split(), ["alloc", "0"], "memory while a link is cut, turn", turn)
                program.gives_back()
                program.goes_on()
            said = "its server has its link again"
            within(60, lambda: system.log("node-0").count(said) == 2 * (turn + 1), "both servers come back")
        expect_equal({s["id"]: s["server_pid"] for s in system.flytctl("sessions")}, before, "the sessions")
        system.flytctl("resize", system.vm_ip(0), "--memory", "64M")
        within(60, lambda: programs[0].total() == 64, "the program has its new limit")
        for i, program in enumerate(programs):
            agrees_on_use(system, i, 26)
            program.ends_right()
        all_is_free(system)
        all_agree(system)


@scenario
def killed_at_random():
    """SIGKILL of any daemon at any moment, while programs come, allocate, and go."""
    seed = int(os.environ.get("FLYT_SEED") or random.SystemRandom().randrange(1 << 32)) \
        if os.environ.get("FLYT_SEED") or os.environ.get("FLYT_SOAK") else 20240607
    print("FLYT_SEED=%d" % seed, flush=True)
    choose = random.Random(seed)
    with System(nodes=2, vms=3, cluster=SOON) as system:
        for i in range(3):
            add_vm(system, i, "--policy", "spread", memory="128M")
        lasting = [Steady(system, i) for i in range(3)]
        for program in lasting:
            program.takes(16)
        for turn in range(200 if os.environ.get("FLYT_SOAK") == "1" else 20):
            i, name = choose.randrange(3), choose.choice(system.daemons())
            lasting[i].say("alloc %d" % choose.randrange(1, 9))
            passing = Steady(system, choose.randrange(3), ready=False) if choose.random() < 0.4 else None
            is_ready = passing and choose.random() < 0.5
            if is_ready:
                passing.wait_ready()
            system.kill(name)
            expect_equal(lasting[i].line("alloc").split(), ["alloc", "0"], "turn", turn, name)
            lasting[i].gives_back()
            if passing:
                if not is_ready:
                    passing.wait_ready()
                passing.ends_right()
            for program in lasting:
                program.goes_on(1)
        nodes_up(system)
        for i, program in enumerate(lasting):
            within(60, lambda: allocation(system, i)["sessions"] == 1, "sessions of VM %d" % i)
        all_agree(system)
        for program in lasting:
            program.ends_right()
        all_is_free(system)


main()
