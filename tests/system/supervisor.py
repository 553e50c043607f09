#!/usr/bin/env python3
"""A service manager for daemons that expect systemd: sd_notify(3), the descriptor store, socket activation.

`supervisor.py CONFIG.json` runs the services of a file until SIGTERM or SIGINT (or, with --until-eof, until its standard
input ends) and then ends them and everything that they left behind. The class Supervisor starts such a process and asks
it; when the asking process dies, however, the supervisor and its services end too.

CONFIG.json: {"folder": FOLDER, "services": [SERVICE, …]}. A service:
    name        letters, digits, '-'; its log is FOLDER/NAME.log
    command     list of words
    env         variables added to the supervisor's
    sockets     [{"name": NAME, "unix": PATH, "mode": 438} or {"name": NAME, "tcp": "ADDRESS:PORT"}, …]: opened here,
                passed first, kept over restarts
    restart     "on-failure" (as left out), "always" or "no"; restart_s: after so many seconds (0.1)
    fdstore_max how many descriptors are kept (8192)
    stop_s      how long it may take to end after SIGTERM, before SIGKILL (20)

As systemd 252 does: only the main process is signalled (KillMode=process) and believed (NotifyAccess=main); kept
descriptors outlive restarts and failures, and are closed when the service is stopped. A service that fails five times
without having been ready is given up ("failed").
"""
import ctypes
import fcntl
import json
import os
import re
import selectors
import signal
import socket
import struct
import subprocess
import sys
import time

FIRST_FD = 3            # SD_LISTEN_FDS_START
FDS_PER_MESSAGE = 253   # SCM_MAX_FD of the kernel
MESSAGE_BYTES = 8192
FAILURES_MAX = 5
SUBREAPER = 36          # PR_SET_CHILD_SUBREAPER
KCMP = 312              # x86-64

# A process group to be killed by, and no session where that can be helped: Linux gives each session an equal share of
# the CPUs (sched(7), autogroup), and where one's processes wake each other without end, as those of a busy GPU do, the
# others have been seen to get nothing for seconds. Within one session all processes are equal.
OWN_GROUP = {"process_group": 0} if sys.version_info >= (3, 11) else {"start_new_session": True}

_libc = ctypes.CDLL(None, use_errno=True)


def same_description(one, other):
    """Whether both descriptors are one open file (kcmp(2)): systemd keeps such a one once."""
    a, b = os.fstat(one), os.fstat(other)
    if (a.st_dev, a.st_ino) != (b.st_dev, b.st_ino):
        return False
    return _libc.syscall(KCMP, os.getpid(), os.getpid(), 0, one, other) == 0


def children_of(pid):
    try:
        found = []
        for task in os.listdir("/proc/%d/task" % pid):
            with open("/proc/%d/task/%s/children" % (pid, task)) as f:
                found += [int(child) for child in f.read().split()]
        return found
    except OSError:
        return []


def descendants_of(pid):
    found = []
    for child in children_of(pid):
        found += [child] + descendants_of(child)
    return found


def open_socket(wanted):
    """The listening socket of a service's `sockets`, and its address as others see it."""
    if "unix" in wanted:
        path = wanted["unix"]
        if os.path.exists(path):
            os.unlink(path)
        s = socket.socket(socket.AF_UNIX)
        s.bind(path)
        os.chmod(path, wanted.get("mode", 0o666))
        address = "unix://" + path
    else:
        host, port = wanted["tcp"].rsplit(":", 1)
        s = socket.socket(socket.AF_INET)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind((host, int(port)))
        address = "tcp://%s:%d" % s.getsockname()
    s.listen(256)
    return s, address


class Service:
    """One service: its process, what it has said, and what is kept for it."""

    def __init__(self, folder, description):
        self.description = description
        self.name = description["name"]
        if not re.fullmatch(r"[A-Za-z0-9-]+", self.name):
            raise ValueError("%r cannot be a service's name" % self.name)
        self.log_path = os.path.join(folder, self.name + ".log")
        self.notify_path = os.path.join(folder, self.name + ".notify")
        self.notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notify.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self.notify.bind(self.notify_path)
        os.chmod(self.notify_path, 0o777)       # as systemd's: services may have users of their own
        self.notify.setblocking(False)
        self.sockets = [(s["name"], *open_socket(s)) for s in description.get("sockets", [])]
        self.kept = []              # (name, descriptor)
        self.pid = None
        self.state = "stopped"      # starting, ready, reloading, stopping, waiting, failed, stopped
        self.status = ""
        self.exit_status = None     # of the last process that ended; negative: the signal
        self.starts = 0
        self.was_ready = False      # the present process, or the last one
        self.failures = 0           # in a row, without having been ready
        self.at = None              # starts then (waiting) or is killed then (stopping)
        self.starts_again = False   # after it has been stopped

    def start(self):
        passed = [(name, s.fileno()) for name, s, _ in self.sockets] + self.kept
        env = dict(os.environ, **self.description.get("env", {}))
        env["NOTIFY_SOCKET"] = self.notify_path
        for name in ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "WATCHDOG_USEC", "WATCHDOG_PID"):
            env.pop(name, None)
        command = self.description["command"]
        actions = [(os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                   (os.POSIX_SPAWN_OPEN, 1, self.log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644),
                   (os.POSIX_SPAWN_DUP2, 1, 2)]
        copies = []
        if passed:
            # LISTEN_PID is known to the process alone; a shell replaces itself. Copies lie above where they have to go.
            command = ["sh", "-c", 'export LISTEN_PID=$$; exec "$@"', "sh", *command]
            env["LISTEN_FDS"] = str(len(passed))
            env["LISTEN_FDNAMES"] = ":".join(name for name, _ in passed)
            for i, (_, fd) in enumerate(passed):
                copies.append(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, FIRST_FD + len(passed)))
                actions.append((os.POSIX_SPAWN_DUP2, copies[-1], FIRST_FD + i))
        try:
            self.pid = os.posix_spawnp(command[0], command, env, file_actions=actions, setpgroup=0,
                                       setsigmask=[], setsigdef=[signal.SIGPIPE])
        finally:
            for fd in copies:
                os.close(fd)
        self.starts += 1
        self.state, self.status, self.at, self.was_ready = "starting", "", None, False

    def read_notice(self):
        """One datagram of the notify socket; False: there is none."""
        try:
            data, ancillary, _, _ = self.notify.recvmsg(MESSAGE_BYTES, socket.CMSG_SPACE(4 * FDS_PER_MESSAGE) +
                                                        socket.CMSG_SPACE(12), socket.MSG_CMSG_CLOEXEC)
        except BlockingIOError:
            return False
        fds, sender = [], None
        for level, kind, content in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                fds += struct.unpack("%di" % (len(content) // 4), content[:len(content) // 4 * 4])
            elif (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
                sender = struct.unpack("iII", content[:12])[0]
        if sender == self.pid and sender is not None:
            self.obey(dict(line.split("=", 1) for line in data.decode(errors="replace").splitlines() if "=" in line), fds)
        for fd in fds:
            os.close(fd)
        return True

    def obey(self, said, fds):
        """What sd_notify(3) lists; `fds` stay the caller's."""
        if said.get("READY") == "1":
            if self.state in ("starting", "reloading"):
                self.state = "ready"
            self.was_ready, self.failures = True, 0
        if said.get("RELOADING") == "1" and self.state == "ready":
            self.state = "reloading"
        if said.get("STOPPING") == "1":
            self.state = "stopping"
        self.status = said.get("STATUS", self.status)
        name = said.get("FDNAME", "stored")
        if said.get("FDSTORE") == "1":
            for fd in fds:
                if len(self.kept) >= self.description.get("fdstore_max", 8192):
                    self.say("the descriptor store is full: %s is not kept" % name)
                elif not any(same_description(fd, other) for _, other in self.kept):
                    self.kept.append((name, fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, FIRST_FD)))
        if said.get("FDSTOREREMOVE") == "1":
            for _, fd in [k for k in self.kept if k[0] == name]:
                os.close(fd)
            self.kept = [k for k in self.kept if k[0] != name]

    def say(self, text):
        with open(self.log_path, "a") as log:
            log.write("supervisor: %s\n" % text)

    def ended(self, status):
        """The main process is gone."""
        while self.read_notice():       # what it said last
            pass
        self.pid, self.exit_status = None, status
        was_told = self.at is not None or self.starts_again
        self.at = None
        if self.starts_again:
            self.starts_again = False
            self.start()
        elif was_told and self.state == "stopping":
            self.dropped("stopped")
        elif status == 0 and self.description.get("restart") != "always" or self.description.get("restart") == "no":
            self.dropped("stopped" if status == 0 else "failed")
        else:
            self.failures += not self.was_ready
            self.say("it ended with status %d" % status)
            if self.failures >= FAILURES_MAX:
                self.dropped("failed")
            else:
                self.state, self.at = "waiting", time.monotonic() + self.description.get("restart_s", 0.1)

    def dropped(self, state):
        """It does not come back by itself: nothing is kept for it."""
        self.state = state
        for _, fd in self.kept:
            os.close(fd)
        self.kept = []

    def stop(self):
        if self.pid is None:
            self.at = None
            self.dropped("stopped")
        else:
            self.state, self.at = "stopping", time.monotonic() + self.description.get("stop_s", 20)
            os.kill(self.pid, signal.SIGTERM)

    def restart(self):
        if self.pid is None:
            self.failures = 0
            self.start()
        else:
            self.starts_again = True
            self.state, self.at = "stopping", time.monotonic() + self.description.get("stop_s", 20)
            os.kill(self.pid, signal.SIGTERM)

    def on_time(self):
        self.at = None
        if self.state == "waiting":
            self.start()
        elif self.pid is not None:
            self.say("it did not end after SIGTERM and is killed")
            self.at = float("inf")      # still: it was told to end
            os.kill(self.pid, signal.SIGKILL)

    def json(self):
        return {"name": self.name, "pid": self.pid, "state": self.state, "status": self.status, "starts": self.starts,
                "exit_status": self.exit_status, "log": self.log_path, "kept": [name for name, _ in self.kept],
                "sockets": {name: address for name, _, address in self.sockets}}

    def close(self):
        self.dropped("stopped")
        self.notify.close()
        for _, s, _ in self.sockets:
            s.close()


class Loop:
    """The supervisor's process: services, their notices and ends, and requests at FOLDER/control."""

    def __init__(self, config, until_eof):
        self.folder = config["folder"]
        os.makedirs(self.folder, exist_ok=True)
        if _libc.prctl(SUBREAPER, 1, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl")
        self.services = {}
        self.is_ending = False
        self.selector = selectors.DefaultSelector()
        self.control = socket.socket(socket.AF_UNIX)
        self.control.bind(os.path.join(self.folder, "control"))
        self.control.listen(64)
        self.selector.register(self.control, selectors.EVENT_READ, self.serve)
        near, far = socket.socketpair()
        near.setblocking(False)
        far.setblocking(False)
        signal.set_wakeup_fd(far.fileno(), warn_on_full_buffer=False)
        self.wakeup = near, far
        self.selector.register(near, selectors.EVENT_READ, lambda: near.recv(4096))
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self.end)
        if until_eof:
            self.selector.register(sys.stdin, selectors.EVENT_READ, lambda: os.read(0, 4096) or self.end())
        for description in config.get("services", []):
            self.add(description)

    def end(self, *_):
        self.is_ending = True

    def add(self, description):
        if description["name"] in self.services:
            raise ValueError("there is a service %s already" % description["name"])
        service = Service(self.folder, description)
        self.services[service.name] = service
        self.selector.register(service.notify, selectors.EVENT_READ, service.read_notice)
        service.start()

    def serve(self):
        connection, _ = self.control.accept()
        with connection, connection.makefile("rw") as stream:
            try:
                request = json.loads(stream.readline() or "{}")
                reply = self.obey(request)
            except (ValueError, KeyError, OSError) as error:
                reply = {"error": "%s: %s" % (type(error).__name__, error)}
            try:
                stream.write(json.dumps(reply) + "\n")
                stream.flush()
            except OSError:
                pass        # who asked has gone

    def obey(self, request):
        what = request["do"]
        if what == "start":
            self.add(request["service"])
        elif what != "list":
            service = self.services[request["name"]]
            if what == "signal":
                if service.pid is None:
                    raise ValueError("%s does not run" % service.name)
                os.kill(service.pid, request["signal"])
            elif what in ("stop", "restart"):
                getattr(service, what)()
            else:
                raise ValueError("nobody knows how to %s" % what)
        return {"services": [s.json() for s in self.services.values()]}

    def reap(self):
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for service in self.services.values():
                if service.pid == pid:
                    service.ended(os.waitstatus_to_exitcode(status))

    def turn(self):
        now = time.monotonic()
        times = [s.at for s in self.services.values() if s.at is not None and s.at != float("inf")]
        for key, _ in self.selector.select(max(0, min(times) - now) if times else None):
            key.data()
        self.reap()
        for service in self.services.values():
            if service.at is not None and service.at <= time.monotonic():
                service.on_time()

    def run(self):
        while not self.is_ending:
            self.turn()
        for service in reversed(list(self.services.values())):      # the last first, each to its end
            service.starts_again = False
            service.stop()
            while service.pid is not None:
                self.turn()
        while left := descendants_of(os.getpid()):
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            self.reap()
            time.sleep(0.01)
        for service in self.services.values():
            service.close()


class Supervisor:
    """A supervisor process of one's own. Where something is not as asked, OSError or TimeoutError with the log's end."""

    def __init__(self, folder, services=()):
        self.folder = folder
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder, "supervisor.json")
        with open(path, "w") as f:
            json.dump({"folder": folder, "services": list(services)}, f, indent=1)
        with open(os.path.join(folder, "supervisor.log"), "wb") as log:
            self.process = subprocess.Popen([sys.executable, os.path.abspath(__file__), "--until-eof", path],
                                            stdin=subprocess.PIPE, stdout=log, stderr=log, **OWN_GROUP)
        deadline = time.monotonic() + 60
        while not self._answers():
            if self.process.poll() is not None or time.monotonic() > deadline:
                with open(os.path.join(folder, "supervisor.log"), errors="replace") as log:
                    raise OSError("the supervisor did not start: " + log.read())
            time.sleep(0.01)

    def _answers(self):
        try:
            self.ask(do="list")
            return True
        except (ConnectionError, FileNotFoundError):
            return False

    def ask(self, **request):
        """The services after the request, by name."""
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(60)
            s.connect(os.path.join(self.folder, "control"))
            with s.makefile("rw") as stream:
                stream.write(json.dumps(request) + "\n")
                stream.flush()
                line = stream.readline()
        if not line:
            raise ConnectionResetError("the supervisor ended")
        reply = json.loads(line)
        if "error" in reply:
            raise OSError(reply["error"])
        return {s["name"]: s for s in reply["services"]}

    def get(self, name):
        return self.ask(do="list")[name]

    def log(self, name):
        with open(os.path.join(self.folder, name + ".log"), errors="replace") as f:
            return f.read()

    def wait(self, name, condition, what, seconds=120):
        """Waits until condition(service) holds and returns the service. One that was given up ends the waiting."""
        deadline = time.monotonic() + seconds
        while True:
            service = self.get(name)
            if condition(service):
                return service
            if service["state"] == "failed" or time.monotonic() > deadline:
                raise TimeoutError("%s is %s, not %s\n%s" % (name, service["state"], what, self.log(name)[-4000:]))
            time.sleep(0.02)

    def wait_ready(self, name, seconds=120):
        return self.wait(name, lambda s: s["state"] == "ready", "ready", seconds)

    def start(self, **service):
        self.ask(do="start", service=service)
        return self.wait_ready(service["name"])

    def signal(self, name, number):
        self.ask(do="signal", name=name, signal=int(number))

    def kill(self, name):
        """SIGKILL of the main process; returns when it is there again and ready (where it is restarted at all)."""
        starts = self.get(name)["starts"]
        self.signal(name, signal.SIGKILL)
        return self.wait(name, lambda s: s["starts"] > starts and s["state"] == "ready", "ready again")

    def restart(self, name):
        starts = self.get(name)["starts"]
        self.ask(do="restart", name=name)
        return self.wait(name, lambda s: s["starts"] > starts and s["state"] == "ready", "ready again")

    def stop(self, name):
        self.ask(do="stop", name=name)
        return self.wait(name, lambda s: s["state"] == "stopped", "stopped")

    def close(self):
        """Ends the services, the last first, and everything that they left."""
        if self.process.poll() is None:
            self.process.stdin.close()
        try:
            self.process.wait(120)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise


def main():
    arguments = [a for a in sys.argv[1:] if a != "--until-eof"]
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print("usage: supervisor.py [--until-eof] CONFIG.json\n\n" + __doc__.strip(), file=sys.stderr)
        sys.exit(2)
    with open(arguments[0]) as f:
        config = json.load(f)
    Loop(config, "--until-eof" in sys.argv[1:]).run()


if __name__ == "__main__":
    main()
