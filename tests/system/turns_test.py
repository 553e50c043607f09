#!/usr/bin/env python3
"""VMs that share SMs in time, strict GPUs, suspended VMs. What each gets is counted in kernels that its program has seen
end, on a software GPU that is slower than the machine; never by the clock on the wall.

Runs alone: a program that waits for a CPU asks for less than its share.
"""
import json
import os
import signal
import time

import harness
from cluster import System, metric_values
from harness import expect, expect_equal, main, scenario, within
from steady import add_vm, allocation, events, is_idle, refused, vm
from turns import SLOW, Turns

KERNELS = 6000          # of all programs together, while shares are compared
STRETCHES = 12          # so often they are compared, at most


def share(programs, kernels=KERNELS):
    """The first one's part of the next so many kernels of all, in per cent."""
    begin = [p.count() for p in programs]
    within(120, lambda: sum(p.count() for p in programs) >= sum(begin) + kernels, "%d kernels" % kernels)
    done = [p.count() - b for p, b in zip(programs, begin)]
    percent = 100 * done[0] / sum(done)
    print("# of %d kernels, %.1f %%" % (sum(done), percent))
    return percent


def has_share(programs, percent, tolerance=12, kernels=KERNELS):
    """On a machine whose CPUs are busy with other things programs are late, and what they do not use is another's. So one
    stretch of several has to show the share: no stretch does where it is not kept. The rules' own test is exact, and
    tests/bench/limits.py measures."""
    got = []
    while not got or abs(got[-1] - percent) > tolerance:
        expect(len(got) < STRETCHES, "a share of", percent, "%, not", got)
        got.append(share(programs, kernels))


def time_used(system, program, name, low, high):
    """Of the time in which the program of VM 0 had work, how much was its own, in per cent: likewise."""
    got = []
    while not got or not low <= got[-1] <= high:
        expect(len(got) < STRETCHES, name, "not", got)
        first = allocation(system, 0)
        program.goes_on(1500)
        last = within(10, lambda: (lambda r: r["shared_us"] > first["shared_us"] and r)(allocation(system, 0)), "accounts")
        used, waited = (last[k] - first[k] for k in ("shared_us", "waited_us"))
        got.append(100 * used / (used + waited))
    print("# %s: %.1f %%" % (name, got[-1]))


def add_shared(system, i, minimum, *words, maximum=0, sm=16):
    add_vm(system, i, "--minimum-share", minimum, "--maximum-share", maximum, *words, sm=sm, memory="128M")


def soon(system, *words):
    """The same as flytctl, when a daemon that was killed is back."""
    within(60, lambda: system.flytctl_run(*words).status == 0, "flytctl " + " ".join(map(str, words)))


def server_of_last(system, i, before):
    """The process that serves VM i's last program; `before` are those of earlier ones, which it joins."""
    def found():
        new = {s["server_pid"] for s in system.flytctl("sessions") if s["vm_ip"] == system.vm_ip(i)} - before
        return new.pop() if len(new) == 1 else None
    server = within(30, found, "the server of VM %d's last program" % i)
    before.add(server)
    return server


@scenario
def shares_of_the_time():
    """20 and 80; then, live, 60 and 40; what is more than all of the time is refused with the figures; one who has nothing
    to do leaves it to the other, and one who has a maximum leaves what is beyond it."""
    with System(vms=3, sms=16, memory="512M", node=SLOW) as system:
        add_shared(system, 0, 20, "--name", "alice")
        add_shared(system, 1, 80, "--name", "bob")
        alice, bob = Turns(system, 0), Turns(system, 1)
        rows = [allocation(system, i) for i in range(2)]
        expect_equal(rows[0]["sm_groups"], rows[1]["sm_groups"], "both have the same SMs")
        expect_equal([(r["sharing"], r["minimum_share"], r["sms"]) for r in rows], [("time", 20, 16), ("time", 80, 16)])
        for p in (alice, bob):
            p.goes_on()
        has_share([alice, bob], 20)
        expect_equal(system.flytctl("gpus")[0]["minimum_share_allocated"], 100, "minima of the GPU")
        for name in ("shared_gpu", "time_slice_wait"):
            values = metric_values(system.metrics("node-0"), "flyt_node_allocation_%s_seconds_total" % name)
            expect(len(values) == 2 and all(value > 0 for _, value in values), name, values)
        said = refused(system, "resize", "alice", "--minimum-share", 21)
        expect("21 %" in said and "80 % are promised" in said, said)
        # A third VM finds no time left, nor SMs of its own.
        add_shared(system, 2, 5, "--name", "carol", sm=8)
        result = system.run_in_vm(2, harness.helper("turns"))
        expect(result.status != 0 and "needs a minimum of 5 %, 0 % not promised" in result.err, result)
        system.flytctl("vm", "remove", "carol")
        system.flytctl("resize", "bob", "--minimum-share", 30)
        system.flytctl("resize", "alice", "--minimum-share", 70, "--window", "0.05")
        row = allocation(system, 0)
        expect_equal((row["minimum_share"], row["window_ms"], row["revision"]), (70, 50, row["revision_applied"]), row)
        change = events(system, "vm.resized", system.vm_ip(0))[-1]
        before, after = (v if isinstance(v, dict) else json.loads(v) for v in (change["before"], change["after"]))
        expect_equal((before["minimum_share"], after["minimum_share"]), (20, 70), change)
        has_share([alice, bob], 70)
        # Bob has nothing to do, and is not waited for.
        bob.ask("pause")
        has_share([alice, bob], 100, 0)
        # A maximum holds for one who is alone: of the time in which she had work, so much was hers.
        system.flytctl("resize", "alice", "--minimum-share", 25, "--maximum-share", 25)
        alice.goes_on(1000)     # longer than what is known of her before may be old
        time_used(system, alice, "alone with a maximum of 25 %", 18, 32)
        bob.ask("go")
        has_share([alice, bob], 25)
        alice.ends_right()
        bob.ends_right()
        is_idle(system)


@scenario
def nobody_takes_the_token_away():
    """A server that is killed while it has its turn, one that is stopped, and a node manager that is killed stop nobody
    else, and shares hold afterwards."""
    with System(vms=2, sms=16, memory="512M", node=SLOW) as system:
        add_shared(system, 0, 50, "--name", "alice")
        add_shared(system, 1, 50, "--name", "bob")
        bob, seen = Turns(system, 1), set()
        for i in range(4):
            alice = Turns(system, 0)
            alice.goes_on()
            server = server_of_last(system, 0, seen)
            time.sleep(0.003 * i)       # another moment of its turn; nothing depends on it
            os.kill(server, signal.SIGKILL)
            bob.goes_on(40)
            alice.ends_after_its_server()
        alice = Turns(system, 0)
        server = server_of_last(system, 0, seen)
        os.kill(server, signal.SIGSTOP)
        try:
            bob.goes_on(100)
            at = alice.count()
            bob.goes_on(20)
            expect(alice.count() <= at + 4, "a stopped server works")
        finally:
            os.kill(server, signal.SIGCONT)
        alice.goes_on()
        has_share([alice, bob], 50)
        system.supervisor.kill("node-0")
        for p in (alice, bob):
            p.goes_on(40)
        soon(system, "resize", "bob", "--minimum-share", 20)
        soon(system, "resize", "alice", "--minimum-share", 80)
        within(60, lambda: len(system.flytctl("sessions")) == 2, "both programs are there again")
        has_share([alice, bob], 80)
        alice.ends_right()
        bob.ends_right()
        is_idle(system)


@scenario
def suspend_and_resume():
    """A suspended VM's programs live but have nothing on the GPU, over restarts of the managers; then they go on exactly.
    Those of a VM that has its SMs alone, too."""
    with System(vms=2, sms=16, memory="512M", node=SLOW) as system:
        add_shared(system, 0, 50, "--name", "alice", sm=8)
        add_vm(system, 1, "--name", "bob", sm=8, memory="128M")
        for i, name in enumerate(("alice", "bob")):
            program, other = Turns(system, i), Turns(system, 1 - i)
            program.goes_on()
            system.flytctl("suspend", name)
            at = program.count()
            row = allocation(system, i)
            expect_equal((row["suspended"], row["suspend_state"]), (True, "suspended"), row)
            expect_equal(vm(system, i)["state"], "suspended", vm(system, i))
            sentences = [r["sentence"] for r in system.flytctl("explain", name)]
            expect(any("It is suspended: " in sentence for sentence in sentences), sentences)
            expect_equal(any("in turns: 50 %" in sentence for sentence in sentences), i == 0, sentences)
            other.goes_on(40)
            expect(program.count() - at <= 4, "kernels of a suspended VM:", at, program.count())
            at = program.count()
            expect_equal(program.ask("alloc 1"), [0], "memory while suspended")
            for daemon in ("cluster", "node-0"):
                system.supervisor.kill(daemon)
                within(60, lambda: [s["vm_ip"] for s in system.flytctl("sessions")].count(system.vm_ip(i)) == 1 and
                       allocation(system, i)["suspend_state"] == "suspended", "suspended after a restart of " + daemon)
            late = Turns(system, i)
            other.goes_on(40)
            expect_equal((program.count(), late.count()), (at, 0), "kernels of a suspended VM")
            soon(system, "resume", name)
            for p in (program, late, other):
                p.goes_on()
                p.ends_right()
            kinds = [e["kind"] for e in system.flytctl("events") if e["object"] == system.vm_ip(i)]
            expect("vm.suspended" in kinds and "vm.resumed" in kinds, kinds)
            is_idle(system)
        # Of a VM that has nothing now: it holds for the next.
        system.flytctl("suspend", "alice")
        program = Turns(system, 0)
        expect_equal(program.ask("alloc 1"), [0], "memory while suspended")
        expect_equal(program.count(), 0, "kernels of a suspended VM")
        system.flytctl("resume", "alice")
        program.goes_on()
        program.ends_right()


@scenario
def strict_gpus_are_for_strict_vms():
    """The classes do not meet; strict VMs have the time that their SMs are a part of, or the share that they name."""
    with System(vms=3, sms=16, memory="512M", node=dict(SLOW, isolation="strict")) as system:
        add_vm(system, 0, "--name", "alice", "--isolation", "strict", sm=8, memory="128M")
        add_vm(system, 1, "--name", "bob", "--isolation", "strict", "--minimum-share", 25, sm=16, memory="128M")
        add_vm(system, 2, "--name", "carol", sm=8, memory="128M")
        result = system.run_in_vm(2, harness.helper("turns"))
        expect(result.status != 0 and "not for isolation class shared" in result.err, result)
        alice = Turns(system, 0)
        expect_equal(allocation(system, 0)["sharing"], "exclusive", "alice's SMs")
        # Her SMs are hers alone; there are not so many besides.
        result = system.run_in_vm(1, harness.helper("turns"))
        expect(result.status != 0 and "not enough SMs" in result.err, result)
        system.flytctl("vm", "set", "bob", "--minimum-share", 50, "--sm", 8)
        bob = Turns(system, 1)
        has_share([alice, bob], 50)
        # Alone she has no more than her SMs are.
        bob.ends_right()
        alice.goes_on(1000)
        time_used(system, alice, "alone with 8 of 16 SMs", 42, 58)
        alice.ends_right()


if __name__ == "__main__":
    main()
