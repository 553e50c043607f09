#!/usr/bin/env python3
"""Servers that are users of their own with this machine's NVIDIA GPUs: without MPS, under an MPS daemon that the node
manager starts, and under one that serves one user at a time, where they are the node manager's. Needs a GPU, root and
nvidia-cuda-mps-control; FLYT_TEST_SOFTWARE=1 tries the first on software GPUs."""
import os
import shutil
import tempfile

import harness
from cluster import System
from harness import BUILD, app, expect, expect_equal, finish, main, run, scenario, skip, within
from steady import Steady, all_agree, all_is_free, nodes_up

IS_SOFTWARE = os.environ.get("FLYT_TEST_SOFTWARE") == "1"
FIRST, LAST = 70000, 74095
RANGE = "%d-%d" % (FIRST, LAST)
PROGRAMS = ("memory", "events", "streams", "launch", "atomics", "pinned_chain")

if os.geteuid():
    skip("root is needed")
if not IS_SOFTWARE:
    if not os.path.exists("/dev/nvidiactl"):
        skip("no NVIDIA GPU here")
    if not shutil.which("nvidia-cuda-mps-control"):
        skip("nvidia-cuda-mps-control is needed")


def system(mps, mps_dir):
    """The server program is where every user can run it, wherever the build is."""
    os.chmod(harness.WORK, 0o711)
    folder = os.path.join(harness.WORK, "installed")
    if not os.path.exists(folder):
        os.makedirs(folder + "/bin")
        shutil.copy(os.path.join(BUILD, "bin", "flyt-server"), folder + "/bin")
        shutil.copytree(os.path.join(BUILD, "lib"), folder + "/lib")    # with its libraries, where the build is a bundle
    for path, _, names in os.walk(folder):
        for name in ["", *names]:
            os.chmod(os.path.join(path, name), 0o755)
    node = {"warm": 2, "server": folder + "/bin/flyt-server", "server_uids": RANGE}
    if not IS_SOFTWARE:
        node.update({"mps": mps, "mps_dir": mps_dir})
    return System(nodes=1, vms=2, hardware=not IS_SOFTWARE, namespaces=False, sms=132, memory="4G", node=node,
                  cluster={"allocation_linger_s": 1})


def users(whole):
    """Of the servers of all sessions, as the kernel tells them."""
    found = []
    for session in whole.flytctl("sessions"):
        with open("/proc/%d/status" % session["server_pid"]) as f:
            uid = [int(line.split()[1]) for line in f if line.startswith("Uid:")][0]
        expect_equal(session["server_uid"], uid, "whose it is shown to be")
        found.append(uid)
    return found


def works(whole, check):
    """Programs of both VMs, right ones, over a death of the node manager; `check` looks at the users of their servers."""
    for i in range(2):
        whole.flytctl("vm", "add", whole.vm_ip(i), "--sm", "32", "--memory", "2G", "--sessions", "8")
    lasting = [Steady(whole, i) for i in (0, 1)]
    for program in lasting:
        program.takes(64)
    running = [(i, name, whole.start_in_vm(i, app(name))) for name in PROGRAMS for i in range(2)]
    for i, name, program in running:
        result = finish(program, 120)
        expect_equal(result.status, 0, name, "in VM", i, result)
    within(60, lambda: len(whole.flytctl("sessions")) == 2, "only the lasting ones are left")
    check(users(whole))
    whole.kill("node-0")
    nodes_up(whole)
    lasting.append(Steady(whole, 0))
    within(60, lambda: len(whole.flytctl("sessions")) == 3, "all are known again")
    check(users(whole))
    for program in lasting:
        program.goes_on()
    all_agree(whole)
    for program in lasting:
        program.ends_right()
    all_is_free(whole)


def are_own(found):
    expect(len(set(found)) == len(found) and all(FIRST <= uid <= LAST for uid in found), "users of servers", found)


@scenario
def each_is_its_own():
    for mps in ("off",) if IS_SOFTWARE else ("off", "start"):
        folder = tempfile.mkdtemp(prefix="mps-", dir=harness.WORK)
        try:
            with system(mps, folder) as whole:
                works(whole, are_own)
                expect_equal([n["server_uids"] for n in whole.flytctl("nodes")], [RANGE], "whose the servers are")
        finally:
            if mps == "start":
                run(["nvidia-cuda-mps-control"], harness.environment(CUDA_MPS_PIPE_DIRECTORY=folder + "/pipe"),
                    stdin=b"quit\n")


@scenario
def under_a_daemon_for_one_user():
    if IS_SOFTWARE:
        print("needs MPS: not tried")
        return
    folder = tempfile.mkdtemp(prefix="mps-", dir=harness.WORK)
    for name in ("pipe", "log"):
        os.mkdir(os.path.join(folder, name))
    env = harness.environment(CUDA_MPS_PIPE_DIRECTORY=folder + "/pipe", CUDA_MPS_LOG_DIRECTORY=folder + "/log",
                              CUDA_MPS_ENABLE_PER_CTX_DEVICE_MULTIPROCESSOR_PARTITIONING="1")
    expect_equal(run(["nvidia-cuda-mps-control", "-d"], env).status, 0, "MPS for one user")
    try:
        with system("watch", folder) as whole:
            works(whole, lambda found: expect_equal(set(found), {0}, "users of servers"))
            expect_equal([n["server_uids"] for n in whole.flytctl("nodes")], ["0"], "whose the servers are")
            expect("was not started with -M" in whole.log("node-0"), "the node's log says why")
    finally:
        run(["nvidia-cuda-mps-control"], env, stdin=b"quit\n")


main()
