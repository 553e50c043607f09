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
    """One that has a libcuda.so.1 too, and a cuDNN."""
    folder_as_wheel(path)
    shutil.copy2(helper("wheel/libcudnn.so.9"), path)
    shutil.copy2(os.path.join(harness.CUDA, "lib64", "stubs", "libcuda.so"), os.path.join(path, "libcuda.so.1"))


def add_strangers(path):
    for name in ("libcublas.so.13", "__init__.py", ".hidden"):
        with open(os.path.join(path, name), "w") as f:
            f.write("not Flyt's: " + name)


# Folders of wheels and NVIDIA's libraries in them, in the order in which PyTorch's RPATH names these folders.
WHEELS = {
    "cudnn": ("libcudnn.so.9", "libcudnn_ops.so.9"),
    "nvshmem": (),
    "nccl": ("libnccl.so.2",),
    "cusparselt": ("libcusparseLt.so.0",),
    "cu13": ("libcudart.so.13", "libcublas.so.13"),
}


def folder_as_wheels(path):
    """A site-packages with a folder for each wheel; one of them has none of the libraries that Flyt replaces."""
    for wheel, names in WHEELS.items():
        folder = wheel_folder(path, wheel)
        os.makedirs(folder)
        for name in names:
            made = helper("wheel/" + name)
            shutil.copy2(made if os.path.exists(made) else os.path.join(harness.CUDA, "lib64", name), folder)
            os.chmod(os.path.join(folder, name), 0o444)
    for folder in (wheel_folder(path, "nvshmem"), os.path.join(path, "other", "lib")):
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "libnvshmem_host.so.3"), "w") as f:
            f.write("not Flyt's")
    # Of a wheel that is none of NVIDIA's.
    shutil.copy2(helper("wheel/libnccl.so.2"), os.path.join(path, "other", "lib"))


def wheel_folder(path, wheel):
    return os.path.join(path, "nvidia", wheel, "lib")


def wheels_with_libraries(path):
    """Pairs of a folder and a library's name in it."""
    return [(wheel_folder(path, wheel), name) for wheel, names in WHEELS.items() for name in names]


FOLDERS = (folder_as_toolkit, folder_as_wheel, folder_with_driver, folder_as_wheels)


def snapshot(path):
    """What a folder holds, and those in it: names, modes, link targets, contents."""
    found = {}
    for folder, folders, names in os.walk(path):
        for name in [*folders, *names]:
            full = os.path.join(folder, name)
            if os.path.islink(full):
                what = "link to " + os.readlink(full)
            elif os.path.isdir(full):
                what = "folder"
            else:
                with open(full, "rb") as f:
                    what = "%o %s" % (stat.S_IMODE(os.stat(full).st_mode), hashlib.sha256(f.read()).hexdigest())
            found[os.path.relpath(full, path)] = what
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


def runtime_folder(path):
    """Where the runtime is: in a folder, or in one of wheels."""
    below = wheel_folder(path, "cu13")
    return below if os.path.exists(below) else path


def is_whole(path):
    """Whether the folder's runtime is NVIDIA's or Flyt's, complete in either case."""
    runtime = os.path.join(runtime_folder(path), "libcudart.so.13")
    return any(filecmp.cmp(runtime, other, shallow=False) for other in (
        os.path.join(harness.CUDA, "lib64", "libcudart.so.13"), os.path.join(harness.BUILD, "lib", "libcudart.so.13")))


@scenario
def install_and_restore_twice():
    for make in FOLDERS:
        path = fresh(make, "twice-" + make.__name__)
        before = snapshot(path)
        succeeds("install", path)
        installed = snapshot(path)
        runtime = os.path.relpath(os.path.join(runtime_folder(path), "libcudart.so.13"), path)
        expect(installed[runtime] != before[runtime], "nothing was installed")
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


def runs_of(program, url):
    """What the functions of a program that is linked to libraries of all wheels came to, and the files that have them."""
    result = run([program], environment(FLYT_SERVER=url))
    expect_equal((result.status, result.err), (0, ""), result)
    return [line.split(" ", 1) for line in lines(result.out)]


def expect_replaced(path):
    """Each library of the wheels is Flyt's, with what it needs, and nothing else came into the folders."""
    ours = os.path.join(harness.BUILD, "lib")
    for folder, name in wheels_with_libraries(path):
        for there in (name, "libflyt-client.so.1"):
            expect(filecmp.cmp(os.path.join(folder, there), os.path.join(ours, there), shallow=False), folder, there)
        kept = {one for one in os.listdir(folder) if one.endswith(".flyt-original")}
        names = {one for place, one in wheels_with_libraries(path) if place == folder}
        expect_equal(kept, {one + ".flyt-original" for one in names}, "originals in", folder)
        brought = {"libcuda.so.1", "libnvidia-ml.so.1"} if "libcudart.so.13" in names else set()
        expect_equal(set(os.listdir(folder)) - kept - names - {"libflyt-client.so.1", ".flyt-files"}, brought, "in", folder)


@scenario
def a_program_of_wheels_is_served():
    """PyTorch's way: DT_RPATH names one folder for each wheel, and the first that has a library counts."""
    path = fresh(folder_as_wheels, "a site of wheels")
    program = shutil.copy(helper("wheels"), os.path.join(harness.WORK, "of_wheels"))
    folders = [wheel_folder(path, wheel) for wheel in WHEELS]
    subprocess.run(["patchelf", "--force-rpath", "--set-rpath", ":".join(folders), program], check=True)
    before = snapshot(path)
    with server() as s:
        for given, restored in ((path, os.path.join(path, "nvidia")), (os.path.join(path, "nvidia"), path)):
            natively = runs_of(program, s.url)
            expect_equal([status for status, _ in natively[:4]], ["77"] * 4, "stand-ins for NVIDIA's libraries")
            expect("0" not in [status for status, _ in natively], "NVIDIA's libraries without a GPU", natively)
            succeeds("install", given)
            expect_replaced(path)
            expect_equal(runs_of(program, s.url), [["0", file] for _, file in natively], "through Flyt")
            said = lines(client_lib("status", given).out)
            expect_equal({line for line in said if "NVIDIA's" in line or "absent" in line}, set(), "status", said)
            expect(len(said) > len(wheels_with_libraries(path)), "status", said)
            succeeds("restore", restored)
            expect_same(path, before, "after restore")
        within(30, lambda: "session 2: ended" in s.log(), "two sessions at the server")
        expect("session 3" not in s.log(), s.log())


@scenario
def one_wheel_alone():
    """A folder that has no runtime: what it has is replaced, but for the driver's, and no driver comes to it."""
    path = fresh(folder_as_wheels, "one")
    before = snapshot(path)
    folder = wheel_folder(path, "nccl")
    shutil.copy2(os.path.join(harness.CUDA, "lib64", "stubs", "libcuda.so"), os.path.join(folder, "libcuda.so.1"))
    beside = snapshot(folder)
    succeeds("install", folder)
    expect_equal(set(os.listdir(folder)), {"libnccl.so.2", "libnccl.so.2.flyt-original", "libflyt-client.so.1", ".flyt-files",
                                           "libcuda.so.1"}, "in a folder without a runtime")
    expect_equal(snapshot(folder)["libcuda.so.1"], beside["libcuda.so.1"], "the driver's library")
    os.remove(os.path.join(folder, "libnccl.so.2.flyt-original"))
    result = client_lib("restore", folder)
    expect(result.status == 2 and "libnccl.so.2 is Flyt's and its original is gone" in result.err, result)
    expect(os.path.exists(os.path.join(folder, "libflyt-client.so.1")), "what NCCL needs was taken away")
    os.remove(os.path.join(folder, "libnccl.so.2"))
    shutil.copy2(helper("wheel/libnccl.so.2"), folder)
    os.chmod(os.path.join(folder, "libnccl.so.2"), 0o444)
    succeeds("restore", folder)
    expect_same(folder, beside, "after NVIDIA's package came back")
    os.remove(os.path.join(folder, "libcuda.so.1"))
    expect_same(path, before, "the other wheels")


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
    is_soak = bool(os.environ.get("FLYT_SOAK"))
    few = {"FLYT_LIB_DIR": few_libraries()}
    shadow = os.path.join(harness.WORK, "shadow")
    shadow_steps(shadow)
    for make in FOLDERS:
        original = fresh(make, "original-" + make.__name__)
        before = snapshot(original)
        for killed in ("install", "restore"):
            # What follows alternates from step to step, and begins with the other one in the other kind of folder; the soak has both.
            for turn in (0, 1) if is_soak else (FOLDERS.index(make) % 2,):
                # What is after a step is before the next one.
                for when in ("before", "after")[:2 if is_soak else 1]:
                    step, is_through = 0, False
                    while not is_through:
                        step += 1
                        repeated = ("install", "restore")[(step + turn) % 2]
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
    for arguments, word in ((["install", path], "none of the libraries"), (["install", path + "/absent"], "not a folder")):
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
def installed_by_an_earlier_version():
    """Which put all libraries beside the runtime, where there was none: they go."""
    path = fresh(folder_as_wheel, "earlier")
    before = snapshot(path)
    succeeds("install", path)
    shutil.copy(os.path.join(harness.BUILD, "lib", "libnccl.so.2"), path)
    succeeds("install", path)
    succeeds("restore", path)
    expect_same(path, before, "after restore")


@scenario
def folders_of_the_systems_loader():
    """Without a FOLDER: wherever the loader finds a library for this architecture, but not where only the driver's is."""
    folders = {name: os.path.join(harness.WORK, "system", name) for name in ("nccl", "dnn", "driver", "other", "lib64")}
    for folder, name in (("nccl", "libnccl.so.2"), ("dnn", "libcudnn.so.9"), ("other", "libcudnn.so.9")):
        os.makedirs(folders[folder])
        shutil.copy2(helper("wheel/" + name), folders[folder])
    folder_as_toolkit(folders["lib64"])
    os.makedirs(folders["driver"])
    shutil.copy2(os.path.join(harness.CUDA, "lib64", "stubs", "libcuda.so"), os.path.join(folders["driver"], "libcuda.so.1"))
    shadow = os.path.join(harness.WORK, "loader")
    os.makedirs(shadow)
    with open(os.path.join(shadow, "ldconfig"), "w") as f:
        f.write("#!/bin/sh\ncat <<'T'\n5 libs found in cache `/etc/ld.so.cache'\n"
                "\tlibnccl.so.2 (libc6,x86-64) => {nccl}/libnccl.so.2\n\tlibcudnn.so.9 (libc6,x86-64) => {dnn}/libcudnn.so.9\n"
                "\tlibcuda.so.1 (libc6,x86-64) => {driver}/libcuda.so.1\n\tlibcudnn.so.9 (libc6) => {other}/libcudnn.so.9\n"
                "\tlibc.so.6 (libc6,x86-64) => {other}/libc.so.6\nT\n".format(**folders))
    os.chmod(os.path.join(shadow, "ldconfig"), 0o755)
    env = environment(PATH=shadow + ":" + os.environ["PATH"], CUDA_PATH=os.path.dirname(folders["lib64"]))
    before = {name: snapshot(folder) for name, folder in folders.items()}
    for verb, changed in (("install", {"nccl", "dnn", "lib64"}), ("restore", set())):
        result = run(["sh", SCRIPT, verb], env)
        expect_equal((result.status, result.err), (0, ""), verb, result)
        expect_equal({name for name, folder in folders.items() if snapshot(folder) != before[name]}, changed, verb)


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
