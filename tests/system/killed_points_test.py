#!/usr/bin/env python3
"""A node manager is killed at each of its numbered points (control/node/POINTS.md) while a VM moves within its node and to
another one, is written to images and goes on from them; its supervisor starts it again. Whatever becomes of what was under
way, the programs are whole, all at one side, with everything that they had; images are whole or not there.

FLYT_SOAK=1 takes all points, else a fixed part of them; FLYT_POINTS=node.send.stop,node.load.made takes these.
"""
import os
import re
import shutil
import subprocess
import tempfile
import time

import harness
from harness import expect, expect_equal, main, scenario, within
from steady import Steady, is_idle
from survivor import Survivor
from two_nodes import COMMAND_S, IS_SOAK, PATIENCE, TwoNodes

REFUSED_BY_NODE = 4     # flytctl: what the node lets fail before anything has begun

# The first process of a daemon that starts with something in this file has it as FLYT_FAULT, and no later one.
ONCE = 'if [ -s "$0" ]; then FLYT_FAULT=$(cat "$0"); export FLYT_FAULT; : >"$0"; fi; exec "$@"'

WITHIN, TO_OTHER, CHECKPOINT, CHAIN, RESTORE = "a move within the node", "a move to another node", "a checkpoint", \
    "a checkpoint that builds on an earlier one", "a restore"

# (point, what is under way, the node that is killed, further faults of that one, whether make test takes it)
POINTS = [
    ("node.migrate.accept", WITHIN, 0, "", False),
    ("node.migrate.prepare", WITHIN, 0, "", False),
    ("node.migrate.make", WITHIN, 0, "", False),
    ("node.migrate.mirror", WITHIN, 0, "", False),
    ("node.migrate.stop", WITHIN, 0, "", False),
    ("node.migrate.state", WITHIN, 0, "", False),
    ("node.migrate.commit", WITHIN, 0, "", False),
    ("node.migrate.leave", WITHIN, 0, "", False),
    ("node.migrate.switch", WITHIN, 0, "", True),
    ("node.migrate.source_end", WITHIN, 0, "", False),
    ("node.migrate.host", WITHIN, 0, "copying.peer:error", False),
    ("node.send.accept", TO_OTHER, 0, "", False),
    ("node.send.connect", TO_OTHER, 0, "", False),
    ("node.send.hand_over", TO_OTHER, 0, "", False),
    ("node.send.stop", TO_OTHER, 0, "", False),
    ("node.send.arrive", TO_OTHER, 0, "", False),
    ("node.send.switch", TO_OTHER, 0, "", False),
    ("node.send.leave", TO_OTHER, 0, "", True),
    ("node.receive.accept", TO_OTHER, 1, "", False),
    ("node.receive.connect", TO_OTHER, 1, "", False),
    ("node.load.prepare", TO_OTHER, 1, "", False),
    ("node.load.begin", TO_OTHER, 1, "", False),
    ("node.load.made", TO_OTHER, 1, "", False),
    ("node.receive.switch", TO_OTHER, 1, "", True),
    ("node.receive.switched", TO_OTHER, 1, "", False),
    ("node.load.client", TO_OTHER, 1, "", False),
    ("node.receive.done", TO_OTHER, 1, "", False),
    ("node.checkpoint.open", CHECKPOINT, 0, "", False),
    ("node.checkpoint.stop", CHECKPOINT, 0, "", False),
    ("image.abandon", CHECKPOINT, 0, "node.checkpoint.stop:error", False),
    ("node.checkpoint.flush", CHECKPOINT, 0, "", False),
    ("node.checkpoint.try", CHECKPOINT, 0, "", False),
    ("node.checkpoint.name", CHECKPOINT, 0, "", False),
    ("node.checkpoint.commit", CHAIN, 0, "", True),
    ("node.checkpoint.unlink", CHAIN, 0, "node.checkpoint.commit:error", False),
    ("node.restore.look", RESTORE, 0, "", False),
    ("node.restore.read", RESTORE, 0, "", False),
    ("node.restore.flatten", RESTORE, 0, "", False),
    ("node.load.prepare", RESTORE, 0, "", False),
    ("node.load.begin", RESTORE, 0, "", False),
    ("node.load.made", RESTORE, 0, "", False),
    ("node.load.client", RESTORE, 0, "", True),
]


class Killed(TwoNodes):
    """Two nodes, the first with two GPUs; the VM is at the first one."""

    def __init__(self):
        super().__init__(gpus=2, node=lambda i: {"software_gpus": 2 - i})

    def fault_path(self, name):
        return self.path(name, "fault")

    def start_daemon(self, name, program, path, prefix=(), **options):
        super().start_daemon(name, program, path, [*prefix, "sh", "-c", ONCE, self.fault_path(name)], **options)

    def arm(self, name, faults):
        """The daemon begins anew, with these faults; the next process has none."""
        with open(self.fault_path(name), "w", encoding="ascii") as file:
            file.write(faults)
        self.restart(name)
        expect_equal(os.path.getsize(self.fault_path(name)), 0, "the faults are taken")
        self.are_up()
        return self.supervisor.get(name)["pid"]

    def are_up(self):
        within(60, lambda: [n["state"] for n in self.flytctl("nodes")] == ["up"] * 2, "the nodes are up")

    def start_flytctl(self, *words):
        return harness.start([self.program("flytctl"), "--manager", self.operator_url, *words], self.env,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def charged(self):
        """GPUs of which anything is allocated."""
        return {"%s:%d" % (g["node"], g["index"]) for g in self.flytctl("gpus") if g["sms_allocated"]}

    def is_at_one_side(self):
        """Where alice is, "node:index": nothing is charged elsewhere, and nothing is under way."""
        def settled():
            rows = self.flytctl("allocations")
            return [row for row in rows if not row["migration"] and row["revision"] == row["revision_applied"]
                    and len(rows) == 1]
        row, = within(120, settled, "alice is somewhere")
        names = {g["uuid"]: "%s:%d" % (g["node"], g["index"]) for g in self.flytctl("gpus")}
        within(60, lambda: self.charged() == {names[row["gpu"]]}, "nothing of alice is charged elsewhere")
        return names[row["gpu"]]


class Programs:
    """One that has one of everything and waits meanwhile, and one that never rests."""

    def __init__(self, system):
        self.system, self.checks = system, 0
        self.survivor, self.steady = Survivor(system, 0), Steady(system, 0)
        self.steady.takes(16)
        self.check()

    def check(self):
        self.checks += 1
        try:
            self.survivor.does("check", "right %d" % self.checks)
            self.steady.goes_on()
        except harness.Failed as failure:
            ended = [p.process for p in (self.survivor, self.steady) if p.process.poll() is not None
                     and not p.process.stdout.closed]
            raise harness.Failed("\n".join([str(failure), *(repr(harness.finish(p)) for p in ended)])) from None

    def sessions(self):
        return self.system.flytctl("sessions")

    def are_served(self, place):
        """Both, there; neither anywhere else."""
        def served():
            rows = self.sessions()
            return [(s["node"], s["state"]) for s in rows] == [(place.split(":")[0], "serving")] * 2
        within(120, served, "both programs are served at " + place)

    def end(self):
        self.survivor.does("end", "ended")
        result = harness.finish(self.survivor.process)
        expect_equal((result.status, result.err), (0, ""), result)
        self.steady.ends_right()
        is_idle(self.system)


def images_are_whole(system, folder):
    """Whoever reads the folder finds whole images, and nothing else."""
    names = sorted(os.listdir(folder))
    expect(all(name.endswith(".flyt") for name in names), "files in the folder of images:", names)
    for image in system.flytctl("image", "verify", folder) if names else []:
        expect(image["is_sound"], image)
    return len(names)


def migrates(system, what):
    here = system.is_at_one_side()
    target = "node-1" if what == TO_OTHER else next(g for g in ("node-0:0", "node-0:1") if g != here)
    return here, target, system.start_flytctl("migrate", "alice", "--to", target, *PATIENCE)


def a_move_is_killed(system, programs, what):
    """The cluster manager says what became of it, and so it is."""
    here, target, command = migrates(system, what)
    yield
    result = harness.finish(command, COMMAND_S)
    there = system.is_at_one_side()
    expect_equal(there.startswith(target), not result.status, "alice is at", there, "after", result)
    expect(there == here or there.startswith(target), "alice is at", there)
    if result.status != REFUSED_BY_NODE:
        expect_equal(system.over()["phase"], "failed" if result.status else "done", "what is told of it", result)
    programs.are_served(there)
    programs.check()


def restores(system, folder):
    """False: not yet, for the node waits for servers after its restart."""
    result = system.flytctl_run("restore", folder, timeout=COMMAND_S)
    if result.status == REFUSED_BY_NODE and "may still come back" in result.err:
        return False
    expect_equal(result.status, 0, "flytctl restore", result)
    return True


def a_checkpoint_is_killed(system, programs, what):
    folder = tempfile.mkdtemp(prefix="images-", dir=harness.WORK)
    words = ("checkpoint", "alice", "--to", folder, *PATIENCE)
    if what != CHECKPOINT:
        result = system.flytctl_run(*words, "--leave-running", timeout=COMMAND_S)
        expect_equal(result.status, 0, "the earlier checkpoint", result)
    if what == RESTORE:
        result = system.flytctl_run(*words, timeout=COMMAND_S)
        expect_equal(result.status, 0, "the checkpoint", result)
        command = system.start_flytctl("restore", folder)
    else:
        command = system.start_flytctl(*words)
    yield
    result = harness.finish(command, COMMAND_S)
    # All are served, or all are in their images.
    states = within(120, lambda: (lambda found: len(found) == 2 and len(set(found)) == 1 and found)(
        [s["state"] for s in programs.sessions() if s["state"] in ("serving", "checkpointed")]), "programs on one side")
    count = images_are_whole(system, folder)
    expect(count in ({CHECKPOINT: (0, 2), CHAIN: (2, 4), RESTORE: (4,)}[what]), "images:", count, result)
    if states[0] == "checkpointed":
        expect(count >= 2, "programs are in images, of which there are", count)
        within(60, lambda: restores(system, folder), "its node restores them")
    programs.are_served(system.is_at_one_side())
    programs.check()
    shutil.rmtree(folder)


def deaths(system, name, point):
    """How often it was at the point, and how often it was killed."""
    log = system.log(name)
    return log.count("at %s: made to end by FLYT_FAULT" % point), log.count("supervisor: it ended with status -9")


def is_killed_at(system, point, what, i, further):
    """The programs are there before it, and whole afterwards; then they end, and nothing is left."""
    name = system.node_name(i)
    before = system.arm(name, point + ":kill" + ("," + further if further else ""))
    told = deaths(system, name, point)
    programs = Programs(system)
    steps = (a_move_is_killed if what in (WITHIN, TO_OTHER) else a_checkpoint_is_killed)(system, programs, what)
    next(steps)
    system.supervisor.wait(name, lambda s: s["pid"] != before and s["state"] == "ready", "killed and ready again", 120)
    now = deaths(system, name, point)
    # Several threads may come to the point before the process has ended.
    expect(now[0] > told[0] and now[1] == told[1] + 1, "how often it was killed at", point, told, now)
    system.are_up()
    next(steps, None)
    programs.end()
    comes_home(system)


def comes_home(system):
    """The VM, which has no program, begins at the first node again."""
    if not system.is_at_one_side().startswith("node-0"):
        result = system.migrates("node-0")
        expect_equal(result.status, 0, "the way home", result)
        expect(system.is_at_one_side().startswith("node-0"), "where alice is")


def chosen():
    names = os.environ.get("FLYT_POINTS")
    return [p for p in POINTS if (p[0] in names.split(",") if names else IS_SOAK or p[4])]


@scenario
def no_point_is_missing():
    """Of those that are numbered, which are the node manager's, but for what concerns no program: folders that are removed and
    descriptors that are closed aside; and for what concerns programs that share memory (sharing_move_test.py)."""
    with open(os.path.join(harness.ROOT, "control", "node", "POINTS.md"), encoding="utf-8") as file:
        numbered = re.findall(r"^\d+\. `([a-z]+\.[a-z_.]+)`:", file.read(), re.MULTILINE)
    expect(len(numbered) > 30, "points that are numbered:", numbered)
    expect_equal(sorted({point[0] for point in POINTS} | {"close.aside", "node.images.remove", "node.migrate.last"}), sorted(set(numbered)), "points")


@scenario
def each_point():
    with Killed() as system:
        for point, what, i, further, _ in chosen():
            begin = time.monotonic()
            try:
                is_killed_at(system, point, what, i, further)
                print("    %s at %s, in %.1f s" % (what, point, time.monotonic() - begin), flush=True)
            except harness.Failed as failure:
                raise harness.Failed("%s, killed at %s: %s" % (what, point, failure)) from None


if __name__ == "__main__":
    main()
