#!/usr/bin/env python3
"""Servers that are users of their own (server_uids): of two VMs' programs at once, each in the range and none twice, with
nothing of root's left; none can do anything to another one. They outlast the node manager, and the next one gives theirs
to nobody else. Where processes have all users of the range, a program is told so. Needs root."""
import os
import shutil
import subprocess
import sys

import harness
from cluster import System, write_settings
from harness import BUILD, expect, expect_equal, helper, lines, main, run, scenario, skip, within
from steady import Steady, add_vm, all_agree, all_is_free, nodes_up

FIRST, LAST = 70000, 70063
RANGE = "%d-%d" % (FIRST, LAST)
SOON = {"allocation_linger_s": 1}
SEIZE = "import ctypes, sys; sys.exit(ctypes.CDLL(None, use_errno=True).ptrace(0x4206, int(sys.argv[1]), None, None) == 0)"

if os.geteuid() or not shutil.which("setpriv"):
    skip("root and setpriv are needed")
if subprocess.run(["setpriv", "--reuid", str(FIRST), "--regid", str(FIRST), "--clear-groups", "true"],
                  capture_output=True, check=False).returncode:
    skip("root cannot become another user here")


def server():
    """The server program where every user can run it, wherever the build is."""
    os.chmod(harness.WORK, 0o711)
    folder = os.path.join(harness.WORK, "installed")
    for name in ("bin/flyt-server", "lib/libflyt-softgpu.so"):
        path = os.path.join(folder, name)
        if not os.path.exists(path):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            shutil.copy(os.path.join(BUILD, name), path)
    for name in (folder, folder + "/bin", folder + "/lib", folder + "/bin/flyt-server", folder + "/lib/libflyt-softgpu.so"):
        os.chmod(name, 0o755)
    return folder + "/bin/flyt-server"


def node(**settings):
    return {"server": server(), "server_uids": RANGE, "client_slots": 16, **settings}


def status_of(pid):
    """{name: [words]} of /proc/PID/status."""
    with open("/proc/%d/status" % pid) as f:
        return {name: rest.split() for name, _, rest in (line.partition(":") for line in f)}


def as_user(uid, *command):
    return run(["setpriv", "--reuid", str(uid), "--regid", str(uid), "--clear-groups", *command])


def servers(system):
    """{process: user} of the servers of all sessions."""
    return {s["server_pid"]: int(status_of(s["server_pid"])["Uid"][0]) for s in system.flytctl("sessions")}


def sessions(system, count):
    """As servers(), when there are so many."""
    within(60, lambda: len(system.flytctl("sessions")) == count, "%d sessions are known" % count)
    return servers(system)


def is_confined(pid):
    status = status_of(pid)
    uid = int(status["Uid"][0])
    expect(FIRST <= uid <= LAST, "user", uid)
    expect_equal((status["Uid"], status["Gid"]), ([str(uid)] * 4, [str(uid)] * 4), "users and groups of a server")
    expect_equal(status["Groups"], [], "further groups")
    for name in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
        expect_equal(int(status[name][0], 16), 0, name)
    expect_equal(status["NoNewPrivs"], ["1"], "no new privileges")
    expect_equal(os.stat("/proc/%d/mem" % pid).st_uid, 0, "whose its memory is, as it is not dumpable")


@scenario
def programs_of_two_vms():
    with System(vms=2, cluster=SOON, node=node()) as system:
        for i in range(2):
            add_vm(system, i, memory="128M")
        programs = [Steady(system, i) for i in (0, 1, 0, 1)]
        for program in programs:
            program.takes(8)
        found = sessions(system, 4)
        expect_equal(len(set(found.values())), 4, "users of servers", found)
        for pid in found:
            is_confined(pid)
        (one, own), (other, _) = list(found.items())[:2]
        # To itself it may do what it wants; to another one nothing, and it finds nothing of the node manager's.
        expect_equal(as_user(own, "kill", "-0", str(one)).status, 0, "its own process")
        for pid in [other] + [system.supervisor.get("node-0")["pid"]]:
            expect(as_user(own, "kill", "-0", str(pid)).status != 0, "signals another one")
            expect_equal(as_user(own, sys.executable, "-c", SEIZE, str(pid)).status, 0, "traces another one")
            expect(as_user(own, "cat", "/proc/%d/environ" % pid).status != 0, "reads of another one")
        state = system.path("node-0", "state")
        for path in (state, state + "/state.json", state + "/images", state + "/servers/link.sock"):
            expect(as_user(own, "stat", path).status != 0, "reaches", path)
        # What one has kept, another one of its VM uses; each VM has a folder that its servers alone are given.
        kept = [os.stat(os.path.join(folder, name)) for folder, _, names in os.walk(state + "/images") for name in names]
        expect(kept and all(FIRST <= file.st_uid <= LAST for file in kept), "whose images are", kept)
        expect_equal(os.stat(state + "/images").st_mode & 0o777, 0o700, "mode of images")
        expect_equal([n["server_uids"] for n in system.flytctl("nodes")], [RANGE], "whose the servers are")
        expect_equal({s["server_pid"]: s["server_uid"] for s in system.flytctl("sessions")}, found, "whose each is")
        for words, text in ((["nodes"], RANGE), (["sessions"], str(own))):
            expect(text in system.flytctl_run(*words, "-o", "wide").out.split(), words, "show", text)
        for program in programs:
            program.goes_on()
            program.ends_right()
        all_is_free(system)


@scenario
def after_a_restart():
    with System(vms=2, cluster=SOON, node=node()) as system:
        for i in range(2):
            add_vm(system, i, memory="128M")
        programs = [Steady(system, i) for i in (0, 1)]
        for strike in (system.kill, system.restart):
            for program in programs:
                program.takes(4)
            before = sessions(system, len(programs))
            strike("node-0")
            nodes_up(system)
            programs.append(Steady(system, 0))
            after = sessions(system, len(programs))
            expect_equal({pid: after.get(pid) for pid in before}, before, "servers of before are who they were")
            expect_equal(len(set(after.values())), len(programs), "users of servers", after)
            for pid in after:
                is_confined(pid)
            for program in programs:
                program.goes_on()
        all_agree(system)
        # They know the next one again too: they can give back, and take what others gave back.
        for program in programs[:2]:
            program.gives_back()
            program.takes(8)
        for program in programs:
            program.ends_right()
        all_is_free(system)


@scenario
def no_user_is_left():
    squatters = [subprocess.Popen(["setpriv", "--reuid", str(uid), "--regid", str(uid), "--clear-groups", "sleep", "3600"])
                 for uid in (FIRST, FIRST + 2)]
    try:
        for squatter, uid in zip(squatters, (FIRST, FIRST + 2)):
            within(30, lambda: int(status_of(squatter.pid)["Uid"][0]) == uid, "a process has user %d" % uid)
        few = node(server_uids="%d-%d" % (FIRST, FIRST + 3), client_slots=4)
        with System(vms=1, cluster=SOON, node=few) as system:
            add_vm(system, 0, "--sessions", 3, memory="128M")
            programs = [Steady(system, 0) for _ in range(2)]
            expect_equal(sorted(sessions(system, 2).values()), [FIRST + 1, FIRST + 3], "users of servers")
            result = system.run_in_vm(0, helper("echo"))
            expect(result.status != 0 and "no user of server_uids is free" in result.err, "why it is refused:", result)
            expect("no user of server_uids is free" in system.flytctl("gpus")[0]["health_text"], "the GPU's health")
            # Theirs come back when they have ended, and are given again.
            programs.pop().ends_right()
            programs.append(Steady(system, 0))
            expect_equal(sorted(sessions(system, 2).values()), [FIRST + 1, FIRST + 3], "users of servers")
            for squatter in squatters:
                squatter.kill()
                squatter.wait()
            within(120, lambda: system.flytctl("gpus")[0]["health"] == "ok", "a server can be started again")
            programs.append(Steady(system, 0))
            for program in programs:
                program.ends_right()
            all_is_free(system)
    finally:
        for squatter in squatters:
            squatter.kill()
            squatter.wait()


@scenario
def wrong_settings():
    path = os.path.join(harness.WORK, "node.conf")
    cases = (("0-5000", "from 1000 to"), ("70000", "FIRST-LAST"), ("70063-70000", "ends before it begins"),
             ("70000-70046", "fewer than the 48 servers"), ("70000-140000", "more than 65536"),
             ("65500-65600", "no user"))
    for text, why in cases:
        write_settings(path, {"name": "n", "server_uids": text})
        result = run([os.path.join(BUILD, "bin", "flyt-node-manager"), "--config", path, "--check-config"])
        expect_equal((result.status, len(lines(result.err))), (2, 1), text, result)
        expect("%s:2: " % path in result.err and "server_uids" in result.err and why in result.err, text, result)
    write_settings(path, {"name": "n", "server_uids": RANGE})
    expect_equal(run([os.path.join(BUILD, "bin", "flyt-node-manager"), "--config", path, "--check-config"]).status, 0, RANGE)


@scenario
def state_that_others_can_open():
    """Then link.sock, at which every user may knock, would be everybody's."""
    state = os.path.join(harness.WORK, "open-state")
    os.mkdir(state)
    os.chmod(state, 0o755)
    path = os.path.join(harness.WORK, "open.conf")
    write_settings(path, {"name": "n", "state_dir": state, "software_gpus": 1, "listen": ["tcp://127.0.0.1:0"],
                          "socket": "", **node()})
    result = run([os.path.join(BUILD, "bin", "flyt-node-manager"), "--config", path])
    expect(result.status == 1 and "is open to other users" in result.err, result)


main()
