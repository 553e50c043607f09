"""Two nodes of software GPUs, the second one a network namespace of its own where that is possible, so that what is between
them can be cut; a VM, alice, whose programs move from one to the other. With HARDWARE each has a GPU of the machine's, and
all is on the loopback interface."""
import os

import harness
import netns
from cluster import System
from harness import expect_equal, within
from steady import is_idle

IS_SOAK = bool(os.environ.get("FLYT_SOAK"))
BATCH = 6
PATIENCE = ("--stop-timeout", "60000", "--timeout", "240")
COMMAND_S = 400
HARDWARE = {}       # of cluster.System, by migrate_nodes_gpu_test.py


class TwoNodes(System):
    """node-0 is where the cluster manager is, node-1 elsewhere. faults: {daemon: FLYT_FAULT}. One VM, alice, who begins at
    node-0, with so many devices."""

    further_machines = 1
    alice_sms = 16  # who resizes her says so here

    def __init__(self, faults=None, devices=1, **options):
        self.faults = faults or {}
        super().__init__(**{"nodes": 2, "vms": 1, "gpus": 1, "sms": 32, "memory": "1G", **HARDWARE, **options})
        try:
            self.flytctl("cordon", "node-1")
            self.flytctl("vm", "add", self.vm_ip(0), "--name", "alice", "--sm", self.alice_sms, "--memory",
                         "8G" if HARDWARE else "512M", "--sessions", 2 * BATCH, "--devices", devices, "--reserved")
            within(60, lambda: [v for v in self.flytctl("vms") if v["state"] == "granted"], "alice has a GPU")
            self.flytctl("uncordon", "node-1")
        except BaseException:
            self.print_logs()
            self.close()
            raise

    def address(self, i):
        return netns.vm_address(1) if self.network and i else netns.HUB_ADDRESS if self.network else "127.0.0.1"

    def in_node(self, i):
        return ["ip", "netns", "exec", self.network.vms[1]] if self.network and i else self.in_hub()

    def namespace(self, name):
        return self.network.vms[1] if self.network and name == "node-1" else super().namespace(name)

    def start_node(self, i):
        name = self.node_name(i)
        state = self.path(name, "state")
        os.makedirs(state, mode=0o700, exist_ok=True)
        settings = {"name": name, "managers": [self.manager_url], "listen": ["tcp://%s:0" % self.address(i)],
                    "host_ip": self.address(i), "socket": self.node_socket(i), "state_dir": state,
                    "server": self.program("flyt-server"), "metrics": "127.0.0.1:0"}
        if self.hardware != "each":
            settings.update({"software_gpus": self.gpus, "software_sms": self.sms, "software_memory": self.memory})
        path = self.configure("node", name, settings, i)
        self.join("node", name, "flyt-node-manager", path, self.in_node(i))
        self.start_daemon(name, "flyt-node-manager", path, self.in_node(i) + self.with_gpu(i))

    def start_daemon(self, name, program, path, prefix=(), **options):
        env, self.env = self.env, dict(self.env, **({"FLYT_FAULT": self.faults[name]} if name in self.faults else {}))
        try:
            super().start_daemon(name, program, path, prefix, **options)
        finally:
            self.env = env

    # ---- between the nodes alone: the cluster manager reaches both ----

    def cut(self):
        netns.ip("-n", self.network.vms[1], "route", "add", "blackhole", "10.77.2.1/32")

    def mend(self):
        netns.ip("-n", self.network.vms[1], "route", "del", "blackhole", "10.77.2.1/32")

    # ---- alice ----

    def place(self):
        """The node where alice is, alone and acknowledged."""
        def settled():
            rows = self.flytctl("allocations")
            expect_equal(len(rows), 1, "allocations", rows)
            return rows if not rows[0]["migration"] and rows[0]["revision"] == rows[0]["revision_applied"] else None
        return within(120, settled, "alice is somewhere")[0]["node"]

    def elsewhere(self):
        return "node-1" if self.place() == "node-0" else "node-0"

    def migrates(self, target, *words, patience=PATIENCE):
        return self.flytctl_run("migrate", "alice", "--to", target, *patience, *words, timeout=COMMAND_S)

    def migrates_when_connected(self, target, *words):
        """On a machine that is busy a node may have lost its cluster manager for a moment, which refuses then, with nothing
        moved, and lists no node's connection."""
        def answered():
            result = self.migrates(target, *words)
            return None if result.status and "not connected" in result.err else result
        return within(120, answered, "both nodes are connected")

    def moves(self, *words):
        """To the other node."""
        target = self.elsewhere()
        result = self.migrates_when_connected(target, *words)
        expect_equal(result.status, 0, "flytctl migrate --to", target, *words, result)
        self.is_at(target)

    def is_at(self, node):
        """And nothing of her is at the other one."""
        expect_equal(self.place(), node, "where alice is")
        charged = {g["node"]: g["sms_allocated"] for g in self.flytctl("gpus")}
        expect_equal(charged, {"node-0": 0, "node-1": 0, node: self.alice_sms}, "SMs that are charged")
        within(60, lambda: {s["node"] for s in self.flytctl("sessions")} <= {node}, "sessions are at " + node)

    def over(self):
        """The last migration, when it is over. The cluster manager may just be starting."""
        def ended():
            if self.flytctl_run("migrations", "-o", "json").status:
                return None
            last = self.flytctl("migrations")[-1]
            return last if last["phase"] in ("done", "failed") else None
        return within(300, ended, "the migration ends")


def ends(system, program):
    """A program of survivor.py, after its last move."""
    program.does("end", "ended")
    result = harness.finish(program.process)
    expect_equal((result.status, result.err), (0, ""), result)
    is_idle(system)
