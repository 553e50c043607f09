#!/usr/bin/env python3
"""CUDA programs in a real virtual machine, whose CPU QEMU emulates (README.md), on software GPUs of two nodes: at the first one,
whose machine's memory the guest shares (ivshmem), through that, at the other one over TCP. They go on while their VM is resized
and moves, to new server processes, to the other node, and back. At the end it prints what a launch and copies take either way.

Needs network namespaces (as root, or those of a user of its own), QEMU, a kernel, busybox and cpio; else it is skipped, and
says what is missing.
"""
import os
import shutil
import signal
import subprocess
import sys
import tempfile

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
SHARED_MIB = 256
AFTERWARDS = ("devices_driver", "events")
BENCH = os.path.join(harness.BUILD, "tests", "bench")
FIGURES = (("launch", "200", "1", "200"), ("copy", "64", "3", "pinned"))     # programs of tests/bench with their arguments
SHOWN = ("launch_synchronize", "h2d_pinned_64m", "d2h_pinned_64m")
VSOCK_TEST = os.path.join(harness.BUILD, "rpc", "transport", "vsock_test")
SERVER = os.path.join(harness.BUILD, "bin", "flyt-server")
SOFT_GPU = os.path.join(harness.BUILD, "lib", "libflyt-softgpu.so")
PROGRAMS = [helper("survivor"), helper("steady"), helper("pinned"), app("bulk_copies"), *map(app, AFTERWARDS),
            *(os.path.join(BENCH, name) for name, *_ in FIGURES), VSOCK_TEST, SERVER]
IN_NAMESPACES = "FLYT_VM_IN_NAMESPACES"


class WithGuest(TwoNodes):
    """Both nodes have a unix socket too, in whose folder the guest's files are not, and whose machine it is not. The guest
    shares memory with node-0's machine."""

    guest = None

    def __init__(self, **options):
        self.shared = tempfile.mkdtemp(prefix="flyt-test-", dir="/dev/shm")
        super().__init__(local=True, namespaces=True, **options,
                         node=lambda i: {} if i else {"vm_device.folder": self.shared, "vm_device.size": "%dM" % SHARED_MIB})
        try:
            self.device = self.flytctl("vm", "device", "alice", "--node", "node-0")
            self.boot(0, self.device["qemu"])
        except BaseException:
            self.print_logs()
            self.close()
            raise

    def start_vm(self, i):
        """Not before alice is known, whose memory a node makes for QEMU."""

    def boot(self, i, devices):
        root = guest.Root(os.path.dirname(self.path("guest", "root", "init")))
        root.add_client_library()
        for program in [self.program("flyt-client-manager"), *PROGRAMS]:
            root.add_program(program)
        root.copy(SOFT_GPU, os.path.join("lib", os.path.basename(SOFT_GPU)))
        root.add_libraries_of(SOFT_GPU)
        write_settings(os.path.join(root.folder, "etc", "flyt", "client.conf"),
                       {"managers": [self.manager_url], "vm_ip": self.vm_ip(i), "state_dir": "/var/lib/flyt/client",
                        "metrics": "", "memory.groups": ["root"]})
        root.write("etc/flyt/token", self.flytctl("vm", "join-token", self.vm_ip(i))["token"] + "\n")
        for name, lines in (("passwd", "root:x:0:0:root:/:/bin/sh\nflyt-client:x:200:200::/:/bin/false\n"),
                            ("group", "root:x:0:\nflyt-client:x:200:\n")):
            os.chmod(root.write("etc/" + name, lines), 0o644)
        os.chmod(os.path.join(root.folder, "etc", "flyt", "client.conf"), 0o644)
        self.guest = guest.Guest(os.path.dirname(root.folder), root, ["ip", "netns", "exec", self.network.vms[i]],
                                 devices)

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
        shutil.rmtree(self.shared, ignore_errors=True)


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


def all_over(system, transport, count):
    """From the guest's address, which is that of its wire here."""
    address = ("ivshmem:" if transport == "ivshmem" else "") + system.vm_ip(0)

    def told():
        sessions = system.flytctl("sessions")
        seen = {(s["state"], s["transport"], s["client_address"].rsplit(":", 1)[0]) for s in sessions}
        return len(sessions) == count and seen == {("serving", transport, address)}
    within(120, told, "%d sessions over %s" % (count, transport))


def resized(system, sms, memory_mib):
    system.alice_sms = sms
    system.flytctl("resize", "alice", "--sm", sms, "--memory", "%dM" % memory_mib)
    within(120, lambda: [(a["sms_now"], a["memory_now_bytes"]) for a in system.flytctl("allocations")] ==
           [(sms, memory_mib << 20)], "%d SMs and %d MiB are in force" % (sms, memory_mib))


def runs(system, program, *arguments):
    """What it prints."""
    result = harness.finish(system.start_in_vm(0, program, *arguments), 600)
    expect_equal((result.status, result.err), (0, ""), program, result)
    return result.out


def prints_figures(system, transport):
    """Medians of the guest's own clock, which are to be compared with those of another transport in the same run only."""
    for program, *arguments in FIGURES:
        for line in harness.lines(runs(system, program, *arguments)):
            if line.split()[0] in SHOWN:
                print("    over %s in the guest: %s" % (transport, line), flush=True)


def finds_its_memory(system):
    """The client manager in the guest finds what the node has made; who asks again is told the same."""
    said = "vm %s: shares memory with its host, device=/sys/bus/pci/devices/" % system.vm_ip(0)
    lines = [line for line in system.guest.console().splitlines() if said in line]
    expect(lines and lines[0].endswith(" bytes=%d" % (SHARED_MIB << 20)), "the guest finds the memory:", lines)
    expect_equal(system.flytctl("vm", "device", "alice", "--node", "node-0"), system.device, "the device, asked again")
    expect_equal(os.listdir(system.shared), ["flyt-" + system.vm_ip(0)], "what the node has made")


def runs_unit_tests_of_vsock(system):
    """The guest's kernel has vsock within the machine, where that of the host may have none: none is skipped."""
    result = harness.finish(system.start_in_vm(0, VSOCK_TEST), 300)
    expect(not result.status and "SKIPPED" not in result.out + result.err, "the unit tests of vsock:", result)
    print("    the unit tests of vsock pass", flush=True)


def runs_over_vsock(system):
    """A server in the guest itself, and a program that has no other way to it."""
    server = system.guest.start("flyt-server", "--listen", "vsock://1:0", "--soft", "1")
    said = server.stdout.readline().decode().split()
    expect(said[:1] == ["listening"] and said[1].startswith("vsock://1:"), "the server in the guest says", said)
    result = harness.finish(system.guest.start("env", "FLYT_SERVER=" + said[1], "copy", "16", "1", "pinned"), 300)
    expect_equal((result.status, result.err), (0, ""), "over vsock", result)
    print("    a program runs over vsock", flush=True)


@scenario
def programs_in_a_guest():
    with WithGuest() as system:
        with open("/proc/sys/kernel/random/boot_id") as f:
            expect(system.guest.boot_id != f.read().strip(), "the guest has this machine's boot id")
        finds_its_memory(system)
        nodes = {n["name"]: n["data_urls"] for n in system.flytctl("nodes")}
        expect(all(urls[-1].startswith("unix://") for urls in nodes.values()), "unix sockets that it is told", nodes)
        survivor, steady, pinned = (SlowSurvivor(system, 0), SlowSteady(system, 0), SlowSurvivor(system, 0, program="pinned"))
        survivor.does("check", "right 1")
        pinned.does("check", "right 1")
        steady.takes(24)
        all_over(system, "ivshmem", 3)
        print("    three programs compute through the memory", flush=True)
        copies = system.start_in_vm(0, app("bulk_copies"))
        resized(system, 24, 640)
        survivor.does("check", "right 2")
        here = system.place()
        result = system.flytctl_run("migrate", "alice", "--to", here + ":0", "--force", *PATIENCE, timeout=400)
        expect_equal(result.status, 0, "to new server processes", result)
        steady.goes_on()
        survivor.does("check", "right 3")
        pinned.does("leave", "left")
        system.moves()                          # all four, to the other node
        steady.goes_on()
        pinned.does("take", "taken")
        survivor.does("check", "right 4")
        pinned.does("check", "right 2")
        print("    at the other node", flush=True)
        result = harness.finish(copies, 600)
        expect_equal((result.status, result.err), (0, ""), "bulk_copies", result)
        all_over(system, "tcp", 3)
        prints_figures(system, "tcp")
        resized(system, 16, 512)
        system.moves()                          # and back
        survivor.does("check", "right 5")
        pinned.does("check", "right 3")
        steady.goes_on()
        all_over(system, "ivshmem", 3)
        pinned.does("mapped", "mapped 0")
        print("    and back", flush=True)
        expect(steady.ends_right() > 0, "it has computed")
        for program in (survivor, pinned):
            program.does("end", "ended")
            result = harness.finish(program.process)
            expect_equal((result.status, result.err), (0, ""), result)
        for name in AFTERWARDS:
            runs(system, name)
        within(120, lambda: not system.flytctl("sessions"), "no session is left")
        prints_figures(system, "ivshmem")
        runs_unit_tests_of_vsock(system)
        runs_over_vsock(system)
        system.flytctl("vm", "remove", "alice")
        within(120, lambda: not os.listdir(system.shared), "the VM's memory has gone with it")


def too_long(*_):
    raise harness.Failed("not over within %d s" % WHOLE_S)


def enter_own_namespaces():
    """Who is not root is so in namespaces of its own, where that is allowed."""
    enter = ["unshare", "--user", "--map-root-user", "--net", "--mount"]
    if not os.geteuid() or IN_NAMESPACES in os.environ or subprocess.run([*enter, "true"], capture_output=True).returncode:
        return
    os.environ[IN_NAMESPACES] = "1"
    os.execvp(enter[0], [*enter, "sh", "-e", "-c", 'mount -t tmpfs flyt-run /run; ip link set lo up; exec "$@"', "sh",
                         sys.executable, *sys.argv])


if guest.missing():
    skip("missing: " + ", ".join(guest.missing()))
enter_own_namespaces()
if os.geteuid() or not netns.is_possible():
    skip("network namespaces are needed: root, or namespaces of a user of its own")
signal.signal(signal.SIGALRM, too_long)
signal.alarm(WHOLE_S)
main()
