#!/usr/bin/env python3
"""systemd understands the units, the users and the folders that an installation brings."""
import os
import re
import shutil
import tempfile

import harness
from harness import ROOT, expect, expect_equal, main, run, scenario

SOURCES = os.path.join(ROOT, "config", "systemd")
UNITS = sorted(name for name in os.listdir(SOURCES) if name.endswith((".service", ".socket")))

# systemd-analyze's exposure, from 0 (safe) to 10: what needs nothing of the machine must be confined, what runs the
# driver cannot be. More is a unit that lost something.
EXPOSURE_MAX = {"flyt-cluster-manager.service": 1.6, "flyt-client-manager.service": 1.6,
                "flyt-node-manager.service": 6.5, "flyt-mps.service": 6.3}

if not shutil.which("systemd-analyze"):
    harness.skip("systemd-analyze is missing (package systemd)")


def root():
    """A system with systemd's own units, ours, and programs where ours expect them."""
    folder = tempfile.mkdtemp(prefix="root-", dir=harness.WORK)
    shutil.copytree("/usr/lib/systemd/system", os.path.join(folder, "usr/lib/systemd/system"), symlinks=True)
    units = os.path.join(folder, "usr/local/lib/systemd/system")
    os.makedirs(units)
    os.makedirs(os.path.join(folder, "usr/bin"))
    os.makedirs(os.path.join(folder, "usr/local/bin"))
    os.makedirs(os.path.join(folder, "etc"))
    os.symlink("usr/bin", os.path.join(folder, "bin"))
    for name in UNITS:
        with open(os.path.join(SOURCES, name)) as f, open(os.path.join(units, name), "w") as to:
            to.write(f.read().replace("@PREFIX@", "/usr/local"))
    for program in ("usr/bin/sh", "usr/bin/kill", "usr/bin/nvidia-cuda-mps-control",
                    *("usr/local/bin/flyt-%s-manager" % kind for kind in ("cluster", "node", "client"))):
        path = os.path.join(folder, program)
        with open(path, "w") as f:
            f.write("#!/bin/sh\n")
        os.chmod(path, 0o755)
    return folder, units


@scenario
def units_are_right():
    folder, units = root()
    for name in UNITS:
        result = run(["systemd-analyze", "verify", "--man=no", "--root=" + folder, name])
        expect_equal((result.status, result.out + result.err), (0, ""), name, result)
    # It would tell a setting that does not exist, and a program that is not there.
    path = os.path.join(units, "flyt-cluster-manager.service")
    for spoil in ("Nonsense=1", "ExecStart=/usr/local/bin/nowhere"):
        with open(path) as f:
            spoilt = f.read().replace("[Service]\n", "[Service]\n%s\n" % spoil)
        with open(os.path.join(units, "flyt-spoilt.service"), "w") as f:
            f.write(spoilt)
        result = run(["systemd-analyze", "verify", "--man=no", "--root=" + folder, "flyt-spoilt.service"])
        expect(result.err.strip(), "systemd-analyze does not tell", spoil)


@scenario
def exposure():
    folder, _ = root()
    services = [name for name in UNITS if name.endswith(".service")]
    expect_equal(sorted(services), sorted(EXPOSURE_MAX), "services")
    for name in services:
        result = run(["systemd-analyze", "security", "--offline=true", "--no-pager", "--root=" + folder, name])
        match = re.search(r"Overall exposure level for \S+: ([0-9.]+)", result.out)
        expect(match, result)
        print("%s: exposure %s of 10" % (name, match[1]))
        expect(float(match[1]) <= EXPOSURE_MAX[name], name, "exposure", match[1])


@scenario
def users_and_folders():
    if not shutil.which("systemd-sysusers") or os.geteuid() != 0:
        print("not tried: needs systemd-sysusers and root")
        return
    folder, _ = root()
    given = [os.path.join(SOURCES, "flyt-%s.sysusers" % kind) for kind in ("cluster", "node", "client")]
    for _ in range(2):
        result = run(["systemd-sysusers", "--root=" + folder, *given])
        expect_equal(result.status, 0, "systemd-sysusers", result)
    with open(os.path.join(folder, "etc/group")) as f:
        groups = {line.split(":")[0]: line.strip().split(":") for line in f}
    with open(os.path.join(folder, "etc/passwd")) as f:
        users = {line.split(":")[0]: int(line.split(":")[2]) for line in f}
    expect({"flyt-cluster", "flyt-client"} <= set(users), users)
    for group in ("flyt", "flyt-daemons"):
        expect_equal(groups[group][3], "flyt-cluster", "members of", group)
    for kind, owner in (("cluster", "flyt-cluster"), ("node", "root"), ("client", "flyt-client")):
        result = run(["systemd-tmpfiles", "--root=" + folder, "--create", os.path.join(SOURCES, "flyt-%s.tmpfiles" % kind)])
        expect_equal((result.status, result.err), (0, ""), "systemd-tmpfiles", result)
        status = os.stat(os.path.join(folder, "run/flyt"))
        expect_equal((status.st_mode & 0o7777, status.st_gid), (0o1775, int(groups["flyt-daemons"][2])), "/run/flyt")
        status = os.stat(os.path.join(folder, "var/lib/flyt", kind))
        expect_equal((status.st_mode & 0o7777, status.st_uid), (0o700, 0 if owner == "root" else users[owner]), "state of", kind)


main()
