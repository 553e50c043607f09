#!/usr/bin/env python3
"""VMs move between GPUs of different compute capabilities, in one node and between two: programs with code for both go on
there, and others are refused by name while they run."""
import re

import harness
from cluster import System
from harness import expect, expect_equal, main, scenario, within
from steady import Steady, add_vm, is_idle
from survivor import Survivor
from two_nodes import COMMAND_S, PATIENCE, TwoNodes

NEWER, OLDER = "9.0", "8.0"
CAPABILITIES = [NEWER, OLDER]


class Program(Steady):
    """One of the programs of this folder that obey as steady does."""

    def __init__(self, system, name):
        self.system, self.name = system, name
        self.process = system.start_in_vm(0, harness.helper(name))
        self._said = b""
        self.wait_ready()


class Late(Program):
    """programs/late.cu, whose fat binary has PTX for both."""

    def __init__(self, system):
        super().__init__(system, "late")

    def runs(self, capability):
        """As it was told when it began."""
        self.say("run")
        expect_equal(self.line("run"), "right " + capability, self.name)

    def ends_right(self):
        self.say("end")
        result = harness.finish(self.process)
        expect_equal((result.status, result.err), (0, ""), self.name, result)


class OneNode(System):
    """node-0:0 is newer than node-0:1. alice begins at node-0:0."""

    places = ("node-0:0", "node-0:1")

    def __init__(self):
        super().__init__(vms=1, gpus=2, sms=32, memory="1G", node={"software_cc": CAPABILITIES})
        try:
            self.flytctl("cordon", self.places[1])
            add_vm(self, 0, "--name", "alice", "--sessions", 8, "--reserved", sm=16, memory="512M")
            within(60, lambda: [v for v in self.flytctl("vms") if v["state"] == "granted"], "alice has a GPU")
            self.flytctl("uncordon", self.places[1])
            expect_equal(self.place(), self.places[0], "where alice begins")
        except BaseException:
            self.print_logs()
            self.close()
            raise

    def place(self):
        """Where alice is, alone and acknowledged."""
        names = {gpu["uuid"]: "%s:%d" % (gpu["node"], gpu["index"]) for gpu in self.flytctl("gpus")}

        def settled():
            rows = self.flytctl("allocations")
            expect_equal(len(rows), 1, "allocations", rows)
            return rows if not rows[0]["migration"] and rows[0]["revision"] == rows[0]["revision_applied"] else None
        return names[within(120, settled, "alice is somewhere")[0]["gpu"]]

    def moves_to(self, target):
        before = self.through_host_memory()
        result = self.flytctl_run("migrate", "alice", "--to", target, *PATIENCE, timeout=COMMAND_S)
        expect_equal(result.status, 0, "flytctl migrate --to", target, result)
        expect_equal(self.place(), target, "where alice is")
        expect_equal(self.through_host_memory(), before + 1, "migrations that went through host memory at once")

    def through_host_memory(self):
        log = self.log("node-0")
        expect_equal(log.count(": goes through host memory, "), 0, "migrations that had to begin anew")
        return log.count(" to another GPU, through host memory")


class OneEach(TwoNodes):
    """node-0's GPU is newer than node-1's."""

    places = ("node-0", "node-1")

    def __init__(self):
        super().__init__(node=lambda i: {"software_cc": CAPABILITIES[i]})

    def moves_to(self, target):
        expect_equal(self.elsewhere(), target, "the other node")
        self.moves()


def is_refused(system, program, kernels, *others):
    """By name, to the older one; all go on where they are."""
    newer, older = system.places
    result = system.flytctl_run("migrate", "alice", "--to", older, *PATIENCE, timeout=COMMAND_S)
    expect_equal((result.status, system.place()), (1, newer), "flytctl migrate --to", older, result)
    words = r"program %s of VM \S+: .*the library with the kernel \S*(%s)\S* cannot be loaded for this GPU, of compute capability %s: " \
        r"it has no code for it" % (program.name, kernels, re.escape(OLDER))
    expect(re.search(words, result.err), "why it was refused:", result, "not", words)
    for one in (program, *others):
        one.goes_on()


def they_move(system):
    """There and back, with work under way, and code that is loaded only there."""
    newer, older = system.places
    programs = [Steady(system, 0), Survivor(system, 0)]
    steady, survivor = programs
    late = Late(system)
    steady.takes(32)
    survivor.does("check", "right 1")
    system.moves_to(older)
    late.runs(NEWER)                # what it was told; its code is what the GPU has by now
    steady.goes_on()
    survivor.does("check", "right 2")
    later = Late(system)
    later.runs(OLDER)
    system.moves_to(newer)
    late.runs(NEWER)
    later.runs(OLDER)
    later.runs(OLDER)
    steady.goes_on()
    survivor.does("check", "right 3")
    steady.ends_right()
    survivor.does("end", "ended")
    result = harness.finish(survivor.process)
    expect_equal((result.status, result.err), (0, ""), result)
    late.ends_right()
    later.ends_right()
    is_idle(system)


def they_stay(system):
    """Those with code for the newer one alone, and whoever is in the same VM."""
    portable, newest = Steady(system, 0), Program(system, "steady_newest")
    kernels = "mix|write_pages|compare_pages"
    newest.takes(32)
    is_refused(system, newest, kernels, portable)
    is_refused(system, newest, kernels, portable)
    newest.ends_right()
    system.moves_to(system.places[1])           # without it
    portable.goes_on()
    portable.ends_right()
    is_idle(system)


def the_chosen_image_counts(system):
    """A fat binary for both is there as what was chosen for the newer one."""
    late = Late(system)
    late.runs(NEWER)
    result = system.flytctl_run("migrate", "alice", "--to", system.places[1], *PATIENCE, timeout=COMMAND_S)
    expect_equal((result.status, system.place()), (1, system.places[0]), "flytctl migrate", result)
    expect("with the kernel _Z4turnPjj cannot be loaded" in result.err, "why it was refused:", result)
    late.runs(NEWER)
    late.ends_right()
    is_idle(system)


@scenario
def in_a_node():
    with OneNode() as system:
        they_move(system)
        they_stay(system)


@scenario
def in_a_node_an_image_was_chosen():
    with OneNode() as system:
        the_chosen_image_counts(system)


@scenario
def between_nodes():
    with OneEach() as system:
        they_move(system)
        they_stay(system)


@scenario
def one_of_two_devices():
    """It goes to another compute capability, the other device does not: there is to be code for both."""
    with System(vms=1, gpus=4, sms=32, memory="1G", node={"software_cc": [NEWER, NEWER, NEWER, OLDER]}) as system:
        for i in (2, 3):
            system.flytctl("cordon", "node-0:%d" % i)
        add_vm(system, 0, "--name", "alice", "--devices", 2, "--sessions", 4, "--reserved", sm=16, memory="256M")
        within(60, lambda: [v for v in system.flytctl("vms") if v["state"] == "granted"], "alice has GPUs")
        for i in (2, 3):
            system.flytctl("uncordon", "node-0:%d" % i)

        def migrates():
            return system.flytctl_run("migrate", "alice", "--to", "node-0", *PATIENCE, timeout=COMMAND_S)

        def are_on(*indices):
            return {gpu["index"] for gpu in system.flytctl("gpus") if gpu["sms_allocated"]} == set(indices)
        newest, portable = Program(system, "steady_newest"), Steady(system, 0)
        result = migrates()
        expect_equal(result.status, 1, "flytctl migrate", result)
        expect("cannot be loaded for this GPU, of compute capability %s: " % OLDER in result.err, "why it was refused:", result)
        within(60, lambda: are_on(0, 1), "alice is where she was")
        newest.goes_on()
        newest.ends_right()
        result = migrates()
        expect_equal(result.status, 0, "flytctl migrate", result)
        within(60, lambda: are_on(2, 3), "alice is on the other two")
        portable.goes_on()
        portable.ends_right()
        is_idle(system)


@scenario
def none_was_named():
    """Where there is none of the same, one of another is taken."""
    with OneNode() as system:
        steady = Steady(system, 0)
        result = system.flytctl_run("migrate", "alice", *PATIENCE, timeout=COMMAND_S)
        expect_equal((result.status, system.place()), (0, "node-0:1"), "flytctl migrate", result)
        steady.goes_on()
        steady.ends_right()
        is_idle(system)


if __name__ == "__main__":
    main()
