#!/usr/bin/env python3
"""Decompression by the GPU where it has that, as software GPUs of compute capability 10.0 do: what tests/apps/decompress expects,
with and without; a program that has used it moves to GPUs that have it, and to no other."""
import harness
from cluster import System
from harness import app, expect, expect_equal, main, run, scenario, server, through_flyt, within
from steady import Steady, add_vm
from two_nodes import COMMAND_S, PATIENCE

REFUSED = "refused 801"
PLACES = ["node-0:%d" % i for i in range(3)]


class Squeezed(Steady):
    """programs/squeezed.cu."""

    def __init__(self, system):
        self.system, self.name = system, "squeezed"
        self.process = system.start_in_vm(0, harness.helper("squeezed"))
        self._said = b""
        self.wait_ready()

    def does(self, answer):
        self.say("go")
        expect_equal(self.line("go"), answer, self.name)

    def ends(self):
        self.say("end")
        result = harness.finish(self.process)
        expect_equal(result.status, 0, self.name, result)


@scenario
def what_the_device_has():
    for capability in ("10.0", "9.0"):
        with server(arguments=("--soft", "1", "--soft-cc", capability)) as s:
            result = run(through_flyt(s.url, app("decompress")))
            expect_equal((result.status, result.err), (0, ""), capability, result)


@scenario
def who_has_used_it_moves_where_it_is():
    """GPUs 0 and 2 decompress, GPU 1 does not."""
    with System(vms=1, gpus=3, sms=32, memory="512M", node={"software_cc": ["10.0", "9.0", "10.0"]}) as system:
        for place in PLACES[1:]:
            system.flytctl("cordon", place)
        add_vm(system, 0, "--name", "alice", "--sessions", 8, "--reserved", sm=16, memory="256M")
        within(60, lambda: [v for v in system.flytctl("vms") if v["state"] == "granted"], "alice has a GPU")
        for place in PLACES[1:]:
            system.flytctl("uncordon", place)

        def migrates(to):
            return system.flytctl_run("migrate", "alice", "--to", to, *PATIENCE, timeout=COMMAND_S)

        unused = Squeezed(system)
        expect_equal(migrates(PLACES[1]).status, 0, "who has not used it goes anywhere")
        later = Squeezed(system)
        later.does(REFUSED)
        later.ends()
        expect_equal(migrates(PLACES[0]).status, 0, "and back")
        unused.does("right")
        result = migrates(PLACES[1])
        expect_equal(result.status, 1, "to a GPU that does not decompress", result)
        expect("decompression by GPU 0" in result.err, "why not", result)
        unused.does("right")
        expect_equal(migrates(PLACES[2]).status, 0, "to another GPU that does")
        unused.does("right")
        unused.ends()


main()
