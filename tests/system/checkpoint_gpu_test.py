#!/usr/bin/env python3
"""The scenarios of checkpoint_test.py with this machine's first NVIDIA GPU under MPS. Needs a GPU.

FLYT_TEST_MPS=off tries them without MPS, FLYT_TEST_SOFTWARE=1 on the software GPU.
"""
import os

import checkpoint_test
import harness
from harness import main, skip

mps = os.environ.get("FLYT_TEST_MPS", "start")


def node_settings(_):
    own = {"mps_dir": os.path.join(harness.WORK, "mps")} if mps == "start" else {}
    return {"mps": mps, "warm": 2, **own}


if os.environ.get("FLYT_TEST_SOFTWARE") != "1":
    if not os.path.exists("/dev/nvidia0"):
        skip("no NVIDIA GPU here")
    checkpoint_test.HARDWARE = {"hardware": "each", "namespaces": False, "node": node_settings}

if __name__ == "__main__":
    main()
