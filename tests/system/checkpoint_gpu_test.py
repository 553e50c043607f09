#!/usr/bin/env python3
"""The scenarios of checkpoint_test.py with this machine's first NVIDIA GPU under MPS. Needs a GPU.

FLYT_TEST_MPS=off tries them without MPS, FLYT_TEST_SOFTWARE=1 on the software GPU.
"""
import os

import checkpoint_test
import harness
from harness import main, skip

if os.environ.get("FLYT_TEST_SOFTWARE") != "1":
    if not os.path.exists("/dev/nvidia0"):
        skip("no NVIDIA GPU here")
    mps = os.environ.get("FLYT_TEST_MPS", "start")
    own = {"mps_dir": os.path.join(harness.WORK, "mps")} if mps == "start" else {}
    checkpoint_test.HARDWARE = {"hardware": "each", "namespaces": False, "node": {"mps": mps, "warm": 2, **own}}

if __name__ == "__main__":
    main()
