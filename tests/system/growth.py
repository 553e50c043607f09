"""What a node of a whole system (cluster.py) and a program of VM 0 hold, so that a test can say that many repetitions of
something leave nothing behind.

    before = growth.held(system, pid)           # at rest, after what is done for the first time only
    …
    growth.is_bounded(system, pid, before, {"descriptors": 3, "processes": 0})
"""
import os
import re

import harness
from cluster import metric_values

# What may grow over many moves of a program, by its own doings: less than one for each move, and than a page (of 4 KiB).
OVER_MOVES = {"processes": 0, "ledger entries": 0, "files": 0, "descriptors": 3}
if os.environ.get("FLYT_SOAK"):
    OVER_MOVES.update({"descriptors": 8, "mappings": 16, "KiB": 512})


def descriptors(pid):
    return len(os.listdir("/proc/%d/fd" % pid))


def mappings(pid):
    with open("/proc/%d/maps" % pid) as f:
        return len(f.readlines())


def resident_kib(pid):
    """Of the process's own memory: what is there of mapped files depends on what was read of them."""
    with open("/proc/%d/status" % pid) as f:
        return int(re.search(r"RssAnon:\s+(\d+) kB", f.read())[1])


def files(folder):
    return sum(len(names) for _, _, names in os.walk(folder))


def measured(system, node, name):
    return sum(int(value) for _, value in metric_values(system.metrics(node), name))


def held(system, program_pid, node="node-0"):
    """{(kind, of what): number}. Kinds are "processes" (below the node manager), "ledger entries", "files" (in state
    folders), and of each process "descriptors", "mappings" and "KiB"."""
    pids = {name: system.supervisor.get(name)["pid"] for name in (node, "vm-0")}
    found = {("processes", node): len(harness.descendants(pids[node])),
             ("ledger entries", node): measured(system, node, "flyt_node_allocation_servers")}
    for name in pids:
        found["files", name] = files(system.path(name, "state"))
    for name, pid in {**pids, "the program": program_pid}.items():
        found["descriptors", name] = descriptors(pid)
        found["mappings", name] = mappings(pid)
        found["KiB", name] = resident_kib(pid)
    return found


def at_rest(system, program_pid, warm, node="node-0"):
    """What is held when as many servers as this are ready again."""
    harness.within(60, lambda: measured(system, node, "flyt_node_gpu_warm_servers") >= warm, "%d warm servers" % warm)
    return held(system, program_pid, node)


def is_bounded(system, program_pid, before, allowed, node="node-0"):
    """Waits until no more is held than before and what is allowed, {kind: number}; kinds that are not named are not looked at."""
    grown = {}

    def is_within():
        now = held(system, program_pid, node)
        grown.clear()
        grown.update({key: (count, now[key]) for key, count in before.items()
                      if key[0] in allowed and now[key] > count + allowed[key[0]]})
        return not grown
    try:
        harness.within(60, is_within, "what is held")
    except harness.Failed:
        raise harness.Failed("more is held than before: %s" % grown) from None
