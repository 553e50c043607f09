"""A VM's programs that move, as the cluster manager sees them: a real one with its store, nodes that are played by hand
(node_by_hand.py), and VMs that have been granted what they asked for."""
import contextlib
import json
import os
import re
import select
import subprocess
import urllib.request

import by_hand
import harness
from by_hand import Peer, Reader, u32
from harness import expect, expect_equal, within
from manager import Manager, documents
from mongod import Mongod
from node_by_hand import Allocation, COPYING, DONE, GIB, NodeByHand, PREPARING, STOPPING, SWITCHING

FLYTCTL = os.path.join(harness.BUILD, "bin", "flytctl")
FIGURES = dict(sessions=2, round=3, memory=GIB, copied=3 * GIB, left=0, dirty=4096, rate=GIB, elapsed_ms=2500,
               standstill_us=41000, last=4096)
PHASES = (PREPARING, COPYING, STOPPING, SWITCHING)


class Cluster:
    """A manager, nodes by hand, and VMs that have been granted what they asked for."""

    def __init__(self, nodes=("n1",), gpus=2, store=None, manager=None, **options):
        settings = {"store": '"%s"' % store, "lease_s": 8.0} if store else {}
        self.manager = Manager(**settings, **(manager or {}))
        self.nodes = {name: NodeByHand(self.manager.url, name, gpus, **options) for name in nodes}
        self.vms = {}
        within(30, lambda: self.ctl_run("status").status == 0, "the manager answers")

    def close(self):
        for vm in self.vms.values():
            vm.close()
        for node in self.nodes.values():
            node.close()
        self.manager.close()

    @property
    def node(self):
        return self.nodes["n1"]

    def command(self, *words):
        return [FLYTCTL, "--manager", self.manager.socket, *map(str, words)]

    def ctl_run(self, *words):
        return harness.run(self.command(*words), timeout=120)

    def ctl(self, *words):
        result = self.ctl_run(*words, "-o", "json")
        expect_equal(result.status, 0, "flytctl", *words, result)
        return json.loads(result.out) if result.out.strip() else None

    def start(self, *words):
        return harness.start(self.command(*words), stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def refused(self, status, part, *words):
        """A command that ends with this status and says why."""
        result = self.ctl_run(*words)
        expect_equal(result.status, status, "flytctl", *words, result)
        expect(part in result.err, "flytctl", *words, "says", repr(result.err), "without", repr(part))

    def vm(self, vm_ip, sms=16, memory="1G", *words):
        """A VM with an allocation; its row."""
        self.ctl("vm", "add", vm_ip, "--sm", sms, "--memory", memory, "--sessions", "2", *words)
        return self.attach(vm_ip)

    def attach(self, vm_ip):
        if vm_ip in self.vms:
            self.vms.pop(vm_ip).close()

        def granted():
            peer = Peer(self.manager.url)
            peer.hello("vm", vm_ip)
            answer = peer.call(by_hand.ATTACH, u32(1))
            if answer.state == "done" and answer.outcome[0] == "OK":
                peer.stay()
                self.vms[vm_ip] = peer
                return True
            peer.close()
            return False
        within(60, granted, "VM %s is granted something" % vm_ip)
        return within(30, lambda: [a for a in [self.row(vm_ip)] if a["revision_applied"] == a["revision"]],
                      "the node holds it")[0]

    def ask(self, vm_ip, is_waiting=1):
        """What the VM is granted now, asked anew: (node, urls, allocation); None: nothing."""
        if vm_ip in self.vms:
            self.vms.pop(vm_ip).close()
        peer = Peer(self.manager.url)
        peer.hello("vm", vm_ip)
        answer = peer.call(by_hand.ATTACH, u32(is_waiting))
        expect_equal(answer.state, "done", "the answer to ATTACH", answer)
        reader = answer.skip_outcome()
        grant = read_grant(reader) if reader.u32() else None
        peer.stay()
        self.vms[vm_ip] = peer
        return grant

    def told(self, vm_ip):
        """The nodes that the VM was told of since it asked: of all notices that what it has has changed."""
        nodes = []
        for procedure, record in list(self.vms[vm_ip].orders):
            reader = Reader(record)
            reader.take(40)
            if procedure == 10:
                reader.u64()
                reader.text()
                nodes.append(read_grant(reader)[0] if reader.u32() else None)
        return nodes

    def rows(self, vm_ip):
        return [a for a in self.ctl("allocations") if a["vm_ip"] == vm_ip]

    def row(self, vm_ip):
        rows = self.rows(vm_ip)
        expect_equal(len(rows), 1, "allocations of", vm_ip, rows)
        return rows[0]

    def charged(self):
        """{node:index: (SMs, bytes, client slots)}"""
        return {"%s:%d" % (g["node"], g["index"]): (g["sms_allocated"], g["memory_allocated_bytes"],
                                                    g["client_slots_allocated"]) for g in self.ctl("gpus")}

    def migrations(self, *selector):
        return self.ctl("migrations", *selector)

    def migration(self, migration):
        return self.migrations("%016x" % migration.id)[0]

    def phase(self, migration):
        """As the manager shows it; None: not at all (it is just starting)."""
        result = self.ctl_run("migrations", "%016x" % migration.id, "-o", "json")
        return json.loads(result.out)[0]["phase"] if result.status == 0 else None

    def ends(self, migration, phase):
        """It has come to that, and both nodes' documents say so."""
        within(60, lambda: self.phase(migration) == phase and self.migration(migration)["ended_ms"], "the migration is " + phase)

    def gpu_documents(self):
        if self.manager.settings["store"].startswith('"mongodb'):
            return self.mongod.client.find("flyt", "gpus")
        return documents(self.manager)

    def entries(self, kind="allocations"):
        """["node:index", allocation] of all documents."""
        return sorted(("%s:%d" % (gpu["node"], gpu["index"]), entry["id"]) for gpu in self.gpu_documents()
                      for entry in gpu.get(kind, []))

    def expect_on(self, vm_ip, place, migration=None):
        """The VM has this GPU alone; in the store, at the node, and charged."""
        uuid = "GPU-" + place.replace(":", "-")
        row = within(60, lambda: [a for a in [self.row(vm_ip)] if a["gpu"] == uuid and not a["migration"] and
                                  a["revision_applied"] == a["revision"]], "%s is on %s alone" % (vm_ip, place))[0]
        node = self.nodes[place.split(":")[0]]
        held = node.allocations[int(row["id"], 16)]
        expect_equal((held.gpus, held.revision), ([uuid], row["revision"]), "what the node holds")
        within(30, lambda: [p for p, a in self.entries() if a == row["id"]] == [place], "the store's entry of " + vm_ip)
        within(30, lambda: not self.entries("arriving"), "nothing arrives any more")
        return row

    def reconnect(self):
        """After the manager's end: the nodes come back, and people are answered."""
        for node in self.nodes.values():
            node.connect()
        within(60, lambda: self.ctl_run("vms").status == 0, "the manager answers")


def read_grant(reader):
    allocation, node = Allocation(reader), reader.text()
    return node, [reader.text() for _ in range(reader.u32())], allocation


@contextlib.contextmanager
def cluster(**options):
    c = Cluster(**options)
    yield c
    c.close()


@contextlib.contextmanager
def cluster_on_mongod(**options):
    mongod = Mongod()
    c = Cluster(store=mongod.uri("flyt"), **options)
    c.mongod = mongod
    yield c
    c.close()


def finish(process, status, *parts):
    result = harness.finish(process, 120)
    expect_equal(result.status, status, "its end", result)
    for part in parts:
        expect(part in result.out + result.err, "it said", repr(result.out + result.err), "without", repr(part))
    return result


def await_said(fd, part):
    """Reads what a process says until this comes; all that was read."""
    said = b""

    def came():
        nonlocal said
        if select.select([fd], [], [], 0.1)[0]:
            said += os.read(fd, 4096)
        return part in said
    within(60, came, "it says %r" % part)
    return said


def runs_through(c, node, migration):
    """All phases, to its good end."""
    for phase in PHASES:
        expect_equal(node.report(migration, phase, **FIGURES)[0], "OK", "the report of phase", phase)
    node.move(migration)
    expect_equal(node.report(migration, DONE, **FIGURES)[0], "OK", "the last report")


def metrics_of(c):
    port = re.findall(r"metrics: on port (\d+)", c.manager.log())[-1]
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    return opener.open("http://127.0.0.1:%s/metrics" % port, timeout=60).read().decode()
