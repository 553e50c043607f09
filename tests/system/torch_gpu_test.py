#!/usr/bin/env python3
"""A PyTorch program (tests/torch/steps.py) trains on this machine's NVIDIA GPU while its VM moves and is resized: its losses are,
bit by bit, those of a run that nobody disturbs. So does one that tries all kinds of operations (tests/torch/operations.py). Needs
a GPU and PyTorch in `python3` (or PYTHON)."""
import importlib.util
import os
import subprocess
import sys

import harness
from cluster import System
from harness import expect, expect_equal, main, scenario, skip, within
from steady import Steady, add_vm, allocation, is_idle

PYTHON = os.environ.get("PYTHON", sys.executable)
PROGRAM = os.path.join(harness.ROOT, "tests", "torch", "steps.py")
OPERATIONS = os.path.join(harness.ROOT, "tests", "torch", "operations.py")
ROUNDS, STEPS = 6, 10
PATIENCE = ("--stop-timeout", "60000", "--timeout", "240")

if not os.path.exists("/dev/nvidiactl"):
    skip("no NVIDIA GPU here")
if subprocess.run([PYTHON, "-c", "import torch"], capture_output=True, check=False).returncode:
    skip("%s has no PyTorch" % PYTHON)


def library_folders():
    """Where PyTorch's wheels have NVIDIA's libraries."""
    found = importlib.util.find_spec("nvidia")
    roots = list(found.submodule_search_locations) if found else []
    folders = {os.path.join(root, name, "lib") for root in roots for name in os.listdir(root)}
    return ":".join(sorted(folder for folder in folders if os.path.isdir(folder)))


class Training(Steady):
    def __init__(self, system, net="transformer"):
        self.system, self.name, self._said = system, "the program that trains", b""
        self.process = system.start_in_vm(0, PYTHON, PROGRAM, net)
        if self.line("ready", 240) != "ready":
            raise harness.Failed("it did not start: %r" % (harness.finish(self.process),))

    def steps(self):
        self.say("steps %d" % STEPS)
        return self.line("steps", 240)

    def ends(self):
        self.say("end")
        expect_equal(harness.finish(self.process, 60).status, 0)


def whole_system(mps):
    node = {"mps": mps, "warm": 2, "libraries": library_folders()}
    if mps == "start":
        node["mps_dir"] = os.path.join(harness.WORK, "mps")
    system = System(vms=1, hardware=True, node=node)
    try:
        add_vm(system, 0, "--name", "alice", "--sessions", 8, sm=64, memory="16G")
    except BaseException:
        system.print_logs()
        system.close()
        raise
    return system


def move(system):
    """To another GPU where there is one, else to another server on the same; where to, and flytctl's result."""
    gpus = {g["uuid"]: "%s:%d" % (g["node"], g["index"]) for g in system.flytctl("gpus")}
    here = gpus[allocation(system, 0)["gpu"]]
    target = next((name for name in sorted(gpus.values()) if name != here), here)
    moved = system.flytctl_run("migrate", "alice", "--to", target, *PATIENCE, *(["--force"] if target == here else []), timeout=300)
    return "%s to %s" % (here, target), moved


def moves(system):
    way, moved = move(system)
    expect_equal(moved.status, 0, "the move from", way, moved)
    print("    moved from %s" % way)


def is_the_same_after_moves(net, mps):
    with whole_system(mps) as system:
        program = Training(system, net)
        wanted = [program.steps() for _ in range(ROUNDS)]
        program.ends()
        expect_equal(len(set(wanted)), ROUNDS, "each round changes the loss", wanted)
        program, seen = Training(system, net), []
        for round_ in range(ROUNDS):
            seen.append(program.steps())
            if round_ % 2:
                moves(system)
        program.ends()
        print("    %s, MPS %s: %s" % (net, mps, seen[-1]))
        expect_equal(seen, wanted, "the losses of", net, "under MPS", mps)
        is_idle(system)


@scenario
def losses_are_the_same_after_moves():
    for mps in ("off", "start"):
        is_the_same_after_moves("transformer", mps)


@scenario
def plans_of_cudnn_move_too():
    is_the_same_after_moves("convolutions", "start")


@scenario
def it_goes_on_while_sms_change():
    with whole_system("start") as system:
        program = Training(system)
        for sms in (32, 96, 16, 64):
            program.steps()
            system.flytctl("resize", "alice", "--sm", str(sms))
        print("    last loss %s" % float.fromhex(program.steps().split()[1]))
        program.ends()


@scenario
def operations_go_on_while_it_moves_and_is_resized():
    """A move may be refused at a moment, by the name of what stands against it; not all of them."""
    with whole_system("start") as system:
        process = system.start_in_vm(0, PYTHON, OPERATIONS, stdin=None)
        within(240, lambda: system.flytctl("sessions"), "its server")
        done, refused = 0, []
        while process.poll() is None:
            system.flytctl("resize", "alice", "--sm", str((96, 32, 64)[done % 3]))
            way, moved = move(system)
            done += not moved.status
            refused += [moved.err] if moved.status and process.poll() is None else []
        result = harness.finish(process, 60)
        print("    %d moves; refused: %s" % (done, refused))
        expect_equal(result.status, 0, result)
        expect(result.out.count("ok ") > 10, result)
        expect(done >= 3 and all(refused), "moves:", done, "refused:", refused)


if __name__ == "__main__":
    main()
