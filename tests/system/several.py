"""Several cluster managers on one MongoDB, with one node and VMs.

The database is mongod_stand_in.py, which is not MongoDB, unless FLYT_TEST_MONGODB_URI names a server (without
authentication, no database in the URI); then what only the stand-in can do is left out, by name.
"""
import os
import re
import time

import harness
import mongo_by_hand
import netns
from by_hand import Peer
from cluster import QUICK_CLUSTER
from harness import expect, expect_equal, finish, helper, within
from mongod import Mongod
from trust import Trusted

REAL = os.environ.get("FLYT_TEST_MONGODB_URI")
LEASE = {"lease_s": 8.0, "lease_renew_s": 1.0, "store_timeout_s": 3.0}


class RealMongod:
    """A server that somebody runs; a database of one's own, dropped at the end."""

    def __init__(self):
        host = re.fullmatch(r"mongodb://([^/:@]+)(?::(\d+))?/?(\?.*)?", REAL)
        expect(host, "FLYT_TEST_MONGODB_URI is", REAL)
        self.host, self.port, self.options = host[1], int(host[2] or 27017), host[3] or ""

    def uri(self, database):
        return "mongodb://%s:%d/%s%s" % (self.host, self.port, database, self.options)

    @property
    def client(self):
        return mongo_by_hand.Client(self.port, self.host)


class Several(Trusted):
    """`managers` cluster managers, named manager-0 …, which are not started again when they end; one node and VMs.
    `manager`: settings of theirs."""

    def __init__(self, managers=2, manager=None, **options):
        self.manager_count, self.ports, self.manager_settings = managers, [], manager or {}
        self.mongod = RealMongod() if REAL else Mongod()
        self.database = "flyt_test_%d" % os.getpid()
        super().__init__(nodes=1, node=lambda i: {"managers": self.urls},
                         client=lambda i: {"managers": self.urls, "attach_timeout": 20}, **options)

    @property
    def urls(self):
        return ["tcp://127.0.0.1:%d" % port for _, port in self.ports]

    def start_cluster(self):
        self.ports = [netns.reserve_port() for _ in range(self.manager_count)]
        self.pki("init", self.path("pki"))
        for i in range(self.manager_count):
            self.pki("issue", self.path("pki"), "manager", self.manager(i), "--host", "127.0.0.1")
            self.start_manager(i)
        within(40, self.leader_now, "somebody leads")

    def manager(self, i):
        return "manager-%d" % i

    def start_manager(self, i):
        name, pki = self.manager(i), self.path("pki")
        settings = {"name": name, "listen": self.urls[i], "advertise": self.urls[i],
                    "managers": [u for u in self.urls if u != self.urls[i]], "socket": self.path(name, "sock"),
                    "store": self.mongod.uri(self.database), "metrics": "127.0.0.1:0", **QUICK_CLUSTER, **LEASE,
                    **self.manager_settings,
                    "tls.authority": pki + "/ca.pem", "tls.authority_key": pki + "/ca-key.pem",
                    "tls.certificate": "%s/manager-%s.pem" % (pki, name),
                    "tls.key": "%s/manager-%s-key.pem" % (pki, name)}
        self.start_daemon(name, "flyt-cluster-manager", self.configure("cluster", name, settings), restart="no")

    def hello_of(self, i):
        """(whether it says that it leads, epoch) of manager i; (False, 0): it does not answer."""
        try:
            peer = Peer("unix://" + self.path(self.manager(i), "sock"), timeout=1)
            reader = peer.hello("operator", "by-hand").skip_outcome()
            peer.close()
            reader.text()
            epoch = reader.u64()
            return bool(reader.u32()), epoch
        except (OSError, ValueError, AttributeError):
            return False, 0

    def leader_now(self):
        """"manager-N", or None."""
        found = [self.manager(i) for i in range(self.manager_count) if self.hello_of(i)[0]]
        return found[0] if found else None

    def leader(self):
        return within(40, self.leader_now, "somebody leads")

    def number(self, name):
        return int(name.rsplit("-", 1)[1])

    @property
    def manager_url(self):
        return self.urls[self.number(self.leader())]

    @property
    def operator_url(self):
        return "unix://" + self.path(self.leader(), "sock")

    def daemons(self):
        return [self.manager(i) for i in range(self.manager_count)] + super().daemons()[1:]

    def ask_all(self, *words):
        """flytctl of an operator elsewhere, who knows all managers and not who leads; harness.Result."""
        certificate, key = self.identity("operator", "alice")
        managers = [word for url in self.urls for word in ("--manager", url)]
        return harness.run([self.program("flytctl"), "--authority", self.authority, "--certificate", certificate, "--key",
                            key, *managers, *map(str, words)], self.env)

    def taken_over(self, old, since):
        """Waits for another leader than `old`; its name, with the time that it took on stdout."""
        new = within(60, lambda: next((self.manager(i) for i in range(self.manager_count)
                                       if self.manager(i) != old and self.hello_of(i)[0]), None), "another one leads")
        print("    %s leads %.1f s after %s was struck (lease %.1f s)" % (new, time.monotonic() - since, old,
                                                                         LEASE["lease_s"]), flush=True)
        return new

    def granted(self):
        """What is given to whom, as the leader shows it: nothing twice."""
        rows = self.flytctl("allocations")
        groups = [(r["gpu"], g) for r in rows for g in r["sm_groups"]]
        expect_equal(len(groups), len(set(groups)), "a group of SMs is given twice:", rows)
        return sorted((r["id"], r["vm_ip"], r["gpu"], r["memory_bytes"], tuple(r["sm_groups"])) for r in rows)

    def wait_registered(self):
        within(40, lambda: [n["state"] for n in self.flytctl("nodes")] == ["up"], "the node is up")
        within(40, lambda: all(v["connected"] for v in self.flytctl("vms") if v["vm_ip"].startswith("10.77.")),
               "the client managers are connected")

    def by_hand(self, verb, collection, *words):
        with self.mongod.client as client:
            return getattr(client, verb)(self.database, collection, *words)

    def close(self):
        super().close()
        for s, _ in self.ports:
            s.close()
        if REAL:
            with self.mongod.client as client:
                client.run(self.database, {"dropDatabase": 1})
        else:
            self.mongod.resume()
            harness.kill_group(self.mongod.process)
            self.mongod.process.wait()


def add(system, i, **fields):
    system.flytctl("vm", "add", system.vm_ip(i), "--sm", fields.get("sm", 8), "--memory", fields.get("memory", "64M"))


def runs(system, i, what):
    result = system.run_in_vm(i, helper("echo"))
    expect_equal(result.status, 0, what, result)


def begins(system, i):
    program = system.start_in_vm(i, helper("marker"), "wait")
    expect_equal(program.stdout.readline(), b"waiting\n", "a program that begins", system.log("node-0")[-1500:])
    return program


def ends(program, what):
    program.stdin.close()
    program.stdin = None
    result = finish(program)
    expect_equal((result.status, result.out.strip(), result.err), (0, "correct", ""), what, result)
