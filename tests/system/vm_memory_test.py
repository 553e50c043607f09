#!/usr/bin/env python3
"""The memory that a VM shares with its host: rings and page-locked memory (programs/pinned.cu) lie in it, and what pageable
copies (programs/pageable.cu) go through. The VM is a network
namespace of this machine, and its PCI device a folder whose memory is the node's file; a real guest has it in tests/vm. What
the guest cannot have, or does not share with the node where its programs are, goes over TCP."""
import concurrent.futures
import contextlib
import glob
import os
import re
import shutil
import signal
import struct
import tempfile

import harness
from cluster import System, write_settings
from harness import expect, expect_equal, main, scenario, within
from steady import add_vm
from survivor import Survivor, its_server_is_killed, session
from two_nodes import PATIENCE, TwoNodes, ends

MIB = 16
MIB_BYTES = 1 << 20
ROOM = 64           # MiB, so that pageable copies have the largest pieces
HEAD_BYTES = 4096
RINGS = struct.Struct("<Q")
RINGS_MAGIC = 0x73676e6974796c66        # rpc/transport/rings.c
SKIPPED = 77
# What a node's servers and limits answer otherwise, over TCP as well.
OF_A_WHOLE_GPU = {"behaviour_driver", "behaviour_runtime", "stack_limit", "symbols_placed"}
OPTIONS = {"vms": 1, "gpus": 2, "sms": 48, "memory": "1G"}


class Shared:
    """Of a System: nodes have a folder for VMs' memory each, and every VM finds node-0's file behind a PCI device."""

    def __init__(self, mib=MIB, **options):
        self.mib = mib
        self.shared = tempfile.mkdtemp(prefix="flyt-test-", dir="/dev/shm")
        os.chmod(self.shared, 0o755)
        self.granted = {"memory.groups": ["root"]}
        super().__init__(**options, node=self.node_settings, client=self.client_settings)

    def node_settings(self, i):
        os.makedirs(self.node_folder(i), exist_ok=True)
        return {"vm_device.folder": self.node_folder(i), "vm_device.size": "%dM" % self.mib}

    def node_folder(self, i):
        return os.path.join(self.shared, "node-%d" % i)

    def file(self, i, node=0):
        return os.path.join(self.node_folder(node), "flyt-" + self.vm_ip(i))

    def client_settings(self, i):
        device = os.path.join(self.shared, "pci-%d" % i, "0000:00:04.0")
        os.makedirs(device, exist_ok=True)
        for name, text in (("vendor", "0x1af4\n"), ("device", "0x1110\n"), ("enable", "1\n")):
            with open(os.path.join(device, name), "w") as f:
                f.write(text)
        with contextlib.suppress(FileExistsError):
            os.symlink(self.file(i), os.path.join(device, "resource2"))
        return {"memory.devices": os.path.dirname(device), **self.granted}

    def gives_memory(self, i, *nodes):
        """The nodes make files for the VM, which then finds node-0's as if it were started with it."""
        for node in nodes:
            self.flytctl("vm", "device", self.vm_ip(i), "--node", "node-%d" % node)
        self.restart("vm-%d" % i)

    def close(self):
        super().close()
        shutil.rmtree(self.shared, ignore_errors=True)


class OneNode(Shared, System):
    pass


class BothNodes(Shared, TwoNodes):
    pass


class Pinned(Survivor):
    def __init__(self, system, i=0, **environment):
        super().__init__(system, i, program="pinned", **environment)
        self.checks = 0

    def is_right(self, *words):
        for word, answer in words:
            self.does(word, answer)
        self.checks += 1
        self.does("check", "right %d" % self.checks)


class Pageable(Survivor):
    """Counts the bytes that it has copied, and tells at its end how many have gone over its connections."""

    def __init__(self, system, **environment):
        super().__init__(system, 0, program="pageable", FLYT_STATS="-", **environment)
        self.copied_bytes = 0

    def copies(self, threads, count):
        self.does("check %d %d" % (threads, count), "right")
        self.copied_bytes += threads * count * 6

    def ends(self):
        self.does("end", "ended")
        result = harness.finish(self.process)
        expect_equal(result.status, 0, result)
        return sum(int(found) for found in re.findall(r"(?:sent|received)_bytes=(\d+)", result.err))


def maps(pid, path):
    with open("/proc/%d/maps" % pid) as lines:
        end = "/" + os.path.join(*path.split("/")[-2:])       # the rest depends on whose mount it was opened in
        return [line for line in lines if line.rstrip().endswith(end)]


def rings(path):
    """Places of the file in which rings begin."""
    with open(path, "rb") as f:
        data = f.read()
    return [at for at in range(HEAD_BYTES, len(data), 4096) if RINGS.unpack_from(data, at)[0] == RINGS_MAGIC]


def claims(pid):
    """Bytes of files that a process's open descriptions have locked, as the kernel tells."""
    total = 0
    for name in os.listdir("/proc/%d/fdinfo" % pid):
        with contextlib.suppress(FileNotFoundError), open("/proc/%d/fdinfo/%s" % (pid, name)) as f:
            for line in f:
                if line.startswith("lock:") and "OFDLCK" in line:
                    first, last = line.split()[-2:]
                    total += int(last) - int(first) + 1
    return total


def is_claimed(path):
    """Whether anybody on this machine has locked some of the file for the host's side: a guest's locks are far behind its end."""
    with open("/proc/locks") as f:
        rows = [line.split() for line in f]
    return any(row[5].split(":")[2] == str(os.stat(path).st_ino) and int(row[6]) < 1 << 40 for row in rows if row[1] == "OFDLCK")


def shares(system, program, i=0, is_shared=True):
    """Whether program and server have the file, and its bytes go through it. The session."""
    path = system.file(i)
    seen = within(60, lambda: next((s for s in system.flytctl("sessions")
                                    if s["client_pid"] == program.process.pid and s["state"] == "serving"), None), "it is served")
    within(60, lambda: next((s["transport"] for s in system.flytctl("sessions") if s["id"] == seen["id"]), None) ==
           ("ivshmem" if is_shared else "tcp"), "its transport is told")
    expect_equal(bool(maps(seen["server_pid"], path)), is_shared, "whether the server has the file")
    if is_shared:
        expect(maps(program.process.pid, path), "the program has the file")
        expect(claims(seen["server_pid"]) > 0, "the server has claimed what it uses")
    return seen


@scenario
def at_each_server_of_the_node():
    with OneNode(**OPTIONS) as system:
        add_vm(system, 0)
        before = Pinned(system)             # no memory yet
        before.is_right()
        shares(system, before, is_shared=False)
        ends(system, before)
        system.gives_memory(0, 0)
        program = Pinned(system)
        program.is_right()
        shares(system, program)
        expect_equal(len(rings(system.file(0))), 1, "rings in it")
        its_server_is_killed(system)
        shares(system, program)
        program.is_right(("more", "buffers 3"), ("mapped", "mapped 0"))
        for i in range(4):
            program.does("leave", "left")
            system.flytctl("migrate", system.vm_ip(0), "--to", "node-0:%d" % (1 - i % 2), "--force", *PATIENCE)
            shares(system, program)
            ahead, then = within(30, lambda: re.findall(r"goes on, .* locked_ahead=(\d+) locked=(\d+) ", system.log("node-0"))[i + 1:],
                                 "it has gone on again")[0]
            expect(int(ahead) >= 4 and then == "0", "pieces that were locked ahead, and while it stood still", ahead, then)
            program.is_right(("take", "taken"), ("mapped", "mapped 0"), *((("less", "buffers 2"), ("more", "buffers 3")) if i % 2 else ()))
        system.flytctl("resize", system.vm_ip(0), "--sm", "32")
        program.is_right()
        for strike in (system.kill, system.restart):        # of the node manager
            strike("node-0")
            its_server_is_killed(system)
            shares(system, program)
            program.is_right()
            system.flytctl("migrate", system.vm_ip(0), "--to", "node-0:0", "--force", *PATIENCE)
            program.is_right()
        expect(is_claimed(system.file(0)), "what the session has is claimed")
        ends(system, program)
        within(60, lambda: not is_claimed(system.file(0)), "nothing is claimed behind its end")


@scenario
def away_and_back():
    with BothNodes() as system:
        system.gives_memory(0, 0, 1)        # node-1's file is not what the guest has
        program = Pinned(system)
        program.is_right()
        shares(system, program)
        for i in range(2):
            program.does("leave", "left")
            system.moves()
            seen = within(60, lambda: (lambda s: s["state"] == "serving" and s)(session(system)), "it goes on")
            expect_equal(claims(seen["server_pid"]), 0, "what is claimed at the other node")
            program.is_right(("take", "taken"), ("less", "buffers 1"), ("more", "buffers 2"), ("more", "buffers 3"))
            program.does("leave", "left")
            system.moves()
            shares(system, program)
            program.is_right(("take", "taken"), ("less", "buffers 2"))
        program.is_right(("mapped", "mapped 0"))
        result = system.migrates_when_connected("node-1")
        expect(result.status and "kernels may reach host memory of the program" in result.err, result)
        program.is_right(("mapped", "mapped 0"))
        ends(system, program)


@scenario
def managed_memory_in_it():
    """As much as there is room for, and it stays on the node; what is freed can be had again."""
    with BothNodes() as system:
        system.gives_memory(0, 0)
        program = Pinned(system, FLYT_MANAGED_MEMORY="host")
        program.is_right(("managed", "managed 1"), ("virtual", "virtual 0"))
        shares(system, program)
        result = system.migrates_when_connected("node-1")
        expect(result.status and "kernels may reach host memory of the program" in result.err, result)
        its_server_is_killed(system)
        program.is_right()
        result = system.run_in_vm(0, harness.helper("managed_sparse"), "1", "64", FLYT_MANAGED_MEMORY="host")
        expect_equal(result.status, 1, "64 MiB of", MIB, result)
        expect("cudaErrorMemoryAllocation" in result.err, result)
        program.is_right()
        ends(system, program)


@scenario
def in_an_image_meanwhile():
    """What was locked stays the program's, and is locked again at the server that is made of the image; another program of the
    VM, which came meanwhile, has other pages."""
    with OneNode(**{**OPTIONS, "cluster": {"allocation_linger_s": 1}}) as system:
        add_vm(system, 0, "--sessions", 4)
        system.gives_memory(0, 0)
        program = Pinned(system)
        program.is_right()
        shares(system, program)
        folder = tempfile.mkdtemp(prefix="images-", dir=harness.WORK)
        result = system.flytctl_run("checkpoint", system.vm_ip(0), "--to", folder, *PATIENCE, timeout=300)
        expect_equal(result.status, 0, "flytctl checkpoint", result)
        other = Pinned(system)
        for buffers in range(3, 9):
            other.does("more", "buffers %d" % buffers)
        other.is_right()
        result = system.flytctl_run("restore", folder, timeout=300)
        expect_equal(result.status, 0, "flytctl restore", result)
        for one in (program, other):
            one.is_right()
            shares(system, one)
        program.is_right(("mapped", "mapped 0"))
        other.does("end", "ended")
        harness.finish(other.process)
        ends(system, program)


@scenario
def whose_bytes_are_to_be_encrypted():
    with OneNode(**{**OPTIONS, "cluster": {"encrypted": True}}) as system:
        add_vm(system, 0)
        system.gives_memory(0, 0)
        program = Pinned(system)
        program.is_right()
        shares(system, program, is_shared=False)
        ends(system, program)


@scenario
def programs_of_one_vm_and_of_another():
    """They have different parts of one file; what is claimed goes back when a program is killed; beyond the file's size
    memory is staged; one who cuts the file, or writes anything into it, ends sessions of that VM alone."""
    with OneNode(**{**OPTIONS, "vms": 2}) as system:
        for i in range(2):
            add_vm(system, i)
            system.gives_memory(i, 0)
        other = Pinned(system, 1)
        other.is_right()
        programs = [Pinned(system) for _ in range(3)]
        for round in range(2):
            for program in programs:
                program.is_right()
            expect_equal(len(rings(system.file(0))), 3, "rings of three programs")
            for buffers in range(3, 9):      # 1.2 MB each: more than there is
                for program in programs:
                    program.does("more", "buffers %d" % buffers)
            for program in programs:
                program.is_right()
            for buffers in range(7, 1, -1):
                for program in programs:
                    program.does("less", "buffers %d" % buffers)
            killed = programs.pop(0)
            killed.process.send_signal(signal.SIGKILL)
            harness.finish(killed.process)
            programs.append(Pinned(system))
        for program in programs:
            program.is_right()
        shares(system, other, 1)
        place = rings(system.file(0))[-1]
        with open(system.file(0), "r+b") as f:              # one of them is at its end
            f.seek(place + 64)
            f.write(b"\xff" * 256)
        within(60, lambda: [s["vm_ip"] for s in system.flytctl("sessions")].count(system.vm_ip(0)) == 2, "two are left")
        pids = [s["server_pid"] for s in system.flytctl("sessions") if s["vm_ip"] == system.vm_ip(0)]
        os.truncate(system.file(0), HEAD_BYTES)
        for program in programs:
            with contextlib.suppress(BrokenPipeError):
                os.write(program.process.stdin.fileno(), b"check\n")
        within(60, lambda: {s["vm_ip"] for s in system.flytctl("sessions")} == {system.vm_ip(1)}, "the other VM's is left")
        expect(not [pid for pid in pids if os.path.exists("/proc/%d" % pid)], "servers of the VM")
        expect("cut short" in system.log("node-0"), "why they have ended is said")
        for program in programs:
            program.process.kill()
            harness.finish(program.process)
        other.is_right(("mapped", "mapped 0"))
        late = Pinned(system)                # the guest still finds its memory, and the node does not use it
        late.is_right()
        shares(system, late, is_shared=False)
        for program in (late, other):
            program.does("end", "ended")


@scenario
def who_does_not_get_it():
    with OneNode(**OPTIONS) as system:
        add_vm(system, 0)
        system.gives_memory(0, 0)
        for memory, events in (({"memory.groups": []}, 0), ({"memory.slow": 0}, 1)):
            system.granted = {"memory.groups": ["root"], **memory}
            settings = {"managers": [system.manager_url], "vm_ip": system.vm_ip(0), "state_dir": system.path("vm-0", "state"),
                        "metrics": "127.0.0.1:0"}
            if not system.network:
                settings["socket"] = system.client_socket(0)
            write_settings(system.path("vm-0", "client.conf"), {**settings, **system.client_settings(0)})
            system.restart("vm-0")
            program = Pinned(system)
            program.is_right()
            shares(system, program, is_shared=False)
            ends(system, program)
            told = within(60, lambda: (lambda found: len(found) == events and [found])(
                [e for e in system.flytctl("events") if e["kind"] == "vm.memory_unused"]), "events")[0]
            expect(all("times what one of ordinary memory takes" in e["text"] for e in told), told)


def copies_of_all_kinds(program):
    for threads, count in ((1, 512 << 10), (1, (512 << 10) - 1), (1, 3 * MIB_BYTES + 1), (1, 40 * MIB_BYTES + 4099),
                           (2, 7 * MIB_BYTES - 1), (7, 5 * MIB_BYTES + 77)):
        program.copies(threads, count)


@scenario
def pageable_copies():
    """They go through a place in it: their bytes do not travel, but for those of threads that find it stand still."""
    with OneNode(mib=ROOM, **OPTIONS) as system:
        add_vm(system, 0)
        system.gives_memory(0, 0)
        program = Pageable(system)
        copies_of_all_kinds(program)
        shares(system, program)
        travelled = program.ends()
        expect(travelled < program.copied_bytes / 10, travelled, "bytes travel of", program.copied_bytes)


@scenario
def pageable_copies_without_room():
    with OneNode(mib=4, **OPTIONS) as system:
        add_vm(system, 0)
        system.gives_memory(0, 0)
        program = Pageable(system)
        copies_of_all_kinds(program)
        shares(system, program)
        travelled = program.ends()
        expect(travelled > program.copied_bytes, travelled, "bytes travel of", program.copied_bytes)


@scenario
def pageable_copies_away_and_back():
    """Their place does not stand against a move, which may come in the midst of one."""
    with BothNodes(mib=ROOM) as system:
        system.gives_memory(0, 0, 1)
        program = Pageable(system)
        program.does("begin %d" % (24 * MIB_BYTES + 5), "begun")
        shares(system, program)
        for _ in range(2):
            system.moves()
            program.copies(2, 9 * MIB_BYTES)
        shares(system, program)
        program.does("finish", "finished")
        program.ends()


@scenario
def pageable_copies_whose_server_is_killed():
    """Each of them ends: at the next server, or with an error."""
    with OneNode(mib=ROOM, **OPTIONS) as system:
        add_vm(system, 0)
        system.gives_memory(0, 0)
        program = Pageable(system)
        program.does("begin %d" % (24 * MIB_BYTES + 5), "begun")
        os.kill(shares(system, program)["server_pid"], signal.SIGKILL)
        with contextlib.suppress(BrokenPipeError):
            program.say("finish")
        answer = program.line("finish", 120)
        expect(answer == "finished" or answer.startswith("error "), answer)
        program.process.kill()
        harness.finish(program.process)


@scenario
def all_test_programs():
    with OneNode(mib=256, vms=1, gpus=1, sms=132, memory="8G") as system:
        add_vm(system, 0, "--sessions", 8, sm=132, memory="7G")
        system.gives_memory(0, 0)
        names = [os.path.basename(p)[:-3] for p in glob.glob(os.path.join(harness.ROOT, "tests", "apps", "*.cu"))]

        def runs(name):
            return name, system.run_in_vm(0, harness.app(name), timeout=300, FLYT_TEST_FORWARDED="1", FLYT_TEST_MAPPED="1")
        with concurrent.futures.ThreadPoolExecutor(2) as threads:
            results = list(threads.map(runs, sorted(set(names) - OF_A_WHOLE_GPU)))
        program = Pinned(system)
        shares(system, program)
        failed = [(name, result) for name, result in results if result.status not in (0, SKIPPED)]
        expect(not failed, "programs that fail:", failed)
        expect(len(results) > 100 and "no memory is shared" not in system.log("node-0"), "all of them had the memory")
        ends(system, program)


if __name__ == "__main__":
    main()
