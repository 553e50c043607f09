#!/usr/bin/env python3
"""Memory that VMs share with their host (flytctl vm device): a node's file for it comes, stays and goes. What QEMU makes of it is
tests/vm's."""
import os
import shutil
import stat
import struct
import tempfile

from cluster import System
from harness import expect, expect_equal, main, scenario, within

VM = "10.77.9.2"
MIB = 16
HEAD = struct.Struct("<16sIIQ64s")      # control/base/vm_memory.h


def refused(system, status, words, *command):
    result = system.flytctl_run("vm", "device", *command)
    expect_equal(result.status, status, "flytctl vm device", *command, result)
    expect(words in result.err, words, "is said:", result)


def head(path):
    with open(path, "rb") as f:
        signature, version, head_bytes, size, vm_ip = HEAD.unpack(f.read(HEAD.size))
    return signature, version, head_bytes, size, vm_ip.rstrip(b"\0").decode()


@scenario
def memory_of_a_vm():
    folder = tempfile.mkdtemp(prefix="flyt-test-", dir="/dev/shm")

    def settings(i):
        return {"vm_device.folder": folder, "vm_device.size": "%dM" % MIB} if i == 0 else {}
    try:
        with System(nodes=2, vms=0, node=settings) as system:
            path = os.path.join(folder, "flyt-" + VM)
            refused(system, 3, VM, VM, "--node", "node-0")
            system.flytctl("vm", "add", VM, "--name", "alice", "--sm", 8, "--memory", "256M")
            refused(system, 2, "--node", "alice")
            refused(system, 3, "node-7", "alice", "--node", "node-7")
            refused(system, 1, "vm_device.folder", "alice", "--node", "node-1")
            made = system.flytctl("vm", "device", "alice", "--node", "node-0")
            expect_equal((made["path"], made["bytes"]), (path, MIB << 20), "what is told")
            found = os.stat(path)
            expect_equal((stat.S_IMODE(found.st_mode), found.st_size, found.st_blocks * 512),
                         (0o600, MIB << 20, MIB << 20), "mode, size, and pages")
            expect_equal(head(path), (b"flyt vm memory\n\0", 1, 4096, MIB << 20, VM), "its head")
            expect_equal(system.flytctl("vm", "device", VM, "--node", "node-0"), made, "asked again")
            expect_equal(os.stat(path).st_ino, found.st_ino, "the same file")
            expect("vm.device" in [e["kind"] for e in system.flytctl("events")], "an event")
            os.truncate(path, 4096)             # QEMU's user may do that; nobody else suffers
            refused(system, 1, "4096 bytes", "alice", "--node", "node-0")
            system.flytctl("vm", "device", "alice", "--node", "node-0", "--remove")
            expect_equal(os.listdir(folder), [], "it has gone")
            system.flytctl("vm", "device", "alice", "--node", "node-0", "--remove")
            system.flytctl("vm", "device", "alice", "--node", "node-0")
            system.flytctl("vm", "remove", "alice")
            within(60, lambda: not os.listdir(folder), "it goes with the VM")
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o644))
            refused(system, 1, "0600", VM, "--node", "node-0", "--remove")
            expect_equal(os.listdir(folder), ["flyt-" + VM], "what is no VM's memory stays")
    finally:
        shutil.rmtree(folder)


main()
