#!/usr/bin/env python3
"""The daemons under a user of their own, as their units start them: other processes of that user cannot look into them."""
import os
import subprocess

import harness
from cluster import System
from harness import expect, expect_equal, helper, main, scenario, skip, within

USER, NUMBER = "nobody", 65534
AS_USER = ["setpriv", "--reuid=%d" % NUMBER, "--regid=%d" % NUMBER, "--clear-groups"]


class OfAnotherUser(System):
    """Its daemons belong to USER, who owns the folder."""

    def start_daemon(self, name, program, path, prefix=(), **options):
        for folder in (harness.WORK, os.path.dirname(self.supervisor.folder)):
            os.chmod(folder, 0o755)
        subprocess.run(["chown", "-R", USER, self.path("cluster"), os.path.dirname(path)], check=True)
        super().start_daemon(name, program, path, [*prefix, *AS_USER], **options)


def user_of(pid):
    with open("/proc/%d/status" % pid) as f:
        return int(next(line for line in f if line.startswith("Uid:")).split()[1])


def look_into(pid):
    """How reading a process's environment and memory map ends for another process of its user."""
    return [subprocess.run([*AS_USER, "cat", "/proc/%d/%s" % (pid, name)], capture_output=True).returncode
            for name in ("environ", "maps", "auxv")]


@scenario
def nobody_looks_into_them():
    with OfAnotherUser(nodes=1, vms=1, tls=False, namespaces=False) as system:
        system.flytctl("vm", "add", system.vm_ip(0), "--sm", "8", "--memory", "64M")
        program = system.start_in_vm(0, helper("echo"), "wait")
        session = within(30, lambda: system.flytctl("sessions"), "a program runs")[0]
        for name, pid in [(name, system.supervisor.get(name)["pid"]) for name in system.daemons()] + [
                ("its server", session["server_pid"])]:
            expect_equal(user_of(pid), NUMBER, "the user of", name)
            # proc(5): what belongs to a process that is not dumpable is root's.
            expect_equal(os.stat("/proc/%d/environ" % pid).st_uid, 0, "the owner of environ of", name)
            expect(all(look_into(pid)), "another process looks into", name)
        # An ordinary process of that user is open to him: else this proved nothing.
        other = harness.start([*AS_USER, "sleep", "1000"])
        within(10, lambda: os.stat("/proc/%d/environ" % other.pid).st_uid == NUMBER, "an ordinary process is its user's")
        expect_equal(look_into(other.pid), [0, 0, 0], "looking into an ordinary process")
        harness.kill_group(other)
        other.wait()
        # And it works: restarts, which look for descriptors, and another program.
        for name in ("node-0", "cluster", "vm-0"):
            system.restart(name)
        within(30, lambda: [n["state"] for n in system.flytctl("nodes")] == ["up"], "the node is up")
        within(30, lambda: system.run_in_vm(0, helper("echo")).status == 0, "a program afterwards")
        harness.kill_group(program)
        harness.finish(program)


if os.getuid() != 0:
    skip("needs root, to be another user")
if subprocess.run([*AS_USER, "test", "-x", helper("echo")]).returncode:
    skip("other users cannot reach " + harness.BUILD)
main()
