#!/usr/bin/env python3
"""CUDA programs in a real virtual machine, whose CPU QEMU emulates (README.md), on software GPUs of two nodes, over TCP.
They go on while their VM is resized and moves, to the other node, to new server processes, and back.

Needs root, network namespaces, QEMU, a kernel, busybox and cpio; else it is skipped, and says what is missing.
"""
import os
import signal
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "system"))

import guest
import harness
import netns
from cluster import write_settings
from harness import app, expect, expect_equal, helper, main, scenario, skip, within
from steady import Steady
from survivor import Survivor
from two_nodes import PATIENCE, TwoNodes

WHOLE_S = 1500          # all of it; a machine that emulates, beside other work
STARTUP_S = 240         # of a program there
PROGRAMS = [helper("survivor"), helper("steady"), app("bulk_copies"), app("events")]


class WithGuest(TwoNodes):
    """Both nodes have a unix socket too, in whose folder the guest's files are not, and whose machine it is not."""

    guest = None

    def __init__(self, devices=(), **options):
        self.devices = devices
        super().__init__(local=True, namespaces=True, **options)

    def start_vm(self, i):
        root = guest.Root(os.path.dirname(self.path("guest", "root", "init")))
        root.add_client_library()
        for program in [self.program("flyt-client-manager"), *PROGRAMS]:
            root.add_program(program)
        write_settings(os.path.join(root.folder, "etc", "flyt", "client.conf"),
                       {"managers": [self.manager_url], "vm_ip": self.vm_ip(i), "state_dir": "/var/lib/flyt/client",
                        "metrics": ""})
        root.write("etc/flyt/token", self.flytctl("vm", "join-token", self.vm_ip(i))["token"] + "\n")
        root.write("etc/passwd", "root:x:0:0:root:/:/bin/sh\n")
        root.write("etc/group", "root:x:0:\n")
        self.guest = guest.Guest(os.path.dirname(root.folder), root, ["ip", "netns", "exec", self.network.vms[i]],
                                 self.devices)

    def start_in_vm(self, i, program, *arguments, **changes):
        return self.guest.start(os.path.basename(program), *arguments)

    def daemons(self):
        return [name for name in super().daemons() if not name.startswith("vm-")]

    def print_logs(self):
        super().print_logs()
        if self.guest:
            print("    console of the guest:\n        " + "\n        ".join(self.guest.console().splitlines()[-60:]))

    def close(self):
        if self.guest:
            self.guest.close()
        super().close()


def starts(program):
    """Once more slowly than on this machine's own CPU."""
    expect_equal(program.line("ready", STARTUP_S), "ready", program.name, "said")
    return program


class SlowSteady(Steady):
    def wait_ready(self):
        starts(self)


class SlowSurvivor(Survivor):
    def wait_ready(self):
        starts(self)

    def does(self, words, answer):
        self.say(words)
        expect_equal(self.line(words, STARTUP_S), answer, self.name, words)


def all_over_tcp(system, count):
    """From the guest's address, which is that of its wire here."""
    def told():
        sessions = system.flytctl("sessions")
        return sessions if len(sessions) == count and all(s["state"] == "serving" for s in sessions) else None
    sessions = within(120, told, "%d sessions" % count)
    expect_equal({(s["transport"], s["client_address"].rsplit(":", 1)[0]) for s in sessions}, {("tcp", system.vm_ip(0))},
                 "transports and addresses")
    return sessions


def resized(system, sms, memory_mib):
    system.alice_sms = sms
    system.flytctl("resize", "alice", "--sm", sms, "--memory", "%dM" % memory_mib)
    within(120, lambda: [(a["sms_now"], a["memory_now_bytes"]) for a in system.flytctl("allocations")] ==
           [(sms, memory_mib << 20)], "%d SMs and %d MiB are in force" % (sms, memory_mib))


@scenario
def programs_in_a_guest():
    with WithGuest() as system:
        with open("/proc/sys/kernel/random/boot_id") as f:
            expect(system.guest.boot_id != f.read().strip(), "the guest has this machine's boot id")
        nodes = {n["name"]: n["data_urls"] for n in system.flytctl("nodes")}
        expect(all(urls[-1].startswith("unix://") for urls in nodes.values()), "unix sockets that it is told", nodes)
        survivor, steady = SlowSurvivor(system, 0), SlowSteady(system, 0)
        survivor.does("check", "right 1")
        steady.takes(24)
        all_over_tcp(system, 2)
        print("    two programs compute", flush=True)
        copies = system.start_in_vm(0, app("bulk_copies"))
        resized(system, 24, 640)
        survivor.does("check", "right 2")
        system.moves()                          # all three, to the other node
        steady.goes_on()
        survivor.does("check", "right 3")
        print("    at the other node", flush=True)
        result = harness.finish(copies, 600)
        expect_equal((result.status, result.err), (0, ""), "bulk_copies", result)
        all_over_tcp(system, 2)
        here = system.place()
        result = system.flytctl_run("migrate", "alice", "--to", here + ":0", "--force", *PATIENCE, timeout=400)
        expect_equal(result.status, 0, "to new server processes", result)
        steady.goes_on()
        survivor.does("check", "right 4")
        resized(system, 16, 512)
        system.moves()                          # and back
        survivor.does("check", "right 5")
        steady.goes_on()
        all_over_tcp(system, 2)
        print("    and back", flush=True)
        expect(steady.ends_right() > 0, "it has computed")
        survivor.does("end", "ended")
        result = harness.finish(survivor.process)
        expect_equal((result.status, result.err), (0, ""), result)
        result = harness.finish(system.start_in_vm(0, app("events")), 300)
        expect_equal((result.status, result.err), (0, ""), "a program afterwards", result)
        within(120, lambda: not system.flytctl("sessions"), "no session is left")


def too_long(*_):
    raise harness.Failed("not over within %d s" % WHOLE_S)


if os.geteuid() or not netns.is_possible():
    skip("root and network namespaces are needed")
if guest.missing():
    skip("missing: " + ", ".join(guest.missing()))
signal.signal(signal.SIGALRM, too_long)
signal.alarm(WHOLE_S)
main()
