#!/usr/bin/env python3
"""Programs are written to images while they run, and go on from them: flytctl checkpoint and restore in a whole system,
over restarts, with damaged images, with programs that have ended meanwhile, several at once."""
import json
import os
import shutil
import subprocess
import tempfile
import time

import harness
import movers
from cluster import System, metric_values
from harness import expect, expect_equal, helper, main, scenario, within
from steady import MIB, Steady, add_vm, allocation, allocations, events, is_idle, nodes_up, refused, stored
from survivor import Survivor

HARDWARE = {}           # of cluster.System, by checkpoint_gpu_test.py
SESSIONS = 4            # of a VM, at most
GONE_S = 10             # a node takes a program that has not asked for so long for one that has ended
COMMAND_S = 300
PATIENCE = ("--stop-timeout", "120000", "--timeout", "240")


def whole_system(vms=1, memory="256M", faults=None, node=None):
    """One node with one software GPU (HARDWARE: with the machine's first one), and that many VMs. faults: points at which
    daemons and servers fail; node: further settings of the node's."""
    memory = "8G" if HARDWARE else memory       # real modules and local memory take more
    options = dict(HARDWARE)
    if faults:
        options["env"] = harness.environment(FLYT_FAULT=faults)
    if node:
        hardware = options.get("node", lambda i: {})
        options["node"] = lambda i: {**hardware(i), **node}
    system = System(vms=vms, sms=32, memory="1G", cluster={"allocation_linger_s": 1}, **options)
    try:
        for i in range(vms):
            add_vm(system, i, "--sessions", SESSIONS, sm=8, memory=memory)
    except BaseException:
        system.close()
        raise
    return system


def new_folder():
    return tempfile.mkdtemp(prefix="images-", dir=harness.WORK)


def images(folder):
    return sorted(name for name in os.listdir(folder) if name.endswith(".flyt"))


def does(system, *words):
    """flytctl's object of a checkpoint or a restore that is done."""
    result = system.flytctl_run(*words, "-o", "json", timeout=COMMAND_S)
    expect_equal(result.status, 0, "flytctl", *words, result)
    done = json.loads(result.out)
    expect_equal((done["kind"], done["phase"]), (words[0], "done"), done)
    return done


def checkpoint(system, what, folder, *words):
    return does(system, "checkpoint", what, "--to", folder, *PATIENCE, *words)


def restore(system, folder, *words):
    return does(system, "restore", folder, *words)


def is_not_restored(system, folder, why):
    result = system.flytctl_run("restore", folder, timeout=COMMAND_S)
    expect_equal(result.status, 1, "flytctl restore", result)
    expect(why in result.err, "why it was not:", result)


def states(system):
    return sorted(s["state"] for s in system.flytctl("sessions"))


def sessions(system, count=1):
    """{id: process} of all of them, when there are so many; processes 0: there are none."""
    found = within(60, lambda: (lambda all_: len(all_) == count and all_)(system.flytctl("sessions")),
                   "%d sessions" % count)
    return {s["id"]: s["server_pid"] for s in found}


def wait_in(system, folder, count):
    """Until all are in images there, and nothing of them is on the GPU; the VM has what it had."""
    within(60, lambda: states(system) == ["checkpointed"] * count, "all wait in images")
    for session in system.flytctl("sessions"):
        expect_equal((session["server_pid"], session["memory_bytes"], session["replaceable"]), (0, 0, False), session)
        expect(folder in session["why_not"], session)
    if not HARDWARE:        # what NVML says of a real one has warm servers in it
        within(60, lambda: [g["memory_used_bytes"] for g in system.flytctl("gpus")] == [0], "the GPU's memory is free")
    within(60, lambda: not any(row["memory_used_bytes"] for row in allocations(system)), "nothing is charged")
    expect_equal(sum(row["sessions"] for row in allocations(system)), count, "programs of allocations")


def serve_again(system, before):
    """The same sessions, at new processes."""
    within(60, lambda: states(system) == ["serving"] * len(before), "all are served again")
    after = sessions(system, len(before))
    expect_equal(set(after), set(before), "sessions")
    expect(all(after[id_] and after[id_] != pid for id_, pid in before.items()), "processes:", before, after)


@scenario
def images_of_running_programs():
    """--leave-running: they go on as if nothing had been; the images are sound, and nobody waits in them."""
    with whole_system() as system:
        folder, program = new_folder(), Steady(system, 0)
        program.takes(24)
        before = sessions(system)
        for i, packing in enumerate(("none", "lz4", "zstd")):
            done = checkpoint(system, system.vm_ip(0), folder, "--leave-running", "--pack", packing)
            expect_equal((done["sessions"], done["leave_running"]), (1, True), done)
            expect(done["memory_bytes"] >= 24 * MIB and done["standstill_us"] > 0, done)
            # Its block does not change: later images build on the first one, which has it.
            expect(done["kept_bytes"] >= 24 * MIB - MIB if i else done["kept_bytes"] == 0, done)
            expect_equal(len(images(folder)), i + 1, "images after", packing)
            program.goes_on()
        expect_equal(sessions(system), before, "sessions and their processes")
        for image in system.flytctl("image", "verify", folder):
            expect(image["is_sound"], image)
        rows = system.flytctl("image", "show", folder)
        expect_equal([bool(row["parent_id"]) for row in rows], [False, True, True], rows)
        for name in images(folder):
            expect_equal(os.stat(os.path.join(folder, name)).st_mode & 0o777, 0o600, "mode of", name)
        # By its id, as an operator types it.
        done = checkpoint(system, list(before)[0][:8], folder, "--leave-running", "--full")
        expect_equal((done["session"], len(images(folder)), done["kept_bytes"]), (list(before)[0], 4, 0), done)
        refused(system, "restore", folder, status=3)
        expect_equal(program.ends_right() > 0, True, "rounds")
        is_idle(system)
        expect_equal(len(events(system, "checkpoint.done", system.vm_ip(0))), 4, "events")
        values = system.metrics("cluster")
        expect_equal({labels["outcome"]: count for labels, count in metric_values(values, "flyt_checkpoints_total")},
                     {"done": 4, "failed": 0}, "counted")
        for name in ("standstill_seconds", "written_bytes", "duration_seconds"):
            (_, count), = metric_values(values, "flyt_checkpoint_%s_count" % name)
            (_, sum_), = metric_values(values, "flyt_checkpoint_%s_sum" % name)
            expect(count == 4 and sum_ > 0, name, "measured", count, sum_)
        expect(metric_values(values, "flyt_checkpoint_written_bytes_sum")[0][1] >= 24 * MIB, "bytes written")
        expect_equal(len(system.flytctl("checkpoints", system.vm_ip(0))), 4, "flytctl checkpoints")


@scenario
def programs_wait_and_go_on():
    """Two of one VM, one of them with one of everything."""
    with whole_system(memory="768M") as system:
        folder, steady, survivor = new_folder(), Steady(system, 0), Survivor(system, 0)
        steady.takes(24)
        survivor.does("check", "right 1")
        before, had = sessions(system, 2), allocation(system, 0)
        within(60, lambda: system.flytctl("gpus")[0]["memory_used_bytes"] >= 48 * MIB, "the GPU's memory is used")
        for i in range(2):
            done = checkpoint(system, system.vm_ip(0), folder)
            expect_equal((done["sessions"], done["leave_running"]), (2, False), done)
            wait_in(system, folder, 2)
            expect("2 of its programs wait in checkpoint images" in system.flytctl_run("explain", system.vm_ip(0)).out, "explain")
            # A further program of the VM is served meanwhile.
            with_them = Steady(system, 0)
            with_them.ends_right()
            within(60, lambda: states(system) == ["checkpointed"] * 2, "the further program has ended")
            # The VM keeps what it was granted: it is longer idle than the cluster manager leaves it to others.
            time.sleep(3)
            expect_equal([allocation(system, 0)[f] for f in ("id", "sm_groups")], [had["id"], had["sm_groups"]])
            expect_equal(restore(system, folder)["sessions"], 2, "sessions that go on")
            serve_again(system, before)
            before = sessions(system, 2)
            steady.goes_on()
            survivor.does("check", "right %d" % (i + 2))
        steady.takes(8)
        survivor.does("end", "ended")
        expect_equal(harness.finish(survivor.process).status, 0, "the survivor's exit status")
        steady.ends_right()
        is_idle(system)
        expect_equal((len(events(system, "checkpoint.done")), len(events(system, "restore.done"))), (2, 2), "events")
        restores = metric_values(system.metrics("cluster"), "flyt_restores_total")
        expect_equal({labels["outcome"]: count for labels, count in restores}, {"done": 2, "failed": 0}, "counted")


@scenario
def restarts_in_between():
    """The node manager is killed, the cluster manager and all others are restarted while a program is in an image."""
    with whole_system() as system:
        folder, program = new_folder(), Steady(system, 0)
        program.takes(24)
        before, had = sessions(system), allocation(system, 0)
        checkpoint(system, system.vm_ip(0), folder)
        for strike, name in ((system.kill, "node-0"), (system.kill, "cluster"), (system.restart, "vm-0"),
                             (system.restart, "node-0")):
            strike(name)
            nodes_up(system)
            wait_in(system, folder, 1)
            expect_equal(allocation(system, 0)["id"], had["id"], "the allocation after the end of", name)
        # The images are brought elsewhere, as an administrator may.
        other = new_folder()
        for name in images(folder):
            shutil.move(os.path.join(folder, name), other)
        refused(system, "restore", folder, status=3)
        restore(system, other, "--node", system.node_name(0))
        serve_again(system, before)
        program.goes_on()
        program.ends_right()
        is_idle(system)
        # What the manager before has told.
        expect_equal([row["phase"] for row in system.flytctl("checkpoints")], ["done"] * 2, "flytctl checkpoints")


@scenario
def a_program_that_has_ended():
    """It is given up by the restore, which says so; one that waits still goes on."""
    with whole_system() as system:
        folder, ended, waiting = new_folder(), Steady(system, 0), Steady(system, 0)
        expect_equal(checkpoint(system, system.vm_ip(0), folder)["sessions"], 2, "programs")
        wait_in(system, folder, 2)
        ended.close()
        time.sleep(GONE_S + 1)
        is_not_restored(system, folder, "it has ended")
        within(60, lambda: states(system) == ["serving"], "the other one is served")
        waiting.goes_on()
        waiting.ends_right()
        is_idle(system)
        expect_equal(len(events(system, "restore.failed")), 1, "events")
        # All of them have ended: nothing is left to be restored.
        refused(system, "restore", folder, status=3)


@scenario
def a_damaged_image():
    """Nothing is changed by it; with the sound one the program goes on."""
    with whole_system() as system:
        folder, program = new_folder(), Steady(system, 0)
        program.takes(24)
        before = sessions(system)
        checkpoint(system, system.vm_ip(0), folder, "--pack", "none")
        path = os.path.join(folder, images(folder)[0])
        shutil.copyfile(path, path + ".sound")
        whole = os.path.getsize(path)
        with open(path, "r+b") as image:
            image.seek(whole // 2)
            byte = image.read(1)[0]
            image.seek(whole // 2)
            image.write(bytes([byte ^ 0x20]))
        is_not_restored(system, folder, os.path.basename(path))
        wait_in(system, folder, 1)
        os.truncate(path, whole // 2)
        is_not_restored(system, folder, os.path.basename(path))
        wait_in(system, folder, 1)
        os.replace(path + ".sound", path)
        restore(system, folder)
        serve_again(system, before)
        program.goes_on()
        program.ends_right()
        is_idle(system)


@scenario
def several_at_once():
    """Two VMs to one folder at the same time, and back by one restore."""
    with whole_system(vms=2) as system:
        folder, programs = new_folder(), [Steady(system, 0), Steady(system, 1)]
        for program in programs:
            program.takes(16)
        before = sessions(system, 2)
        commands = [harness.start([system.program("flytctl"), "--manager", system.operator_url, "checkpoint",
                                   system.vm_ip(i), "--to", folder, *PATIENCE], system.env,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE) for i in range(2)]
        for command in commands:
            result = harness.finish(command, COMMAND_S)
            expect_equal(result.status, 0, result)
            expect("waiting for a restore" in result.out, result)
        wait_in(system, folder, 2)
        expect_equal(len(images(folder)), 2, "images")
        expect_equal(restore(system, folder)["sessions"], 2, "programs that go on")
        serve_again(system, before)
        for program in programs:
            program.goes_on()
            program.ends_right()
        is_idle(system)


def is_not_written(system, folder, why, images_before):
    """Without a word to the program; nothing is left of what was tried."""
    result = system.flytctl_run("checkpoint", system.vm_ip(0), "--to", folder, *PATIENCE, timeout=COMMAND_S)
    expect_equal(result.status, 1, "flytctl checkpoint", result)
    expect(why in result.err, "why it was not:", result)
    expect_equal((states(system), images(folder)), (["serving"], images_before), "states, images")
    expect(why in events(system, "checkpoint.failed", system.vm_ip(0))[-1]["text"], "the event's reason")


@scenario
def an_image_that_could_not_be_restored():
    """A program whose variables a new server has elsewhere (movers.STAY) does not end for it: the checkpoint is refused with
    the variable's name, also where it builds on an earlier image, and it goes on. A real GPU may have them where they were:
    then it waits and goes on from its image."""
    chosen = movers.seed()
    with whole_system() as system:
        for case in movers.staying_cases():
            folder = new_folder()

            def is_refused():
                if HARDWARE:
                    result = system.flytctl_run("checkpoint", system.vm_ip(0), "--to", folder, *PATIENCE,
                                                timeout=COMMAND_S)
                    expect(not result.status or "has come to be elsewhere" in result.err, "why it was refused:", result)
                    if not result.status:
                        restore(system, folder)
                    return
                before = sessions(system)
                is_not_written(system, folder, movers.STAY_REASON, [])
                checkpoint(system, system.vm_ip(0), folder, "--leave-running")
                kept = images(folder)
                is_not_written(system, folder, movers.STAY_REASON, kept)
                expect_equal((len(kept), sessions(system)), (1, before), "images; sessions and their processes")

            movers.stays(system, 0, case, chosen, is_refused)
        is_idle(system)


@scenario
def servers_that_die_in_the_trial():
    """As a driver may that cannot load what is in the image: the program goes on where it is."""
    with whole_system(faults="prepare.trial:kill") as system:
        folder, program = new_folder(), Steady(system, 0)
        program.takes(8)
        before = sessions(system)
        is_not_written(system, folder, "have ended unexpectedly in which it was tried", [])
        program.goes_on()
        expect_equal(sessions(system), before, "sessions and their processes")
        expect_equal(program.ends_right() > 0, True, "rounds")
        is_idle(system)


@scenario
def a_gpu_with_few_slots():
    """There is room for two servers beside the programs': not all of their images can be tried at the same time."""
    with whole_system(node={"client_slots": SESSIONS + 2}) as system:
        folder, programs = new_folder(), [Steady(system, 0) for _ in range(SESSIONS)]
        for program in programs:
            program.takes(8)
        before = sessions(system, SESSIONS)
        checkpoint(system, system.vm_ip(0), folder)
        wait_in(system, folder, SESSIONS)
        expect_equal(events(system, "checkpoint.untried"), [], "images that were not tried")
        restore(system, folder)
        serve_again(system, before)
        for program in programs:
            program.goes_on()
            expect_equal(program.ends_right() > 0, True, "rounds")
        is_idle(system)


@scenario
def one_that_does_not_stop():
    """A kernel without an end: until that is over nothing else is done with the VM, and who follows it may follow it over
    the cluster manager's death. The program is ended: no image, and what has become of it is told once."""
    with whole_system() as system:
        folder = new_folder()
        program = system.start_in_vm(0, helper("poll"), "endless")
        expect_equal(program.stdout.readline(), b"working\n", "the program's first line")
        begun = system.flytctl("checkpoint", system.vm_ip(0), "--to", folder, "--stop-timeout", 3600000, "--detach")
        expect(begun["phase"] not in ("done", "failed"), begun)
        said = refused(system, "checkpoint", system.vm_ip(0), "--to", folder)
        expect(begun["id"] in said, "why a second one is refused:", said)
        expect("checkpointed" in refused(system, "resize", system.vm_ip(0), "--sm", 16), "a resize")
        expect("checkpointed" in refused(system, "migrate", system.vm_ip(0), "--to", "node-0:0", "--force"), "a migration")
        within(60, lambda: [e for e in stored(system, "events") if e["kind"] == "checkpoint.started"], "it is in the store")
        system.kill("cluster")
        nodes_up(system)
        rows = system.flytctl("checkpoints", begun["id"])
        expect_equal([(row["id"], row["ended_ms"]) for row in rows], [(begun["id"], None)], rows)
        harness.kill_group(program)
        harness.finish(program)
        within(60, lambda: system.flytctl("checkpoints", begun["id"])[0]["phase"] == "failed", "it has failed")
        expect(system.flytctl("checkpoints", begun["id"])[0]["reason"], "a reason")
        is_idle(system)
        expect_equal((len(events(system, "checkpoint.failed")), images(folder)), (1, []), "events, images")
        # Nothing is in its way any more.
        system.flytctl("resize", system.vm_ip(0), "--sm", 16)


@scenario
def what_is_refused():
    with whole_system() as system:
        vm, folder = system.vm_ip(0), new_folder()
        refused(system, "checkpoint", vm, "--to", folder, status=3)         # it has no GPU
        refused(system, "checkpoint", "no-such-vm", "--to", folder, status=3)
        refused(system, "checkpoint", "0123456789abcdef", "--to", folder, status=3)
        refused(system, "restore", folder, status=3)
        refused(system, "restore", folder, "--node", "no-such-node", status=3)
        program = Steady(system, 0)
        refused(system, "checkpoint", vm, "--to", os.path.join(folder, "none"))
        program.goes_on()
        checkpoint(system, vm, folder)
        wait_in(system, folder, 1)
        session = list(sessions(system))[0]
        expect("in an image already" in refused(system, "checkpoint", session, "--to", folder), "a second time")
        refused(system, "restore", new_folder(), status=3)
        # Who ends it does not wait for a restore.
        system.flytctl("session", "kill", session)
        within(60, lambda: not system.flytctl("sessions"), "the session has ended")
        refused(system, "restore", folder, status=3)
        expect_equal(program.ends_with_error()[0] != 0, True, "the program's error")
        is_idle(system)


if __name__ == "__main__":
    main()
