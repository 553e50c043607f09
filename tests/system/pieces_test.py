#!/usr/bin/env python3
"""Programs that do nothing but calls of which each is millions of operations of the driver (programs/pieces.cu): orders
hold against them as against others, in the middle of such a call, and what it does is right all the same."""
import time

import harness
from cluster import System
from harness import expect, expect_equal, main, scenario, within
from steady import MIB, Steady, add_vm, allocation, events, is_idle

SLOW = {"software_sm_rate": 200000}
LONG = 36 << 20         # slices of 6 bytes: a call of half a minute of GPU time
MIDDLE, SHORT = 12 << 20, 20000
REPORTED_S = 5
RECORDED = 6            # flytctl's exit code: recorded, not done yet


def memory_limits(system):
    """Wanted, and in force."""
    now = allocation(system, 0)
    return [now["memory_bytes"], now["memory_now_bytes"]]


class Turns(Steady):
    """programs/turns.cu in VM `i`: kernels, which it counts."""

    def __init__(self, system, i):
        self.system, self.name = system, "the program in VM %d" % i
        self.process = system.start_in_vm(i, harness.helper("turns"))
        self._said = b""
        self.wait_ready()

    def goes_on(self, rounds):
        begin = self.ask("count")[0]
        within(60, lambda: self.ask("count")[0] >= begin + rounds, self.name + " goes on")


class Pieces(Steady):
    """One of these programs in VM `i`; without `calls` it is in the middle of one when this returns."""

    def __init__(self, system, i, slices, calls=0):
        self.system, self.i, self.name = system, i, "the program in VM %d" % i
        self.process = system.start_in_vm(i, harness.helper("pieces"), str(slices), str(calls))
        self._said = b""
        self.wait_ready()
        if not calls:
            self.works()

    def gpu_time(self):
        return sum(s["gpu_time_us"] for s in self.system.flytctl("sessions") if s["vm_ip"] == self.system.vm_ip(self.i))

    def works(self, us=100000):
        """Waits until the GPU has worked for it for so long."""
        begin = self.gpu_time()
        within(60, lambda: self.gpu_time() >= begin + us, self.name + " has GPU time")

    def is_in_its_first_call(self):
        expect_equal(self.ask("count"), [1, 0], self.name + " has begun one call, and none has ended")

    def ends(self):
        self.say("end")
        result = harness.finish(self.process)
        expect_equal((result.status, result.err), (0, ""), result)


@scenario
def what_it_does_is_right():
    """Small boxes; with other SMs in the middle, and while its VM is suspended and goes on."""
    with System(vms=1, sms=16, memory="512M") as system:
        add_vm(system, 0, "--name", "alice", sm=8, memory="128M")
        program = Pieces(system, 0, SHORT, 40)
        for i in range(4):
            system.flytctl("suspend", "alice")
            system.flytctl("resize", "alice", "--sm", 16 if i % 2 else 8)
            system.flytctl("resume", "alice")
        expect_equal(program.line("right", 240), "right", "what it has set")
        program.ends()
        is_idle(system)


@scenario
def orders_hold_in_the_middle_of_a_call():
    """All of this happens while one single call is under way."""
    with System(vms=2, sms=16, memory="512M", node=SLOW) as system:
        add_vm(system, 0, "--name", "alice", sm=8, memory="256M")
        add_vm(system, 1, "--name", "bob", sm=8, memory="64M")
        program, other = Pieces(system, 0, LONG), Turns(system, 1)
        system.flytctl("suspend", "alice")
        expect_equal(allocation(system, 0)["suspend_state"], "suspended", "alice in the middle of a call")
        # Nothing of it runs. What its server measured last is reported within a second or so, on a busy machine later.
        def stands_still():
            at, until = program.gpu_time(), time.monotonic() + REPORTED_S
            while time.monotonic() < until:
                other.goes_on(5)
            return program.gpu_time() == at
        within(60, stands_still, "its GPU time stands still")
        at = program.gpu_time()
        other.goes_on(40)
        expect_equal(program.gpu_time(), at, "GPU time of a suspended VM")
        system.flytctl("resume", "alice")
        program.works()
        system.flytctl("resize", "alice", "--memory", "300M", "--wait", "vacated")
        system.flytctl("suspend", "alice")
        system.flytctl("resume", "alice")
        program.works()
        # Less, of which it uses most; and less than it uses, which holds when it is released.
        system.flytctl("resize", "alice", "--memory", "240M")
        within(60, lambda: memory_limits(system) == [240 * MIB] * 2, "a limit that sinks")
        result = system.flytctl_run("resize", "alice", "--memory", "64M", "--when-free", "--timeout", "0")
        expect_equal(result.status, RECORDED, "less than it uses", result)
        within(60, lambda: memory_limits(system)[0] == 64 * MIB, "a limit below what is in use")
        expect(allocation(system, 0)["memory_used_bytes"] > 64 * MIB, "it has more still", allocation(system, 0))
        program.works()
        program.is_in_its_first_call()
        session = next(s for s in system.flytctl("sessions") if s["vm_ip"] == system.vm_ip(0))
        system.flytctl("session", "kill", session["id"])
        within(60, lambda: [s["vm_ip"] for s in system.flytctl("sessions")] == [system.vm_ip(1)], "it is killed")
        program.close()
        expect_equal(events(system, "node.lost"), [], "nodes that were lost")
        other.ends_right()
        is_idle(system)


@scenario
def shares_hold_against_it():
    """Half of the time is the other's, by the GPU time that both had."""
    with System(vms=2, sms=16, memory="512M", node=SLOW) as system:
        for i in range(2):
            add_vm(system, i, "--minimum-share", 50, "--maximum-share", 0, sm=16, memory="128M")
        program, other = Pieces(system, 0, MIDDLE), Pieces(system, 1, MIDDLE)
        begin = [p.gpu_time() for p in (program, other)]

        def had():
            return [p.gpu_time() - b for p, b in zip((program, other), begin)]
        within(120, lambda: sum(had()) >= 6000000, "6 s of GPU time of both")
        mine, its = had()
        print("# %d us and %d us of GPU time" % (mine, its))
        expect(abs(100 * mine / (mine + its) - 50) <= 15, "shares of the time:", mine, its)
        other.ends()
        kernels = Turns(system, 1)
        kernels.goes_on(200)
        kernels.ends_right()
        program.ends()
        is_idle(system)


if __name__ == "__main__":
    main()
