"""A cluster manager on the loopback interface, in clear, with a store of its own or a given one; who stands for nodes, VMs
and operators is the test's.

    manager = Manager(node_lost_s=2.0)          # settings (and faults, FLYT_FAULT of it); its documents in a SQLite file in its folder
    manager.restart()                           # SIGKILL, and started again
    manager.close()                             # a failure where it does not end well

FLYT_CLUSTER_BUILD=build-address-undefined takes the manager of another build.
"""
import contextlib
import json
import os
import signal
import sqlite3
import tempfile

import harness
from caller import Caller
from harness import BUILD, expect, expect_equal, start, within

MANAGER = os.path.join(harness.ROOT, os.environ.get("FLYT_CLUSTER_BUILD", BUILD), "bin", "flyt-cluster-manager")


class Manager:
    def __init__(self, faults=None, **settings):
        self.env = {"FLYT_FAULT": faults} if faults else {}
        self.folder = tempfile.mkdtemp(prefix="cluster-", dir=harness.WORK)
        self.socket = "unix://%s/sock" % self.folder
        self.database = os.path.join(self.folder, "db")
        self.log_path = os.path.join(self.folder, "log")
        self.settings = dict(store='"sqlite://%s"' % self.database, socket='"%s/sock"' % self.folder,
                             listen='"tcp://127.0.0.1:0"', metrics='"127.0.0.1:0"', desired_poll_s=0.3,
                             heartbeat_s=0.2, node_lost_s=30.0, allocation_linger_s=600)
        self.settings.update(settings)
        self.process = None
        self.start()
        harness._servers.append(self)

    def write(self):
        path = os.path.join(self.folder, "conf")
        with open(path, "w") as f:
            for name, value in self.settings.items():
                f.write("%s = %s;\n" % (name, value))
        return path

    def configure(self):
        """Has the settings read again."""
        count = self.log().count("configuration read again")
        self.write()
        os.kill(self.process.pid, signal.SIGHUP)
        within(10, lambda: self.log().count("configuration read again") > count, "the settings are read again")

    def linger(self, seconds):
        """From now on an allocation that nobody uses stays for so long."""
        self.settings["allocation_linger_s"] = seconds
        self.configure()

    def start(self):
        path = self.write()
        with open(self.log_path, "ab") as log:
            begin = log.tell()
            self.process = start([MANAGER, "--config", path], stderr=log, env=harness.environment(FLYT_LOG="debug", **self.env))

        def listening():
            expect(self.process.poll() is None, "the manager ended:", self.log())
            said = self.log()[begin:]
            ports = [line.split("listens on ")[1].split()[0].rstrip(",") for line in said.splitlines() if "listens on tcp" in line]
            return "listens on unix" in said and ports
        self.url = within(20, listening, "the manager listens")[0]
        # The port stays the same after a restart: nodes come back to it.
        self.settings["listen"] = '"%s"' % self.url

    def log(self):
        with open(self.log_path, errors="replace") as f:
            return f.read()

    def operator(self):
        def find():
            caller = Caller(self.socket, "operator", "tester")
            if caller.hello.get("leader"):      # to people, when it knows their documents
                return caller
            caller.kill()
            return None
        return within(120, find, "the manager leads")     # a lease may have to run out first

    def restart(self, with_signal=signal.SIGKILL):
        os.kill(self.process.pid, with_signal)
        self.process.wait(timeout=60)
        self.start()

    def close(self):
        if self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGTERM)
        status = self.process.wait(timeout=60)
        expect("ERROR: " not in self.log(), "the manager was found faulty:\n" + self.log()[-3000:])
        expect_equal(status, 0, "exit status of the manager", self.log()[-2000:])


def documents(manager, collection="gpus"):
    """The documents as another process sees them in the file."""
    with contextlib.closing(sqlite3.connect("file:%s?mode=ro" % manager.database, uri=True, timeout=60)) as db:
        for (table,) in db.execute("SELECT name FROM sqlite_master WHERE type='table'").fetchall():
            columns = [row[1] for row in db.execute("PRAGMA table_info(%s)" % table)]
            if "collection" not in columns:
                continue
            body = [c for c in columns if c in ("document", "body", "json")][0]
            return [json.loads(row[0]) for row in
                    db.execute("SELECT %s FROM %s WHERE collection=?" % (body, table), (collection,))]
    raise harness.Failed("no table of documents in " + manager.database)
