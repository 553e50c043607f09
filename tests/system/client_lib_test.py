#!/usr/bin/env python3
"""flyt-client-lib: installing and restoring the libraries, repeated, and killed at every one of its steps."""
import filecmp
import hashlib
import os
import shutil
import stat
import subprocess

import harness
from harness import (environment, expect, expect_equal, helper, lines, main, run, scenario, server, within)

SCRIPT = os.path.join(harness.ROOT, "scripts", "flyt-client-lib")
# Commands of the script's steps; each is shadowed by one that counts, and kills the script at its turn.
STEPS = ("cp", "mv", "rm", "chmod", "basename", "grep")


def folder_as_toolkit(path):
    """The toolkit's way: libcudart.so.13 is a link to the library's full name."""
    os.makedirs(path)
    name = "libcudart.so.13.0.48"
    shutil.copy2(os.path.join(harness.CUDA, "lib64", "libcudart.so.13"), os.path.join(path, name))
    os.symlink(name, os.path.join(path, "libcudart.so.13"))
    os.symlink("libcudart.so.13", os.path.join(path, "libcudart.so"))
    add_strangers(path)


def folder_as_wheel(path):
    """A Python wheel's way: a plain file, read-only."""
    os.makedirs(path)
    shutil.copy2(os.path.join(harness.CUDA, "lib64", "libcudart.so.13"), os.path.join(path, "libcudart.so.13"))
    os.chmod(os.path.join(path, "libcudart.so.13"), 0o444)
    add_strangers(path)


def folder_with_driver(path):
    """One that has a libcuda.so.1 too."""
    folder_as_wheel(path)
    shutil.copy2(os.path.join(harness.CUDA, "lib64", "stubs", "libcuda.so"), os.path.join(path, "libcuda.so.1"))


def add_strangers(path):
    for name in ("libcublas.so.13", "__init__.py", ".hidden"):
        with open(os.path.join(path, name), "w") as f:
            f.write("not Flyt's: " + name)


FOLDERS = (folder_as_toolkit, folder_as_wheel, folder_with_driver)


def snapshot(path):
    """What a folder holds: names, modes, link targets, contents."""
    found = {}
    for name in sorted(os.listdir(path)):
        full = os.path.join(path, name)
        if os.path.islink(full):
            found[name] = "link to " + os.readlink(full)
        else:
            with open(full, "rb") as f:
                found[name] = "%o %s" % (stat.S_IMODE(os.stat(full).st_mode), hashlib.sha256(f.read()).hexdigest())
    return found


def expect_same(path, before, *what):
    after = snapshot(path)
    different = {n: (before.get(n), after.get(n)) for n in before.keys() | after.keys() if before.get(n) != after.get(n)}
    expect(not different, *what, "the folder differs:", different)


def client_lib(verb, folder, env=None):
    return run(["sh", SCRIPT, verb, folder], env)


def succeeds(verb, folder, **changes):
    result = client_lib(verb, folder, environment(**changes))
    expect_equal((result.status, result.err), (0, ""), verb, result)
    return result


def fresh(make, name):
    path = os.path.join(harness.WORK, name, "lib")
    make(path)
    return path


def is_whole(path):
    """Whether the folder's runtime is NVIDIA's or Flyt's, complete in either case."""
    runtime = os.path.join(path, "libcudart.so.13")
    return any(filecmp.cmp(runtime, other, shallow=False) for other in (
        os.path.join(harness.CUDA, "lib64", "libcudart.so.13"), os.path.join(harness.BUILD, "lib", "libcudart.so.13")))


@scenario
def install_and_restore_twice():
    for make in FOLDERS:
        path = fresh(make, "twice-" + make.__name__)
        before = snapshot(path)
        succeeds("install", path)
        installed = snapshot(path)
        expect(installed["libcudart.so.13"] != before["libcudart.so.13"], "nothing was installed")
        expect("Flyt's" in client_lib("status", path).out.splitlines()[0], "status")
        succeeds("install", path)
        expect_same(path, installed, make.__name__, "after a second install")
        succeeds("restore", path)
        expect_same(path, before, make.__name__, "after restore")
        succeeds("restore", path)
        expect_same(path, before, make.__name__, "after a second restore")
        expect("NVIDIA's" in client_lib("status", path).out.splitlines()[0], "status")


@scenario
def a_program_with_a_runpath_is_served():
    path = fresh(folder_as_wheel, "served")
    program = shutil.copy(helper("echo"), os.path.join(harness.WORK, "with_runpath"))
    subprocess.run(["patchelf", "--set-rpath", path, program], check=True)
    with server() as s:
        env = environment(FLYT_SERVER=s.url)
        expect_equal(run([program], env).status, 1, "NVIDIA's runtime without a GPU")
        succeeds("install", path)
        result = run([program], env)
        expect_equal((result.status, result.err), (0, ""), "through Flyt", result)
        succeeds("restore", path)
        expect_equal(run([program], env).status, 1, "NVIDIA's runtime again")
        within(30, lambda: "session 1: ended" in s.log(), "one session at the server")
        expect("session 2" not in s.log(), s.log())


def shadow_steps(folder):
    """Commands that do as their namesakes, count, and kill the script before or after the step KILL_AT."""
    os.makedirs(folder)
    for name in STEPS:
        path = os.path.join(folder, name)
        with open(path, "w") as f:
            f.write('#!/bin/sh\n'
                    'count=$(($(cat "$COUNT") + 1))\n'
                    'echo $count >"$COUNT"\n'
                    '[ "$KILL_AT" = "before $count" ] && kill -9 $PPID && exit 1\n'
                    '%s "$@" || exit\n'
                    '[ "$KILL_AT" = "after $count" ] && kill -9 $PPID\n'
                    'exit 0\n' % shutil.which(name))
        os.chmod(path, 0o755)


def run_until(verb, path, shadow, kill_at, **changes):
    """Runs the script so that it is killed there. Returns how many steps it made, and whether it came to its end."""
    count = os.path.join(harness.WORK, "count")
    with open(count, "w") as f:
        f.write("0\n")
    env = environment(PATH=shadow + ":" + os.environ["PATH"], COUNT=count, KILL_AT=kill_at, **changes)
    result = client_lib(verb, path, env)
    expect(result.status in (0, -9), verb, kill_at, result)
    with open(count) as f:
        return int(f.read()), result.status == 0


def few_libraries():
    """The script treats each library alike: the first that it comes to, the last, and what both need are enough."""
    folder = os.path.join(harness.WORK, "few")
    os.makedirs(folder)
    for name in ("libflyt-client.so.1", "libcudart.so.13", "libcuda.so.1", "libcudnn.so.9"):
        os.symlink(os.path.join(harness.BUILD, "lib", name), os.path.join(folder, name))
    return folder


@scenario
def killed_at_every_step():
    few = {"FLYT_LIB_DIR": few_libraries()}
    shadow = os.path.join(harness.WORK, "shadow")
    shadow_steps(shadow)
    for make in FOLDERS:
        original = fresh(make, "original-" + make.__name__)
        before = snapshot(original)
        for killed in ("install", "restore"):
            for repeated in ("install", "restore"):
                for when in ("before", "after"):
                    step, is_through = 0, False
                    while not is_through:
                        step += 1
                        path = os.path.join(harness.WORK, "killed")
                        shutil.copytree(original, path, symlinks=True)
                        if killed == "restore":
                            succeeds("install", path, **few)
                        _, is_through = run_until(killed, path, shadow, "%s %d" % (when, step), **few)
                        where = "%s %s killed %s step %d, then %s:" % (make.__name__, killed, when, step, repeated)
                        expect(is_whole(path), where, "the runtime is damaged")
                        succeeds(repeated, path, **few)
                        expect(is_whole(path), where, "the runtime is damaged afterwards")
                        succeeds("restore", path, **few)
                        expect_same(path, before, where)
                        shutil.rmtree(path)
                    expect(step > 3, "the steps were not counted")


@scenario
def refusals():
    path = os.path.join(harness.WORK, "empty")
    os.makedirs(path)
    for arguments, word in ((["install", path], "no libcudart.so.13"), (["install", path + "/absent"], "not a folder")):
        result = run(["sh", SCRIPT, *arguments])
        expect(result.status == 2 and len(lines(result.err)) == 1 and word in result.err, result)
    expect_equal(os.listdir(path), [], "files in a folder that was refused")
    result = run(["sh", SCRIPT, "nonsense"])
    expect(result.status == 2 and "usage" in result.err, result)
    expect("usage" in run(["sh", SCRIPT, "--help"]).out, "--help")
    succeeds("restore", path)
    expect_equal(os.listdir(path), [], "files after restoring nothing")


@scenario
def original_that_is_gone():
    """Without the kept original nothing is taken away: it says so."""
    path = fresh(folder_as_wheel, "gone")
    succeeds("install", path)
    os.remove(os.path.join(path, "libcudart.so.13.flyt-original"))
    result = client_lib("restore", path)
    expect(result.status == 2 and "original is gone" in result.err, result)
    expect(is_whole(path), "the runtime was taken away")


@scenario
def upgraded_by_nvidias_package():
    """A package manager put a new file over ours: that one is the original from then on."""
    for verbs in (("install", "restore"), ("restore",)):
        path = fresh(folder_as_wheel, "upgraded-%d" % len(verbs))
        before = snapshot(path)
        succeeds("install", path)
        runtime = os.path.join(path, "libcudart.so.13")
        os.remove(runtime)
        with open(runtime, "wb") as f:
            f.write(b"a newer library of NVIDIA's")
        before["libcudart.so.13"] = snapshot(path)["libcudart.so.13"]
        for verb in verbs:
            succeeds(verb, path)
        expect_same(path, before, verbs)


@scenario
def libraries_of_the_folders_own():
    """A bundle carries libraries that a system's folder has too: those stay, and stay after restore."""
    bundle = os.path.join(harness.WORK, "bundled")
    shutil.copytree(os.path.join(harness.BUILD, "lib"), bundle, symlinks=True)
    for name in ("libtirpc.so.3", "libonlyhere.so.1"):
        with open(os.path.join(bundle, name), "w") as f:
            f.write("the bundle's")
    path = fresh(folder_as_wheel, "system")
    with open(os.path.join(path, "libtirpc.so.3"), "w") as f:
        f.write("the system's")
    before = snapshot(path)
    for verb in ("install", "install", "restore"):
        result = client_lib(verb, path, environment(FLYT_LIB_DIR=bundle))
        expect_equal(result.status, 0, verb, result)
        expect_equal(snapshot(path)["libtirpc.so.3"], before["libtirpc.so.3"], "the system's library after", verb)
        expect_equal(os.path.exists(os.path.join(path, "libonlyhere.so.1")), verb == "install", "the bundle's library")
    expect_same(path, before, "after restore")


@scenario
def through_make():
    """make install-client-lib DEST=… and restore-client-lib, as the manual says."""
    path = fresh(folder_as_toolkit, "make")
    before = snapshot(path)
    build = "B=" + os.path.relpath(harness.BUILD, harness.ROOT)
    for target in ("install-client-lib", "restore-client-lib"):
        result = run(["make", "--no-print-directory", build, target, "DEST=" + path], cwd=harness.ROOT, timeout=120)
        expect_equal(result.status, 0, target, result)
        if target == "install-client-lib":
            expect(snapshot(path) != before, "nothing was installed")
    expect_same(path, before, "after make restore-client-lib")


main()
