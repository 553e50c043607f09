#!/usr/bin/env python3
"""Memory and events that processes of one VM share, at servers of this machine's NVIDIA GPUs under MPS, and how they move
(sharing_test.py, sharing_move_test.py): where there is one GPU, to new servers on it. Needs a GPU.

FLYT_TEST_MPS=off tries it without MPS.
"""
import os
import sys

import harness
import sharer
import sharing_move_test
import sharing_test       # both for their scenarios
from harness import main, skip

if not os.path.exists("/dev/nvidiactl"):
    skip("no NVIDIA GPU here")

MPS = os.environ.get("FLYT_TEST_MPS", "start")


def node_settings(_):
    own = {"mps_dir": os.path.join(harness.WORK, "mps")} if MPS == "start" else {}
    return {"mps": MPS, "warm": 2, **own}


sharer.OPTIONS = {"hardware": True, "namespaces": False, "node": node_settings}
sharer.VM_MEMORY = "6G"
sharing_move_test.TOLERANCE = 64 << 20

SCENARIOS = ("by_handles", "of_a_process_and_its_child", "by_descriptors", "pools_and_pointers", "others_are_refused",
             "events_of_a_process_and_its_child", "events_order_work", "events_of_those_who_go", "the_owner_is_charged",
             "while_the_vm_is_resized", "the_node_manager_is_restarted", "they_share_afterwards", "what_was_under_way_is_there",
             "what_nobody_has_any_more_stays", "into_images_and_back", "where_it_fails_all_is_as_it_was")

if __name__ == "__main__":
    sys.argv[1:] = sys.argv[1:] or SCENARIOS
    main()
