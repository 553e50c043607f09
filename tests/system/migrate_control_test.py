#!/usr/bin/env python3
"""A VM's programs move to another GPU, as the cluster manager sees it: a real one with its store, and nodes that are played
by hand (node_by_hand.py) and move nothing."""
import json
import os
import pty
import signal
import subprocess

import by_hand
import harness
from by_hand import Peer, u32
from cluster import metric_values
from harness import expect, expect_equal, main, scenario, within
from movers_by_hand import FIGURES, PHASES, await_said, cluster, cluster_on_mongod, finish, metrics_of, runs_through
from node_by_hand import CONFLICT, COPYING, DONE, FAILED, GIB, ORDER_APPLY, ORDER_MIGRATE, SWITCHING

def goes_well(c):
    before = c.vm("10.0.0.7", 16, "1G", "--name", "web")
    expect_equal(before["gpu"], "GPU-n1-0", "where it is first")
    expect_equal(c.charged(), {"n1:0": (16, GIB, 2), "n1:1": (0, 0, 0)}, "charged at first")
    process = c.start("migrate", "web", "--to", "n1:1", "--rounds", "5", "--stop-timeout", "750", "--timeout", "90",
                      "--rest", "32M")
    migration = c.node.wait_migration()
    ordered = migration.allocation
    expect_equal((ordered.gpus, ordered.revision, ordered.vm_ip, ordered.slots[0].sms, ordered.slots[0].memory),
                 (["GPU-n1-1"], before["revision"] + 1, "10.0.0.7", 16, GIB), "what the node was ordered")
    expect_equal(migration.bounds, [5, 750, 90, 32 << 20], "the bounds")
    # Both are charged and recorded before the node was ordered.
    expect_equal(c.charged(), {"n1:0": (16, GIB, 2), "n1:1": (16, GIB, 2)}, "charged meanwhile")
    expect_equal((c.entries(), c.entries("arriving")), ([("n1:0", before["id"])], [("n1:1", before["id"])]), "recorded meanwhile")
    expect_equal((c.row("10.0.0.7")["state"], c.ctl("vms")[0]["state"]), ("migrating", "migrating"), "states")
    expect([s for s in c.ctl("explain", "web") if "move from n1:0 to n1:1" in s["sentence"]], "explain says it")
    c.refused(1, "moves already: migration %016x" % migration.id, "migrate", "web", "--to", "n1:1")
    c.refused(1, "%016x" % migration.id, "resize", "web", "--sm", "8")
    orders = c.node.count(ORDER_APPLY)
    expect_equal(c.node.report(migration, COPYING, **FIGURES)[0], "OK", "a report")
    row = c.migration(migration)
    expect_equal((row["phase"], row["source"], row["target"], row["round"], row["copied_bytes"], row["sessions"],
                  row["dirty_bytes"], row["bytes_per_s"]), ("copying", "n1:0", "n1:1", 3, 3 * GIB, 2, 4096, GIB), "its row")
    expect_equal(c.node.count(ORDER_APPLY), orders, "orders about it meanwhile")
    said = await_said(process.stdout.fileno(), b"copying round 3")
    expect(b"VM 10.0.0.7 to n1:1: preparing\n" in said and b"\r" not in said, "a line for each phase", said)
    runs_through(c, c.node, migration)
    finish(process, 0, "has moved to n1:1", "standstill 41.0 ms")
    after = c.expect_on("10.0.0.7", "n1:1")
    expect(after["revision"] > ordered.revision, "its revision", after)
    expect_equal(c.charged(), {"n1:0": (0, 0, 0), "n1:1": (16, GIB, 2)}, "charged afterwards")
    # What the node says of it as well is not told twice; what it alone knows is.
    for kind in ("migration.started", "migration.done", "migration.session_lost"):
        c.node.event(kind, "10.0.0.7", "by hand")
    events = [e for e in c.ctl("events", "10.0.0.7") if e["kind"].startswith("migration.")]
    expect_equal([(e["kind"], e["who"].split(":")[0]) for e in events],
                 [("migration.started", "operator"), ("migration.done", "operator"), ("migration.session_lost", "node")],
                 "events")
    events = {e["kind"]: e for e in events}
    expect("from n1:0 to n1:1" in events["migration.done"]["text"] and "41.0 ms" in events["migration.done"]["text"],
           "the last event", events)
    values = metrics_of(c)
    expect_equal(dict(((labels["outcome"], labels["scope"]), n) for labels, n in
                      metric_values(values, "flyt_migrations_total")),
                 {("done", "gpu"): 1, ("failed", "gpu"): 0, ("done", "node"): 0, ("failed", "node"): 0}, "counted")
    expect_equal([metric_values(values, "flyt_migration_" + name)[0][1] for name in
                  ("rounds_sum", "copied_bytes_sum", "standstill_seconds_sum")], [3, 3 * GIB, 0.041], "measured")
    # The list outlives the manager.
    c.manager.restart()
    c.reconnect()
    row = c.migration(migration)
    expect_equal((row["phase"], row["standstill_us"], row["target"]), ("done", 41000, "n1:1"), "its row after a restart")
    c.expect_on("10.0.0.7", "n1:1")


@scenario
def moves():
    with cluster() as c:
        goes_well(c)


@scenario
def moves_with_a_shared_store():
    with cluster_on_mongod() as c:
        goes_well(c)


@scenario
def refusals():
    """Each before anything stops, with its reason; nothing is charged, and the node hears of none."""
    with cluster(nodes=("n1", "n2"), gpus=4, sms=32, slots=4, compute={2: (8, 0)}, isolation={3: 1}) as c:
        c.ctl("vm", "add", "10.0.0.9", "--sm", "8", "--memory", "1G")
        c.refused(3, "nothing to move", "migrate", "10.0.0.9")
        c.refused(3, "there is no VM nobody", "migrate", "nobody")
        row = c.vm("10.0.0.7")
        place = [g for g in c.ctl("gpus") if g["uuid"] == row["gpu"]][0]
        name, here = place["node"], "%s:%d" % (place["node"], place["index"])
        c.ctl("cordon", "n2" if name == "n1" else "n1")     # so that its own node is all there is
        free = "%s:%d" % (name, 1 - place["index"])
        before = c.charged()
        c.refused(3, "there is no GPU nowhere", "migrate", "10.0.0.7", "--to", "nowhere")
        c.refused(2, "beginning of several", "migrate", "10.0.0.7", "--to", "GPU-%s" % name)
        c.refused(1, "is on %s already; --force" % here, "migrate", "10.0.0.7", "--to", here)
        c.ctl("cordon", name + ":2")        # it could be a target, for all its other compute capability
        c.refused(1, "isolation class shared", "migrate", "10.0.0.7", "--to", name + ":3")
        c.ctl("cordon", free)
        c.refused(1, "cordoned", "migrate", "10.0.0.7", "--to", free)
        c.refused(1, "2 of 4 GPUs: cordoned", "migrate", "10.0.0.7")
        c.refused(1, "nor to another node: 4 of 4 GPUs: node cordoned", "migrate", "10.0.0.7")
        c.ctl("uncordon", free)
        c.ctl("vm", "set", "10.0.0.7", "--exclude-gpu", free)
        within(30, lambda: "not among the GPUs wanted" in c.ctl_run("migrate", "10.0.0.7", "--to", free).err,
               "the excluded GPU is refused")
        c.ctl("vm", "set", "10.0.0.7", "--exclude-gpu", "", "--exclude-type", "hand")
        within(30, lambda: "type not wanted" in c.ctl_run("migrate", "10.0.0.7", "--to", free).err, "the type is refused")
        c.ctl("vm", "set", "10.0.0.7", "--exclude-type", "")
        # What others have there.
        def fill(vm_ip, *words):
            c.ctl("vm", "add", vm_ip, "--include-gpu", free, *words)
            c.attach(vm_ip)
        fill("10.0.1.1", "--sm", "24", "--memory", "1G", "--sessions", "1")
        c.refused(1, "not enough SMs (needs 16, 8 free", "migrate", "10.0.0.7", "--to", free)
        c.ctl("vm", "remove", "10.0.1.1", "--kill")
        within(60, lambda: not c.rows("10.0.1.1"), "its allocation has ended")
        fill("10.0.1.2", "--sm", "8", "--memory", "7.5G", "--sessions", "1")
        c.refused(1, "not enough memory (needs 1 GiB", "migrate", "10.0.0.7", "--to", free)
        c.ctl("vm", "remove", "10.0.1.2", "--kill")
        within(60, lambda: not c.rows("10.0.1.2"), "its allocation has ended")
        fill("10.0.1.3", "--sm", "8", "--memory", "1G", "--sessions", "3")
        c.refused(1, "not enough client slots (needs 2, 1 free", "migrate", "10.0.0.7", "--to", free)
        c.ctl("vm", "remove", "10.0.1.3", "--kill")
        within(60, lambda: not c.rows("10.0.1.3"), "its allocation has ended")
        # The node itself.
        node = c.nodes[name]
        node.migrate = ("NOT_SUPPORTED", "a program of it uses the device-side heap")
        c.refused(1, "refused: a program of it uses the device-side heap", "migrate", "10.0.0.7", "--to", free)
        node.migrate, node.knows_migrations = None, False
        c.refused(1, "cannot move programs: it is older", "migrate", "10.0.0.7", "--to", free)
        expect_equal(c.charged(), before, "charged after all refusals")
        within(60, lambda: not c.entries("arriving"), "nothing of them is recorded any more")
        node.drop()
        within(30, lambda: "is not connected" in c.ctl_run("migrate", "10.0.0.7").err, "a node that is away is named")
        node.knows_migrations = True
        node.connect()
        # And then it works all the same.
        process = c.start("migrate", "10.0.0.7", "--to", free)
        migration = node.wait_migration(3)
        runs_through(c, node, migration)
        finish(process, 0)
        c.expect_on("10.0.0.7", free)


@scenario
def fails():
    """The node's reason reaches who asked; all is as before; JSON for programs."""
    with cluster() as c:
        before = c.vm("10.0.0.7")
        process = c.start("migrate", "10.0.0.7", "-o", "json")
        migration = c.node.wait_migration()
        for phase in PHASES[:3]:
            c.node.report(migration, phase)
        expect_equal(c.node.report(migration, FAILED, CONFLICT, "solver (pid 12) did not stop within 2000 ms")[0], "OK")
        result = finish(process, 1, "solver (pid 12) did not stop within 2000 ms")
        row = json.loads(result.out)
        expect_equal((row["phase"], row["reason"], row["id"]),
                     ("failed", "solver (pid 12) did not stop within 2000 ms", "%016x" % migration.id), "the object")
        after = c.expect_on("10.0.0.7", "n1:0")
        expect(after["revision"] > migration.allocation.revision, "its revision is above that of the order", after)
        expect_equal(c.charged(), {"n1:0": (16, GIB, 2), "n1:1": (0, 0, 0)}, "charged afterwards")
        events = [e for e in c.ctl("events", "10.0.0.7") if e["kind"] == "migration.failed"]
        expect("did not stop within" in events[0]["text"], "the event", events)
        expect_equal(c.node.report(migration, FAILED, CONFLICT, "again")[0], "NOT_FOUND", "a report too late")
        # Its size changes as ever, and it moves at the second attempt.
        process = c.start("resize", "10.0.0.7", "--sm", "8")
        finish(process, 0, "is resized")
        process = c.start("migrate", "10.0.0.7")
        migration = c.node.wait_migration(2)
        runs_through(c, c.node, migration)
        finish(process, 0)
        c.expect_on("10.0.0.7", "n1:1")


def killed_in(c, phase, is_done, attempt):
    """The manager is killed in this phase and started again; the node then says how it ends."""
    row = c.row("10.0.0.7")
    here = row["gpu"][-1]
    there = "1" if here == "0" else "0"
    bounds = {"rounds_max": 7, "stop_ms": 750, "timeout_s": 90, "rest_bytes": 0}
    c.ctl("migrate", "10.0.0.7", "--detach", "--rounds", "7", "--stop-timeout", "750", "--timeout", "90",
          *(["--force"] if is_done else []))
    migration = c.node.wait_migration(attempt)
    c.node.report(migration, phase, **FIGURES)
    c.manager.restart(signal.SIGKILL)
    c.reconnect()
    row_then = c.migration(migration)
    expect_equal(row_then["target"], "n1:" + there, "what the next one knows of it")
    expect_equal({name: row_then[name] for name in (*bounds, "forced")}, {**bounds, "forced": is_done}, "its bounds")
    within(60, lambda: c.phase(migration) == ("preparing", "copying", "stopping", "switching")[phase - 1],
           "the node is asked, and says how far it is")
    expect_equal(c.charged(), {"n1:0": (16, GIB, 2), "n1:1": (16, GIB, 2)}, "charged over the restart")
    if is_done:
        c.node.move(migration)
        c.node.report(migration, DONE, **FIGURES)
    else:
        c.node.report(migration, FAILED, CONFLICT, "as the test says")
    c.ends(migration, "done" if is_done else "failed")
    c.expect_on("10.0.0.7", "n1:" + (there if is_done else here))


def in_each(c, phases):
    c.vm("10.0.0.7")
    attempt = 0
    for is_done in (True, False):
        for phase in phases:
            attempt += 1
            killed_in(c, phase, is_done, attempt)


@scenario
def manager_killed():
    with cluster() as c:
        in_each(c, PHASES)


@scenario
def manager_killed_with_a_shared_store():
    with cluster_on_mongod() as c:
        in_each(c, (COPYING, SWITCHING))      # the next one waits each time until the lease of the killed one is over


@scenario
def manager_killed_at_the_end():
    """While the end is being written, again and again: the allocation is where its programs are, once."""
    with cluster() as c:
        c.vm("10.0.0.7")
        for attempt in range(1, 7):
            there = "1" if c.row("10.0.0.7")["gpu"][-1] == "0" else "0"
            c.ctl("migrate", "10.0.0.7", "--detach")
            migration = c.node.wait_migration(attempt)
            c.node.move(migration)
            c.node.report(migration, DONE, **FIGURES)
            c.manager.restart(signal.SIGKILL)
            c.reconnect()
            c.expect_on("10.0.0.7", "n1:" + there)
            expect_equal(sorted(c.charged().values()), [(0, 0, 0), (16, GIB, 2)], "charged")


@scenario
def node_that_forgot():
    """The node comes back and knows nothing of it: what it has decides, also after a restart of the manager."""
    with cluster() as c:
        c.vm("10.0.0.7")
        attempt = 0
        for has_moved in (False, True):
            for restarts in (False, True):
                attempt += 1
                here = c.row("10.0.0.7")["gpu"][-1]
                there = "1" if here == "0" else "0"
                c.ctl("migrate", "10.0.0.7", "--detach")
                migration = c.node.wait_migration(attempt)
                c.node.report(migration, COPYING)
                c.node.drop()
                del c.node.migrations[migration.id]
                if has_moved:
                    c.node.move(migration)
                if restarts:
                    c.manager.restart(signal.SIGKILL)
                c.reconnect()
                c.ends(migration, "done" if has_moved else "failed")
                c.expect_on("10.0.0.7", "n1:" + (there if has_moved else here))
                if not has_moved:
                    expect("knows nothing of it" in c.migration(migration)["reason"], "the reason")


@scenario
def node_that_goes_back():
    """Restarted after its commit the node names the target, and cannot say yet; when all programs have come back to the
    source it goes back there, and says that. Nothing is decided before."""
    with cluster() as c:
        c.vm("10.0.0.7")
        c.ctl("migrate", "10.0.0.7", "--detach")
        migration = c.node.wait_migration()
        source = c.node.allocations[migration.allocation.id]
        c.node.report(migration, SWITCHING, **FIGURES)
        c.node.drop()
        del c.node.migrations[migration.id]
        c.node.move(migration)
        c.node.is_settled = False
        asked = c.node.asked(migration)
        c.node.connect()
        expect_equal(c.node.told[migration.allocation.id].gpus, ["GPU-n1-1"], "what it is to have, until it says more")
        within(60, lambda: c.node.asked(migration) > asked + 1, "it is asked, and again")
        row = c.migration(migration)
        expect_equal((row["phase"], row["round"]), ("switching", 3), "the migration, meanwhile")
        expect_equal(c.charged(), {"n1:0": (16, GIB, 2), "n1:1": (16, GIB, 2)}, "charged meanwhile")
        with c.node.mutex:
            c.node.allocations[source.id], c.node.is_settled = source, True
        expect(c.node.register(), "it registers once more")
        c.ends(migration, "failed")
        c.expect_on("10.0.0.7", "n1:0")
        expect_equal(c.charged(), {"n1:0": (16, GIB, 2), "n1:1": (0, 0, 0)}, "charged afterwards")


@scenario
def node_away():
    """Its connection ends in the middle, and it comes back with either end, or still at it."""
    with cluster() as c:
        c.vm("10.0.0.7")
        for attempt, end in enumerate((DONE, FAILED, COPYING), 1):
            here = c.row("10.0.0.7")["gpu"][-1]
            there = "1" if here == "0" else "0"
            process = c.start("migrate", "10.0.0.7")
            migration = c.node.wait_migration(attempt)
            c.node.report(migration, COPYING)
            c.node.drop()
            within(60, lambda: c.ctl_run("migrate", "10.0.0.7").status == 1, "it moves already")
            expect_equal(c.charged(), {"n1:0": (16, GIB, 2), "n1:1": (16, GIB, 2)}, "charged while the node is away")
            migration.phase = end
            if end == DONE:
                c.node.move(migration)
            elif end == FAILED:
                migration.status, migration.text = CONFLICT, "as the test says"
            c.node.connect()
            if end == COPYING:
                told = c.node.told[migration.allocation.id]
                expect_equal(told.gpus, ["GPU-n1-" + here], "what the node is to have, when it registers")
                runs_through(c, c.node, migration)
            finish(process, 1 if end == FAILED else 0)
            c.expect_on("10.0.0.7", "n1:" + (here if end == FAILED else there))


@scenario
def an_order_without_an_answer():
    """The node says nothing to the order: it is under way, and the node is asked. It may have taken it, or know nothing."""
    with cluster() as c:
        c.vm("10.0.0.7")
        c.node.migrate = "silent"
        process = c.start("migrate", "10.0.0.7")
        migration = c.node.wait_migration()
        c.node.move(migration)
        migration.phase, migration.figures = DONE, FIGURES
        finish(process, 0)
        c.expect_on("10.0.0.7", "n1:1")
        # It has lost it, and is there all the time: what it has registered is from before, so it is to register again.
        process = c.start("migrate", "10.0.0.7")
        migration = c.node.wait_migration(2)
        del c.node.migrations[migration.id]
        ended = c.node.has_ended
        within(60, ended.is_set, "its connection is closed")
        c.node.connect()
        finish(process, 1, "knows nothing of it")
        c.expect_on("10.0.0.7", "n1:1")


@scenario
def two_at_once():
    """Two VMs change places with room for both beside, and each other VM is refused what is charged."""
    with cluster(gpus=2, sms=64, slots=16) as c:
        c.vm("10.0.0.7", 16)
        c.ctl("vm", "add", "10.0.0.8", "--sm", "16", "--memory", "1G", "--sessions", "2", "--include-gpu", "n1:1")
        c.attach("10.0.0.8")
        c.ctl("vm", "set", "10.0.0.8", "--include-gpu", "")
        within(30, lambda: not [v for v in c.ctl("vms") if v.get("include_gpus")], "the document is read")
        processes = [c.start("migrate", "10.0.0.7", "--to", "n1:1"), c.start("migrate", "10.0.0.8", "--to", "n1:0")]
        both = [c.node.wait_migration(1), c.node.wait_migration(2)]
        expect_equal({m.allocation.vm_ip: m.allocation.gpus for m in both},
                     {"10.0.0.7": ["GPU-n1-1"], "10.0.0.8": ["GPU-n1-0"]}, "what was ordered")
        expect_equal(c.charged(), {"n1:0": (32, 2 * GIB, 4), "n1:1": (32, 2 * GIB, 4)}, "charged meanwhile")
        groups = [set(m.allocation.slots[0].groups) for m in both]
        for migration, own in zip(both, groups):
            others = [set(a["sm_groups"]) for a in c.ctl("allocations")
                      if a["vm_ip"] != migration.allocation.vm_ip and a["gpu"] == migration.allocation.gpus[0]]
            expect(all(not own & taken for taken in others), "groups of one are not those of the other", own, others)
        expect_equal(sorted(m["vm_ip"] for m in c.migrations()), ["10.0.0.7", "10.0.0.8"], "those under way")
        for migration in both:
            runs_through(c, c.node, migration)
        for process in processes:
            finish(process, 0)
        c.expect_on("10.0.0.7", "n1:1")
        c.expect_on("10.0.0.8", "n1:0")
        expect_equal(c.charged(), {"n1:0": (16, GIB, 2), "n1:1": (16, GIB, 2)}, "charged afterwards")


@scenario
def cancelled():
    """By an operator, and because the allocation ends; too late once the programs switch."""
    with cluster() as c:
        c.vm("10.0.0.7")
        c.refused(3, "does not move", "migrate", "10.0.0.7", "--cancel")
        process = c.start("migrate", "10.0.0.7")
        migration = c.node.wait_migration()
        c.node.report(migration, COPYING)
        result = c.ctl_run("migrate", "10.0.0.7", "--cancel")
        expect_equal(result.status, 0, "the cancelling", result)
        expect("cancelled it" in result.out, "it says", result)
        finish(process, 1, "cancelled it")
        expect(migration.is_cancelled, "the node was told")
        c.expect_on("10.0.0.7", "n1:0")
        # Too late.
        process = c.start("migrate", "10.0.0.7")
        migration = c.node.wait_migration(2)
        c.node.report(migration, SWITCHING)
        c.refused(1, "too late", "migrate", "10.0.0.7", "--cancel")
        runs_through(c, c.node, migration)
        finish(process, 0)
        c.expect_on("10.0.0.7", "n1:1")
        # The allocation is to end: first the migration, then it.
        for number, words in ((3, ("allocation", "kill")), (4, ("vm", "remove"))):
            row = c.row("10.0.0.7")
            c.node.cancels = False
            process = c.start("migrate", "10.0.0.7")
            migration = c.node.wait_migration(number)
            c.ctl(*words, row["id"]) if number == 3 else c.ctl(*words, "10.0.0.7", "--kill")
            within(60, lambda: migration.is_cancelled, "the node is told that it is to fail")
            expect(int(row["id"], 16) in c.node.allocations, "nothing is taken away before it has ended")
            c.node.report(migration, FAILED, CONFLICT, "cancelled")
            finish(process, 1, "the allocation is being ended")
            within(60, lambda: not [a for a in c.ctl("allocations") if a["id"] == row["id"]], "the allocation ends then")
            within(30, lambda: int(row["id"], 16) not in c.node.allocations, "at the node too")
            expect_equal(c.charged(), {"n1:0": (0, 0, 0), "n1:1": (0, 0, 0)}, "charged")
            if number == 3:
                c.attach("10.0.0.7")


@scenario
def interrupted():
    """Ctrl-C ends the showing alone; on a terminal one line is written over and over."""
    with cluster() as c:
        c.vm("10.0.0.7")
        master, slave = pty.openpty()
        process = harness.start(c.command("migrate", "10.0.0.7"), stdout=slave, stderr=subprocess.PIPE,
                                env=harness.environment(TERM="xterm"))
        os.close(slave)
        migration = c.node.wait_migration()
        c.node.report(migration, COPYING, **FIGURES)
        said = await_said(master, b"copying round 3")
        os.kill(process.pid, signal.SIGINT)
        result = harness.finish(process, 60)
        os.close(master)
        expect_equal(result.status, 6, "its end", result)
        expect("goes on in the background" in result.err and "--cancel" in result.err, "it says", result)
        expect(b"\r\033[K" in said and b"\n" not in said, "one line that is written over", said)
        expect_equal(c.phase(migration), "copying", "it goes on")
        runs_through(c, c.node, migration)
        c.ends(migration, "done")
        c.expect_on("10.0.0.7", "n1:1")


@scenario
def drained():
    """A GPU's VMs move one after the other; what cannot is named."""
    with cluster(gpus=3, sms=32, slots=16) as c:
        vms = ["10.0.0.7", "10.0.0.8", "10.0.0.9"]
        for vm_ip, sms in zip(vms, (8, 8, 16)):
            c.ctl("vm", "add", vm_ip, "--sm", sms, "--memory", "1G", "--sessions", "2", "--include-gpu", "n1:0")
            c.attach(vm_ip)
        for vm_ip in vms[:2]:
            c.ctl("vm", "set", vm_ip, "--include-gpu", "")
        within(30, lambda: len([v for v in c.ctl("vms") if v.get("include_gpus")]) == 1, "the documents are read")
        # Without --migrate it lists.
        expect_equal(sorted(a["vm_ip"] for a in c.ctl("drain", "n1:0")), vms, "what is on it")
        expect_equal(c.node.count(ORDER_MIGRATE), 0, "nothing moves by itself")
        process = c.start("drain", "n1:0", "--migrate", "--stop-timeout", "500")
        moved = []
        for number in (1, 2):
            migration = c.node.wait_migration(number)
            expect_equal(c.node.count(ORDER_MIGRATE), number, "one after the other")
            expect_equal(migration.bounds[1], 500, "its bounds")
            moved.append((migration.allocation.vm_ip, migration.allocation.gpus))
            runs_through(c, c.node, migration)
        result = finish(process, 1, "10.0.0.7 has moved to", "10.0.0.8 has moved to", "10.0.0.9 stays where it is",
                        "not among the GPUs wanted", "2 moved, 1 not")
        expect("GPU-n1-0" not in result.out, "nothing was listed", result)
        expect_equal(sorted(vm for vm, _ in moved), vms[:2], "who moved")
        expect(all(gpus != ["GPU-n1-0"] for _, gpus in moved), "where to", moved)
        for vm_ip, gpus in moved:
            c.expect_on(vm_ip, "n1:" + gpus[0][-1])
        result = c.ctl_run("drain", "n1", "--migrate", "-o", "json")
        expect_equal(result.status, 1, "a node's", result)
        rows = json.loads(result.out)
        expect_equal(({r["vm_ip"] for r in rows}, {r["status"] for r in rows}), (set(vms), {"no_capacity"}), "its rows")
        expect(all("no other one is connected" in r["reason"] for r in rows), "its reasons", rows)


@scenario
def resized_on_the_way():
    """Where there is room it stays; where another GPU has it the VM moves with its new size; else nothing changes."""
    with cluster(gpus=2, sms=32, slots=16) as c:
        c.vm("10.0.0.7", 8)
        c.vm("10.0.0.8", 16)
        expect_equal(c.row("10.0.0.8")["gpu"], "GPU-n1-0", "both are on one")
        # Room beside it: an ordinary resize.
        result = c.ctl_run("resize", "10.0.0.7", "--sm", "16", "--migrate")
        expect_equal(result.status, 0, "a resize with room", result)
        expect_equal((c.node.count(ORDER_MIGRATE), c.row("10.0.0.7")["sms"]), (0, 16), "it stays")
        c.refused(1, "not so many SMs", "resize", "10.0.0.7", "--sm", "24")
        # It moves and fails: nothing has changed, its document neither.
        process = c.start("resize", "10.0.0.7", "--sm", "24", "--memory", "2G", "--migrate")
        migration = c.node.wait_migration()
        slot = migration.allocation.slots[0]
        expect_equal((slot.gpu, slot.sms, slot.memory), ("GPU-n1-1", 24, 2 * GIB), "what is ordered")
        c.node.report(migration, FAILED, CONFLICT, "as the test says")
        finish(process, 1, "as the test says")
        row = c.expect_on("10.0.0.7", "n1:0")
        expect_equal((row["sms"], row["sms_wanted"], row["memory_bytes"]), (16, 16, GIB), "its size after the failure")
        within(30, lambda: [(v["sms"], v["memory_bytes"]) for v in c.ctl("vms") if v["vm_ip"] == "10.0.0.7"] == [(16, GIB)],
               "its document after the failure")
        tenant = c.ctl("tenants")[0]
        expect_equal((tenant["sms_allocated"], tenant["memory_allocated_bytes"]), (32, 2 * GIB), "for the tenant")
        # It moves.
        process = c.start("resize", "10.0.0.7", "--sm", "24", "--memory", "2G", "--migrate")
        migration = c.node.wait_migration(2)
        expect_equal(c.charged(), {"n1:0": (32, 2 * GIB, 4), "n1:1": (24, 2 * GIB, 2)}, "charged meanwhile")
        tenant = c.ctl("tenants")[0]
        expect_equal((tenant["sms_allocated"], tenant["memory_allocated_bytes"]), (40, 3 * GIB), "for the tenant")
        runs_through(c, c.node, migration)
        finish(process, 0, "has moved to n1:1")
        row = c.expect_on("10.0.0.7", "n1:1")
        expect_equal((row["sms"], row["sms_wanted"], row["memory_bytes"]), (24, 24, 2 * GIB), "its size")
        vm = [v for v in c.ctl("vms") if v["vm_ip"] == "10.0.0.7"][0]
        expect_equal((vm["sms"], vm["memory_bytes"]), (24, 2 * GIB), "its document")
        expect_equal(c.charged(), {"n1:0": (16, GIB, 2), "n1:1": (24, 2 * GIB, 2)}, "charged afterwards")
        # Nobody has so much: refused, and the document is as it was.
        c.refused(1, "not enough SMs", "resize", "10.0.0.8", "--sm", "64", "--migrate")
        within(30, lambda: [v["sms"] for v in c.ctl("vms") if v["vm_ip"] == "10.0.0.8"] == [16], "the document is put back")
        expect_equal(c.row("10.0.0.8")["sms"], 16, "its size")
        c.refused(2, "--migrate goes with --sm and --memory alone", "resize", "10.0.0.7", "--priority", "3", "--migrate")


@scenario
def same_gpu():
    """With --force to the GPU where it is: client slots are charged twice, the rest once."""
    with cluster(gpus=1, slots=4) as c:
        c.vm("10.0.0.7")
        process = c.start("migrate", "10.0.0.7", "--to", "n1:0", "--force")
        migration = c.node.wait_migration()
        expect_equal(migration.allocation.gpus, ["GPU-n1-0"], "what is ordered")
        expect_equal(c.charged(), {"n1:0": (16, GIB, 4)}, "charged meanwhile")
        c.manager.restart(signal.SIGKILL)
        c.reconnect()
        expect_equal(c.charged(), {"n1:0": (16, GIB, 4)}, "charged over a restart")
        runs_through(c, c.node, migration)
        finish(process, 0)
        c.expect_on("10.0.0.7", "n1:0")
        expect_equal(c.charged(), {"n1:0": (16, GIB, 2)}, "charged afterwards")


@scenario
def several_gpus():
    """A VM with two GPUs moves with both, to two others; one GPU is no target for it."""
    with cluster(gpus=4) as c:
        c.ctl("vm", "add", "10.0.0.7", "--sm", "16", "--memory", "1G", "--sessions", "2", "--devices", "2")
        peer = Peer(c.manager.url)
        peer.hello("vm", "10.0.0.7")
        expect_equal(peer.call(by_hand.ATTACH, u32(1)).outcome[0], "OK", "attach")
        peer.stay()
        c.vms["10.0.0.7"] = peer
        before = {a["slot"]: a["gpu"] for a in c.rows("10.0.0.7")}
        c.refused(1, "which move together", "migrate", "10.0.0.7", "--to", "n1:3")
        for number, restarts in ((1, False), (2, True)):
            c.ctl("migrate", "10.0.0.7", "--to", "n1", "--detach")
            migration = c.node.wait_migration(number)
            expect_equal(set(before.values()) & set(migration.allocation.gpus), set(), "GPUs of before and of after")
            c.node.move(migration)
            c.node.report(migration, DONE, **FIGURES)
            if restarts:
                c.manager.restart(signal.SIGKILL)
                c.reconnect()
            c.ends(migration, "done")
            after = {a["slot"]: a["gpu"] for a in c.rows("10.0.0.7")}
            expect_equal([after[i] for i in range(2)], migration.allocation.gpus, "where it is")
            within(30, lambda: [p for p, _ in c.entries()] == sorted("n1:" + g[-1] for g in after.values()), "the store")
            within(30, lambda: all(a["revision_applied"] == a["revision"] for a in c.rows("10.0.0.7")), "the node has it")
            before = after


if __name__ == "__main__":
    main()
