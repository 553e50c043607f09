#!/usr/bin/env python3
"""The scenarios of migrate_nodes_test.py with this machine's NVIDIA GPUs under MPS: two nodes, of which each sees one GPU
alone. Needs two GPUs.

FLYT_TEST_MPS=off tries them without MPS, FLYT_TEST_SOFTWARE=1 on software GPUs.
"""
import os

import harness
import migrate_nodes_test
import two_nodes
from harness import main, skip

mps = os.environ.get("FLYT_TEST_MPS", "start")


def node_settings(i):
    own = {"mps_dir": os.path.join(harness.WORK, "mps-%d" % i)} if mps == "start" else {}
    return {"mps": mps, "warm": migrate_nodes_test.WARM, **own}


if os.environ.get("FLYT_TEST_SOFTWARE") != "1":
    if not all(os.path.exists("/dev/nvidia%d" % i) for i in range(2)):
        skip("no two NVIDIA GPUs here")
    migrate_nodes_test.WARM = 2
    two_nodes.HARDWARE = {"hardware": "each", "namespaces": False, "node": node_settings}

if __name__ == "__main__":
    main()
