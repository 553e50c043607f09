#!/usr/bin/env python3
"""flyt-run: options, what passes through it, programs with an RPATH, and that nothing is left behind."""
import contextlib
import os
import pty
import shutil
import signal
import socket
import subprocess
import sys
import time

import harness
from harness import (FLYT_RUN, bound_socket, environment, expect, expect_equal, finish, helper, is_alive, lines,
                     main, run, scenario, server, start, through_flyt, within)

SOFT = [FLYT_RUN, "--soft", "1", "--"]


def processes_that_mention(*words):
    """Processes whose command line has all the words."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open("/proc/%s/cmdline" % name, "rb") as f:
                    command = f.read().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if is_alive(int(name)) and all(word in command for word in words):
                found.append(int(name))
    return found


def temporary_folders():
    return [n for n in os.listdir(harness.WORK) if n.startswith("flyt-run.")]


def nothing_left():
    """The private servers and their folders go within seconds."""
    within(30, lambda: not processes_that_mention(harness.WORK), "the end of private servers: %s"
           % processes_that_mention(harness.WORK))
    within(30, lambda: not temporary_folders(), "the removal of %s" % temporary_folders())


@scenario
def help_and_bad_options():
    result = run([FLYT_RUN, "--help"])
    expect(result.status == 0 and result.out.startswith("usage: flyt-run") and not result.err, result)
    expect("--soft N" in result.out and "--server URL" in result.out, result)
    expect(run([FLYT_RUN, "--version"]).out.strip(), "no version")
    for arguments, word in ((["--nonsense", "true"], "--nonsense"), (["--server"], "--server"), (["--soft"], "--soft"),
                            (["--soft", "0", "true"], "--soft"), (["--soft", "x", "true"], "--soft"),
                            (["--soft", "16", "true"], "--soft"), (["--soft", "", "true"], "--soft"),
                            (["--managed-memory"], "--managed-memory"), (["--managed-memory", "gpu", "true"], "'gpu'"),
                            (["--soft", "1", "--server", "tcp://localhost:1", "true"], "exclude")):
        result = run([FLYT_RUN, *arguments])
        expect_equal(result.status, 2, arguments, "exit status", result)
        expect(len(lines(result.err)) == 1 and word in result.err and not result.out, arguments, result)
    result = run([FLYT_RUN])
    expect(result.status == 2 and "usage" in result.err, result)


@scenario
def no_server_named():
    result = run([FLYT_RUN, helper("echo")], environment(FLYT_CLIENT_SOCKET="/nowhere"))
    expect_equal(result.status, 2, "exit status", result)
    expect_equal(len(lines(result.err)), 1, "lines on stderr", result)
    expect("FLYT_SERVER" in result.err and "--soft" in result.err, result)


@scenario
def client_manager_of_the_vm():
    """Without an address: whoever listens where the client manager does is asked; what is no socket is nobody."""
    path = os.path.join(harness.WORK, "client.sock")
    nobody = environment(FLYT_CLIENT_SOCKET=path)
    for make in (lambda: None, lambda: open(path, "w").close()):
        make()
        result = run([FLYT_RUN, helper("echo")], nobody)
        expect_equal(result.status, 2, "exit status without a client manager", result)
        expect(len(lines(result.err)) == 1 and path in result.err, result)
    os.unlink(path)
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(path)
        s.listen(4)
        shown = dict(line.split("=", 1) for line in lines(run([FLYT_RUN, "env"], environment(FLYT_CLIENT_SOCKET=path,
                                                                                          FLYT_SERVER="")).out))
        expect("FLYT_SERVER" not in shown and "libcudart" in shown["LD_PRELOAD"], shown)
        program = start([FLYT_RUN, helper("echo")], environment(FLYT_CLIENT_SOCKET=path), stderr=subprocess.DEVNULL)
        s.settimeout(0.2)
        asked = 0
        while program.poll() is None:
            with contextlib.suppress(TimeoutError):
                s.accept()[0].close()   # again and again for some seconds: a client manager may be on its way back
                asked += 1
        expect(asked and finish(program).status != 0, "a program without a GPU says so")
        s.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                s.accept()[0].close()
        with server() as direct:
            named = run([FLYT_RUN, helper("echo")], environment(FLYT_CLIENT_SOCKET=path, FLYT_SERVER=direct.url))
            expect_equal(named.status, 0, "FLYT_SERVER before the client manager", named)
        try:
            s.accept()
            expect(False, "a program with FLYT_SERVER asked the client manager")
        except BlockingIOError:
            pass
    os.unlink(path)


@scenario
def libraries_missing():
    script = os.path.join(harness.WORK, "alone", "flyt-run")
    os.makedirs(os.path.dirname(script))
    shutil.copy(FLYT_RUN, script)
    result = run([script, "--soft", "1", "true"], environment(FLYT_LIB_DIR=None))
    expect(result.status == 2 and len(lines(result.err)) == 1 and "libflyt-client.so.1" in result.err, result)


@scenario
def precedence_of_addresses():
    """--server before FLYT_SERVER; FLYT_SERVER alone serves too."""
    with server() as s, bound_socket(listening=False) as (_, nobody):
        named = run(through_flyt(s.url, helper("echo")), environment(FLYT_SERVER=nobody))
        expect_equal(named.status, 0, "--server with another FLYT_SERVER", named)
        from_environment = run([FLYT_RUN, helper("echo")], environment(FLYT_SERVER=s.url))
        expect_equal(from_environment.status, 0, "FLYT_SERVER", from_environment)
        equals = run([FLYT_RUN, "--server=" + s.url, helper("echo")])
        expect_equal(equals.status, 0, "--server=URL", equals)
        private = run([*SOFT, helper("echo")], environment(FLYT_SERVER=nobody))
        expect_equal(private.status, 0, "--soft with FLYT_SERVER", private)


@scenario
def what_passes_through():
    """Arguments, standard input, output and error, exit status and signals, with a named and with a private server."""
    arguments = ["exit=5", "a b", "", "*", "q'\"x", "--server", "-x", "$HOME", "two\nlines"]
    with server() as s:
        for prefix in (through_flyt(s.url, helper("echo")), [*SOFT, helper("echo")]):
            result = run([*prefix, *arguments], stdin=b"line 1\nno newline")
            expect_equal(result.status, 5, "exit status", result)
            expect_equal(result.out, "".join("[%s]\n" % a for a in arguments) + "line 1\nno newline", "output")
            expect_equal(result.err, "", "standard error")
            for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV):
                expect_equal(run([*prefix, "signal=%d" % number]).status, -number, "end by a signal")
            for number in (signal.SIGUSR1, signal.SIGTERM):
                program = start([*prefix, "wait"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                expect_equal([program.stdout.readline(), program.stdout.readline()], [b"[wait]\n", b"waiting\n"], "start")
                program.send_signal(number)
                result = finish(program)
                expect_equal((result.status, result.out), (10 + number, "got %02d\n" % number), "signal", number)
            program = start([*prefix, "wait"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            program.stdout.readline(), program.stdout.readline()
            os.killpg(program.pid, signal.SIGINT)      # as Ctrl-C does
            expect_equal(finish(program).status, -signal.SIGINT, "Ctrl-C")
    nothing_left()


@scenario
def statuses_of_what_cannot_run():
    with server() as s:
        for prefix in ([FLYT_RUN, "--server", s.url, "--"], SOFT):
            expect_equal(run([*prefix, "/nonexistent/program"]).status, 127, "no such program")
            expect_equal(run([*prefix, "/etc/passwd"]).status, 126, "not executable")
    nothing_left()


@scenario
def environment_is_kept():
    """Only what serves the libraries changes, and a program's own preloads and folders stay."""
    own = environment(LD_LIBRARY_PATH="/own/folder", OTHER="x y", PWD=os.getcwd())    # which a shell puts right
    with server() as s:
        before = dict(line.split("=", 1) for line in lines(run(["env"], own).out))
        after = dict(line.split("=", 1) for line in lines(run(through_flyt(s.url, "env"), own).out))
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    expect(changed <= {"FLYT_SERVER", "LD_PRELOAD", "LD_LIBRARY_PATH", "_"}, "changed:", changed)
    expect(after["LD_LIBRARY_PATH"].endswith(":/own/folder"), after["LD_LIBRARY_PATH"])


@scenario
def waits_for_children():
    """A program under a private server has no child that it did not start."""
    script = "import os\ntry:\n    os.wait()\nexcept ChildProcessError:\n    print('no child')"
    result = run([*SOFT, sys.executable, "-c", script])
    expect_equal((result.status, result.out), (0, "no child\n"), "waiting for children", result)
    nothing_left()


def program_with_rpath(name, folder):
    """A copy of a program of the tests with a DT_RPATH, which LD_LIBRARY_PATH does not override."""
    program = shutil.copy(helper(name), os.path.join(harness.WORK, name + "_with_rpath"))
    subprocess.run(["patchelf", "--force-rpath", "--set-rpath", folder, program], check=True)
    return program


@scenario
def rpath_to_nvidias_library():
    """A wheel's program: DT_RPATH (which LD_LIBRARY_PATH does not override) leads to NVIDIA's runtime."""
    folder = os.path.join(harness.WORK, "wheel")
    os.makedirs(folder)
    shutil.copy(os.path.join(harness.CUDA, "lib64", "libcudart.so.13"), folder)
    program = program_with_rpath("echo", folder)
    alone = run([program])
    expect_equal(alone.status, 1, "without Flyt and GPU, NVIDIA's runtime refuses", alone)
    with server() as s:
        result = run([FLYT_RUN, "--server", s.url, "--", program])
        expect_equal((result.status, result.err), (0, ""), "through Flyt", result)
        expect("session 1" in s.log(), "no session at the server:", s.log())


@scenario
def which_libraries_a_program_gets():
    """Flyt's before any RPATH; one that Flyt does not replace is NVIDIA's, or is not found. Nothing is run."""
    ours = os.path.join(harness.BUILD, "lib")
    folder = os.path.join(harness.WORK, "which")
    os.makedirs(folder)
    others = {name: os.path.join(folder, name) for name in ("libnvthere.so.1", "libcuabsent.so.1")}
    for path in others.values():
        shutil.copy(helper("wheel/libnccl.so.2"), path)
        subprocess.run(["patchelf", "--set-soname", os.path.basename(path), path], check=True)
    shutil.copy(os.path.join(harness.CUDA, "lib64", "libcudart.so.13"), folder)
    program = program_with_rpath("wheels", folder)
    subprocess.run(["patchelf", *(word for name in others for word in ("--add-needed", name)), program], check=True)
    os.remove(others["libcuabsent.so.1"])
    result = run([FLYT_RUN, "--which", program])
    expect_equal((result.status, result.err), (0, ""), result)
    wanted = {name: "%s %s Flyt's" % (name, os.path.join(ours, name)) for name in (
        "libcudart.so.13", "libcublas.so.13", "libcudnn.so.9", "libcudnn_ops.so.9", "libnccl.so.2", "libcusparseLt.so.0")}
    wanted["libnvthere.so.1"] = ("libnvthere.so.1 %s NVIDIA's: what it asks of a GPU is not forwarded"
                                 % others["libnvthere.so.1"])
    wanted["libcuabsent.so.1"] = "libcuabsent.so.1 is not found"
    expect_equal(sorted(lines(result.out)), sorted(wanted.values()), "--which")
    expect_equal(temporary_folders(), [], "a private server was started")
    result = run([FLYT_RUN, "--which", "/nonexistent/program"])
    expect(result.status == 2 and "no such file" in result.err and not result.out, result)


OPENS = """import ctypes, sys
ctypes.CDLL(sys.argv[1])
library = ctypes.CDLL("libcublas.so.13")
handle = ctypes.c_void_p()
print("status", library.cublasCreate_v2(ctypes.byref(handle)), "handle", bool(handle.value))
print(sorted({line.split()[-1] for line in open("/proc/self/maps") if "libcublas.so" in line}))
"""


@scenario
def rpath_of_a_library_that_is_opened():
    """As a wheel's module does: a library whose DT_RPATH leads to NVIDIA's cuBLAS is opened, and cuBLAS by its name."""
    folder = os.path.join(harness.WORK, "opened")
    os.makedirs(folder)
    shutil.copy(os.path.join(harness.CUDA, "lib64", "libcublas.so.13"), folder)
    module = shutil.copy(helper("wheel/libnccl.so.2"), os.path.join(folder, "module.so"))
    for words in (["--set-soname", "module.so"], ["--add-needed", "libcublas.so.13"],
                  ["--force-rpath", "--set-rpath", folder + ":" + os.path.join(harness.CUDA, "lib64")]):
        subprocess.run(["patchelf", *words, module], check=True)
    natively = run([sys.executable, "-c", OPENS, module])
    expect(os.path.join(folder, "libcublas.so.13") in natively.out and "status 0" not in natively.out, "NVIDIA's without a GPU",
           natively)
    with server() as s:
        result = run(through_flyt(s.url, sys.executable, "-c", OPENS, module))
        expect_equal((result.status, result.err), (0, ""), result)
        ours = os.path.realpath(os.path.join(harness.BUILD, "lib", "libcublas.so.13"))
        expect_equal(lines(result.out), ["status 0 handle True", repr([ours])], result)


@scenario
def kills_leave_nothing():
    """SIGKILL of flyt-run (which has become the program): the private server and its folder go all the same."""
    for delay_ms in (*range(0, 40, 2), 60, 120, 250):
        program = start([*SOFT, helper("echo"), "wait"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(delay_ms / 1000)
        program.kill()
        program.wait()
        nothing_left()
    program = start([*SOFT, helper("until_lost"), "synchronize"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    program.stdout.readline()
    expect(processes_that_mention("flyt-server", harness.WORK), "no private server is running")
    program.kill()
    finish(program)
    nothing_left()


@scenario
def terminal_stays_the_programs():
    """Standard input is the terminal in the foreground, with a private server too."""
    near, far = pty.openpty()
    try:
        program = start([*SOFT, "sh", "-c", "test -t 0 && test -t 1 && read word && echo got $word"], stdin=far, stdout=far,
                        stderr=far)
        os.write(near, b"hello\n")
        expect_equal(program.wait(60), 0, "exit status")
        said = b""
        while b"got hello" not in said:
            said += os.read(near, 1000)
    finally:
        os.close(near)
        os.close(far)
    nothing_left()


@scenario
def private_server_that_cannot_start():
    folder = os.path.join(harness.WORK, "broken")
    os.makedirs(os.path.join(folder, "bin"))
    shutil.copy(FLYT_RUN, os.path.join(folder, "bin"))
    os.symlink(os.path.join(harness.BUILD, "lib"), os.path.join(folder, "lib"))
    broken = os.path.join(folder, "bin", "flyt-server")
    with open(broken, "w") as f:
        f.write("#!/bin/sh\necho 'broken on purpose' >&2\nexit 3\n")
    os.chmod(broken, 0o755)
    result = run([os.path.join(folder, "bin", "flyt-run"), "--soft", "1", "true"], environment(FLYT_LIB_DIR=None))
    expect(result.status == 2 and "broken on purpose" in result.err and "did not start" in result.err, result)
    nothing_left()


main()
