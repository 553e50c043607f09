#!/usr/bin/env python3
"""Page-locked memory of a program on its GPU's own machine, at servers of this machine's NVIDIA GPUs under MPS (shared_test.py).
Needs a GPU; what goes to another node needs two.

FLYT_TEST_MPS=off tries it without MPS.
"""
import os
import sys

import harness
import shared_test
from harness import main, skip

if not os.path.exists("/dev/nvidiactl"):
    skip("no NVIDIA GPU here")

MPS = os.environ.get("FLYT_TEST_MPS", "start")
HAS_TWO = os.path.exists("/dev/nvidia1")
shared_test.OTHER = 1 if HAS_TWO else 0


def node_settings(i):
    own = {"mps_dir": os.path.join(harness.WORK, "mps-%d" % i)} if MPS == "start" else {}
    return {"mps": MPS, "warm": 2, **own, **({"socket": ""} if i else {})}


shared_test.OPTIONS = {"vms": 1, "hardware": True, "namespaces": False, "node": node_settings}
shared_test.ELSEWHERE = {"local": True, "hardware": "each", "namespaces": False, "node": node_settings}

if __name__ == "__main__":
    if not HAS_TWO:
        sys.argv[1:] = sys.argv[1:] or ["at_each_server_of_the_node", "locked_ahead", "freed_between_locking_ahead_and_the_stop",
                                        "a_move_that_fails_when_memory_is_locked_ahead", "the_programs_of_a_vm_have_one_bound",
                                        "programs_with_managed_memory_on_the_host_move"]
    main()
