"""A whole system on one machine, in a folder of its own: certificates, a cluster manager, node managers with software
GPUs, and VMs with a client manager each, all under supervisor.py.

    with System(nodes=2, vms=2) as system:
        system.flytctl("vm", "add", system.vm_ip(0), "--sm", "16", "--memory", "1G")
        result = system.run_in_vm(0, harness.app("vector_add"))
        system.supervisor.kill("node-0")

Daemons are named cluster, node-0 …, vm-0 …. Where network namespaces can be made (root), managers and nodes are in one,
each VM in its own, where /run/flyt is its own too: a program there finds its client manager without being told. Else all
is on the loopback interface and a program is told by FLYT_CLIENT_SOCKET.
"""
import json
import os
import re
import signal
import subprocess
import tempfile
import urllib.request

import harness
import netns
from supervisor import Supervisor

MANAGER_PORT = 9402
DAEMONS = ("flyt-cluster-manager", "flyt-node-manager", "flyt-client-manager", "flyt-server")
PROGRAMS = (*DAEMONS, "flytctl")

# A namespace's own /run, with a VM's folder as /run/flyt; then the command.
VM_SHELL = 'mount -t tmpfs flyt-run /run && mkdir /run/flyt && mount --bind "$0" /run/flyt && exec "$@"'

# Quicker than in real life; what is late is waited for: on a busy machine a daemon has been seen to get nothing for 15 s.
QUICK_CLUSTER = {"heartbeat_s": 0.5, "node_lost_s": 60, "order_timeout_s": 60, "desired_poll_s": 0.5}


# FLYT_DAEMON_BUILD=build-address-undefined takes daemons and servers of another build.
DAEMON_BUILD = os.path.join(harness.ROOT, os.environ.get("FLYT_DAEMON_BUILD", harness.BUILD))
REPORT = re.compile(r"ERROR: \w+Sanitizer|: runtime error: ")


def setting_text(value):
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, (list, tuple)):
        return "[ %s ]" % ", ".join(setting_text(item) for item in value)
    return '"%s"' % value


def write_settings(path, settings):
    """A libconfig file of {"name": value, "tls.key": value, …}."""
    groups = {}
    for name, value in settings.items():
        group, _, member = name.rpartition(".")
        groups.setdefault(group, []).append("%s = %s;" % (member, setting_text(value)))
    with open(path, "w") as f:
        for group, lines in groups.items():
            f.write("\n".join(lines) + "\n" if not group else "%s: {\n    %s\n};\n" % (group, "\n    ".join(lines)))


class System:
    """
    nodes, vms           how many
    gpus, sms, memory    of each node; memory of a GPU as in node.conf
    hardware             node-0 has the machine's GPUs in place of software GPUs; "each": node-i has GPU i alone
    store                URL; None: SQLite in the folder
    namespaces           None: where possible, but not with a store on the loopback interface (the hub has its own)
    tls                  False: in clear, on the loopback interface only
    local                True: VMs are told their node's unix socket (FLYT_LOCAL=1: by default); else all is TCP
    cluster, node, client  further settings, {"name": value}; node and client may be functions of the index
    """

    local = bool(os.environ.get("FLYT_LOCAL"))
    further_machines = 0        # namespaces behind those of the VMs

    def __init__(self, nodes=1, vms=1, gpus=1, sms=32, memory="1G", hardware=False, store=None, namespaces=None, tls=True,
                 cluster=None, node=None, client=None, folder=None, env=None, local=None):
        self.folder = folder or tempfile.mkdtemp(prefix="system-", dir=harness.WORK)
        self.node_count, self.vm_count = nodes, vms
        self.env = env or harness.environment()
        self.tls, self.store = tls, store
        self.local = self.local if local is None else local
        self.gpus, self.sms, self.memory, self.hardware = gpus, sms, memory, hardware
        self.further = {"cluster": cluster or {}, "node": node or {}, "client": client or {}}
        self.network = self.supervisor = self._reserved = None
        if namespaces is None:
            namespaces = tls and "//127.0.0.1" not in (store or "") and netns.is_possible()
        try:
            self.network = netns.Network(vms + self.further_machines) if namespaces else None
            self.hub = self.network.hub if self.network else None
            self.supervisor = Supervisor(os.path.join(self.folder, "supervisor"))
            self.start_cluster()
            for i in range(nodes):
                self.start_node(i)
            for i in range(vms):
                self.start_vm(i)
            harness.within(30, lambda: sum(n["state"] == "up" for n in self.flytctl("nodes")) == nodes, "all nodes up")
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind:
            self.print_logs()
        self.close()
        if not kind:
            self.is_clean()

    def is_clean(self):
        """No sanitizer has found anything in a daemon, or in a server: these write into their node manager's log."""
        for name in self.daemons():
            log = self.log(name)
            report = REPORT.search(log)
            harness.expect(not report, "a sanitizer's report in the log of", name, report and log[report.start():][:6000])

    def close(self):
        if self.supervisor:
            self.supervisor.close()
        if self.network:
            self.network.close()
        if self._reserved:
            self._reserved.close()

    # ---- where things are ----

    def path(self, *names):
        path = os.path.join(self.folder, *names)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return path

    @property
    def manager_host(self):
        return netns.HUB_ADDRESS if self.network else "127.0.0.1"

    @property
    def manager_url(self):
        return "tcp://%s:%d" % (self.manager_host, self.manager_port)

    @property
    def operator_url(self):
        return "unix://" + self.path("cluster", "cluster.sock")

    def vm_ip(self, i):
        return netns.vm_address(i)

    def node_name(self, i):
        return "node-%d" % i

    def node_socket(self, i):
        """Where programs connect without a network; these VMs have this machine's boot id."""
        return self.path(self.node_name(i), "node.sock") if self.local else ""

    def client_socket(self, i):
        return self.path("vm-%d" % i, "run", "client.sock")

    def in_hub(self):
        return ["ip", "netns", "exec", self.hub] if self.network else []

    def in_cluster(self):
        """What makes a command one of the cluster manager's machine."""
        return self.in_hub()

    def in_vm(self, i):
        """What makes a command one of VM i's."""
        if self.network:
            return ["ip", "netns", "exec", self.network.vms[i], "sh", "-c", VM_SHELL, os.path.dirname(self.client_socket(i))]
        return []

    def program(self, name):
        return os.path.join(DAEMON_BUILD if name in DAEMONS else harness.BUILD, "bin", name)

    # ---- bringing up ----

    def configure(self, kind, name, settings, index=None):
        further = self.further[kind]
        settings.update(further(index) if callable(further) else further)
        path = self.path(name, kind + ".conf")
        write_settings(path, settings)
        return path

    def start_daemon(self, name, program, path, prefix=(), **options):
        self.supervisor.start(name=name, command=[*prefix, self.program(program), "--config", path],
                              env={**self.env, "FLYT_LOG": self.env.get("FLYT_LOG", "info")}, **options)

    def pki(self, *words):
        result = subprocess.run([os.path.join(harness.ROOT, "scripts", "flyt-pki"), *words], capture_output=True, text=True)
        harness.expect(result.returncode == 0, "flyt-pki", *words, result.stderr)

    def start_cluster(self):
        pki = self.path("pki")
        if self.network:
            self.manager_port = MANAGER_PORT
        else:
            self._reserved, self.manager_port = netns.reserve_port()
        settings = {"name": "cluster", "listen": "tcp://%s:%d" % ("0.0.0.0" if self.network else "127.0.0.1",
                                                                  self.manager_port),
                    "advertise": self.manager_url, "socket": self.path("cluster", "cluster.sock"),
                    "store": self.store or "sqlite://" + self.path("cluster", "cluster.db"),
                    "metrics": "127.0.0.1:0", **QUICK_CLUSTER}
        if self.tls:
            self.pki("init", pki)
            self.pki("issue", pki, "manager", "cluster", "--host", "127.0.0.1", "--host", self.manager_host)
            settings.update({"tls.authority": pki + "/ca.pem", "tls.authority_key": pki + "/ca-key.pem",
                             "tls.certificate": pki + "/manager-cluster.pem", "tls.key": pki + "/manager-cluster-key.pem"})
        self.start_daemon("cluster", "flyt-cluster-manager", self.configure("cluster", "cluster", settings), self.in_cluster())

    def join(self, kind, name, program, path, prefix):
        """As an operator does: a token for it, which it uses once."""
        if not self.tls:
            return
        answer = self.flytctl(kind, "join-token", name)
        token = answer["token"] if isinstance(answer, dict) else answer[0]["token"]
        result = harness.run([*prefix, self.program(program), "--config", path, "--join", token], self.env)
        harness.expect_equal(result.status, 0, program, "--join", result)

    def start_node(self, i):
        name = self.node_name(i)
        state = self.path(name, "state")
        os.makedirs(state, mode=0o700, exist_ok=True)
        address = netns.HUB_ADDRESS if self.network else "127.0.0.1"
        settings = {"name": name, "managers": [self.manager_url], "listen": ["tcp://%s:0" % address], "host_ip": address,
                    "socket": self.node_socket(i), "state_dir": state, "server": self.program("flyt-server"),
                    "metrics": "127.0.0.1:0"}
        if not (self.hardware == "each" or (self.hardware and i == 0)):
            settings.update({"software_gpus": self.gpus, "software_sms": self.sms, "software_memory": self.memory})
        path = self.configure("node", name, settings, i)
        self.join("node", name, "flyt-node-manager", path, self.in_hub())
        self.start_daemon(name, "flyt-node-manager", path, self.in_hub() + self.with_gpu(i))

    def with_gpu(self, i):
        """A command that others follow, which see GPU i alone: as a container they have a /dev of their own."""
        if self.hardware != "each":
            return []
        hide = "for gpu in /dev/nvidia[0-9]*; do [ $gpu = /dev/nvidia%d ] || mount --bind /dev/null $gpu; done; exec \"$@\"" % i
        return ["unshare", "--mount", "sh", "-e", "-c", hide, "sh"]

    def start_vm(self, i):
        name, socket = "vm-%d" % i, self.client_socket(i)
        settings = {"managers": [self.manager_url], "vm_ip": self.vm_ip(i), "state_dir": self.path(name, "state"),
                    "metrics": "127.0.0.1:0"}
        if not self.network:
            settings["socket"] = socket
        path = self.configure("client", name, settings, i)
        self.join("vm", self.vm_ip(i), "flyt-client-manager", path, self.in_vm(i))
        self.start_daemon(name, "flyt-client-manager", path, self.in_vm(i))

    # ---- using it ----

    def flytctl_run(self, *words, timeout=60):
        """harness.Result of flytctl."""
        return harness.run([self.program("flytctl"), "--manager", self.operator_url, *map(str, words)], self.env, timeout)

    def flytctl(self, *words):
        """What flytctl answers, as JSON; a failure where it does not end with 0. It waits longer than a person would, for a
        machine that stands still."""
        patience = () if "--deadline" in words else ("--deadline", harness.PATIENCE_S)
        result = self.flytctl_run(*patience, *words, "-o", "json", timeout=2 * harness.PATIENCE_S)
        harness.expect_equal(result.status, 0, "flytctl", *words, result)
        return json.loads(result.out) if result.out.strip() else None

    def vm_environment(self, i, **changes):
        env = {**self.env, **changes}
        if not self.network:
            env["FLYT_CLIENT_SOCKET"] = self.client_socket(i)
        return env

    def vm_command(self, i, program, *arguments):
        return [*self.in_vm(i), harness.FLYT_RUN, "--", program, *arguments]

    def run_in_vm(self, i, program, *arguments, timeout=60, **changes):
        return harness.run(self.vm_command(i, program, *arguments), self.vm_environment(i, **changes), timeout)

    def start_in_vm(self, i, program, *arguments, stdin=subprocess.PIPE, **changes):
        """A program with pipes, for harness.finish()."""
        return harness.start(self.vm_command(i, program, *arguments), self.vm_environment(i, **changes), stdin=stdin,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def kill(self, name):
        """SIGKILL; returns when the supervisor has it ready again."""
        return self.supervisor.kill(name)

    def restart(self, name):
        return self.supervisor.restart(name)

    def freeze(self, name):
        self.supervisor.signal(name, signal.SIGSTOP)
        harness.await_stopped(self.supervisor.get(name)["pid"])

    def thaw(self, name):
        self.supervisor.signal(name, signal.SIGCONT)

    def log(self, name):
        return self.supervisor.log(name)

    def namespace(self, name):
        """Of a daemon; None: this one."""
        if not self.network:
            return None
        return self.network.vms[int(name[3:])] if name.startswith("vm-") else self.hub

    def metrics(self, name):
        """The text of a daemon's /metrics."""
        ports = re.findall(r"metrics: on port (\d+)", self.log(name))
        harness.expect(ports, name, "does not say where its metrics are\n", self.log(name)[-2000:])
        url = "http://127.0.0.1:%s/metrics" % ports[-1]
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        return netns.inside(self.namespace(name), lambda: opener.open(url, timeout=60).read().decode())

    def daemons(self):
        return ["cluster"] + ["node-%d" % i for i in range(self.node_count)] + ["vm-%d" % i for i in range(self.vm_count)]

    def print_logs(self):
        for name in self.daemons():
            if self.supervisor and os.path.exists(os.path.join(self.supervisor.folder, name + ".log")):
                print("    log of %s:\n        %s" % (name, "\n        ".join(self.log(name).splitlines()[-30:])))


def metric_values(text, name):
    """[({label: value}, number)] of one name in a text of metrics."""
    found = []
    for line in text.splitlines():
        match = re.fullmatch(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)", line)
        if match and match[1] == name:
            labels = dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', match[2] or ""))
            found.append((labels, float(match[3])))
    return found
