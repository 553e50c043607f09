"""What the tests in this folder share: a folder of their own, servers, programs run through Flyt, and scenarios.

A test file collects its scenarios with @scenario and ends with main(). Each scenario prints "ok NAME" or
"FAIL NAME: reason"; the exit status is 0, 1 where one failed, 77 (last line "skip: REASON") where skip() was called.
Every process that is started here is killed with its process group when the test ends, however that happens.
"""
import contextlib
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback

from supervisor import OWN_GROUP

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(ROOT, os.environ.get("FLYT_BUILD", "build"))
APPS = os.path.join(BUILD, "tests", "apps")
HELPERS = os.path.join(BUILD, "tests", "system")
FLYT_RUN = os.path.join(ROOT, "scripts", "flyt-run")
CUDA = os.environ.get("CUDA_PATH", "/usr/local/cuda")
# What a test waits for at least before it calls something missing: on a machine with other work nothing has its time.
PATIENCE_S = 60

_scenarios = []
_processes = []
_servers = []
WORK = None


class Failed(Exception):
    """An expectation that did not hold; the text says what differed."""


class Result:
    """How a program ended: status (negative: the signal), out, err, seconds."""

    def __init__(self, status, out, err, seconds):
        self.status, self.out, self.err, self.seconds = status, out, err, seconds

    def __repr__(self):
        return "status %s after %.1f s\nstdout: %s\nstderr: %s" % (self.status, self.seconds, self.out, self.err)


def scenario(function):
    _scenarios.append(function)
    return function


def skip(reason):
    print("skip: " + reason)
    sys.exit(77)


def expect(condition, *what):
    if not condition:
        raise Failed(" ".join(str(w) for w in what))


def expect_equal(got, want, *what):
    if got != want:
        raise Failed("%s: got %r, expected %r" % (" ".join(str(w) for w in what), got, want))


def within(seconds, condition, what):
    """Waits until condition() is true and returns what it gave; a failure where it is not in that time, for which
    PATIENCE_S is the least. Who asks starts a process often, so that long waits ask seldom: after a tenth of what they took."""
    seconds = max(seconds, PATIENCE_S)
    start = time.monotonic()
    deadline = start + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise Failed("not within %g s: %s" % (seconds, what))
        time.sleep(min(max(0.02, (time.monotonic() - start) / 10), 0.5))


def helper(name):
    return os.path.join(HELPERS, name)


def app(name):
    return os.path.join(APPS, name)


def environment(**changes):
    """The test's environment without a server, libraries of the build; None removes a variable."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("FLYT_") and k not in ("LD_PRELOAD", "LD_LIBRARY_PATH")}
    env["FLYT_LIB_DIR"] = os.path.join(BUILD, "lib")
    env["FLYT_BUILD"] = os.path.relpath(BUILD, ROOT)
    env["TMPDIR"] = WORK
    for name, value in changes.items():
        env.pop(name, None)
        if value is not None:
            env[name] = value
    if "LD_PRELOAD" in env:     # a build with sanitizers ends at once where its runtime is not the first library
        env["ASAN_OPTIONS"] = ":".join(filter(None, [env.get("ASAN_OPTIONS"), "verify_asan_link_order=0"]))
    return env


def new_log(path):
    """Opened for a process to write to and for this one to read from: what is written comes to its end wherever this one
    has read to, for the two have one offset."""
    open(path, "wb").close()
    return open(path, "a+", encoding="utf-8", errors="replace")


def start(command, env=None, **options):
    """A process in a group of its own, that ends with this test."""
    options.setdefault("stdin", subprocess.DEVNULL)
    process = subprocess.Popen(command, env=env or environment(), **OWN_GROUP, **options)
    _processes.append(process)
    return process


def finish(process, timeout=2 * PATIENCE_S):
    """Waits for a process started with pipes. One that does not end in time is a failure."""
    begin = time.monotonic()
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        kill_group(process)
        out, err = process.communicate()
        raise Failed("%s did not end within %g s\n%s%s" % (process.args, timeout, text(out), text(err)))
    return Result(process.returncode, text(out), text(err), time.monotonic() - begin)


def text(data):
    return (data or b"").decode(errors="replace") if isinstance(data, (bytes, type(None))) else data


def run(command, env=None, timeout=2 * PATIENCE_S, stdin=None, cwd=None):
    """Runs a command to its end; stdin is bytes or None."""
    process = start(command, env, stdin=subprocess.PIPE if stdin is not None else subprocess.DEVNULL,
                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=cwd)
    begin = time.monotonic()
    try:
        out, err = process.communicate(input=stdin, timeout=timeout)
    except subprocess.TimeoutExpired:
        kill_group(process)
        out, err = process.communicate()
        raise Failed("%s did not end within %g s\n%s%s" % (command, timeout, text(out), text(err)))
    return Result(process.returncode, text(out), text(err), time.monotonic() - begin)


def through_flyt(url, program, *arguments):
    """The command line that runs a program on a server."""
    return [FLYT_RUN, "--server", url, "--", program, *arguments]


def kill_group(process):
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def lines(output):
    return [line for line in output.splitlines() if line.strip()]


def descendants(pid):
    """The processes below pid, as a list of ids; zombies do not count."""
    found = []
    with contextlib.suppress(OSError):
        for task in os.listdir("/proc/%d/task" % pid):
            with open("/proc/%d/task/%s/children" % (pid, task)) as f:
                for child in map(int, f.read().split()):
                    if is_alive(child):
                        found += [child] + descendants(child)
    return found


def is_alive(pid):
    """Whether the process exists and is not a zombie."""
    try:
        with open("/proc/%d/stat" % pid) as f:
            return f.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def states_of_threads(pid):
    """proc(5): a letter for each of the process's threads."""
    states = ""
    for task in os.listdir("/proc/%d/task" % pid):
        with contextlib.suppress(OSError), open("/proc/%d/task/%s/stat" % (pid, task)) as f:
            states += f.read().rsplit(")", 1)[1].split()[0]
    return states


def await_stopped(pid):
    """After SIGSTOP: kill(2) returns before the process has stopped, each of its threads when that has seen the signal."""
    within(30, lambda: set(states_of_threads(pid)) <= set("TZX"), "process %d is stopped" % pid)


def stop(pid):
    """Stops the process; SIGCONT makes it go on."""
    os.kill(pid, signal.SIGSTOP)
    await_stopped(pid)


class Server:
    """A flyt-server on software GPUs, listening where the kernel chose; `url` is its address. `prefix` is a command that
    executes what follows it (ip netns exec NAME), `address` one to listen on there."""

    def __init__(self, kind="tcp", arguments=("--soft", "1"), env=None, build=BUILD, prefix=(), address="127.0.0.1"):
        program = os.path.join(build, "bin", "flyt-server")
        expect(os.access(program, os.X_OK), program, "is not built")
        self.folder = tempfile.mkdtemp(prefix="server-", dir=WORK)
        options = dict(zip(arguments, arguments[1:]))
        self.warm_count = int(options.get("--soft", 0)) * int(options.get("--warm", 1))
        listen = "tcp://%s:0" % address if kind == "tcp" else "unix://%s/s.sock" % self.folder
        self.log_path = os.path.join(self.folder, "log")
        with open(self.log_path, "wb") as log:
            self.process = start([*prefix, program, "--listen", listen, *arguments], env or environment(),
                                 stdout=subprocess.PIPE, stderr=log)
        self.pid = self.process.pid
        _servers.append(self)
        self.url = self._wait_until_listening()

    def _wait_until_listening(self):
        deadline, said = time.monotonic() + PATIENCE_S, b""
        while time.monotonic() < deadline:
            if select.select([self.process.stdout], [], [], 0.5)[0]:
                chunk = os.read(self.process.stdout.fileno(), 4096)
                if not chunk:
                    break
                said += chunk
                for line in said.decode().splitlines():
                    if line.startswith("listening "):
                        return line.split()[1]
        raise Failed("flyt-server did not start listening\n" + self.log())

    def log(self):
        with open(self.log_path, errors="replace") as f:
            return f.read()

    def children(self):
        return descendants(self.pid)

    def settle(self):
        """Waits until the number of processes has been the same for a while, and returns it (warm servers included, which
        are waited for)."""
        count, since = -1, time.monotonic()
        while time.monotonic() - since < 0.5 or count < self.warm_count:
            expect(time.monotonic() - since < PATIENCE_S, "only", count, "processes, though", self.warm_count, "are to be warm")
            now = len(self.children())
            if now != count:
                count, since = now, time.monotonic()
            time.sleep(0.02)
        return count

    def serving(self, client_pid):
        """The process of the server that has the other end of a TCP connection, or of rings, of client_pid; None: there is
        none."""
        wanted, rings = set(peers_of(client_pid)), shared_memory(client_pid, "flyt-rings")
        for pid in self.children():
            if wanted & socket_inodes(pid) or rings & shared_memory(pid, "flyt-rings"):
                return pid
        return None

    def close(self):
        kill_group(self.process)
        self.process.wait()
        self.process.stdout.close()


def socket_inodes(pid):
    inodes = set()
    with contextlib.suppress(OSError):
        for fd in os.listdir("/proc/%d/fd" % pid):
            with contextlib.suppress(OSError):
                target = os.readlink("/proc/%d/fd/%s" % (pid, fd))
                if target.startswith("socket:["):
                    inodes.add(int(target[8:-1]))
    return inodes


def shared_memory(pid, name):
    """The memfds of that name that a process has mapped, as a set of inodes."""
    with contextlib.suppress(OSError), open("/proc/%d/maps" % pid) as f:
        return {fields[4] for fields in map(str.split, f) if fields[5:6] == ["/memfd:" + name]}
    return set()


def peers_of(pid):
    """The sockets (inodes) at the other ends of pid's local TCP connections."""
    own, table = socket_inodes(pid), []
    with open("/proc/net/tcp") as f:
        for line in f.readlines()[1:]:
            fields = line.split()
            table.append((fields[1], fields[2], int(fields[9])))
    remote_ends = {(remote, local) for local, remote, inode in table if inode in own}
    return [inode for local, remote, inode in table if (local, remote) in remote_ends]


@contextlib.contextmanager
def server(*positional, **named):
    s = Server(*positional, **named)
    try:
        yield s
    finally:
        s.close()


@contextlib.contextmanager
def bound_socket(listening):
    """A TCP port of 127.0.0.1 that accepts (into its queue, unanswered) or refuses; yields socket and URL."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        if listening:
            s.listen(16)
        yield s, "tcp://127.0.0.1:%d" % s.getsockname()[1]


@contextlib.contextmanager
def workspace():
    """A folder, WORK, and the processes started meanwhile: both go at the end."""
    global WORK
    WORK = tempfile.mkdtemp(prefix="flyt-test-")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        yield
    finally:
        for process in _processes:
            if process.poll() is None:
                kill_group(process)
                process.wait()
        shutil.rmtree(WORK, ignore_errors=True)


def run_scenarios():
    """How many failed."""
    wanted = sys.argv[1:]
    failed = 0
    for function in _scenarios:
        if wanted and function.__name__ not in wanted:
            continue
        begin = time.monotonic()
        del _servers[:]
        try:
            function()
            print("ok %s (%.1f s)" % (function.__name__, time.monotonic() - begin), flush=True)
        except (Failed, OSError, ValueError, IndexError, subprocess.SubprocessError) as error:
            failed += 1
            why = str(error) if isinstance(error, Failed) else traceback.format_exc()
            print("FAIL %s: %s" % (function.__name__, why.replace("\n", "\n    ")), flush=True)
            for s in _servers:
                print("    the server's log:\n        " + "\n        ".join(s.log().splitlines()[-40:]))
    return failed


def main():
    with workspace():
        failed = run_scenarios()
    sys.exit(1 if failed else 0)
