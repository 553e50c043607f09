#!/usr/bin/env python3
"""nvidia-ml-py and nvitop look at a VM's GPU ten times a second, while programs begin and end and the VM is resized and moved:
never an error, one UUID and one PCI address, the totals follow the limits, and the VM's program is listed all the time.

FLYT_NVML_PYTHON=…/bin/python names an interpreter that has both (pip install nvidia-ml-py nvitop); else this one is asked.
"""
import json
import os
import threading
import time

import harness
from cluster import System
from harness import expect, expect_equal, main, scenario, skip, within
from named import PYTHON, Named, has_module
from steady import MIB, add_vm, allocation

PATIENCE = ("--stop-timeout", "60000", "--timeout", "240")

# A line of JSON for each look of either.
MONITOR = """
import json, sys, threading, time
import nvitop, pynvml

def by_nvidia_ml_py(handle):
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    return {"uuid": pynvml.nvmlDeviceGetUUID(handle), "bus": pynvml.nvmlDeviceGetPciInfo(handle).busId,
            "total": memory.total, "used": memory.used, "busy": pynvml.nvmlDeviceGetUtilizationRates(handle).gpu,
            "pids": [process.pid for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)]}

def by_nvitop(device):
    memory = device.memory_info()
    return {"uuid": device.uuid(), "bus": device.bus_id(), "total": memory.total, "used": memory.used,
            "busy": device.gpu_utilization(), "pids": list(device.processes())}

def look(way, sample, device):
    begin = time.monotonic()
    try:
        said = sample(device)
    except Exception as error:
        said = {"error": repr(error)}
    print(json.dumps({"by": way, "at": begin, **said}), flush=True)

ended = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
pynvml.nvmlInit()
own, others = pynvml.nvmlDeviceGetHandleByIndex(0), nvitop.Device(0)
while not ended.wait(0.1):
    look("nvidia-ml-py", by_nvidia_ml_py, own)
    look("nvitop", by_nvitop, others)
print(json.dumps({"by": "end"}), flush=True)
"""
WAYS = ("nvidia-ml-py", "nvitop")


class Monitor:
    """Looks until end(); `samples` grows meanwhile."""

    def __init__(self, system):
        self.log = open(system.path("monitor", "err"), "wb+")
        self.process = harness.start([*system.in_vm(0), harness.FLYT_RUN, "--", PYTHON, "-c", MONITOR], system.vm_environment(0),
                                     stdin=-1, stdout=-1, stderr=self.log)
        self.samples = []
        self.thread = threading.Thread(target=self._read)
        self.thread.start()

    def _read(self):
        for line in self.process.stdout:
            self.samples.append(json.loads(line))

    def since(self, moment):
        """{way: its samples since}"""
        return {way: [s for s in self.samples if s["by"] == way and s["at"] >= moment] for way in WAYS}

    def will_say(self, condition, what):
        """Waits until the newest sample of either way, which is newer than this call, fulfils the condition."""
        begin = time.monotonic()
        within(30, lambda: all(found and condition(found[-1]) for found in self.since(begin).values()), what)

    def end(self):
        self.process.stdin.close()
        self.process.wait(timeout=harness.PATIENCE_S)
        self.thread.join()
        self.log.seek(0)
        expect_equal((self.process.returncode, self.log.read(), self.samples.pop()), (0, b"", {"by": "end"}), "the monitor")
        self.log.close()


def has_total(mib):
    return lambda sample: sample.get("total") == mib * MIB


def lists(pid):
    return lambda sample: pid in sample.get("pids", [])


def resize(system, monitor, mib):
    system.flytctl("resize", "alice", "--memory", "%dM" % mib)
    monitor.will_say(has_total(mib), "a total of %d MiB" % mib)


def move(system, key):
    """To another GPU or node: the allocation's key says where it is."""
    before = allocation(system, 0)[key]
    target = [n["name"] for n in system.flytctl("nodes") if key == "node" and n["name"] != before]
    result = system.flytctl_run("migrate", "alice", *(["--to", *target] if target else []), *PATIENCE, timeout=400)
    expect_equal(result.status, 0, "flytctl migrate", result)
    expect(allocation(system, 0)[key] != before, "it has not moved")


def are_right(samples, identity, totals):
    """All of one way: no error, one GPU, and totals that change in this order."""
    wrong = [s for s in samples if "error" in s or not all(isinstance(s[key], int) for key in ("total", "used", "busy"))]
    expect(not wrong, "a look that failed:", wrong[:2], "of", len(samples))
    expect_equal({(s["uuid"], s["bus"]) for s in samples}, {identity}, "UUID and address")
    seen = [s["total"] // MIB for s in samples]
    expect_equal([mib for i, mib in enumerate(seen) if i == 0 or mib != seen[i - 1]], totals, "totals, one after another")
    over = [s for s in samples if not 0 <= s["used"] <= s["total"]]
    expect(not over, "more in use than there is:", over[:2])


def watched(system, key):
    add_vm(system, 0, "--name", "alice", "--sessions", "4", memory="256M")
    monitor = Monitor(system)
    monitor.will_say(has_total(256), "the device that the VM is to have")
    program = Named(system)
    (uuid, bus_id, _, _, _), = program.names()
    expect_equal(program.ask("take 100"), 0, "an allocation")
    monitor.will_say(lists(program.pid), "the VM's program")
    begin = time.monotonic()
    monitor.will_say(lambda sample: sample.get("used", 0) >= 100 * MIB, "what the program took")
    resize(system, monitor, 512)
    for _ in range(2):
        move(system, key)
        monitor.will_say(lambda sample: has_total(512)(sample) and lists(program.pid)(sample) and sample["used"] >= 100 * MIB,
                         "the program at its new place")
    resize(system, monitor, 384)
    end = time.monotonic()
    expect_equal(program.names()[0][:2], (uuid, bus_id), "what CUDA says afterwards")
    program.end()
    monitor.will_say(lambda sample: sample.get("pids") == [] and sample.get("used") == 0, "nothing is in use")
    monitor.end()
    for samples in monitor.since(0).values():
        are_right(samples, (uuid, "0000" + bus_id), [256, 512, 384])
        missing = [s for s in samples if begin < s["at"] < end and s["pids"] != [program.pid]]
        expect(not missing, "looks in which the program is not listed:", missing[:2], "of", len(samples))


@scenario
def another_gpu_of_its_node():
    with System(vms=1, gpus=2, sms=32, memory="1G") as system:
        watched(system, "gpu")


@scenario
def another_node():
    with System(nodes=2, vms=1, gpus=1, sms=32, memory="1G") as system:
        watched(system, "node")


if __name__ == "__main__":
    for module in ("pynvml", "nvitop"):
        if not has_module(module):
            skip("%s has no %s (FLYT_NVML_PYTHON)" % (PYTHON, module))
    main()
