#!/usr/bin/env python3
"""The scenarios of migrate_test.py with this machine's NVIDIA GPUs under MPS: to another one, where there are two, and to
new servers on the same one. Needs a GPU.

FLYT_TEST_MPS=off tries them without MPS.
"""
import os

import migrate_test
from harness import main, skip

if not os.path.exists("/dev/nvidiactl"):
    skip("no NVIDIA GPU here")

migrate_test.HARDWARE = {"hardware": True, "namespaces": False,
                         "node": {"mps": os.environ.get("FLYT_TEST_MPS", "start"), "warm": 2}}
migrate_test.MOVES = max(migrate_test.MOVES, 2)

if __name__ == "__main__":
    main()
