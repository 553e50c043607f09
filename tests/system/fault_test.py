#!/usr/bin/env python3
"""One program's fault on a GPU that MPS shares ends the others there, with an error that names it; then all is as before.
Strict programs never notice. Software GPUs share their faults as clients of MPS do; servers are real processes."""
import contextlib
import os
import signal
import tempfile

import harness
from cluster import System
from harness import app, expect, expect_equal, helper, main, scenario, within
from steady import Steady, add_vm, allocations, events, is_idle
from survivor import rests

ILLEGAL_ADDRESS = 700
LONG_MS = 3600000       # between rounds: such a program leaves the GPU alone


@contextlib.contextmanager
def shared_and_strict(vms, **settings):
    """A node whose GPU 0 is shared, with a fault domain, and whose GPU 1 is strict."""
    env = harness.environment()
    env["FLYT_SOFT_FAULT_FOLDER"] = tempfile.mkdtemp(prefix="faults-", dir=harness.WORK)
    with System(vms=vms, gpus=2, sms=48, memory="512M", env=env, node={"strict_gpus": ["1"], **settings}) as system:
        yield system


def gpu_of(system, isolation):
    return next(g for g in system.flytctl("gpus") if g["isolation"] == isolation)


def faults(system, i):
    """A program that makes an illegal access, and gets the error for it that it gets natively; what stderr said."""
    result = system.run_in_vm(i, app("fault_address"))
    expect_equal(result.status, 0, "the culprit", result)
    return result.err


def begins_again(system, vms):
    for i in vms:
        program = Steady(system, i)
        program.goes_on(1)
        program.ends_right()
    is_idle(system)
    within(30, lambda: all(g["warm"] >= 1 for g in system.flytctl("gpus")), "servers are warm again")
    expect_equal([g["health"] for g in system.flytctl("gpus")], ["ok", "ok"], "GPUs")


@scenario
def neighbours_at_rest_go_on():
    """Two programs that leave the GPU alone when a third one faults on it: they lose their servers, and nothing else."""
    with shared_and_strict(vms=4) as system:
        for i in range(3):
            add_vm(system, i, memory="96M")
        add_vm(system, 3, "--isolation", "strict", memory="96M")
        neighbours = [Steady(system, i, LONG_MS) for i in (1, 2)]
        for program in neighbours:
            program.takes(32)
            program.goes_on(0)
        resting = [rests(system, i) for i in (1, 2)]
        strict = Steady(system, 3)
        expect("another program" not in faults(system, 0), "the culprit is told of others")
        for one in resting:
            within(60, lambda: events(system, "session.resumed", one["id"]), "the neighbour's session goes on")
        for program in neighbours:
            program.ask("info")
            program.ends_right()
        happened = within(20, lambda: events(system, "gpu.fault"), "an event")
        expect_equal(len(happened), 1, happened)
        expect(happened[0]["text"].startswith("program fault_address of VM %s" % system.vm_ip(0)), happened)
        expect("1 of 3 programs" in happened[0]["text"], happened)
        expect_equal(happened[0]["object"], gpu_of(system, "shared")["uuid"], "which GPU")
        strict.goes_on()
        strict.ends_right()
        begins_again(system, range(4))


class Holding(Steady):
    """programs/resized.cu in VM `i`, with a kernel that does not end."""

    def __init__(self, system, i):
        self.system, self.name, self._said = system, "the program in VM %d" % i, b""
        self.process = system.start_in_vm(i, helper("resized"), "4")
        self.wait_ready()
        expect_equal(self.ask("hold"), [0], "an endless kernel")


@scenario
def neighbours_that_compute():
    """All had work on the GPU: the event says that it is not known whose fault it was, and who comes into question."""
    with shared_and_strict(vms=3) as system:
        for i in range(3):
            add_vm(system, i, memory="96M")
        neighbours = [Steady(system, i) for i in (1, 2)]
        for round in range(2):
            faults(system, 0)
            for program in neighbours:
                code, said = program.ends_with_error()
                expect("VM %s" % system.vm_ip(0) in said, "what the neighbour's program is told:", code, said)
            happened = within(20, lambda: e if len(e := events(system, "gpu.fault")) == round + 1 else None, "an event")
            expect(system.vm_ip(0) in happened[-1]["text"], happened)
            if round == 0:
                neighbours = [Steady(system, i) for i in (1, 2)]
        begins_again(system, range(3))


@scenario
def strict_programs_fault_alone():
    with shared_and_strict(vms=3) as system:
        add_vm(system, 0, "--isolation", "strict", memory="96M")
        add_vm(system, 1, "--isolation", "strict", memory="96M")
        add_vm(system, 2, memory="96M")
        neighbours = [Steady(system, i) for i in (1, 2)]
        expect_equal(faults(system, 0), "", "what the culprit is told")
        for program in neighbours:
            program.goes_on()
            program.ends_right()
        expect_equal(events(system, "gpu.fault"), [], "a fault of MPS")
        begins_again(system, range(3))


@scenario
def a_server_is_killed_under_load():
    """Its program ends with an error; nobody else notices, and its memory is free."""
    with shared_and_strict(vms=3) as system:
        for i in range(3):
            add_vm(system, i, memory="96M")
        programs = [Steady(system, i) for i in range(3)]
        for program in programs:
            program.takes(32)
        first = within(20, lambda: sessions(system, 0), "its session")
        seen = set(first)
        for _ in range(3):
            killed = Holding(system, 0)
            new = within(20, lambda: set(sessions(system, 0)) - seen, "its session")
            seen |= new
            os.kill(sessions(system, 0)[new.pop()], signal.SIGKILL)
            killed.ends_with_error()
            for program in programs:
                program.goes_on()
            within(60, lambda: set(sessions(system, 0)) == set(first), "its session has ended")
        expect_equal(system.flytctl_run("session", "kill", *first).status, 0, "an operator ends one")
        programs[0].ends_with_error()
        for program in programs[1:]:
            program.goes_on()
            program.ends_right()
        is_idle(system)
        expect_equal([a["memory_used_bytes"] for a in allocations(system)], [0, 0, 0], "what is charged")
        expect_equal(events(system, "gpu.fault"), [], "a fault of MPS")


def sessions(system, i):
    return {s["id"]: s["server_pid"] for s in system.flytctl("sessions") if s["vm_ip"] == system.vm_ip(i)}


main()
