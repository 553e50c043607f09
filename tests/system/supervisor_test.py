#!/usr/bin/env python3
"""supervisor.py does for a daemon what systemd does: notices, the descriptor store, sockets, restarts. The daemon uses
systemd's own library."""
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile

import harness
from harness import descendants, expect, expect_equal, is_alive, main, scenario, within
from supervisor import Supervisor

DAEMON = os.path.join(harness.ROOT, "tests", "system", "programs", "notifier.py")


class Daemon:
    """A supervised notifier.py."""

    def __init__(self, *arguments, **options):
        self.folder = tempfile.mkdtemp(prefix="supervisor-", dir=harness.WORK)
        self.orders = os.path.join(self.folder, "orders")
        self.supervisor = Supervisor(self.folder)
        self.service = dict({"name": "daemon", "command": [sys.executable, DAEMON, *arguments],
                             "sockets": [{"name": "orders", "unix": self.orders}]}, **options)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.supervisor.close()

    def start(self):
        return self.supervisor.start(**self.service)

    def get(self):
        return self.supervisor.get("daemon")

    def tell(self, words):
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(60)
            s.connect(self.orders)
            s.sendall(words.encode())
            return s.recv(100)

    def passed(self):
        """What the running process was passed."""
        said = [json.loads(line) for line in self.supervisor.log("daemon").splitlines() if line.startswith("{")]
        expect_equal(said[-1]["pid"], self.get()["pid"], "the process that spoke last")
        return said[-1]["passed"]


@scenario
def notices():
    with Daemon() as d:
        service = d.start()
        expect_equal((service["state"], service["status"]), ("ready", "serving"), "after the start")
        expect_equal(d.passed(), [["orders", ""]], "passed at the first start")
        for words, state, status in (("say STATUS=busy", "ready", "busy"), ("say RELOADING=1", "reloading", "busy"),
                                     ("say WATCHDOG=1", "reloading", "busy"),
                                     ("say READY=1\\nSTATUS=again", "ready", "again"),
                                     ("say STOPPING=1", "stopping", "again")):
            d.tell(words)
            within(10, lambda: (d.get()["state"], d.get()["status"]) == (state, status), words)


@scenario
def others_are_not_believed():
    with Daemon() as d:
        service = d.start()
        d.tell("leave")
        child = within(10, lambda: descendants(service["pid"]), "the child")[0]
        d.tell("say STATUS=own")
        within(10, lambda: d.get()["status"] == "own", "the main process's status")
        again = d.supervisor.kill("daemon")
        expect(is_alive(child), "a child outlives its main process (KillMode=process)")
        expect("child" not in again["status"], "status is", again["status"])
    within(10, lambda: not is_alive(child), "the end of what was left")


@scenario
def kept_descriptors():
    with Daemon() as d:
        d.start()
        for words in ("keep one first", "keep two second", "keep one third", "again two", "keep gone x", "forget gone"):
            expect_equal(d.tell(words), b"done\n", words)
        names = ["one", "two", "one"]
        within(10, lambda: d.get()["kept"] == names, "kept %s" % names)
        want = [["orders", ""], ["one", "first"], ["two", "second"], ["one", "third"]]
        for how, count in ((d.supervisor.kill, 2), (d.supervisor.restart, 3), (d.supervisor.kill, 4)):
            expect_equal(how("daemon")["starts"], count, "starts")
            expect_equal(d.passed(), want, "passed after", how.__name__)
        d.tell("again one")         # descriptors that were passed are still those that are kept
        d.tell("forget two")
        within(10, lambda: d.get()["kept"] == ["one", "one"], "after FDSTOREREMOVE")
        d.supervisor.stop("daemon")
        expect_equal(d.get()["kept"], [], "kept after stop")
        d.supervisor.restart("daemon")
        expect_equal(d.passed(), [["orders", ""]], "passed after stop and start")


@scenario
def many_descriptors():
    """More than one message takes; and not more than allowed."""
    with Daemon(fdstore_max=900) as d:
        d.start()
        for i in range(4):
            d.tell("many 250 name%d" % i)
        within(20, lambda: len(d.get()["kept"]) == 900, "900 descriptors")
        d.supervisor.kill("daemon")
        expect_equal(len(d.passed()), 901, "passed")
        expect("is full" in d.supervisor.log("daemon"), "nothing in the log about the full store")


@scenario
def restarts():
    with Daemon() as d:
        pid = d.start()["pid"]
        d.tell("exit 7")
        service = d.supervisor.wait("daemon", lambda s: s["starts"] == 2 and s["state"] == "ready", "ready again")
        expect(service["pid"] != pid and service["exit_status"] == 7, service)
        d.tell("exit 0")
        service = d.supervisor.wait("daemon", lambda s: s["state"] == "stopped", "stopped")
        expect_equal((service["exit_status"], service["starts"]), (0, 2), "status and starts after a clean end")
    with Daemon(restart="always") as d:
        d.start()
        d.tell("exit 0")
        d.supervisor.wait("daemon", lambda s: s["starts"] == 2 and s["state"] == "ready", "ready again")
    with Daemon("--fail", restart_s=0.01) as d:
        try:
            d.start()
            expect(False, "a daemon that fails was told ready")
        except TimeoutError as error:
            expect("failed" in str(error), error)
        expect_equal((d.get()["starts"], d.get()["exit_status"]), (5, 3), "starts and status")


@scenario
def deaf_daemon_is_killed():
    with Daemon("--deaf", stop_s=0.2) as d:
        d.start()
        service = d.supervisor.stop("daemon")
        expect_equal(service["exit_status"], -signal.SIGKILL, "exit status")


@scenario
def tcp_socket():
    with Daemon(sockets=[{"name": "orders", "tcp": "127.0.0.1:0"}]) as d:
        url = d.start()["sockets"]["orders"]
        host, port = url.removeprefix("tcp://").split(":")
        with socket.create_connection((host, int(port)), 10) as s:
            s.sendall(b"say STATUS=tcp")
            expect_equal(s.recv(10), b"done\n", "answer")
        expect_equal(d.get()["status"], "tcp", "status")


@scenario
def ends_with_whoever_started_it():
    """SIGKILL of the process that has the Supervisor: nothing stays."""
    folder = tempfile.mkdtemp(prefix="supervisor-", dir=harness.WORK)
    script = """
import signal, sys
sys.path.insert(0, %r)
from supervisor import Supervisor
s = Supervisor(%r)
service = s.start(name="daemon", command=[sys.executable, %r], sockets=[{"name": "orders", "unix": %r}])
print(s.process.pid, service["pid"], flush=True)
signal.pause()
""" % (os.path.join(harness.ROOT, "tests", "system"), folder, DAEMON, os.path.join(folder, "orders"))
    owner = harness.start([sys.executable, "-c", script], stdout=subprocess.PIPE)
    pids = [int(word) for word in owner.stdout.readline().split()]
    expect_equal([is_alive(pid) for pid in pids], [True, True], "supervisor and daemon live")
    owner.kill()
    owner.wait()
    within(20, lambda: not any(is_alive(pid) for pid in pids), "the end of supervisor and daemon")


@scenario
def shares_the_session():
    """A group each, to be killed by, but the test's session: the kernel shares the CPUs out among sessions."""
    with Daemon() as d:
        service = d.start()["pid"]
        expect_equal(os.getpgid(service), service, "process group of a service")
        expect_equal(os.getsid(service), os.getsid(d.supervisor.process.pid), "session of a service")
    if sys.version_info < (3, 11):
        return                          # subprocess cannot make a group alone
    with Daemon() as d:
        supervisor = d.supervisor.process.pid
        expect_equal((os.getpgid(supervisor), os.getsid(supervisor)), (supervisor, os.getsid(0)), "supervisor")
        program = harness.start(["sleep", "60"])
        expect_equal((os.getpgid(program.pid), os.getsid(program.pid)), (program.pid, os.getsid(0)), "a program")
        harness.kill_group(program)
        expect_equal(program.wait(), -signal.SIGKILL, "status of a program whose group is killed")


@scenario
def as_a_command():
    folder = tempfile.mkdtemp(prefix="supervisor-", dir=harness.WORK)
    config = os.path.join(folder, "config.json")
    with open(config, "w") as f:
        json.dump({"folder": folder, "services": [{"name": "daemon", "command": [sys.executable, DAEMON],
                                                   "sockets": [{"name": "orders", "unix": folder + "/orders"}]}]}, f)
    program = os.path.join(harness.ROOT, "tests", "system", "supervisor.py")
    process = harness.start([program, config])
    within(20, lambda: os.path.exists(folder + "/daemon.log") and "passed" in open(folder + "/daemon.log").read(),
           "the daemon")
    process.send_signal(signal.SIGTERM)
    expect_equal(process.wait(60), 0, "exit status")
    result = harness.run([program])
    expect(result.status == 2 and result.err.startswith("usage"), result)


main()
