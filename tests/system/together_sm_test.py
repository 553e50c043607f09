#!/usr/bin/env python3
"""Kernels whose blocks run together (cooperative launches) and the SMs of their VM: what programs are told of these, and
that nobody takes SMs away unasked that such launches have needed."""
import harness
from cluster import System
from harness import expect, expect_equal, main, scenario, within
from steady import Steady, add_vm, allocation, events, is_idle, refused

TOO_LARGE = 720         # cudaErrorCooperativeLaunchTooLarge


class Together(Steady):
    """programs/together.cu in VM `i`: blocks of which one fits an SM."""

    def __init__(self, system, i):
        self.system, self.name = system, "the program in VM %d" % i
        self.process = system.start_in_vm(i, harness.helper("together"))
        self._said = b""
        self.wait_ready()

    def launch(self, blocks):
        return self.ask("launch %d" % blocks)[0]


def needed(system):
    return sorted(s["sms_needed"] for s in system.flytctl("sessions"))


@scenario
def what_launches_have_needed():
    """A shrink below that is refused with the figures and the program, unless --force; and what the program is told of its
    GPU is what a launch can have."""
    with System(sms=64, memory="512M") as system:
        add_vm(system, 0, "--name", "alice", sm=40)
        program, other = Together(system, 0), Together(system, 0)
        expect_equal(program.ask("occupancy"), [1], "blocks per SM")
        expect_equal(program.launch(3), 0, "a small launch")
        expect_equal((program.launch(24), program.launch(10)), (0, 0), "launches that fit")
        expect_equal(program.launch(41), TOO_LARGE, "one that does not fit")
        within(30, lambda: needed(system) == [0, 24], "what was needed is known")
        pid = [s["client_pid"] for s in system.flytctl("sessions") if s["sms_needed"]][0]
        said = refused(system, "resize", "alice", "--sm", 16)
        expect("program together (pid %d) " % pid in said and "need 24 SMs, more than the 16" in said, said)
        row = allocation(system, 0)
        expect_equal((row["sms"], row["sms_now"]), (40, 40), "nothing was changed")
        expect("24 SMs" in events(system, "vm.resize_refused")[0]["text"], "an event tells of it")
        # Down to what was needed it goes.
        system.flytctl("resize", "alice", "--sm", 24)
        expect_equal(program.launch(24), 0, "a launch with just as many")
        expect_equal((program.launch(25), program.ask("sms")), (TOO_LARGE, [24, 24]), "and not more")
        # Whoever insists gets it: such launches fail with CUDA's error, everything else goes on.
        system.flytctl("resize", "alice", "--sm", 16, "--force")
        expect_equal((program.launch(24), program.launch(16), program.ask("sms")), (TOO_LARGE, 0, [16, 16]))
        # The node manager's successor hears of it again, and what the cluster manager's asks.
        system.flytctl("resize", "alice", "--sm", 40)
        for name in ("node-0", "cluster"):
            system.kill(name)
            within(60, lambda: needed(system) == [0, 24], "after a restart of " + name)
            expect("need 24 SMs" in refused(system, "resize", "alice", "--sm", 16), "still refused")
        # With the program goes its need.
        program.ends_right()
        within(30, lambda: len(system.flytctl("sessions")) == 1, "it has ended")
        system.flytctl("resize", "alice", "--sm", 8)
        expect_equal((other.launch(8), other.launch(9), other.ask("sms")), (0, TOO_LARGE, [8, 8]))
        other.ends_right()
        is_idle(system)


if __name__ == "__main__":
    main()
