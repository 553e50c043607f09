#!/usr/bin/env python3
"""What `flyt-client-lib cdi` prints is a specification of the Container Device Interface, and what it says, done to
namespaces with a root of their own, makes a CUDA program run there. No container engine is needed, nor tried; root is."""
import json
import os
import re
import shutil
import subprocess
import tempfile

import harness
from cluster import System
from harness import environment, expect, expect_equal, helper, main, run, scenario, server, within
from steady import add_vm

SCRIPT = os.path.join(harness.ROOT, "scripts", "flyt-client-lib")
LIBRARIES = os.path.join(harness.BUILD, "lib")
# What the image of the container has: this machine's system, but for what lies in the test's own folders.
IMAGE = [folder for folder in ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc") if os.path.exists(folder)]
ISOLATED = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--ipc", "--uts"]
CAN_MOUNT = os.geteuid() == 0 and not subprocess.run([*ISOLATED, "true"], capture_output=True, check=False).returncode

# Of the interface's documentation (SPEC.md, 0.6.0): what may be in each object, and what must be.
OBJECTS = {
    "specification": ({"cdiVersion", "kind", "annotations", "devices", "containerEdits"}, {"cdiVersion", "kind", "devices"}),
    "device": ({"name", "annotations", "containerEdits"}, {"name", "containerEdits"}),
    "edits": ({"env", "deviceNodes", "hooks", "mounts"}, set()),
    "mount": ({"hostPath", "containerPath", "type", "options"}, {"hostPath", "containerPath"}),
}

# $1: the new root; a line of words for each mount: host's path, container's path, options. Then the command.
CONTAINER = """
root=$1 mounts=$2 program=$3
shift 3
mount -t tmpfs container "$root"
mkdir "$root/proc" "$root/dev" "$root/tmp"
for folder in %s; do
    if [ -L "$folder" ]; then cp -d "$folder" "$root$folder"; else mkdir "$root$folder" && mount --bind "$folder" "$root$folder"; fi
done
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
cp "$program" "$root/program"
while read -r from to options; do
    mkdir -p "$root$to"
    mount --bind "$from" "$root$to"
    mount -o "remount,$options" "$root$to"
done <"$mounts"
exec chroot "$root" /usr/bin/env -i "$@" /bin/sh -c '%s'
"""


def has_members(kind, value):
    may, must = OBJECTS[kind]
    expect(isinstance(value, dict) and must <= set(value) <= may, kind, "has the members", value)


def is_specification(said, prefix):
    """What the interface's own library looks at, and whether that is there which is mounted."""
    spec = json.loads(said)
    has_members("specification", spec)
    expect_equal(spec["cdiVersion"], "0.6.0", "version")
    expect(re.fullmatch(r"[A-Za-z][A-Za-z0-9_.-]*[A-Za-z0-9]/[A-Za-z][A-Za-z0-9_-]*[A-Za-z0-9]", spec["kind"]), "kind", spec["kind"])
    expect(spec["devices"], "no device")
    for device in spec["devices"]:
        has_members("device", device)
        expect(re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?", device["name"]), "name", device["name"])
        has_members("edits", device["containerEdits"])
        for variable in device["containerEdits"]["env"]:
            expect(re.fullmatch(r"[A-Za-z_]\w*=.+", variable), "a variable", variable)
        for mount in device["containerEdits"]["mounts"]:
            has_members("mount", mount)
            expect(mount["containerPath"].startswith("/"), "a mount", mount)
            expect_equal(run([*prefix, "test", "-d", mount["hostPath"]]).status, 0, "a folder", mount)
            expect({"bind", "nosuid", "nodev"} <= set(mount["options"]), "options", mount)
    return spec


def printed(*words, prefix=(), env=None):
    """The edits of the one device."""
    result = run([*prefix, "sh", SCRIPT, "cdi", *words], env or environment())
    expect_equal(result.status, 0, "flyt-client-lib cdi", *words, result)
    spec = is_specification(result.out, prefix)
    expect_equal((spec["kind"], [d["name"] for d in spec["devices"]]), ("flyt.dev/gpu", ["all"]), "its devices")
    return spec["devices"][0]["containerEdits"]


def in_container(edits, script, prefix=()):
    """Runs a shell's script where the edits are, and this machine's system; /program is programs/echo.cu."""
    with tempfile.TemporaryDirectory(dir=harness.WORK) as folder:
        root, mounts = os.path.join(folder, "root"), os.path.join(folder, "mounts")
        os.mkdir(root)
        with open(mounts, "w", encoding="utf-8") as file:
            for mount in edits["mounts"]:
                print(mount["hostPath"], mount["containerPath"], ",".join(mount["options"]), file=file)
        return run([*prefix, *ISOLATED, "sh", "-e", "-c", CONTAINER % (" ".join(IMAGE), script), "sh", root, mounts, helper("echo"),
                    *edits["env"], "PATH=/usr/bin:/bin"])


def runs(edits, prefix=()):
    result = in_container(edits, "exec /program", prefix)
    expect_equal((result.status, result.err), (0, ""), "a CUDA program in the container", result)


def skips_mounts():
    if not CAN_MOUNT:
        print("skip: no mount namespace can be made (root)")
    return not CAN_MOUNT


@scenario
def what_flyt_run_sets():
    edits = printed("--server", "tcp://gpu-node:7600")
    said = run([harness.FLYT_RUN, "--server", "tcp://gpu-node:7600", "--", "env"], environment()).out.splitlines()
    expect_equal(sorted(edits["env"]), sorted(v for v in said if re.match("(LD_LIBRARY_PATH|LD_PRELOAD|FLYT_SERVER)=", v)), "variables")
    expect_equal([(m["hostPath"], m["containerPath"], "ro" in m["options"]) for m in edits["mounts"]], [(LIBRARIES, LIBRARIES, True)],
                 "mounts")


@scenario
def a_program_of_a_container():
    for kind in ("unix", "tcp"):
        with server(kind) as s:
            edits = printed("--server", s.url)
            if skips_mounts():
                return
            runs(edits)
            result = in_container({**edits, "mounts": []}, "exec /program")
            expect(result.status != 0, "without the mounts there is no Flyt:", result)


@scenario
def libraries_cannot_be_changed():
    if skips_mounts():
        return
    with server("unix") as s:
        result = in_container(printed("--server", s.url), "touch %s/new 2>/dev/null || echo refused" % LIBRARIES)
        expect_equal((result.status, result.out), (0, "refused\n"), result)
        expect(not os.path.exists(os.path.join(LIBRARIES, "new")), "a file is there")


@scenario
def a_container_in_a_vm():
    """By the client manager's socket, also after another client manager has made it anew."""
    if skips_mounts():
        return
    with System(memory="256M") as system:
        add_vm(system, 0, memory="64M")
        edits = printed(prefix=system.in_vm(0), env=system.vm_environment(0))
        folder = "/run/flyt" if system.network else os.path.dirname(system.client_socket(0))
        expect(folder in [mount["hostPath"] for mount in edits["mounts"]], "the socket's folder", edits)
        expect(not any(v.startswith("FLYT_SERVER=") for v in edits["env"]), "no server is named", edits)
        runs(edits, system.in_vm(0))
        system.kill("vm-0")
        within(60, lambda: in_container(edits, "exec /program", system.in_vm(0)).status == 0, "a program after that")


@scenario
def what_cannot_be_printed():
    nowhere = os.path.join(harness.WORK, "nowhere.sock")
    result = run(["sh", SCRIPT, "cdi"], environment(FLYT_CLIENT_SOCKET=nowhere))
    expect(result.status == 2 and nowhere in result.err and not result.out, "no client manager", result)
    for words in (["--server"], ["--bogus"], ["folder"]):
        result = run(["sh", SCRIPT, "cdi", *words], environment())
        expect(result.status == 2 and result.err.startswith("usage: ") and not result.out, words, result)
    result = run(["sh", SCRIPT, "cdi", "--server", 'unix:///a"b'], environment())
    expect(result.status == 2 and "quotation mark" in result.err and not result.out, result)


@scenario
def what_an_image_must_have():
    """Said where libraries lie beside Flyt's; nothing where all are there, as in a bundle."""
    result = run(["sh", SCRIPT, "cdi", "--server", "tcp://a:1"], environment())
    expect(len(harness.lines(result.err)) == 1 and "libzstd.so.1" in result.err, result)
    own = os.path.join(harness.WORK, "own")
    shutil.copytree(LIBRARIES, own, ignore=lambda _, names: [n for n in names if "softgpu" in n])
    listed = run(["ldd", os.path.join(LIBRARIES, "libflyt-client.so.1")]).out
    for name, path in re.findall(r"(\S+) => (/\S+)", listed):
        if not re.match(r"lib(c|m|dl|pthread|resolv)\.so", name):
            shutil.copy(path, os.path.join(own, name))
    for name in os.listdir(own):
        if ".so" in name and not os.path.islink(os.path.join(own, name)):
            subprocess.run(["patchelf", "--set-rpath", "$ORIGIN", os.path.join(own, name)], check=True)
    result = run(["sh", SCRIPT, "cdi", "--server", "tcp://a:1"], environment(FLYT_LIB_DIR=own))
    expect_equal((result.status, result.err), (0, ""), result)


if __name__ == "__main__":
    main()
