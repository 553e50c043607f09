#!/usr/bin/env python3
"""Memory and events that processes of one VM share, at servers of this machine's NVIDIA GPU under MPS (sharing_test.py). Needs a GPU.

FLYT_TEST_MPS=off tries it without MPS.
"""
import os
import sys

import harness
import sharing_test
from harness import main, skip

if not os.path.exists("/dev/nvidiactl"):
    skip("no NVIDIA GPU here")

MPS = os.environ.get("FLYT_TEST_MPS", "start")


def node_settings(_):
    own = {"mps_dir": os.path.join(harness.WORK, "mps")} if MPS == "start" else {}
    return {"mps": MPS, "warm": 2, **own}


sharing_test.OPTIONS = {"hardware": True, "namespaces": False, "node": node_settings}
sharing_test.VM_MEMORY = "6G"

SCENARIOS = ("by_handles", "of_a_process_and_its_child", "by_descriptors", "pools_and_pointers", "others_are_refused",
             "events_of_a_process_and_its_child", "events_order_work", "events_of_those_who_go", "the_owner_is_charged",
             "while_the_vm_is_resized", "the_node_manager_is_restarted")

if __name__ == "__main__":
    sys.argv[1:] = sys.argv[1:] or SCENARIOS
    main()
