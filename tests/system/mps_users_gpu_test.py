#!/usr/bin/env python3
"""Whether servers could be users of their own under MPS (nvidia-cuda-mps-control -M): do two users' programs on one GPU
have their memory apart, and what becomes of the one when the other one reaches for it? Says what it found; a failure
where memory is not apart. Needs a GPU and root; FLYT_TEST_SOFTWARE=1 tries the program itself on the software GPU."""
import os
import shutil
import subprocess
import tempfile

import harness
from harness import expect, expect_equal, finish, helper, main, run, scenario, skip, start

IS_SOFTWARE = os.environ.get("FLYT_TEST_SOFTWARE") == "1"
LIBRARY = os.path.join(harness.BUILD, "lib", "libflyt-softgpu.so") if IS_SOFTWARE else "libcuda.so.1"
ILLEGAL_ADDRESS = 700
USERS = (65533, 65534)

if not IS_SOFTWARE:
    if not os.path.exists("/dev/nvidiactl"):
        skip("no NVIDIA GPU here")
    if os.geteuid() or not shutil.which("nvidia-cuda-mps-control"):
        skip("root and nvidia-cuda-mps-control are needed")


def as_user(user, env, word):
    prefix = [] if IS_SOFTWARE else ["setpriv", "--reuid", str(user), "--regid", str(user), "--clear-groups"]
    return [*prefix, helper("mps_users"), LIBRARY, word], env


def reached(word):
    """What became of one user's memory when another one reached for it: (what that one saw, what the first one has)."""
    folder = tempfile.mkdtemp(prefix="mps-", dir=harness.WORK)
    os.chmod(harness.WORK, 0o755)
    os.chmod(folder, 0o777)
    env = harness.environment(CUDA_MPS_PIPE_DIRECTORY=folder, CUDA_MPS_LOG_DIRECTORY=folder)
    if not IS_SOFTWARE:
        expect_equal(run(["nvidia-cuda-mps-control", "-M", "-d"], env).status, 0, "MPS for several users")
    try:
        command, env = as_user(USERS[0], env, "hold")
        holder = start(command, env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        expect_equal(holder.stdout.readline(), b"holding\n", "the first user's program")
        command, env = as_user(USERS[1], env, word)
        saw = run(command, env)
        holder.stdin.close()
        holder.stdin = None
        return saw.out.strip(), finish(holder).out.strip()
    finally:
        if not IS_SOFTWARE:
            run(["nvidia-cuda-mps-control"], env, stdin=b"quit\n")


@scenario
def memory_of_two_users():
    for word in ("look", "write"):
        saw, held = reached(word)
        print("    %s: the second user's program %s, the first user's memory is %s" % (word, saw, held), flush=True)
        expect_equal(saw, "fault %d" % ILLEGAL_ADDRESS, "reaching for another user's memory:", word)
        expect(held == "unharmed" or held.startswith("lost"), "the first user's memory", held)


main()
