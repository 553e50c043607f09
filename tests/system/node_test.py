#!/usr/bin/env python3
"""A whole cluster of one node with software GPUs: documents, client manager, node manager, servers, programs; and what
becomes of running programs when the node manager is killed, with and without systemd's descriptor store."""
import contextlib
import json
import os
import subprocess
import tempfile

import harness
from harness import BUILD, ROOT, app, expect, expect_equal, helper, main, run, scenario, start, within
from supervisor import Supervisor

VM = "127.0.0.1"


def program(name):
    return os.path.join(ROOT, BUILD, "bin", name)


class Cluster:
    """Cluster manager, node manager and one VM's client manager, under a service manager of our own."""

    def __init__(self, keeps_descriptors=True, listen="tcp://127.0.0.1:0"):
        self.folder = tempfile.mkdtemp(prefix="node-", dir=harness.WORK)
        self.socket = "unix://%s/cluster.sock" % self.folder
        self.client_socket = os.path.join(self.folder, "client.sock")
        self.write("cluster", store='"sqlite://%s/db"' % self.folder, socket='"%s/cluster.sock"' % self.folder,
                   socket_group='""', listen='"tcp://127.0.0.1:0"', metrics='""', desired_poll_s=0.2, heartbeat_s=0.2,
                   allocation_linger_s=600)
        self.supervisor = Supervisor(self.folder, [self.service("cluster")])
        lines = within(20, lambda: [line for line in self.supervisor.log("cluster").splitlines()
                                    if "listens on tcp" in line], "the cluster manager listens")
        url = lines[0].split("listens on ")[1].split(",")[0]
        self.write("node", name='"n1"', managers='"%s"' % url, software_gpus=2, state_dir='"%s/node"' % self.folder,
                   server='"%s"' % program("flyt-server"), listen='"%s"' % listen, socket='""', metrics='""',
                   rejoin=5.0)
        self.write("client", managers='"%s"' % url, vm_ip='"%s"' % VM, socket='"%s"' % self.client_socket,
                   state_dir='"%s/client"' % self.folder, metrics='""')
        # Programs come back to no other address: the socket is the service manager's, as with socket activation.
        self.supervisor.start(**self.service("node", fdstore_max=8192 if keeps_descriptors else 0,
                                             sockets=[{"name": "data-0", "tcp": "127.0.0.1:0"}]))
        self.supervisor.start(**self.service("client"))
        within(30, lambda: [n for n in self.view("nodes") if n["state"] == "up"], "the node is registered")

    def write(self, which, **settings):
        with open(os.path.join(self.folder, which + ".conf"), "w") as f:
            for key, value in settings.items():
                f.write("%s = %s;\n" % (key, value))

    def service(self, name, **more):
        return dict(name=name, restart="always", **more,
                    command=[program("flyt-%s-manager" % name), "--config", os.path.join(self.folder, name + ".conf")])

    def flytctl(self, *words, status=0):
        result = run([program("flytctl"), "--manager", self.socket, *words])
        expect_equal(result.status, status, "flytctl", *words, result.out, result.err)
        return result.out

    def view(self, what):
        return json.loads(self.flytctl(what, "-o", "json"))

    def environment(self):
        return harness.environment(FLYT_CLIENT_SOCKET=self.client_socket, FLYT_SERVER=None,
                                   LD_LIBRARY_PATH=os.path.join(ROOT, BUILD, "lib"))

    def run(self, name, *arguments, timeout=60):
        return run([app(name), *arguments], env=self.environment(), timeout=timeout)

    def start(self, name, *arguments):
        return start([helper(name), *arguments], env=self.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def session(self):
        rows = self.view("sessions")
        return rows[0] if len(rows) == 1 else None

    def close(self):
        self.supervisor.close()


@contextlib.contextmanager
def cluster(**options):
    made = Cluster(**options)
    try:
        yield made
    finally:
        made.close()


@scenario
def programs_run_through_the_whole_chain():
    """A VM's document is all that an operator writes; a program then gets its GPU and its result is right."""
    with cluster() as c:
        c.flytctl("vm", "add", VM, "--sm", "16", "--memory", "1")
        for name in ("memory", "streams"):
            result = within(20, lambda: (r := c.run(name)).status == 0 and r, name + " ends well")
            expect_equal(result.err, "", name)
        allocation = c.view("allocations")[0]
        expect_equal((allocation["sms"], allocation["memory_bytes"], allocation["node"]), (16, 1 << 30, "n1"))
        within(20, lambda: c.view("allocations")[0]["memory_used_bytes"] == 0 and c.session() is None,
               "everything is given back")


@scenario
def a_vm_without_document_gets_nothing():
    with cluster() as c:
        result = c.run("memory")
        expect(result.status != 0, "a program ran without an allocation")
        expect_equal(c.view("allocations"), [])


def survives_a_killed_node_manager(keeps_descriptors):
    with cluster(keeps_descriptors=keeps_descriptors) as c:
        c.flytctl("vm", "add", VM, "--sm", "16", "--memory", "1")
        within(10, lambda: c.view("vms"), "the VM is known")
        running = c.start("until_lost", "synchronize")
        try:
            expect_equal(running.stdout.readline().strip(), b"working")
            session = within(10, c.session, "the session is shown")
            before = within(10, lambda: (s := c.session()) and s["calls"] > 0 and s, "its use is told")
            for _ in range(2):
                c.supervisor.kill("node")
                after = within(20, lambda: (s := c.session()) and s["calls"] > before["calls"] and s,
                               "the program goes on after the restart")
                expect_equal((after["id"], after["server_pid"]), (session["id"], session["server_pid"]))
                before = after
            expect(running.poll() is None, "the program ended")
            # Others begin beside it, and the operator's word still reaches it.
            expect_equal(within(20, lambda: (r := c.run("memory")).status == 0 and r.status + 1, "another runs"), 1)
            c.flytctl("session", "kill", session["id"])
            expect_equal(running.wait(timeout=60), 7, "the program hears of its end")
            within(20, lambda: c.session() is None and not c.view("sessions"), "the session is gone")
            within(20, lambda: c.view("allocations")[0]["memory_used_bytes"] == 0, "its memory is given back")
        finally:
            harness.kill_group(running)
            running.wait()


@scenario
def a_killed_node_manager_harms_nobody():
    """With systemd's descriptor store."""
    survives_a_killed_node_manager(True)


@scenario
def a_killed_node_manager_harms_nobody_without_descriptor_store():
    """Servers bring their ledgers back themselves."""
    survives_a_killed_node_manager(False)


@scenario
def a_killed_program_leaves_nothing():
    with cluster() as c:
        c.flytctl("vm", "add", VM, "--sm", "8", "--memory", "1")
        within(10, lambda: c.view("vms"), "the VM is known")
        running = c.start("until_lost", "copy")
        expect_equal(running.stdout.readline().strip(), b"working")
        session = within(10, c.session, "the session is shown")
        harness.kill_group(running)
        running.wait()
        within(20, lambda: not c.view("sessions") and not harness.is_alive(session["server_pid"]), "the server is gone")
        within(20, lambda: c.view("allocations")[0]["memory_used_bytes"] == 0, "its memory is given back")


@scenario
def a_passed_socket_of_another_port():
    """What systemd listens on holds; that the settings say another port is told, once."""
    with cluster(listen="tcp://127.0.0.1:9") as c:
        told = [line for line in c.supervisor.log("node").splitlines() if "`listen` says 9:" in line]
        expect_equal(len(told), 1, "warnings", c.supervisor.log("node"))
        expect("data-0: the socket that was passed has port " in told[0], told)
    with cluster() as c:
        expect("`listen` says" not in c.supervisor.log("node"), "port 0 is any port")


if __name__ == "__main__":
    main()
