#!/usr/bin/env python3
"""Core dumps of the GPU: they come to be in the folder that the VM has on its node, within the bound, whatever path the program
names; others go on; flytctl shows and removes them. Kernels really fault, on software GPUs, whose dumps have a format of their own
(cpu/softgpu/driver/coredump.h)."""
import contextlib
import os
import re
import select
import stat
import tempfile

import harness
from cluster import System
from harness import environment, expect, expect_equal, helper, main, scenario, server, within
from steady import Steady, add_vm, allocation, events
from survivor import its_server_is_killed, session
from two_nodes import COMMAND_S, PATIENCE, TwoNodes

HARDWARE = False        # coredump_gpu_test.py: what it says in place of these
SERVER = ("--soft", "1")
DIRECT_ENV = {"FLYT_SOFT_DUMP_MS": "50"}
SYSTEM = {"gpus": 2, "sms": 32, "memory": "1G"}
STRICT, SHARED = {"isolation": "strict"}, {}    # of a node
VM_MEMORY = "256M"
OTHER_GPU = "node-0:1"

ILLEGAL_ADDRESS = "fault 700"
WORD = 0xfeedbeef
BYTES_MAX = 40 << 20    # a first dump fits in, and a second one of a program with much memory does not
ENVIRONMENT = {"CUDA_ENABLE_COREDUMP_ON_EXCEPTION": "1"}


class Dumped:
    """programs/dumped.cu, up to its fault and past it."""

    def __init__(self, process):
        self.process = process
        self.said = b""
        self.reads(b"ready")

    def reads(self, line):
        while line not in self.said:
            ready = select.select([self.process.stdout], [], [], harness.PATIENCE_S)[0]
            expect(ready, "the program says nothing for", harness.PATIENCE_S, "s before it says", line, self.said)
            chunk = os.read(self.process.stdout.fileno(), 4096)
            expect(chunk, "the program ends before it says", line, self.said)
            self.said += chunk

    def begins_to_fault(self):
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()

    def faults(self):
        self.begins_to_fault()
        self.reads(ILLEGAL_ADDRESS.encode())

    def ends(self):
        """What it has said on stderr."""
        out, err = self.process.communicate(b"\n", timeout=harness.PATIENCE_S)
        expect_equal(self.process.returncode, 0, out, err)
        return err.decode()


def direct(s, how, file, size=1024, **changes):
    changes.update(FLYT_SERVER=s.url, LD_LIBRARY_PATH=os.path.join(harness.BUILD, "lib"))
    return Dumped(harness.start([helper("dumped"), how, file, str(size), str(WORD)], environment(**changes), stdin=-1, stdout=-1,
                                stderr=-1))


def in_vm(system, i, how, file, size=1024, **changes):
    return Dumped(system.start_in_vm(i, helper("dumped"), how, file, str(size), str(WORD), **changes))


def soft_content(path):
    """What a dump of the software GPU has of memory: it is whole, and of the kernel that faulted."""
    with open(path, "rb") as f:
        head, memory = [], []
        for line in iter(f.readline, b""):
            words = line.decode().split()
            if words[0] == "memory":
                memory.append(f.read(int(words[2])))
            else:
                head.append(line.decode().rstrip("\n"))
    expect_equal([head[0], head[1], head[-1]], ["flyt-soft-core 1", "error 700 CUDA_ERROR_ILLEGAL_ADDRESS", "end"], path)
    expect(any(re.fullmatch(r"kernel \S*fault\S*", line) for line in head), "the kernel that faulted", head)
    return b"".join(memory)


CONTENT, MARK = soft_content, WORD.to_bytes(4, "little")


def has_word(path):
    return MARK in CONTENT(path)


@contextlib.contextmanager
def listener(*arguments):
    """A server without a node manager, and the folder of its dumps."""
    path = tempfile.mkdtemp(prefix="coredumps-", dir=harness.WORK)
    with server(arguments=(*SERVER, "--coredumps", path, *arguments), env=environment(**DIRECT_ENV)) as s:
        yield path, s


def whole_system(vms=1, isolation=STRICT, env=None, **node):
    further = {"env": env} if env else {}
    own = {"mps_dir": tempfile.mkdtemp(prefix="mps-", dir=harness.WORK)} if "mps" in isolation else {}
    return System(vms=vms, node={**isolation, **own, **node}, **SYSTEM, **further)


def dumps(path):
    return sorted(os.path.join(path, name) for name in os.listdir(path) if name.endswith(".nvcudmp"))


@scenario
def without_a_folder_it_is_refused_by_name():
    with server(arguments=SERVER) as s:
        for how in ("set", "flag"):
            result = harness.run(harness.through_flyt(s.url, helper("dumped"), how, "-", "1024", "1"))
            expect_equal((result.status, result.out), (0, "ready\nfault 700\n"), result)
            expect_equal(result.err.count("core dump"), 1, result)
        # Who has it from the environment alone computes all the same.
        program = direct(s, "environment", "-", **ENVIRONMENT)
        program.faults()
        expect("core dump of the GPU" in program.ends(), "what is said of a dump that is not made")


@scenario
def a_fault_leaves_one_in_the_server_s_folder():
    with listener() as (path, s):
        elsewhere = os.path.join(harness.WORK, "named-by-the-program")
        fifo = os.path.join(harness.WORK, "a-pipe")
        os.mkfifo(fifo)
        for how, file, changes in (("set", elsewhere, {}), ("set", fifo, {}), ("flag", "-", {}), ("environment", "-", ENVIRONMENT),
                                   ("environment", "-", {**ENVIRONMENT, "CUDA_COREDUMP_FILE": elsewhere})):
            before = dumps(path)
            program = direct(s, how, file, **changes)
            expect_equal(dumps(path), before, "a dump before the fault")
            program.faults()
            made = [one for one in dumps(path) if one not in before]
            expect_equal(len(made), 1, "dumps of", how, file, changes)
            expect(os.path.basename(made[0]) in program.ends(), "its name on stderr")
            expect(has_word(made[0]), "the program's memory in", made[0])
            expect(not os.path.exists(elsewhere), "the file that the program has named")
        expect(stat.S_ISFIFO(os.stat(fifo).st_mode), "the pipe that the program has named")
        program = direct(s, "skip", "-")
        program.faults()
        program.ends()
        expect_equal([has_word(one) for one in dumps(path)].count(False), 1, "dumps without memory")


@scenario
def who_ends_with_the_fault_leaves_one():
    """The driver has not begun with it then."""
    with listener() as (path, s):
        program = direct(s, "gone", "-")
        expect_equal(program.process.communicate(b"\n", timeout=harness.PATIENCE_S)[0], b"", "what it says after ready")
        within(20, lambda: "core dump core." in s.log(), "a dump")
        expect_equal([has_word(one) for one in dumps(path)], [True], "dumps")


@scenario
def who_asks_for_none_leaves_none():
    with listener() as (path, s):
        for how in ("environment", "late", "off"):
            program = direct(s, how, "-")
            program.faults()
            expect("core dump" not in program.ends(), "what is said", how)
            within(20, lambda: not os.listdir(path), "no dump is left: " + how)


@scenario
def who_asks_when_a_gpu_is_in_use_is_told():
    """The runtime's context began without and has memory; one that is made for dumps is, and leaves none."""
    with listener() as (path, s):
        program = direct(s, "flag after", "-")
        program.faults()
        expect("a GPU that the program used already" in program.ends(), "what is said")
        expect_equal(os.listdir(path), [], "dumps")


@scenario
def the_environment_outranks_the_program():
    """What a variable says cannot be set, which is CUDA_ERROR_NOT_PERMITTED, and is what a program gets."""
    with listener() as (path, s):
        env = environment(FLYT_SERVER=s.url, LD_LIBRARY_PATH=os.path.join(harness.BUILD, "lib"), CUDA_COREDUMP_FILE="mine")
        result = harness.run([helper("dumped"), "set", "other", "1024", "1"], env)
        expect_equal((result.status, result.out), (3, "file: 800\n"), result)
        # Flags of the environment hold for what the program enables.
        program = direct(s, "flag", "-", CUDA_COREDUMP_GENERATION_FLAGS="skip_abort,skip_global_memory")
        program.faults()
        program.ends()
        expect_equal([has_word(one) for one in dumps(path)], [False], "dumps without memory")
        program = direct(s, "environment", "-", **ENVIRONMENT, CUDA_ENABLE_USER_TRIGGERED_COREDUMP="1")
        program.faults()
        expect("CUDA_ENABLE_USER_TRIGGERED_COREDUMP is not supported" in program.ends(), "a pipe is refused by name")


@scenario
def one_that_is_too_large_is_removed():
    """The program gets its error, and is told; what was there before stays."""
    with listener("--coredumps-bytes", str(BYTES_MAX)) as (path, s):
        first = direct(s, "set", "-")
        first.faults()
        first.ends()
        kept = dumps(path)
        expect_equal(len(kept), 1, "the first one's")
        second = direct(s, "set", "-", 64 << 20)
        second.faults()
        expect("removed" in second.ends(), "what the program is told")
        expect_equal(dumps(path), kept, "what is left")
        expect(has_word(kept[0]), "the first one is as it was")
        expect("was removed" in s.log(), s.log())


def vm_folder(system, i):
    return system.path("node-0", "state", "coredumps", system.vm_ip(i))


@scenario
def in_the_vm_s_folder_on_the_node():
    """Two VMs on one GPU, each with a bound of its own; the neighbour computes on; flytctl tells of it, shows and removes it."""
    with whole_system(2, **{"vm.coredumps": str(BYTES_MAX)}) as system:
        if OTHER_GPU:
            system.flytctl("cordon", OTHER_GPU)
        for i in range(2):
            add_vm(system, i, "--isolation", "strict", memory=VM_MEMORY)
        neighbour = Steady(system, 1)
        neighbour.goes_on()
        program = in_vm(system, 0, "set", "/etc/flyt-core")
        program.faults()
        neighbour.goes_on()
        expect("core dump core." in program.ends(), "the dump's name on stderr")
        expect(not os.path.exists("/etc/flyt-core"), "the file that the program has named")
        made = dumps(vm_folder(system, 0))
        expect_equal(len(made), 1, "dumps of the VM")
        expect(has_word(made[0]), "the program's memory")
        expect_equal(stat.S_IMODE(os.stat(made[0]).st_mode), 0o600, "who may read it")
        expect(stat.S_IMODE(os.stat(vm_folder(system, 0)).st_mode) in (0o700, 0o1777), "who may remove it")
        expect_equal(dumps(vm_folder(system, 1)), [], "dumps of its neighbour")
        told = within(20, lambda: events(system, "session.coredump"), "an event")
        expect(made[0] in told[0]["text"] and system.vm_ip(0) in told[0]["text"], told)

        rows = system.flytctl("coredump", "list", os.path.dirname(vm_folder(system, 0)))
        expect_equal([(row["vm"], row["file"], row["bytes"]) for row in rows],
                     [(system.vm_ip(0), made[0], os.path.getsize(made[0]))], "flytctl coredump list")
        expect_equal(rows[0]["session_id"], told[0]["object"], "whose it is")

        # What would be too much is removed, and that is told, too.
        program = in_vm(system, 0, "environment", "-", 64 << 20, **ENVIRONMENT)
        program.faults()
        expect("removed" in program.ends(), "what the program is told")
        within(20, lambda: [one for one in events(system, "session.coredump") if "removed" in one["text"]], "an event")
        expect_equal(dumps(vm_folder(system, 0)), made, "what is left")
        neighbour.goes_on()
        neighbour.ends_right()
        expect_equal(system.flytctl_run("coredump", "remove", vm_folder(system, 0)).status, 2, "a folder is no dump")
        expect_equal(system.flytctl_run("coredump", "remove", made[0]).status, 0, "flytctl coredump remove")
        expect_equal(dumps(vm_folder(system, 0)), [], "what is left")
        expect_equal(system.flytctl_run("coredump", "remove", made[0]).status, 3, "one that is not there")


def migrates(system):
    where = ("--to", OTHER_GPU) if OTHER_GPU else ("--to", "node-0:0", "--force")
    return system.flytctl_run("migrate", "alice", *where, *PATIENCE, timeout=COMMAND_S)


def goes_elsewhere(system):
    """Another server goes on with each of its programs: on the other GPU, or on the same one where there is none."""
    if OTHER_GPU:
        system.flytctl("uncordon", OTHER_GPU)
    result = migrates(system)
    expect_equal(result.status, 0, "flytctl migrate", result)


@scenario
def after_a_move_the_next_server_leaves_it():
    """With the same flags, and as the session that it was."""
    with whole_system() as system:
        if OTHER_GPU:
            system.flytctl("cordon", OTHER_GPU)
        add_vm(system, 0, "--name", "alice", "--isolation", "strict", memory=VM_MEMORY)
        programs = [in_vm(system, 0, how, "-") for how in ("set", "skip")]
        sessions = within(20, lambda: s if len(s := {one["id"] for one in system.flytctl("sessions")}) == 2 else None, "both sessions")
        goes_elsewhere(system)
        for program in programs:
            program.faults()
            expect("core dump core." in program.ends(), "the dump's name on stderr")
        made = dumps(vm_folder(system, 0))
        expect_equal({os.path.basename(one).split(".")[1] for one in made}, sessions, "whose they are")
        expect_equal(sorted(has_word(one) for one in made), [False, True], "one of the two is without memory")


@scenario
def a_move_waits_for_one_that_may_come():
    """Until the dump is there the driver says that all is well: a session that moved meanwhile would go on without its fault."""
    env = environment()
    env["FLYT_SOFT_DUMP_MS"] = "500"
    with whole_system(env=env) as system:
        add_vm(system, 0, "--name", "alice", "--isolation", "strict", memory=VM_MEMORY)
        program = in_vm(system, 0, "set", "-")
        session(system)
        program.begins_to_fault()
        migrates(system)    # whether or not it comes to that
        program.reads(ILLEGAL_ADDRESS.encode())
        expect("core dump core." in program.ends(), "the dump's name on stderr")
        expect_equal([has_word(one) for one in dumps(vm_folder(system, 0))], [True], "dumps of the VM")


def is_resized(system):
    system.flytctl("resize", "alice", "--sm", 16)
    within(60, lambda: (lambda one: one["sms"] == 16 and one["switch_state"] == "vacated")(allocation(system, 0)), "it has more SMs")


def is_restored(system):
    folder = tempfile.mkdtemp(prefix="images-", dir=harness.WORK)
    for words in (("checkpoint", "alice", "--to", folder, *PATIENCE), ("restore", folder)):
        result = system.flytctl_run(*words, timeout=COMMAND_S)
        expect_equal(result.status, 0, "flytctl", *words, result)


@scenario
def whatever_happens_to_its_server():
    """A resize, the death of the server, a checkpoint that it is restored from: each program leaves its dump afterwards."""
    for happens in (is_resized, its_server_is_killed, is_restored):
        with whole_system(isolation=SHARED) as system:
            add_vm(system, 0, "--name", "alice", memory=VM_MEMORY)
            program = in_vm(system, 0, "set", "-")
            session(system)
            happens(system)
            program.faults()
            said = program.ends()
            expect("core dump core." in said, "the dump's name on stderr after", happens.__name__, said)
            expect_equal([has_word(one) for one in dumps(vm_folder(system, 0))], [True], "dumps of the VM", happens.__name__)


@scenario
def under_mps_others_wait_for_it():
    """A fault ends all programs of a GPU that MPS shares; whoever's dump is being written is let, and hears of its own fault."""
    env = environment()
    env["FLYT_SOFT_FAULT_FOLDER"] = tempfile.mkdtemp(prefix="faults-", dir=harness.WORK)
    with whole_system(2, isolation=SHARED, env=env) as system:
        if OTHER_GPU:
            system.flytctl("cordon", OTHER_GPU)
        for i in range(2):
            add_vm(system, i, memory=VM_MEMORY if HARDWARE else "384M")
        neighbour = Steady(system, 1)
        neighbour.goes_on()
        program = in_vm(system, 0, "set", "-", 256 << 20)
        program.faults()
        expect("core dump core." in program.ends(), "the dump's name on stderr")
        made = dumps(vm_folder(system, 0))
        expect_equal(len(made), 1, "dumps of the VM")
        expect(has_word(made[0]), "the program's memory")
        code, said = neighbour.ends_with_error()
        expect("VM %s" % system.vm_ip(0) in said, "what the neighbour's program is told:", code, said)


def at_another_node():
    with TwoNodes() as system:
        program = in_vm(system, 0, "set", "-")
        session(system)
        expect_equal(system.migrates("node-1:0").status, 0, "flytctl migrate")
        program.faults()
        expect("core dump core." in program.ends(), "the dump's name on stderr")
        made = dumps(system.path("node-1", "state", "coredumps", system.vm_ip(0)))
        expect_equal([has_word(one) for one in made], [True], "dumps of the VM there")


if __name__ == "__main__":
    scenario(at_another_node)
    main()
