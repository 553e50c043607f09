#!/usr/bin/env python3
"""Faults and neighbours on this machine's NVIDIA GPUs under MPS: an illegal address, killed servers, strict GPUs, client
slots, thread-block clusters. Says what it saw. Needs a GPU and nvidia-cuda-mps-control; FLYT_TEST_SOFTWARE=1 tries the
scenarios on software GPUs, which share their faults and their slots as clients of MPS do."""
import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time

import harness
from cluster import System
from harness import app, expect, expect_equal, finish, helper, lines, main, scenario, skip, within
from steady import MIB, Steady, allocations, events, is_idle
from survivor import rests

IS_SOFTWARE = os.environ.get("FLYT_TEST_SOFTWARE") == "1"
LIBRARY = os.path.join(harness.BUILD, "lib", "libflyt-softgpu.so") if IS_SOFTWARE else "libcuda.so.1"
CONTROL = "nvidia-cuda-mps-control"
LONG_MS = 3600000       # between rounds: such a program leaves the GPU alone
HELD_MIB = 32 if IS_SOFTWARE else 8192      # far more than the contexts of some servers
MEMORY = "96M" if IS_SOFTWARE else "10G"
GPU_SLOTS = 6 if IS_SOFTWARE else 48    # of a node as it is configured
TRIED_CONTEXTS = GPU_SLOTS + 2 if IS_SOFTWARE else 64
AT_ONCE = 8                             # programs that start together
NO_CONTEXT = 808                        # CUDA_ERROR_MPS_MAX_CLIENTS_REACHED
KILLS = 3

if not IS_SOFTWARE:
    if not os.path.exists("/dev/nvidiactl"):
        skip("no NVIDIA GPU here")
    if not shutil.which(CONTROL):
        skip("%s is needed" % CONTROL)

# Stands before NVIDIA's control program: notes each terminate_client, and whether its process was there then and after.
CONTROL_WITNESS = """#!/bin/sh
[ $# -gt 0 ] && exec nvidia-cuda-mps-control "$@"
command=$(cat)
state_of() { sed 's/.*) \\(.\\).*/\\1/' "/proc/$1/stat" 2>/dev/null || echo gone; }
case $command in
terminate_client*) before=$(state_of "${command##* }") ;;
esac
answer=$(printf '%s\\n' "$command" | nvidia-cuda-mps-control 2>&1)
status=$?
printf '%s\\n' "$answer"
case $command in
terminate_client*) echo "$command before=$before after=$(state_of "${command##* }") status=$status: $answer" >>"WITNESSED" ;;
esac
exit $status
"""


class Machine(System):
    """One node with what is here, MPS its own, for VMs that `add` puts on a GPU."""

    def __init__(self, vms, gpus=1, slots=False, **node):
        self.mps_dir = tempfile.mkdtemp(prefix="mps-", dir=harness.WORK)
        self.witnessed = os.path.join(self.mps_dir, "witnessed")
        env, settings = harness.environment(), {"warm": 1, **node}
        if IS_SOFTWARE:
            env["FLYT_SOFT_FAULT_FOLDER"] = tempfile.mkdtemp(prefix="faults-", dir=harness.WORK)
            if slots:
                settings["client_slots"] = GPU_SLOTS
                env["FLYT_SOFT_CLIENT_SLOTS"] = str(GPU_SLOTS * gpus)
                env["FLYT_SOFT_CLIENT_FOLDER"] = tempfile.mkdtemp(prefix="clients-", dir=harness.WORK)
        else:
            control = os.path.join(self.mps_dir, "control")
            with open(control, "w") as f:
                f.write(CONTROL_WITNESS.replace("WITNESSED", self.witnessed))
            os.chmod(control, 0o755)
            settings.update(mps="start", mps_dir=self.mps_dir, mps_control=control)
        super().__init__(vms=vms, gpus=gpus, sms=48, memory="2G", hardware=not IS_SOFTWARE, namespaces=False, env=env,
                         node=settings)

    def __exit__(self, kind, *rest):
        if kind:
            print("    events:\n" + self.flytctl_run("events").out)
            print("    terminate_client:\n" + self.terminated())
            for name in ("control.log", "server.log"):
                path = os.path.join(self.mps_dir, "log", name)
                if os.path.exists(path):
                    with open(path, errors="replace") as f:
                        print("    MPS's %s:\n        %s" % (name, "\n        ".join(f.read().splitlines()[-30:])))
        super().__exit__(kind, *rest)

    def add(self, i, gpu, *words, sm=16, memory=MEMORY, sessions=8):
        self.flytctl("vm", "add", self.vm_ip(i), "--sm", sm, "--memory", memory, "--sessions", sessions, "--include-gpu",
                     gpu["uuid"], *words)

    def gpus_of(self, isolation="shared"):
        return sorted((g for g in self.flytctl("gpus") if g["isolation"] == isolation), key=lambda g: g["index"])

    def sessions(self, i):
        return {s["id"]: s["server_pid"] for s in self.flytctl("sessions") if s["vm_ip"] == self.vm_ip(i)}

    def terminated(self):
        if not os.path.exists(self.witnessed):
            return ""
        with open(self.witnessed) as f:
            return f.read()


def gpu_count():
    if IS_SOFTWARE:
        return 2
    return len(lines(subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True).stdout))


def used_mib(gpu):
    """Of the GPU's memory, as NVIDIA's tool says; None on a software GPU."""
    if IS_SOFTWARE:
        return None
    said = subprocess.run(["nvidia-smi", "--id=" + gpu["uuid"], "--query-gpu=memory.used", "--format=csv,noheader,nounits"],
                          capture_output=True, text=True, check=True).stdout
    return int(said)


def say(*words):
    print("   ", *words, flush=True)


def begins_again(system, i, since):
    """Starts programs in VM i until one is right: ms from `since` to its end, and what those before it said."""
    refused = []

    def is_right():
        result = system.run_in_vm(i, helper("echo"))
        if result.status:
            refused.append("status %d: %s" % (result.status, result.err.strip()))
        return result.status == 0
    within(60, is_right, "a new program in VM %d is right; before: %s" % (i, refused))
    return (time.monotonic() - since) * 1e3, refused


def is_healthy(system, vms):
    """All is as before: nothing in use, GPUs well, servers warm, programs of all VMs at once right."""
    is_idle(system)
    within(60, lambda: all(g["warm"] >= 1 and g["health"] == "ok" for g in system.flytctl("gpus")), "warm servers again")
    programs = [Steady(system, i) for i in vms]
    for program in programs:
        program.goes_on()
    for program in programs:
        program.ends_right()
    is_idle(system)


def faults(system, i):
    """A program that makes an illegal access, and gets the error for it that it gets natively; when it had ended."""
    result = system.run_in_vm(i, app("fault_address"))
    ended = time.monotonic()
    say("the culprit ended with status %d after %.0f ms: %s" % (result.status, result.seconds * 1e3,
                                                               result.err.strip() or "nothing on stderr"))
    expect_equal(result.status, 0, "the culprit", result)
    return ended


def neighbour_of_a_fault(pause_ms):
    with Machine(vms=2) as system:
        gpu = system.gpus_of()[0]
        for i in range(2):
            system.add(i, gpu)
        victim = Steady(system, 1, pause_ms)
        victim.takes(HELD_MIB)
        victim.ask("rounds")
        if pause_ms == LONG_MS:
            rests(system, 1)
        session = within(30, lambda: system.sessions(1), "the victim's session")
        during = used_mib(gpu)
        ended = faults(system, 0)
        happened = within(30, lambda: events(system, "gpu.fault"), "the fault's event")
        say("event: %s" % happened[0]["text"])
        for i in (1, 0):
            ms, refused = begins_again(system, i, ended)
            say("VM %d: a new program had attached and was right %.0f ms after the fault; programs before it: %s" % (
                i, ms, refused or "none"))
        culprit = "program fault_address of VM %s" % system.vm_ip(0)
        expect_equal([e["object"] for e in events(system, "gpu.fault")], [gpu["uuid"]], "events of a fault")
        if pause_ms == LONG_MS:
            expect(happened[0]["text"].startswith(culprit), "nobody else can have been it:", happened)
            resumed = within(60, lambda: events(system, "session.resumed", next(iter(session))), "its session goes on")
            say("the victim's session went on %d ms after the event of the fault" % (
                resumed[0]["time_ms"] - happened[0]["time_ms"]))
            victim.ask("info")
            victim.ends_right()
        else:
            code, said = victim.ends_with_error()
            say("the victim ended with error %d: %s" % (code, said.strip()))
            ends = [e["text"] for e in within(30, lambda: events(system, "session.ended", next(iter(session))),
                                              "the victim's session has ended")]
            say("the victim's session: %s" % ends[0])
            for told in (happened[0]["text"], said, ends[0]):
                expect(culprit in told and "illegal address" in told, "who and what it was:", told)
        is_healthy(system, range(2))
        expect_equal([a["memory_used_bytes"] for a in allocations(system)], [0, 0], "memory that is charged")
        if during is not None:
            within(60, lambda: used_mib(gpu) < during - HELD_MIB / 2, "less than %d MiB in use on the GPU" % during)
            say("GPU memory in use: %d MiB with the victim, %d MiB afterwards" % (during, used_mib(gpu)))


@scenario
def a_neighbour_at_rest_goes_on():
    neighbour_of_a_fault(LONG_MS)


@scenario
def a_neighbour_that_computes_hears_of_a_fault():
    neighbour_of_a_fault(5)


class Resized(Steady):
    """programs/resized.cu in VM `i`: four streams of kernels, every result compared."""

    def __init__(self, system, i):
        self.system, self.name, self._said = system, "the program in VM %d" % i, b""
        self.process = system.start_in_vm(i, helper("resized"), "4")
        self.wait_ready()


def with_an_endless_kernel(system, i):
    """A program whose kernel never ends, its session and its server."""
    before = set(system.sessions(i))
    program = Resized(system, i)
    expect_equal(program.ask("hold"), [0], "an endless kernel")
    new = within(30, lambda: set(system.sessions(i)) - before, "its session").pop()
    return program, new, system.sessions(i)[new]


def is_gone(system, i, session, pid):
    within(60, lambda: session not in system.sessions(i) and not harness.is_alive(pid), "session %s has gone" % session)


def ends(program, neighbours, what):
    """The program has an error, its neighbours go on."""
    code, said = program.ends_with_error()
    say("%s: the program's error is %d: %s" % (what, code, said.strip()))
    for neighbour in neighbours:
        neighbour.goes_on()


@scenario
def servers_that_are_ended_harm_nobody():
    """With an endless kernel on the GPU: by an operator, also while they do not answer."""
    with Machine(vms=3) as system:
        gpu = system.gpus_of()[0]
        for i in range(3):
            system.add(i, gpu)
        neighbours = [Resized(system, 1), Steady(system, 2)]
        neighbours[1].takes(HELD_MIB)
        for is_stopped in (False, True) * KILLS:
            what = "session kill of a server that %s" % ("is stopped" if is_stopped else "answers")
            program, session, pid = with_an_endless_kernel(system, 0)
            if is_stopped:
                harness.stop(pid)
            begin = time.monotonic()
            system.flytctl("session", "kill", session)
            acknowledged = time.monotonic()
            is_gone(system, 0, session, pid)
            say("%s: acknowledged after %.0f ms, gone after %.0f ms" % (what, (acknowledged - begin) * 1e3,
                                                                     (time.monotonic() - begin) * 1e3))
            ends(program, neighbours, what)
            if not IS_SOFTWARE:
                asked = re.findall(r"terminate_client \d+ %d before=(\S+) after=(\S+) (.*)" % pid, system.terminated())
                say("%s: terminate_client: %s" % (what, asked or "not asked for"))
                expect(asked and asked[0][0] not in ("gone", "Z"),
                       "MPS is asked before the process is killed:", system.terminated())
        for neighbour in neighbours:
            neighbour.goes_on()
            neighbour.ends_right()
        is_healthy(system, range(3))
        expect_equal([a["memory_used_bytes"] for a in allocations(system)], [0, 0, 0], "memory that is charged")
        expect_equal(events(system, "gpu.fault"), [], "a fault of MPS")


@scenario
def programs_that_are_killed_harm_nobody():
    """Interrupted, or killed, with an endless kernel on the GPU, as programs are every day."""
    with Machine(vms=3) as system:
        gpu = system.gpus_of()[0]
        for i in range(3):
            system.add(i, gpu)
        neighbours = [Resized(system, 1), Steady(system, 2)]
        for number in (signal.SIGINT, signal.SIGKILL) * KILLS:
            program, session, pid = with_an_endless_kernel(system, 0)
            begin = time.monotonic()
            os.kill(program.process.pid, number)
            is_gone(system, 0, session, pid)
            say("signal %d: the server had gone after %.0f ms" % (number, (time.monotonic() - begin) * 1e3))
            harness.finish(program.process)
            for neighbour in neighbours:
                neighbour.goes_on()
        for neighbour in neighbours:
            neighbour.ends_right()
        expect_equal(events(system, "gpu.fault"), [], "a fault of MPS")
        is_healthy(system, range(3))


@scenario
def what_a_sigkill_from_elsewhere_does():
    """MPS may tear all of the GPU down when a client is killed under load without having been asked (the machine's own
    out-of-memory killer does that): then everybody is told of it, and all is well again."""
    with Machine(vms=3) as system:
        gpu = system.gpus_of()[0]
        for i in range(3):
            system.add(i, gpu)
        faulted = 0
        for number in range(KILLS):
            neighbours = [Resized(system, 1), Steady(system, 2)]
            program, session, pid = with_an_endless_kernel(system, 0)
            os.kill(pid, signal.SIGKILL)
            code, said = program.ends_with_error()
            say("SIGKILL %d: the program's error is %d: %s" % (number + 1, code, said.strip()))
            is_gone(system, 0, session, pid)
            try:
                for neighbour in neighbours:
                    neighbour.goes_on()
                    neighbour.ends_right()
            except (harness.Failed, OSError):
                faulted += 1
                happened = within(30, lambda: e if len(e := events(system, "gpu.fault")) == faulted else None, "an event")
                expect("of VM %s, whose server process ended by signal 9" % system.vm_ip(0) in happened[-1]["text"],
                       "who made it:", happened)
                for neighbour in neighbours:
                    harness.kill_group(neighbour.process)
            is_healthy(system, range(3))
        say("%d of %d times all programs on the GPU ended with it" % (faulted, KILLS))


@scenario
def a_strict_gpu_does_not_notice():
    if gpu_count() < 2:
        say("one GPU: not tried")
        return
    with Machine(vms=4, gpus=2, strict_gpus=["1"]) as system:
        expect_equal((len(system.gpus_of("strict")), system.gpus_of("strict")[0]["index"]), (1, 1), "strict GPUs")
        shared, strict = system.gpus_of()[0], system.gpus_of("strict")[0]
        for i in range(2):
            system.add(i, shared)
        for i in (2, 3):
            system.add(i, strict, "--isolation", "strict")
        victim, undisturbed = Steady(system, 1), [Resized(system, 2), Steady(system, 3)]
        undisturbed[1].takes(HELD_MIB)
        faults(system, 0)
        code, said = victim.ends_with_error()
        say("the victim on the shared GPU ended with error %d: %s" % (code, said.strip()))
        for program in undisturbed:
            program.goes_on()
        happened = within(30, lambda: events(system, "gpu.fault"), "the fault's event")
        expect_equal([e["object"] for e in happened], [shared["uuid"]], "events of a fault", happened)
        for program in undisturbed:
            program.goes_on()
            say("on the strict GPU: right after %d rounds" % program.ends_right())
        # And the other way round: a fault there is nobody else's, on either GPU.
        on_shared, on_strict = Steady(system, 1), Steady(system, 2)
        faults(system, 3)
        for program in (on_shared, on_strict):
            program.goes_on()
            program.ends_right()
        expect_equal(len(events(system, "gpu.fault")), 1, "faults of MPS", events(system, "gpu.fault"))
        is_healthy(system, range(4))


@contextlib.contextmanager
def mps_alone():
    """An MPS daemon for programs without Flyt; the environment of its clients."""
    folder = tempfile.mkdtemp(prefix="mps-", dir=harness.WORK)
    env = harness.environment(CUDA_MPS_PIPE_DIRECTORY=folder, CUDA_MPS_LOG_DIRECTORY=folder)
    if IS_SOFTWARE:
        env.update(FLYT_SOFT_DEVICES="2", FLYT_SOFT_CLIENT_SLOTS=str(GPU_SLOTS), FLYT_SOFT_CLIENT_FOLDER=folder)
        yield env
        return
    # Its output may stay open in the daemon.
    starting = harness.start([CONTROL, "-d"], env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    expect_equal(starting.wait(60), 0, "MPS")
    try:
        yield env
    finally:
        harness.run([CONTROL], env, stdin=b"quit\n", timeout=120)


def said_first(process):
    return process.stdout.readline().decode().strip()


def start_contexts(env, gpus, count):
    """Starts so many programs, by turns on each of the GPUs, some at once: those that have a context, by GPU, and what the
    others said. Those of one GPU see no other."""
    held, refused = {gpu: [] for gpu in gpus}, []
    for first in range(0, count, AT_ONCE):
        started = []
        for gpu in [gpus[i % len(gpus)] for i in range(first, min(first + AT_ONCE, count))]:
            own = {**env} if IS_SOFTWARE else {**env, "CUDA_VISIBLE_DEVICES": gpu}
            command = [helper("mps_contexts"), LIBRARY, gpu if IS_SOFTWARE else "0"]
            started.append((gpu, harness.start(command, own, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                               stderr=subprocess.PIPE)))
        for gpu, process in started:
            said = said_first(process)
            if said == "context":
                held[gpu].append(process)
            else:
                refused.append(said)
                finish(process)
    return held, refused


def count_contexts(gpus, count):
    with mps_alone() as env:
        held, refused = start_contexts(env, gpus, count)
        counts = [len(held[gpu]) for gpu in gpus]
        for process in [p for processes in held.values() for p in processes]:
            process.stdin.close()
            process.stdin = None
            expect_equal(finish(process).status, 0, "the end of a program with a context")
        say("MPS alone, %d programs by turns on GPUs %s: contexts %s, %d in all; refused: %s" % (
            count, gpus, counts, sum(counts), {said: refused.count(said) for said in sorted(set(refused))} or "none"))
        expect(set(refused) <= {"refused %d" % NO_CONTEXT}, "refused for another reason:", refused)
    return counts


@scenario
def contexts_that_mps_gives():
    """Without Flyt: how many programs have a context at once, and whether that is for each GPU or for all."""
    one = count_contexts(["0"], TRIED_CONTEXTS)
    expect(one[0] >= GPU_SLOTS, "contexts of one GPU, and as many as a node's default says:", one)
    if gpu_count() < 2:
        say("one GPU: not tried with two")
        return
    both = count_contexts(["0", "1"], 2 * TRIED_CONTEXTS)
    say("of two GPUs: %s" % ("each has its own" if sum(both) >= 2 * one[0] else "fewer than twice those of one"))


def start_all(system, vms, count):
    """So many programs in each of the VMs, all with their GPU and idle."""
    programs = []
    for first in range(0, count, AT_ONCE):
        new = [Steady(system, i, LONG_MS, ready=False) for _ in range(first, min(first + AT_ONCE, count)) for i in vms]
        for program in new:
            program.wait_ready()
        programs += new
    return programs


@scenario
def client_slots_are_what_they_seem():
    with Machine(vms=3, gpus=2, slots=True) as system:
        gpus = system.gpus_of()[:2]
        slots = gpus[0]["client_slots"]
        expect_equal([g["client_slots"] for g in gpus], [GPU_SLOTS - 1] * len(gpus), "slots beside the warm server's")
        for i, gpu in enumerate(gpus):
            system.add(i, gpu, memory="1G" if IS_SOFTWARE else "8G", sessions=slots)
        begin = time.monotonic()
        programs = start_all(system, range(len(gpus)), slots)
        say("%d programs on each of %d GPUs after %.1f s" % (slots, len(gpus), time.monotonic() - begin))
        within(30, lambda: [g["servers"] for g in system.gpus_of()[:2]] == [GPU_SLOTS] * len(gpus),
               "all servers, warm ones too")
        shown = system.gpus_of()[:2]
        expect_equal([(g["client_slots"], g["client_slots_allocated"]) for g in shown], [(slots, slots)] * len(gpus), shown)
        within(30, lambda: [a["sessions"] for a in allocations(system)] == [slots] * len(gpus), "the programs are counted")
        say("as shown: %s" % ["%d of %d slots, %d servers, %d MiB" % (
            g["client_slots_allocated"], g["client_slots"], g["servers"], g["memory_used_bytes"] // MIB) for g in shown])
        # For another VM there is no slot, for this one no further program.
        system.add(2, gpus[0], memory="64M", sessions=1)
        for i, word in ((2, "slots"), (0, "allow")):
            result = system.run_in_vm(i, helper("echo"))
            say("one more, in VM %d: status %d: %s" % (i, result.status, result.err.strip()))
            expect(result.status != 0 and word in result.err, "one program too many is refused, and why:", result)
        for program in programs:
            program.ends_right()
        expect("cuda_result=%d" % NO_CONTEXT not in system.log("node-0"), "MPS refused a context\n",
               system.log("node-0")[-3000:])
        expect_equal([g["health"] for g in system.flytctl("gpus")][:2], ["ok"] * len(gpus), "GPUs")
        is_idle(system)


def clusters(system, size):
    """What programs/clusters.cu says: (number of active clusters or an error, {way: words}); None: a GPU without."""
    result = system.run_in_vm(0, helper("clusters"), str(size))
    say("clusters of %d: %s" % (size, "; ".join(lines(result.out + result.err)) or "nothing"))
    if result.status == 77:
        return None
    expect_equal(result.status, 0, "clusters of", size, result)
    said = dict(line.split(" ", 1) for line in lines(result.out))
    return said.pop("active"), said


@scenario
def clusters_run_where_groups_have_room():
    """Groups of 8: clusters of 2 to 8; groups of 2: of 2 alone, and others get the driver's error."""
    for group_size, right in ((8, (2, 4, 8)), (2, (2,))):
        with Machine(vms=1) as system:
            gpu = system.gpus_of()[0]
            if group_size != 8:
                system.flytctl("gpu", "set", gpu["uuid"], "--group-size", group_size)
            system.add(0, gpu)
            for size in (2, 4, 8):
                found = clusters(system, size)
                if found is None:
                    expect(IS_SOFTWARE, "this GPU has no clusters")
                    continue
                active, said = found
                expect_equal(said.pop("plain"), "right", "a kernel without clusters")
                if size in right:
                    expect(active.isdigit() and int(active) > 0, "active clusters:", active)
                    expect_equal(said, {"dims": "right", "attribute": "right"}, "clusters of", size)
                else:
                    expect(active == "0" or active.startswith("error "), "active clusters:", active)
                    expect(all(words.startswith("error ") for words in said.values()), "clusters of", size, said)
            is_idle(system)
            expect_equal([g["health"] for g in system.flytctl("gpus")][:1], ["ok"], "the GPU")


main()
