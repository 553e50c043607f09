#!/usr/bin/env python3
"""usage: whole_system.py, with FLYT_BUILD=FOLDER

The demonstration's second part: a cluster manager, GPU nodes and three VMs on this machine, programs in the VMs, and
changes of what running programs have. Everything is in a temporary folder and in network namespaces of its own, and goes
at the end. Exit status 0 where every program's result is right.
"""
import os
import shutil
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "system"))
import harness          # noqa: E402
from cluster import System      # noqa: E402

failures = 0


def say(text=""):
    print(text, flush=True)


def indent(text):
    return "".join("    " + line + "\n" for line in text.rstrip("\n").splitlines())


def show(system, *words):
    """A flytctl command as an operator types it, and its answer."""
    result = system.flytctl_run(*words)
    say("$ flytctl " + " ".join(map(str, words)))
    say(indent(result.out + result.err))
    global failures
    failures += result.status != 0


def report(what, result):
    global failures
    failures += result.status != 0
    say(what)
    say(indent(result.out + result.err) + ("" if result.status == 0 else "    FAILED, exit status %d\n" % result.status))


def demo(name):
    return os.path.join(harness.BUILD, "tests", "demo", name)


def has_gpu():
    try:
        return bool(subprocess.run(["nvidia-smi", "-L"], capture_output=True, timeout=60).stdout.strip())
    except (OSError, subprocess.SubprocessError):
        return False


def gpu_settings():
    """For node-0 on the machine's GPUs: MPS where it is installed, else GPUs that take turns."""
    if shutil.which("nvidia-cuda-mps-control"):
        return {"node": lambda i: {"mps": "start", "mps_dir": os.path.join(harness.WORK, "mps")}}
    return {"node": lambda i: {"isolation": "strict"}, "cluster": {"defaults.isolation": "strict"}}


SM_RATE = 1000000       # thread-instructions per second: 64 such SMs are as fast as a small machine's CPUs can be
PATIENCE = ("--stop-timeout", "30000", "--timeout", "120")      # a busy machine may take its time
STARS = 768             # a step of all pairs takes 16 such SMs 0.7 s


def node_settings(i):
    """The last node's software GPUs are as large as an H200, and each of their SMs has a speed of its own."""
    return {"software_gpus": 2, "software_sms": 132, "software_sm_rate": SM_RATE} if i == 2 else {}


def rate_of(program):
    """(SMs, million interactions per second) of two lines after the one under way."""
    lines = [program.stdout.readline().decode().split() for _ in range(3)][1:]
    harness.expect(all(len(line) == 7 for line in lines), "the stars' rate", lines)
    return int(lines[-1][0]), sum(float(line[2]) for line in lines) / len(lines)


def show_move(system, stars):
    """To another GPU of its node, or to a new server process where there is one GPU; the rate afterwards."""
    places = {gpu["uuid"]: "%s:%d" % (gpu["node"], gpu["index"]) for gpu in system.flytctl("gpus")}
    carol = system.vm_ip(2)
    here = places[next(a["gpu"] for a in system.flytctl("allocations") if a["vm_ip"] == carol)]
    others = [name for name in sorted(places.values()) if name != here and name.split(":")[0] == here.split(":")[0]]
    say("It is on %s, and moves %s while it computes. It stands still only at the end, while the\n"
        "step that the GPU has begun ends and the last pages are copied:\n"
        % (here, "to the GPU beside it" if others else "to a new server process, for lack of another GPU,"))
    show(system, "migrate", "carol", "--to", *([others[0]] if others else [here, "--force"]), *PATIENCE)
    return rate_of(stars)


def show_rates(system):
    """A program whose speed follows the SMs that an operator gives its VM, and that moves to another GPU."""
    if not system.hardware:
        say("A third node comes, with two software GPUs. Their SMs have a speed each, as a GPU's have, so that more of them\n"
            "are faster. VM carol is to be there:\n")
        system.start_node(2)
        harness.within(30, lambda: len([n for n in system.flytctl("nodes") if n["state"] == "up"]) == 3, "the third node")
    where = ["--include-gpu", "node-2:0", "--include-gpu", "node-2:1"] if not system.hardware else []
    show(system, "vm", "add", system.vm_ip(2), "--name", "carol", "--sm", 16, "--memory", "256M" if where else "2G", *where)
    say("carol$ flyt-run ./stars %d &\n\nIt computes and prints its speed. Meanwhile the operator changes what carol has:\n"
        % (STARS if where else 64 * STARS))
    stars = system.start_in_vm(2, demo("stars"), str(STARS if where else 64 * STARS))
    rates = [rate_of(stars)]
    for sms in (64, 32):
        show(system, "resize", "carol", "--sm", sms, "--wait", "vacated")
        rates.append(rate_of(stars))
    rates.append(show_move(system, stars))
    say("The same process, as it printed, the last line after its move:\n\n    SMs   million interactions per second   times the first")
    for sms, rate in rates:
        say("    %3d   %31.2f   %15.2f" % (sms, rate, rate / rates[0][1]))
    say()
    stars.stdin.close()
    stars.stdin = None
    report("carol: its last line", harness.finish(stars))


def play(system):
    alice, bob = system.vm_ip(0), system.vm_ip(1)
    small, large = ("256M", "512M") if not system.hardware else ("2G", "4G")
    where = "a network namespace of its own" if system.network else "a folder of its own (no network namespaces here)"
    say("Running now: flyt-cluster-manager (SQLite), %d × flyt-node-manager, and for each of three VMs, each in\n%s, a "
        "flyt-client-manager. Nodes and VMs have enrolled with one-time tokens; they speak TLS.\n"
        % (system.node_count, where))
    show(system, "nodes")
    say("An operator says what two of the VMs are to have:\n")
    show(system, "vm", "add", alice, "--name", "alice", "--sm", 8, "--memory", small, "--policy", "spread")
    show(system, "vm", "add", bob, "--name", "bob", "--sm", 16, "--memory", large, "--policy", "spread")
    say("In the VMs nobody knows an address: `flyt-run PROGRAM` there asks the VM's client manager. The first program makes\n"
        "the cluster manager choose a GPU. Two programs at once:\n")
    matrix = system.start_in_vm(1, demo("matrix"))
    report("alice$ flyt-run ./histogram", system.run_in_vm(0, demo("histogram")))
    report("bob$ flyt-run ./matrix", harness.finish(matrix))
    show(system, "gpus")
    show(system, "vms")
    say("A program that takes all the memory it gets, in blocks of 32 MiB beside its code, and then waits for more:\n\nalice$ flyt-run ./growing &")
    growing = system.start_in_vm(0, demo("growing"))
    for _ in range(2):
        sys.stdout.write(growing.stdout.readline().decode())
    say()
    harness.within(20, lambda: any(s["program"] == "growing" and s["calls"] for s in system.flytctl("sessions")),
                   "the session with what it has done")
    show(system, "sessions")
    show(system, "allocations")
    say("More memory for it, while it runs:\n")
    show(system, "resize", "alice", "--memory", large)
    report("alice: the same process, its output since then", harness.finish(growing, 150))
    show(system, "allocations")
    show_rates(system)
    show(system, "events", "--last", 8)


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    harness.WORK = tempfile.mkdtemp(prefix="flyt-demo-")
    try:
        hardware = has_gpu()
        settings = gpu_settings() if hardware else {"node": node_settings}
        with System(nodes=1 if hardware else 2, vms=3, hardware=hardware, **settings) as system:
            play(system)
    except harness.Failed as error:
        say("FAILED: %s" % error)
        sys.exit(1)
    finally:
        shutil.rmtree(harness.WORK, ignore_errors=True)
    if failures:
        say("%d commands or programs of the whole system failed." % failures)
        sys.exit(1)
    say("Everything has been taken down again. make install-cluster, install-node and install-client put the same on\n"
        "machines of yours, with systemd units and commented examples in /etc/flyt.")


main()
