"""Cluster managers and a simulated cluster before them (tests/bench/load), for load_test.py and tests/bench.

    managers = Managers(1, allocation_linger_s=2)
    managers.start(0)
    fleet = Fleet(managers.urls, nodes=20, vms=200)
    fleet.wait("all_up", 30)
    figures = fleet.ask("load 20 10 1000", "loaded", 60)
"""
import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request

import harness

CONTROL_LOAD = os.path.join(harness.BUILD, "tests", "bench", "control_load")
MANAGER = os.path.join(harness.BUILD, "bin", "flyt-cluster-manager")


def reserve_port():
    """A port that stays ours, bound and not listened on; the socket must be kept."""
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind(("127.0.0.1", 0))
    return s, s.getsockname()[1]


class Managers:
    """Cluster managers on the loopback interface in clear. One has a SQLite file, several share `store`."""

    def __init__(self, count=1, store=None, **settings):
        self.folder = tempfile.mkdtemp(prefix="managers-", dir=harness.WORK)
        self.store = store or "sqlite://%s/cluster.db" % self.folder
        self.settings = settings
        self._ports = [reserve_port() for _ in range(count)]
        self.urls = ["tcp://127.0.0.1:%d" % port for _, port in self._ports]
        self.processes = [None] * count
        self._log_begin = [0] * count

    def write_documents(self, vms):
        result = harness.run([CONTROL_LOAD, "--write", self.store, "--vms", str(vms)], timeout=300)
        harness.expect_equal(result.status, 0, "writing documents:", result)

    def log_path(self, i):
        return os.path.join(self.folder, "manager-%d.log" % i)

    def log(self, i):
        with open(self.log_path(i), errors="replace") as f:
            return f.read()

    def _log_of_this_start(self, i):
        with open(self.log_path(i), "rb") as f:
            f.seek(self._log_begin[i])
            return f.read().decode(errors="replace")

    def start(self, i):
        """Returns at once; uplinks find it when it is ready."""
        path = os.path.join(self.folder, "manager-%d.conf" % i)
        others = [url for j, url in enumerate(self.urls) if j != i]
        values = {"name": "manager-%d" % i, "listen": self.urls[i], "managers": others, "store": self.store,
                  "socket": os.path.join(self.folder, "manager-%d.sock" % i), "metrics": "127.0.0.1:0",
                  "connections_per_address_max": 16384,     # all of a cluster come from this machine
                  **self.settings}
        with open(path, "w") as f:
            f.writelines("%s = %s;\n" % (name, json.dumps(value)) for name, value in values.items())
        with open(self.log_path(i), "ab") as log:
            self._log_begin[i] = log.tell()
            self.processes[i] = harness.start([MANAGER, "--config", path], stderr=log, stdout=log)

    def kill(self, i):
        """SIGKILL; returns when it has gone."""
        self.processes[i].send_signal(signal.SIGKILL)
        self.processes[i].wait()

    def stop(self, i):
        """SIGTERM; its exit status."""
        self.processes[i].terminate()
        return self.processes[i].wait(timeout=60)

    def cpu_seconds(self, i):
        with open("/proc/%d/stat" % self.processes[i].pid) as f:
            fields = f.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory_bytes(self, i):
        with open("/proc/%d/status" % self.processes[i].pid) as f:
            return int(re.search(r"VmRSS:\s+(\d+) kB", f.read())[1]) * 1024

    def metrics(self, i):
        """{'name{labels}': value}."""
        found = harness.within(30, lambda: re.findall(r"metrics: on port (\d+)", self._log_of_this_start(i)),
                               "manager %d says where its metrics are" % i)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        text = opener.open("http://127.0.0.1:%s/metrics" % found[-1], timeout=60).read().decode()
        return {name: float(value) for name, value in
                (line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#"))}


def histogram_quantile(before, after, name, quantile):
    """The bucket's upper bound under which this share of what was observed in between lies; None: nothing was."""
    buckets = []
    for key, value in after.items():
        match = re.fullmatch(re.escape(name) + r'_bucket\{(?:.*,)?le="([^"]+)"\}', key)
        if match:
            buckets.append((float(match[1].replace("+Inf", "inf")), value - before.get(key, 0)))
    buckets.sort()
    if not buckets or not buckets[-1][1]:
        return None
    return next(bound for bound, count in buckets if count >= quantile * buckets[-1][1])


def histogram_mean(before, after, name):
    count = after.get(name + "_count", 0) - before.get(name + "_count", 0)
    return (after[name + "_sum"] - before.get(name + "_sum", 0)) / count if count else None


class Fleet:
    """control_load: simulated nodes and VMs."""

    def __init__(self, urls, nodes, vms, gpus=8):
        self.nodes, self.vms = nodes, vms
        self.events = []
        self.process = harness.start([CONTROL_LOAD, "--manager", ",".join(urls), "--nodes", str(nodes), "--vms", str(vms),
                                      "--gpus", str(gpus)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                     bufsize=1)
        os.set_blocking(self.process.stdout.fileno(), False)
        self._partial = ""

    def _read(self):
        try:
            chunk = os.read(self.process.stdout.fileno(), 1 << 16).decode()
        except BlockingIOError:
            return
        harness.expect(chunk or self.process.poll() is None, "control_load ended with", self.process.poll())
        *lines, self._partial = (self._partial + chunk).split("\n")
        self.events += [json.loads(line) for line in lines]

    def say(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def take(self, event):
        """The next event of this kind that nobody took; None."""
        self._read()
        for i, found in enumerate(self.events):
            harness.expect(found["event"] != "error", found)
            if found["event"] == event:
                return self.events.pop(i)
        return None

    def wait(self, event, seconds):
        return harness.within(seconds, lambda: self.take(event), "%s; status %s" % (event, self.events[-3:]))

    def ask(self, line, event, seconds):
        self.say(line)
        return self.wait(event, seconds)

    def status(self):
        return self.ask("status", "status", 30)

    def violations(self):
        self._read()
        return [event["text"] for event in self.events if event["event"] == "violation"]

    def close(self):
        self.say("quit")
        harness.expect_equal(self.process.wait(timeout=60), 0, "control_load's exit status")
