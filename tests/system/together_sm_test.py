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


@scenario
def the_minimum_is_shown():
    """A VM that keeps a minimum, and whose programs are told of that: the same before and after every resize, launches
    that go by it always fit, and nobody takes away so much that they would not."""
    with System(sms=64, memory="512M") as system:
        said = refused(system, "vm", "add", system.vm_ip(0), "--sm", 16, "--memory", "256M", "--minimum-sms", 24, status=2)
        expect("minimum_sms is 24, more than compute_units, 16" in said, said)
        said = refused(system, "vm", "add", system.vm_ip(0), "--sm", 16, "--memory", "256M", "--shown-sms", "minimum",
                       status=2)
        expect("there is no minimum_sms" in said, said)
        add_vm(system, 0, "--name", "alice", "--minimum-sms", 12, sm=40)
        present = Together(system, 0)
        expect_equal(present.ask("sms"), [40, 40], "what there is")
        system.flytctl("vm", "set", "alice", "--shown-sms", "minimum")
        within(30, lambda: allocation(system, 0)["sms_shown"] == 12, "it is to be shown")
        within(30, lambda: allocation(system, 0)["revision_applied"] == allocation(system, 0)["revision"], "the node knows")
        program = Together(system, 0)
        expect_equal((program.ask("sms"), present.ask("sms")), ([12, 12], [40, 40]), "programs that begin")
        for sms in (16, 64, 12, 24):
            system.flytctl("resize", "alice", "--sm", sms)
            expect_equal((program.ask("sms"), program.launch(12)), ([12, 12], 0), "at", sms, "SMs")
            now = allocation(system, 0)["sms_now"]
            expect_equal(present.ask("sms"), [now, now], "of the other one")
        # Below it nothing goes, by force neither, nor by the document.
        for force in ([], ["--force"]):
            said = refused(system, "resize", "alice", "--sm", 11, *force)
            expect("is to have 12 SMs at least" in said and "--minimum-sms" in said, said)
        said = refused(system, "vm", "set", "alice", "--sm", 8, status=2)
        expect("minimum_sms is 12, more than compute_units, 8" in said, said)
        # It holds over restarts, and can be lowered.
        for name in ("cluster", "node-0"):
            system.kill(name)
        within(60, lambda: [n["state"] for n in system.flytctl("nodes")] == ["up"], "all are back")
        again = Together(system, 0)
        expect_equal((program.ask("sms"), again.ask("sms")), ([12, 12], [12, 12]), "after restarts")
        system.flytctl("vm", "set", "alice", "--minimum-sms", 8)
        system.flytctl("resize", "alice", "--sm", 8, "--force")
        expect_equal(allocation(system, 0)["sms_now"], 8)
        for p in (present, program, again):
            p.ends_right()
        is_idle(system)


if __name__ == "__main__":
    main()
