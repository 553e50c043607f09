#!/usr/bin/env python3
"""The cluster manager with simulated nodes, VMs and operators: grants, documents, resizes, quotas, restarts, losses.

FLYT_CLUSTER_BUILD=build-address-undefined takes the manager of another build.
"""
import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.request

import harness
import mongo_by_hand
from caller import Caller, Lines
from harness import BUILD, expect, expect_equal, helper, main, scenario, start, within
from manager import Manager, documents

GIB = 1 << 30


class Node(Lines):
    def __init__(self, manager, name, *options):
        super().__init__([helper("simulated_node"), "--manager", manager.url, "--name", name, *options])
        self.name = name

    def tell(self, line):
        self.say(line)
        within(10, lambda: "done " + line in self.seen, "the node takes '%s'" % line)

    def has(self, beginning):
        return [line for line in self.seen if line.startswith(beginning)]

    def wait(self, beginning, count=1, seconds=20):
        return within(seconds, lambda: len(self.has(beginning)) >= count and self.has(beginning),
                      "node says %s %d times, said %s" % (beginning, count, self.seen))


@contextlib.contextmanager
def cluster(*nodes, **settings):
    """A manager with simulated nodes (name, options…), all registered, and an operator."""
    manager = Manager(**settings)
    fleet = [Node(manager, *node) for node in nodes]
    for node in fleet:
        node.wait("registered")
    operator = manager.operator()
    yield (manager, operator, *fleet)
    for process in [operator, *fleet]:
        process.kill()
    manager.close()


def one(rows, **wanted):
    found = [row for row in rows if all(row[k] == v for k, v in wanted.items())]
    expect_equal(len(found), 1, "rows with", wanted, "of", rows)
    return found[0]


def attach(manager, vm_ip, status="OK"):
    vm = Caller(manager.url, "vm", vm_ip)
    answer = vm.call("attach", status)
    return vm, (answer["grants"][0] if status == "OK" else answer["text"])


@scenario
def grant_and_end():
    """A VM gets whole groups, the node holds them, the store knows them; they go after lingering."""
    with cluster(("n1",)) as (manager, operator, node):
        operator.call("vm-add 10.0.0.7 compute_units=20 memory_bytes=%d name=alice sessions=3" % GIB)
        within(10, lambda: operator.view("vms alice"), "the document is read")
        vm, grant = attach(manager, "10.0.0.7")
        expect_equal((grant["node"], grant["slots"][0]["sms"], len(grant["slots"][0]["groups"])), ("n1", 24, 3), grant)
        expect_equal(len(node.wait("held n1 %s 10.0.0.7 1 1 1 24 %d" % (grant["id"], GIB))), 1, node.seen)
        entries = [entry for gpu in documents(manager) for entry in gpu["allocations"]]
        expect_equal([(e["id"], e["sm_count"], e["sessions"]) for e in entries], [(grant["id"], 24, 3)])
        again = vm.call("attach")["grants"][0]
        expect_equal((again["id"], again["ticket_key"]), (grant["id"], grant["ticket_key"]))
        node.tell("sessions 10.0.0.7 2")
        within(10, lambda: one(operator.view("vms"), vm_ip="10.0.0.7") and len(operator.view("sessions")) == 2,
               "sessions are shown")
        manager.linger(1)
        time.sleep(2.5)  # longer than that: a used one stays
        expect_equal(len(operator.view("allocations")), 1)
        node.tell("sessions 10.0.0.7 0")
        node.wait("removed n1 " + grant["id"])
        within(10, lambda: not operator.view("allocations"), "it is forgotten")
        within(10, lambda: not [e for gpu in documents(manager) for e in gpu["allocations"]], "in the store too")
        vm.order("idle")
        fresh = vm.call("attach")["grants"][0]
        expect(fresh["id"] != grant["id"], "a new allocation")


@scenario
def never_more_than_there_is():
    """Many VMs at once on few groups: no group twice, refusals with reasons."""
    with cluster(("n1", "--gpus", "1", "--groups", "8", "--memory", "8G", "--slots", "8")) as (manager, operator, node):
        for i in range(12):
            operator.call("vm-add 10.0.1.%d compute_units=8 memory_bytes=%d sessions=1" % (i, GIB // 2))
        within(10, lambda: len(operator.view("vms")) == 12, "all documents are read")
        vms = [Caller(manager.url, "vm", "10.0.1.%d" % i) for i in range(12)]
        for vm in vms:
            vm.say("attach")
        answers = [vm.answer("attach") for vm in vms]
        granted = [a for a in answers if a["status"] == "OK"]
        refused = [a for a in answers if a["status"] == "NO_CAPACITY"]
        expect_equal((len(granted), len(refused)), (8, 4), answers)
        groups = [g for a in granted for g in a["grants"][0]["slots"][0]["groups"]]
        expect_equal(sorted(groups), list(range(8)))
        expect("1 of 1 GPU: not enough SMs (needs 8, 0 free at most)" in refused[0]["text"], refused[0])
        stored = [g for gpu in documents(manager) for e in gpu["allocations"] for g in e["sm_groups"]]
        expect_equal(sorted(stored), list(range(8)))


@scenario
def several_gpus():
    with cluster(("n1", "--gpus", "1"), ("n2", "--gpus", "3")) as (manager, operator, first, second):
        operator.call("vm-add 10.0.0.7 compute_units=8 memory_bytes=%d devices=3" % GIB)
        within(10, lambda: operator.view("vms"), "the document is read")
        vm, grant = attach(manager, "10.0.0.7")
        expect_equal((grant["node"], len({s["gpu"] for s in grant["slots"]})), ("n2", 3), grant)
        operator.call("vm-add 10.0.0.8 compute_units=8 memory_bytes=%d devices=4" % GIB)
        within(10, lambda: len(operator.view("vms")) == 2, "the document is read")
        _, text = attach(manager, "10.0.0.8", "NO_CAPACITY")
        expect("no node has 4 of them" in text, text)


def recorded_late(operator, words):
    """What who asks for a resize hears that nobody acknowledges: his time is long enough to record it, on a machine that
    stands still meanwhile, too."""
    return operator.call("resize %s timeout=10000" % words, "TIMEOUT")["text"]


@scenario
def resize():
    with cluster(("n1", "--gpus", "1", "--groups", "8", "--memory", "8G")) as (manager, operator, node):
        operator.call("vm-add 10.0.0.7 compute_units=16 memory_bytes=%d" % (2 * GIB))
        operator.call("vm-add 10.0.0.8 compute_units=16 memory_bytes=%d" % (2 * GIB))
        within(10, lambda: len(operator.view("vms")) == 2, "the documents are read")
        vm, grant = attach(manager, "10.0.0.7")
        attach(manager, "10.0.0.8")
        answer = operator.call("resize 10.0.0.7 compute_units=32 memory_bytes=%d" % (4 * GIB))
        expect_equal(answer["revision"], 2, answer)
        node.wait("held n1 %s 10.0.0.7 2 1 1 32 %d" % (grant["id"], 4 * GIB))
        vm.order("resized")
        # More than there is: refused, and everything is as before, the document too.
        text = operator.call("resize 10.0.0.7 compute_units=56", "NO_CAPACITY")["text"]
        expect("56 wanted, 32 its own and 16 free" in text, text)
        text = operator.call("resize 10.0.0.7 memory_bytes=%d" % (7 * GIB), "NO_CAPACITY")["text"]
        expect("more than there is free" in text, text)
        within(10, lambda: one(documents(manager, "vm_required_resources"), vm_ip="10.0.0.7")["memory"] == 4,
               "the document is put back")
        # Less than is in use: the node refuses with figures, the record is put back.
        node.tell("sessions 10.0.0.7 1")
        node.tell("use 10.0.0.7 %d" % (3 * GIB))
        text = operator.call("resize 10.0.0.7 memory_bytes=%d" % GIB, "IN_USE")["text"]
        expect(str(3 * GIB) in text and str(GIB) in text, text)
        within(10, lambda: one(operator.view("allocations"), id=grant["id"])["revision_applied"] == 4, "put back")
        row = one(operator.view("allocations"), id=grant["id"])
        expect_equal((row["memory_bytes"], row["sms"]), (4 * GIB, 32))
        # When it is free: taken, charged until it is.
        operator.call("resize 10.0.0.7 memory_bytes=%d when_free" % GIB)
        gpu = operator.view("gpus")[0]
        expect_equal(gpu["memory_allocated_bytes"], 6 * GIB, "charged while in use")
        node.tell("use 10.0.0.7 0")
        within(10, lambda: operator.view("gpus")[0]["memory_allocated_bytes"] == 3 * GIB, "free when it is given back")
        # Groups that programs have not left are not given to others.
        node.tell("vacate off")
        operator.call("resize 10.0.0.7 compute_units=8")
        expect_equal(operator.view("gpus")[0]["groups_allocated"], 6)
        node.tell("vacate on")
        within(10, lambda: operator.view("gpus")[0]["groups_allocated"] == 3, "free when they are left")
        # Who asks for SMs is answered when programs have them; memory waits for nobody's SMs.
        node.tell("switch off")
        text = recorded_late(operator, "10.0.0.7 compute_units=16")
        expect("not acknowledged by the node and its servers yet" in text, text)
        row = within(10, lambda: (lambda r: r["revision_applied"] == r["revision"] and r)(
            one(operator.view("allocations"), id=grant["id"])), "the node has it")
        expect_equal((row["sms"], row["switch_state"]), (16, "target"), row)
        operator.call("resize 10.0.0.7 memory_bytes=%d" % (2 * GIB))
        asker = Caller(manager.socket, "operator", "asker")
        asker.say("resize 10.0.0.7 compute_units=8")
        within(10, lambda: one(operator.view("allocations"), id=grant["id"])["sms"] == 8, "recorded")
        node.tell("switch on")
        expect_equal(asker.answer("resize")["status"], "OK", "when they have switched")
        # Programs that cannot change: recorded, and who asked hears what they keep.
        node.tell("kept 8")
        text = operator.call("resize 10.0.0.7 compute_units=24", "TIMEOUT")["text"]
        expect("recorded at revision" in text and "running programs keep their 8 SMs until they start again" in text, text)
        row = one(operator.view("allocations"), id=grant["id"])
        expect_equal((row["sms"], row["sms_now"], row["switch_state"]), (24, 8, "kept"))
        operator.call("resize 10.0.0.7 memory_bytes=%d" % (2 * GIB))  # which they do take
        flytctl = [os.path.join(BUILD, "bin", "flytctl"), "--manager", manager.socket]
        told = harness.run(flytctl + ["resize", "10.0.0.7", "--sm", "16", "--memory", "1G"])
        expect_equal(told.status, 6, told)
        expect(told.err.startswith("flytctl: recorded at revision ") and "keep their 8 SMs" in told.err, told)
        node.tell("kept 0")
        operator.call("resize 10.0.0.7 compute_units=8")
        # A node that does not answer: recorded, and taken when it is back.
        node.tell("mute")
        text = recorded_late(operator, "10.0.0.7 compute_units=24")
        expect("recorded at revision" in text, text)
        node.tell("speak")
        node.tell("reconnect")
        within(20, lambda: one(operator.view("allocations"), id=grant["id"])["sms_now"] == 24, "taken when it is back")
        # Several at once are done one after another; the last one holds.
        others = [Caller(manager.socket, "operator", "o%d" % i) for i in range(5)]
        for i, caller in enumerate(others):
            caller.say("resize 10.0.0.7 compute_units=%d" % (8 * (i % 3 + 1)))
        expect_equal({c.answer("resize")["status"] for c in others}, {"OK"})
        document = one(documents(manager, "vm_required_resources"), vm_ip="10.0.0.7")
        expect_equal(one(operator.view("allocations"), id=grant["id"])["sms"], document["compute_units"])


@scenario
def deleted_and_killed():
    with cluster(("n1",)) as (manager, operator, node):
        for i in (7, 8):
            operator.call("vm-add 10.0.0.%d compute_units=8 memory_bytes=%d name=vm%d" % (i, GIB, i))
        within(10, lambda: len(operator.view("vms")) == 2, "the documents are read")
        vm, grant = attach(manager, "10.0.0.7")
        other, kept = attach(manager, "10.0.0.8")
        for i in (7, 8):
            node.tell("sessions 10.0.0.%d 1" % i)
        within(10, lambda: len(operator.view("sessions")) == 2, "the manager knows of both")
        operator.call("vm-remove vm7")
        within(10, lambda: one(operator.view("vms"), vm_ip="10.0.0.7")["state"] == "blocked", "new programs are blocked")
        expect_equal(vm.call("attach", "DENIED")["status"], "DENIED")
        time.sleep(1.5)
        expect_equal(len(node.has("removed")), 0, "nothing was ended")
        operator.call("vm-add 10.0.0.7 compute_units=8 memory_bytes=%d" % GIB)
        within(10, lambda: one(operator.view("vms"), vm_ip="10.0.0.7")["state"] == "granted", "unblocked")
        expect_equal(vm.call("attach")["grants"][0]["id"], grant["id"])
        session = operator.view("sessions 10.0.0.8")[0]["id"]
        operator.call("session-kill " + session)
        node.wait("killed n1 " + session)
        operator.call("session-kill 0000000000000001", "NOT_FOUND")
        operator.call("vm-remove 10.0.0.8 kill")
        node.wait("removed n1 " + kept["id"])


@scenario
def quotas_cordon_drain_groups():
    with cluster(("n1", "--gpus", "2")) as (manager, operator, node):
        operator.call("tenant-set red compute_units=16 vms=2")
        for i in range(2):
            operator.call("vm-add 10.0.2.%d compute_units=16 memory_bytes=%d tenant=red" % (i, GIB))
        within(10, lambda: len(operator.view("vms")) == 2, "the documents are read")
        text = operator.call("vm-add 10.0.2.3 compute_units=8 memory_bytes=1 tenant=red", "QUOTA")["text"]
        expect("may have 2 VMs" in text, text)
        attach(manager, "10.0.2.0")
        vm, text = attach(manager, "10.0.2.1", "QUOTA")
        expect_equal(text, "tenant red may have 16 SMs: 16 in use, 16 more wanted")
        operator.call("tenant-set red compute_units=32")
        within(10, lambda: one(operator.view("tenants"), name="red")["compute_units"] == 32, "read")
        operator.call("schedule gpu n1:0 1")
        answer = operator.call("schedule gpu GPU-n1-1 2")
        expect_equal(answer["view"], [], "nothing to drain there")
        text = vm.call("attach", "NO_CAPACITY")["text"]
        expect_equal(text, "1 of 2 GPUs: cordoned; 1 of 2 GPUs: draining")
        answer = operator.call("schedule node n1 2")
        expect_equal([row["vm_ip"] for row in answer["view"]], ["10.0.2.0"], "what must end or move")
        operator.call("gpu-set n1:0 2", "IN_USE")
        operator.call("gpu-set n1:1 2")
        expect_equal(one(operator.view("gpus"), index=1)["groups"], 64)
        for target in ("node n1", "gpu n1:0", "gpu n1:1"):
            operator.call("schedule %s 0" % target)
        sentences = [row["sentence"] for row in operator.view("explain 10.0.2.1")]
        expect(any("would get GPU n1:0" in s for s in sentences), sentences)


@scenario
def killed_at_any_moment():
    """SIGKILL while VMs attach: what was acknowledged is there, nothing is given twice, the rest is taken back."""
    with cluster(("n1", "--gpus", "2", "--groups", "24")) as (manager, operator, node):
        for i in range(24):
            operator.call("vm-add 10.0.3.%d compute_units=8 memory_bytes=%d sessions=1 devices=%d"
                          % (i, GIB // 4, 1 + i % 2))
        within(10, lambda: len(operator.view("vms")) == 24, "the documents are read")
        granted = {}
        for round_number in range(4):
            vms = [Caller(manager.url, "vm", "10.0.3.%d" % i) for i in range(6 * round_number, 6 * round_number + 6)]
            for vm in vms:
                vm.say("attach")
            time.sleep(0.002 * round_number)
            manager.restart()
            for i, vm in enumerate(vms):
                for line in list(vm.seen):
                    answer = json.loads(line)
                    if answer.get("grants"):
                        granted["10.0.3.%d" % (6 * round_number + i)] = answer["grants"][0]
                vm.kill()
            node.wait("registered", round_number + 2)
        operator = manager.operator()
        rows = within(10, lambda: operator.view("allocations"), "allocations are there")
        for vm_ip, grant in granted.items():
            expect_equal({r["id"] for r in rows if r["vm_ip"] == vm_ip}, {grant["id"]}, "what was acknowledged is there")
        taken = [(r["gpu"], g) for r in rows for g in r["sm_groups"]]
        expect_equal(len(taken), len(set(taken)), "no group was given twice")
        for i in range(24):
            _, grant = attach(manager, "10.0.3.%d" % i)
            expect_equal(len(grant["slots"]), 1 + i % 2)
        expect(operator.view("status")[0]["epoch"] >= 5, "each start has a higher epoch")


@scenario
def lost_and_fenced():
    with cluster(("n1",), ("n2",), node_lost_s=3.0) as (manager, operator, first, second):
        operator.call("vm-add 10.0.0.7 compute_units=8 memory_bytes=%d include_gpus=GPU-n1-0" % GIB)
        within(10, lambda: operator.view("vms"), "the document is read")
        vm, grant = attach(manager, "10.0.0.7")
        operator.call("fence n1 confirmed", "CONFLICT")
        first.kill()
        within(20, lambda: one(operator.view("nodes"), name="n1")["state"] == "lost", "the node is lost")
        expect_equal(one(operator.view("allocations"), vm_ip="10.0.0.7")["id"], grant["id"], "it stays bound")
        expect(vm.call("attach", "UNAVAILABLE")["text"].startswith("node n1, which has the allocation"), "said so")
        operator.call("fence n1", "INVALID")
        operator.call("fence n1 confirmed")
        expect_equal(operator.view("allocations"), [])
        vm.order("fenced")
        within(20, lambda: one(operator.view("nodes"), name="n2")["state"] == "up", "the other node is there")
        operator.call("vm-set 10.0.0.7 include_gpus=")
        within(10, lambda: "include_gpus" not in one(operator.view("vms"), vm_ip="10.0.0.7"), "read")
        expect_equal(vm.call("attach")["grants"][0]["node"], "n2")


@scenario
def what_a_vm_uses():
    """A VM is told what it is to have, what it has and what it uses of it, itself alone; asking places nothing."""
    with cluster(("n1", "--gpus", "2", "--type", "GPU X", "--heartbeat", "200"), node_lost_s=3.0) as (manager, operator, node):
        vm, other = (Caller(manager.url, "vm", "10.0.0.%d" % i) for i in (7, 8))
        expect_equal(vm.call("usage")["devices"], [], "a VM without a document")
        operator.call("vm-add 10.0.0.7 compute_units=16 memory_bytes=%d" % GIB)
        operator.call("vm-add 10.0.0.8 compute_units=8 memory_bytes=%d devices=2" % (GIB // 2))
        to_come = dict(type="", sms=8, memory_bytes=GIB // 2, used_bytes=0, busy_pct=0)
        within(10, lambda: other.call("usage")["devices"] == [to_come] * 2, "the devices of the document")
        expect_equal(operator.view("allocations"), [], "placed by asking")
        for one_vm in (vm, other):
            one_vm.call("attach")
        for vm_ip, count, used_bytes in (("10.0.0.7", 2, 1000), ("10.0.0.8", 1, 77)):
            node.tell("sessions %s %d" % (vm_ip, count))
            node.tell("use %s %d" % (vm_ip, used_bytes))
        node.tell("driver 580.1.2 13010")
        device = dict(type="GPU X", sms=16, memory_bytes=GIB, used_bytes=1000, busy_pct=0)
        said = within(10, lambda: [u for u in [vm.call("usage")] if u["devices"] == [device] and u["driver"]], "its use")[0]
        expect_equal((said["driver"], said["cuda"], said["again_ms"]), ("580.1.2", 13010, 1000), said)
        expect_equal(said["programs"], [dict(pid=100, memory_bytes=500), dict(pid=101, memory_bytes=500)], said)
        node.tell("busy 10.0.0.7 20")      # both: how much of that was at the same time nobody knows
        within(10, lambda: 25 <= vm.call("usage")["devices"][0]["busy_pct"] <= 60, "how busy it is")
        node.tell("busy 10.0.0.7 90")
        within(10, lambda: vm.call("usage")["devices"][0]["busy_pct"] == 100, "never more than all")
        said = other.call("usage")
        expect_equal([d["busy_pct"] for d in said["devices"]], [None, None], "of several devices", said)
        expect_equal(said["programs"], [dict(pid=100, memory_bytes=77)], said)
        # Nobody reports any more: what it has is known, how much of that is used is not.
        node.tell("heartbeats off")
        within(20, lambda: one(operator.view("nodes"), name="n1")["state"] == "lost", "the node is lost")
        said = vm.call("usage")
        expect_equal(said["devices"], [dict(device, used_bytes=None, busy_pct=None)], said)
        expect_equal(said["programs"], [], said)


@scenario
def fenced_alive():
    """Who fences a node that lives gets what it still has as orphans, charged, and gives it to nobody."""
    with cluster(("n1", "--gpus", "1", "--groups", "4"), node_lost_s=3.0) as (manager, operator, node):
        operator.call("vm-add 10.0.0.7 compute_units=24 memory_bytes=%d" % GIB)
        within(10, lambda: operator.view("vms"), "the document is read")
        vm, grant = attach(manager, "10.0.0.7")
        node.tell("heartbeats off")
        within(20, lambda: one(operator.view("nodes"), name="n1")["state"] == "lost", "the node is lost")
        operator.call("fence n1 confirmed")
        expect_equal(operator.view("allocations"), [])
        node.tell("heartbeats on")
        within(20, lambda: one(operator.view("nodes"), name="n1")["state"] == "up", "the node is back")
        row = one(operator.view("allocations"), id=grant["id"])
        expect_equal((row["state"], row["sms"]), ("orphan", 24))
        expect("SMs" in vm.call("attach", "NO_CAPACITY")["text"], "its groups are given to nobody")


@scenario
def attach_while_it_is_blocked():
    """Who comes while an idle allocation is being blocked is let in by the node before he is sent there."""
    with cluster(("n1",)) as (manager, operator, node):
        operator.call("vm-add 10.0.0.7 compute_units=8 memory_bytes=%d" % GIB)
        within(10, lambda: operator.view("vms"), "the document is read")
        vm, grant = attach(manager, "10.0.0.7")
        node.tell("mute")   # the order that blocks it is lost; the one that opens it is sent when its time is over
        manager.linger(1)
        within(10, lambda: one(operator.view("allocations"), vm_ip="10.0.0.7")["state"] == "blocked", "it is blocked")
        node.wait("lost n1")
        node.tell("speak")
        vm.say("attach")
        within(10, lambda: one(operator.view("allocations"), vm_ip="10.0.0.7")["state"] == "active", "it is open again")
        answer = vm.answer("attach")
        expect_equal((answer["status"], [g["id"] for g in answer["grants"]]), ("OK", [grant["id"]]), answer)
        within(60, lambda: (lambda last: int(last[4]) >= 3 and last[6] == "1")(
            node.has("held n1 %s" % grant["id"])[-1].split()), "the node says that it knew it by then")


@scenario
def stopped_with_a_word_left():
    """What happened right before an orderly end is in the store."""
    with cluster(("n1",)) as (manager, operator, node):
        for i in range(20):
            operator.call("vm-add 10.0.1.%d compute_units=8 memory_bytes=%d" % (i + 1, GIB))
            if i % 4:
                continue
            operator.kill()
            os.kill(manager.process.pid, signal.SIGTERM)
            manager.process.wait(timeout=60)
            said = [e["object"] for e in documents(manager, "events") if e["kind"] == "vm.added"]
            expect("10.0.1.%d" % (i + 1) in said, "the last event is there", said)
            manager.start()
            operator = manager.operator()
        operator.kill()


@scenario
def one_bad_entry():
    """What a hand has spoiled in a GPU's document costs that allocation, and no other."""
    with cluster(("n1", "--gpus", "1")) as (manager, operator, node):
        operator.call("vm-add 10.0.0.7 compute_units=8 memory_bytes=%d" % GIB)
        within(10, lambda: operator.view("vms"), "the document is read")
        vm, grant = attach(manager, "10.0.0.7")
        os.kill(manager.process.pid, signal.SIGKILL)
        manager.process.wait(timeout=60)
        bad = dict(id="00000000000000cc", vm_ip="10.0.0.99", tenant="", state="active", slot=0, slot_count=1e300,
                   revision=-5, memory_bytes=-1e300, sm_groups=[-1, 1e9, "x"])
        with contextlib.closing(sqlite3.connect(manager.database, timeout=60)) as db:
            (table, column), = [(t, c[1]) for (t,) in db.execute("SELECT name FROM sqlite_master WHERE type='table'").fetchall()
                                for c in db.execute("PRAGMA table_info(%s)" % t) if c[1] in ("document", "body", "json")]
            (text,), = db.execute("SELECT %s FROM %s WHERE collection='gpus'" % (column, table)).fetchall()
            gpu = json.loads(text)
            gpu["allocations"].insert(0, bad)
            db.execute("UPDATE %s SET %s=? WHERE collection='gpus'" % (table, column), (json.dumps(gpu),))
            db.commit()
        operator.kill()
        manager.start()
        again = manager.operator()
        rows = within(20, lambda: again.view("allocations"), "allocations are read")
        expect_equal([(row["id"], row["state"]) for row in rows], [(grant["id"], "active")])
        again.kill()


@scenario
def vm_gone_before_its_order():
    """A VM is removed, and forgotten, while the node owes the answer to an order that the VM waits for."""
    with cluster(("n1",), order_timeout_s=4.0) as (manager, operator, node):
        operator.call("vm-add 10.0.0.7 compute_units=8 memory_bytes=%d" % GIB)
        within(10, lambda: operator.view("vms"), "the document is read")
        vm, _ = attach(manager, "10.0.0.7")
        vm.kill()
        node.tell("mute")
        operator.call("resize 10.0.0.7 compute_units=16 timeout=100", "TIMEOUT")
        node.wait("lost n1")
        operator.call("vm-remove 10.0.0.7 kill")
        within(10, lambda: not operator.view("vms"), "the VM is forgotten")
        node.tell("speak")
        node.wait("removed n1")
        within(20, lambda: not operator.view("allocations"), "so is its allocation")


@scenario
def orphans_and_holders():
    with cluster(("n1",)) as (manager, operator, node):
        for vm_ip, number in (("10.0.0.9", "00000000000000aa"), ("10.0.0.10", "00000000000000bb")):
            node.tell("orphan %s %s" % (number, vm_ip))
            node.tell("reconnect")
            row = within(10, lambda: [r for r in operator.view("allocations") if r["id"] == number], "it is shown")[0]
            expect_equal((row["state"], row["sms"]), ("orphan", 8))
            if vm_ip == "10.0.0.9":
                expect_equal(operator.view("gpus n1:0")[0]["groups_allocated"], 1, "charged")
                operator.call("allocation %s adopt" % number)
                within(10, lambda: one(operator.view("allocations"), id=number)["state"] != "orphan", "adopted")
        operator.call("allocation 00000000000000bb kill")
        node.wait("removed n1 00000000000000bb")
        # A second one with the same name, while the first lives.
        pretender = Node(manager, "n1")
        event = within(10, lambda: [e for e in operator.view("events") if e["kind"] == "identity.held"], "it is refused")
        expect("127.0.0.1" in event[0]["text"], event)
        expect(not pretender.has("registered"), pretender.seen)
        pretender.kill()
        vm = Caller(manager.url, "vm", "10.0.0.20")
        expect_equal(vm.hello["status"], "OK")
        expect_equal(Caller(manager.url, "vm", "10.0.0.20").hello["status"], "HELD")


class Mongo(Lines):
    """The stand-in for MongoDB."""

    def __init__(self):
        super().__init__([sys.executable, "-B", os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                                             "mongod_stand_in.py")])
        self.port = int(self.next("the stand-in listens").split()[-1])
        self.store = '"mongodb://127.0.0.1:%d/flyt"' % self.port

    def tell(self, line):
        self.say(line)
        expect_equal(self.next(line), "ok", line)

    def hand(self):
        return mongo_by_hand.Client(self.port)


@scenario
def wishes_are_read_first():
    """Who comes before a new leader has read the documents waits for that; nobody is told that he has none."""
    mongo = Mongo()
    with cluster(("n1", "--gpus", "1"), store=mongo.store, store_timeout_s=30.0, lease_s=30.0,
                 lease_renew_s=0.5) as (manager, operator, node), \
            mongo.hand() as hand:
        hand.insert("flyt", "vm_required_resources", {"vm_ip": "10.0.0.7", "compute_units": 8, "memory": 1})
        operator.kill()
        os.kill(manager.process.pid, signal.SIGTERM)    # gives its lease back
        manager.process.wait(timeout=60)
        mongo.tell("hold vm_required_resources")
        manager.start()
        within(20, lambda: manager.log().count("event: manager.leads") == 2, "it leads again")
        node.wait("registered", 2)
        vm = Caller(manager.url, "vm", "10.0.0.7")
        vm.say("attach")
        flytctl = [os.path.join(BUILD, "bin", "flytctl"), "--manager", manager.socket]

        def says_so():
            early = harness.run(flytctl + ["--deadline", "1", "vms"])
            expect_equal(early.status, 4, early)
            return "has just begun to lead" in early.err

        within(20, says_so, "flytctl hears that the manager still reads")
        mongo.tell("let go")
        answer = vm.answer("attach")
        expect_equal((answer["status"], len(answer["grants"])), ("OK", 1), answer)
        patient = harness.run(flytctl + ["vms"])
        expect("10.0.0.7" in patient.out, patient)
        vm.close()
    mongo.kill()


@scenario
def documents_by_hand():
    mongo = Mongo()
    with cluster(("n1", "--gpus", "1"), store=mongo.store, lease_s=30.0, lease_renew_s=0.5) as (manager, operator, node), \
            mongo.hand() as hand:
        hand.insert("flyt", "vm_required_resources", {"vm_ip": "10.0.0.7", "compute_units": 8.0, "memory": 1.5,
                                                      "host_ip": "10.9.9.9", "colour": "red"})
        within(10, lambda: operator.view("vms 10.0.0.7"), "an inserted document is read")
        vm, grant = attach(manager, "10.0.0.7")
        expect_equal(grant["slots"][0]["memory_bytes"], 3 * GIB // 2)
        hand.update("flyt", "vm_required_resources", {"vm_ip": "10.0.0.7"}, {"$set": {"compute_units": 20}})
        node.wait("held n1 %s 10.0.0.7 2 1 1 24 " % grant["id"])
        # More than there is: an event, nothing changes.
        hand.update("flyt", "vm_required_resources", {"vm_ip": "10.0.0.7"}, {"$set": {"compute_units": 1000}})
        event = within(10, lambda: [e for e in operator.view("events") if e["kind"] == "vm.resize_refused"], "refused")
        expect("1000 wanted" in event[0]["text"], event)
        hand.update("flyt", "vm_required_resources", {"vm_ip": "10.0.0.7"}, {"$set": {"compute_units": 20}})
        # Malformed, and doubled: named once, and nothing changes.
        hand.insert("flyt", "vm_required_resources", {"_id": "bad", "vm_ip": "10.0.0.8", "compute_units": "many"})
        hand.insert("flyt", "vm_required_resources", {"_id": "twin", "vm_ip": "10.0.0.7", "compute_units": 64,
                                                      "memory": 1})
        within(10, lambda: {"document.malformed", "document.doubled"} <= {e["kind"] for e in operator.view("events")},
               "both are named")
        time.sleep(1.5)  # several readings
        kinds = [e["kind"] for e in operator.view("events")]
        expect_equal((kinds.count("document.malformed"), kinds.count("document.doubled")), (1, 1), kinds)
        expect_equal(one(operator.view("allocations"), id=grant["id"])["sms"], 24)
        hand.delete("flyt", "vm_required_resources", {"_id": "twin"})
        hand.delete("flyt", "vm_required_resources", {"vm_ip": "10.0.0.7"})
        within(10, lambda: one(operator.view("vms"), vm_ip="10.0.0.7")["state"] == "blocked" or None, "blocked")
    mongo.kill()


@scenario
def store_down():
    mongo = Mongo()
    with cluster(("n1",), store=mongo.store, store_timeout_s=10.0, lease_s=30.0, lease_renew_s=0.5) as \
            (manager, operator, node):
        for i in (7, 8, 9):
            operator.call("vm-add 10.0.0.%d compute_units=8 memory_bytes=%d" % (i, GIB))
        vm, grant = attach(manager, "10.0.0.7")
        # The write is applied and its answer lost: read again before answering.
        mongo.tell("cut_after 1 gpus")
        other, second = attach(manager, "10.0.0.8")
        rows = operator.view("allocations")
        expect_equal(sorted(r["id"] for r in rows), sorted([grant["id"], second["id"]]))
        mongo.tell("down")
        third = Caller(manager.url, "vm", "10.0.0.9")
        # Nothing is granted: the write fails, or what has come of it is not known before the lease runs out.
        third.say("attach")
        expect_equal(third.answer("attach")["status"], "UNAVAILABLE")
        operator.say("vm-add 10.0.0.10 compute_units=8 memory_bytes=1")
        expect(operator.answer("add")["status"] in ("UNAVAILABLE", "TIMEOUT", "NOT_LEADER"), "a change is refused")
        mongo.tell("up")
        operator2 = manager.operator()
        node.wait("registered")
        within(30, lambda: operator2.view("nodes") and operator2.view("nodes")[0]["state"] == "up", "the node is back")
        within(30, lambda: _attaches(third), "granted when it is back")
        expect_equal(sorted(r["vm_ip"] for r in operator2.view("allocations")), ["10.0.0.%d" % i for i in (7, 8, 9)])
        operator2.kill()
    mongo.kill()


def _attaches(vm):
    vm.say("attach")
    return vm.answer("attach")["status"] == "OK"


@scenario
def takeover():
    """Two managers: one leads; stopped, the other takes over; the old one wakes up and changes nothing."""
    mongo = Mongo()
    shared = dict(store=mongo.store, lease_s=30.0, lease_renew_s=0.5)
    first = Manager(name='"first"', **shared)
    operator = first.operator()
    second = Manager(name='"second"', managers='["%s"]' % first.url, **shared)
    node = Node(first, "n1")
    node.wait("registered")
    operator.call("vm-add 10.0.0.7 compute_units=8 memory_bytes=%d" % GIB)
    operator.call("vm-add 10.0.0.8 compute_units=8 memory_bytes=%d" % GIB)
    vm, grant = attach(first, "10.0.0.7")
    node.tell("sessions 10.0.0.7 1")
    standby = within(20, lambda: (lambda c: c if c.hello["leaders"] else c.kill())(
        Caller(second.socket, "operator", "standby")), "the other one knows the leader")
    expect_equal((standby.hello["leader"], standby.hello["leaders"][0]), (False, first.url))
    expect("first" in standby.call("view vms", "NOT_LEADER")["text"], "it says who leads")
    epoch = operator.view("status")[0]["epoch"]
    harness.stop(first.process.pid)
    new = second.operator()
    expect_equal(new.view("status")[0]["epoch"], epoch + 1)
    expect_equal(one(new.view("allocations"), vm_ip="10.0.0.7")["id"], grant["id"])
    expect_equal({gpu["epoch"] for gpu in _gpus(mongo)}, {epoch + 1})
    before = _gpus(mongo)
    os.kill(first.process.pid, signal.SIGCONT)
    late = Caller(first.url, "vm", "10.0.0.8")
    late.say("attach")
    expect(late.answer("attach")["status"] in ("NOT_LEADER", "UNAVAILABLE"), "it grants nothing any more")
    expect_equal(_gpus(mongo), before, "it has changed nothing")
    for process in (standby, new, operator, vm, late, node):
        process.kill()
    first.close()
    second.close()
    mongo.kill()


def _gpus(mongo):
    with mongo.hand() as hand:
        return hand.find("flyt", "gpus")


def certified(folder):
    """Makes a CA and a manager's certificate in a folder. Returns the manager's setting."""
    pki = [os.path.join(harness.ROOT, "scripts", "flyt-pki")]
    for words in (["init", folder], ["issue", folder, "manager", "cluster", "--host", "127.0.0.1"]):
        result = harness.run(pki + words)
        expect_equal(result.status, 0, result)
    return ('{ authority = "%s/ca.pem"; certificate = "%s/manager-cluster.pem"; key = "%s/manager-cluster-key.pem"; '
            'authority_key = "%s/ca-key.pem"; }' % ((folder,) * 4))


@scenario
def nobody_leads():
    """A leader is killed and comes back before its lease has run out; and the store falls silent."""
    mongo = Mongo()
    with tempfile.TemporaryDirectory(dir=harness.WORK) as folder:
        manager = Manager(store=mongo.store, tls=certified(folder), lease_s=30.0, lease_renew_s=1.0,
                          store_timeout_s=5.0)
        manager.operator().kill()
        manager.restart()
        flytctl = [os.path.join(BUILD, "bin", "flytctl"), "--manager", manager.socket]
        early = harness.run(flytctl + ["--deadline", "10", "vms"])
        expect_equal(early.status, 4, early)
        expect("no manager leads at this moment" in early.err and "no manager leads at present" in early.err, early)
        expect("tcp:" not in early.err, "nobody is sent to where he cannot be let in", early)
        patient = harness.run(flytctl + ["--deadline", "180", "vm", "add", "10.0.0.7", "--sm", "8", "--memory", "1G",
                                         "--priority", "-7"], timeout=240)
        expect_equal((patient.status, patient.err), (0, ""), patient)
        harness.stop(mongo.process.pid)
        silent = within(20, lambda: [line for line in manager.log().splitlines() if "the store does not answer" in line],
                        "the silence is told")
        os.kill(mongo.process.pid, signal.SIGCONT)
        for line in silent:
            cause = line.partition("the store does not answer: ")[2]
            expect("127.0.0.1:%d" % mongo.port in cause and len(cause.split(": ", 1)[1]) > 5, "with its cause:", line)
        within(20, lambda: "the store answers again" in manager.log(), "it answers again")
        shown = within(20, lambda: (lambda r: not r.status and r)(harness.run(flytctl + ["-o", "json", "vms"])),
                       "and somebody leads")
        expect_equal([vm["priority"] for vm in json.loads(shown.out)], [-7], "a negative number comes to the document")
        manager.close()
    mongo.kill()


@scenario
def enrolment():
    """With TLS: a token enrols a VM once; who is no member is not let in; revoking ends what is connected."""
    with tempfile.TemporaryDirectory(dir=harness.WORK) as folder:
        manager = Manager(tls=certified(folder))
        operator = manager.operator()
        token = operator.call("token vm 10.0.0.7 600")["token"]
        stored = json.dumps(documents(manager, "tokens"))
        expect(token.split(".")[2] not in stored and "10.0.0.7" in stored, "the secret is not kept", stored)
        path = os.path.join(folder, "client.conf")
        state = os.path.join(folder, "state")
        os.mkdir(state)
        with open(path, "w") as f:
            f.write('managers = "%s"; vm_ip = "10.0.0.7"; state_dir = "%s"; socket = "%s/c.sock"; attach = "start";\n'
                    % (manager.url, state, folder))
        client = [os.path.join(BUILD, "bin", "flyt-client-manager"), "--config", path]
        result = harness.run(client + ["--join", token])
        expect_equal(result.status, 0, result)
        again = harness.run(client + ["--join", token])
        expect(again.status != 0 and "used already" in again.err, "a token is good once", again)
        member = one(operator.view("members"), member="vm:10.0.0.7")
        expect_equal([m["serial"] for m in documents(manager, "members")], [member["serial"]])
        running = start(client, stderr=subprocess.DEVNULL)
        within(20, lambda: [v for v in operator.view("vms") if v["vm_ip"] == "10.0.0.7" and v["connected"]], "connected")
        operator.call("revoke vm 10.0.0.7")
        within(10, lambda: not [v for v in operator.view("vms") if v["connected"]], "its connection is closed")
        within(20, lambda: "not admitted" in manager.log(), "it is not let in again")
        harness.kill_group(running)
        running.wait()
        operator.kill()
        manager.close()


@scenario
def roles_views_events_metrics():
    with cluster(("n1",), events_max=16) as (manager, operator, node):
        viewer = Caller(manager.url, "viewer", "guest")
        viewer.call("view nodes")
        viewer.say("vm-remove 10.0.0.7")
        expect_equal(viewer.answer("remove")["status"], "WIRE", "a viewer changes nothing")
        operator.call("view nonsense", "INVALID")
        expect_equal(operator.call("view gpus - 1")["view"][0]["uuid"], "GPU-n1-1", "a page goes on")
        last = operator.call("view events")["next"]
        waiting = Caller(manager.socket, "operator", "follower")
        waiting.say("view events - %d 20000" % last)
        operator.call("schedule node n1 1")
        answer = waiting.answer("events")
        expect_equal([e["kind"] for e in answer["view"]], ["node.schedule"], answer)
        expect_equal(answer["view"][0]["who"], "operator:tester")
        for i in range(40):
            operator.call("schedule node n1 %d" % (i % 2))
        expect_equal(len(operator.view("events")), 16)
        within(10, lambda: len(documents(manager, "events")) == 16, "the oldest are deleted in the store")
        newest = operator.view("events")[-1]["sequence"]
        manager.restart(signal.SIGTERM)
        operator = manager.operator()
        expect(operator.view("events")[-1]["sequence"] > newest, "numbers go on")
        port = [line.split()[-1] for line in manager.log().splitlines() if "metrics: on port" in line][-1]
        text = urllib.request.urlopen("http://127.0.0.1:%s/metrics" % port, timeout=60).read().decode()
        expect('flyt_gpu_sms{node="n1",gpu="GPU-n1-0"} 128' in text, text)
        total = operator.call("backup 0")
        expect(bytes.fromhex(total["data"]).startswith(b"SQLite format 3"), "a backup is a database")


def fetch(caller, first, pages=1000):
    """The rest of a backup that has begun with `first`."""
    data = bytes.fromhex(first["data"])
    while len(data) < first["total_bytes"] and pages:
        answer = caller.call("backup %d" % len(data))
        expect_equal(answer["total_bytes"], first["total_bytes"], "one copy from its beginning to its end")
        data += bytes.fromhex(answer["data"])
        pages -= 1
    return data


def ballast(manager, count, letter):
    """Makes the store larger than one chunk of a backup, by hand."""
    with contextlib.closing(sqlite3.connect(manager.database, timeout=60)) as db:
        for i in range(count):
            db.execute("INSERT OR REPLACE INTO documents (collection, id, revision, body) VALUES ('ballast', ?, 1, ?)",
                       ("%04d" % i, json.dumps({"text": letter * 60000})))
        db.commit()


def ballast_of(manager, data):
    """The letters and the number of the ballast's documents in a copy, opened as a database of its own."""
    path = os.path.join(manager.folder, "fetched")
    with open(path, "wb") as f:
        f.write(data)
    with contextlib.closing(sqlite3.connect(path)) as db:
        expect_equal(db.execute("PRAGMA integrity_check").fetchone()[0], "ok")
        rows = db.execute("SELECT body FROM documents WHERE collection='ballast'").fetchall()
    return {json.loads(row[0])["text"][0] for row in rows}, len(rows)


def copies(manager, folder):
    """Copies that lie in a folder, and those that the manager has open (they have no name any more)."""
    links = []
    for fd in os.listdir("/proc/%d/fd" % manager.process.pid):
        with contextlib.suppress(OSError):
            links.append(os.readlink("/proc/%d/fd/%s" % (manager.process.pid, fd)))
    return ([f for f in os.listdir(folder) if f.startswith("flyt-backup-")],
            [link for link in links if "flyt-backup-" in link])


@scenario
def backups():
    if os.getuid() != 0:
        print("    left out: needs root, to see what the manager has open")
        return
    with cluster() as (manager, operator):
        ballast(manager, 60, "a")
        operator.call("backup 5", "INVALID")
        first = operator.call("backup 0")
        expect(first["total_bytes"] > 3 << 20, "several chunks", first["total_bytes"])
        expect_equal(len(copies(manager, manager.folder)[1]), 1, "the copy lies beside the store")
        # Another one begins meanwhile, of a store that is another by now; and a third, that goes in the middle.
        ballast(manager, 90, "b")
        other, third = (Caller(manager.socket, "operator", name) for name in ("other", "third"))
        second = other.call("backup 0")
        expect(second["total_bytes"] > first["total_bytes"], "the second copy is its own")
        third.call("backup 0")
        third.kill()
        within(10, lambda: len(copies(manager, manager.folder)[1]) == 2, "a copy goes with its connection")
        expect_equal(ballast_of(manager, fetch(operator, first)), ({"a"}, 60), "the first backup")
        expect_equal(ballast_of(manager, fetch(other, second)), ({"b"}, 90), "the second backup")
        expect_equal(copies(manager, manager.folder), ([], []), "nothing is left of them")
        other.call("backup %d" % (1 << 20), "INVALID")
        # No more at once than are allowed, and room again as soon as one of them goes.
        many = [Caller(manager.socket, "operator", "o%d" % i) for i in range(4)]
        for caller in many:
            caller.call("backup 0")
        expect("4 backups" in other.call("backup 0", "NO_CAPACITY")["text"], "the bound is said")
        many.pop().kill()
        within(10, lambda: len(copies(manager, manager.folder)[1]) == 3, "one went")
        for caller in many:
            caller.kill()
        within(10, lambda: not copies(manager, manager.folder)[1], "all went")
        # Elsewhere, live; and where there is no such folder.
        elsewhere = tempfile.mkdtemp(prefix="backup-", dir=harness.WORK)
        for folder, status in ((elsewhere, "OK"), (elsewhere + "/none", "UNAVAILABLE")):
            manager.settings["backup_folder"] = '"%s"' % folder
            manager.configure()
            answer = operator.call("backup 0", status)
        expect(elsewhere + "/none: No such file" in answer["text"], "folder and cause are said:", answer["text"])
        within(10, lambda: not copies(manager, elsewhere)[1], "a failed one leaves nothing")
        # What a manager left that was killed while it made a copy; another manager's stays.
        for name in ("flyt-backup-cluster-abcdef", "flyt-backup-cluster-abcdef-journal", "flyt-backup-other-abcdef"):
            open(os.path.join(elsewhere, name), "w").close()
        manager.settings["backup_folder"] = '"%s"' % elsewhere
        other.kill()
        manager.restart()
        expect_equal(copies(manager, elsewhere), (["flyt-backup-other-abcdef"], []), "remains are removed at start")


@scenario
def a_copy_that_cannot_be_read():
    """Its disk does not answer: others do not wait for that."""
    with cluster(faults="cluster.backup.read:hang") as (manager, operator):
        ballast(manager, 60, "a")
        first = operator.call("backup 0")
        operator.say("backup %d" % len(bytes.fromhex(first["data"])))
        within(10, lambda: "made to hang by FLYT_FAULT" in manager.log(), "it is to be read")
        other = manager.operator()
        expect_equal(other.view("status")[0]["leader"], True, "the manager serves others")
        other.call("backup 0")
        operator.kill()
        other.kill()
        manager.restart()


@scenario
def stopped_with_backups_under_way():
    """A manager that ends lets go of copies that are made, read, and between two chunks (a sanitized one says so)."""
    with cluster() as (manager, operator):
        ballast(manager, 60, "a")
        for i in range(3):
            between, read, made = callers = [Caller(manager.socket, "operator", name) for name in ("a", "b", "c")]
            between.call("backup 0")
            first = read.call("backup 0")
            # What is sent now comes to it together with its end; a call that is sent later finds nobody.
            os.kill(manager.process.pid, signal.SIGSTOP)
            read.say("backup %d" % len(bytes.fromhex(first["data"])))
            made.say("backup 0")
            time.sleep(0.2)
            os.kill(manager.process.pid, signal.SIGTERM)
            os.kill(manager.process.pid, signal.SIGCONT)
            manager.close()
            for caller in (operator, *callers):
                caller.kill()
            manager.start()
            operator = manager.operator()
        operator.kill()


if __name__ == "__main__":
    main()
