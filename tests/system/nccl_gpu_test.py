#!/usr/bin/env python3
"""NCCL's ranks of one program, which move, with this machine's NVIDIA GPUs and NVIDIA's library: the scenarios of nccl_test.py
that say so. Needs two GPUs; with four they move to the others, too. FLYT_LIBRARIES names folders of NVIDIA's libraries.
"""
import glob
import os
import sys

import nccl_test
from harness import main, skip

GPU_COUNT = len(glob.glob("/dev/nvidia[0-9]*"))
SCENARIOS = (*(["ranks_of_one_program_move_while_they_compute"] if GPU_COUNT >= 4 else []),
             "ranks_of_one_program_go_on_from_an_image", "ranks_of_one_program_outlive_their_server")

if GPU_COUNT < 2:
    skip("fewer than two NVIDIA GPUs here")

nccl_test.HARDWARE = {"hardware": True, "namespaces": False,
                      "node": {"warm": 2, "libraries": os.environ.get("FLYT_LIBRARIES", "")}}
if __name__ == "__main__":
    sys.argv[1:] = sys.argv[1:] or SCENARIOS
    main()
