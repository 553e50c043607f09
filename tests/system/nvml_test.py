#!/usr/bin/env python3
"""NVML in VMs of a whole system: flyt-smi, nvidia-ml-py where there is one, and what CUDA says in the same VM, before, during
and after a resize and a move; a monitor takes nothing and keeps nothing.

FLYT_NVML_PYTHON=…/bin/python names an interpreter that has nvidia-ml-py (`import pynvml`); else this one is asked.
"""
import json
import os
import subprocess
import sys
import time

import harness
from cluster import System
from harness import expect, expect_equal, helper, lines, main, scenario, within
from named import PYTHON, Named, has_module
from steady import add_vm, allocations

MIB = 1 << 20
SMI = os.path.join(harness.BUILD, "bin", "flyt-smi")
PATIENCE = ("--stop-timeout", "60000", "--timeout", "240")


def smi(system, *words, i=0, status=0):
    """What it prints in VM i."""
    result = harness.run([*system.in_vm(i), SMI, *words], system.vm_environment(i))
    expect_equal(result.status, status, "flyt-smi", *words, result)
    return result


def values(system, fields, i=0, query="gpu"):
    """One list of values for each line."""
    said = smi(system, "--query-%s=%s" % (query, fields), "--format=csv,noheader,nounits", i=i).out
    return [line.split(", ") for line in lines(said)]


def used(system):
    return [int(value) for (value,) in values(system, "memory.used")]


def whole_system(**options):
    return System(**{"vms": 1, "gpus": 2, "sms": 32, "memory": "1G", **options})


def servers(system):
    """(server processes, allocations, sessions) that there are."""
    return (sum(g["servers"] for g in system.flytctl("gpus")), len(allocations(system)), len(system.flytctl("sessions")))


@scenario
def before_any_program():
    """What the VM's document says is there; nothing is placed, however long one looks."""
    with whole_system() as system:
        expect("No devices were found" in smi(system, status=6).out, "a VM without a document")
        add_vm(system, 0, "--devices", "2", sm=8, memory="256M")
        within(20, lambda: harness.run([*system.in_vm(0), SMI, "-L"], system.vm_environment(0)).status == 0,
               "the devices of the document")
        before = servers(system)
        expect_equal(values(system, "index,name,memory.total,memory.used,utilization.gpu,compute_cap"),
                     [["0", "[N/A]", "256", "0", "0", "[N/A]"], ["1", "[N/A]", "256", "0", "0", "[N/A]"]], "devices to come")
        for _ in range(20):
            smi(system)
        expect_equal(servers(system), before, "servers, allocations and sessions")
        expect_equal(before[1:], (0, 0), "allocations and sessions")


@scenario
def as_cuda_says():
    """UUID, address, name and capability are those of cudaDeviceProp; memory follows; the same after a resize and a move."""
    with whole_system() as system:
        add_vm(system, 0, "--name", "alice", "--sessions", "4", sm=8, memory="256M")
        program = Named(system)
        first = program.names()
        fields = "uuid,pci.bus_id,pci.domain,pci.bus,pci.device,compute_cap,name"

        def is_same(who):
            (said,) = values(system, fields)
            (uuid, bus_id, numbers, capability, name), = who.names()
            expect_equal(said[0], uuid, "UUID")
            expect_equal(said[1], "0000" + bus_id, "bus id")
            expect_equal(tuple(int(n, 16) for n in said[2:5]), numbers, "its numbers")
            expect_equal(said[5:], [capability, name], "capability and name")
        within(20, lambda: values(system, "name")[0][0] != "[N/A]", "the GPU's name")
        is_same(program)
        expect_equal(values(system, "memory.total"), [["256"]], "the limit")
        expect_equal(program.ask("total"), 256, "the limit, as CUDA says")
        begin = within(20, lambda: used(system)[0] > 0 and used(system)[0] < 32 and used(system)[0], "what a program takes itself")
        expect_equal(program.ask("take 100"), 0, "an allocation")
        within(20, lambda: used(system)[0] == begin + 100, "memory in use")
        of_program = [str(program.pid), str(begin + 100), first[0][0]]
        within(20, lambda: values(system, "pid,used_memory,gpu_uuid", query="compute-apps") == [of_program], "programs")

        system.flytctl("resize", "alice", "--memory", "512M")
        within(10, lambda: values(system, "memory.total,memory.free") == [["512", str(412 - begin)]], "the new limit")
        expect_equal(program.ask("take 200"), 0, "an allocation of what was added")
        within(20, lambda: used(system)[0] == begin + 300, "memory in use")

        place = allocations(system, 0)[0]["gpu"]
        result = system.flytctl_run("migrate", "alice", *PATIENCE, timeout=400)
        expect_equal(result.status, 0, "flytctl migrate", result)
        expect(allocations(system, 0)[0]["gpu"] != place, "it has not moved")
        is_same(program)
        expect_equal(program.names(), first, "what the program is told after the move")
        within(20, lambda: used(system)[0] == begin + 300, "memory in use at the other GPU")
        second = Named(system)
        expect_equal(second.names(), first, "what a new program is told")
        within(20, lambda: len(values(system, "pid", query="compute-apps")) == 2, "both programs")
        second.end()
        program.end()
        within(20, lambda: used(system) == [0] and not values(system, "pid", query="compute-apps"), "nothing is in use")


@scenario
def to_another_node():
    with System(nodes=2, vms=1, gpus=1, sms=32, memory="1G") as system:
        add_vm(system, 0, "--name", "alice", memory="256M")
        program = Named(system)
        expect_equal(program.ask("take 100"), 0, "an allocation")
        within(20, lambda: used(system)[0] >= 100, "memory in use")
        before = values(system, "uuid,pci.bus_id,name,memory.total,memory.used,compute_cap")
        first = allocations(system, 0)[0]["node"]
        other = {"node-0": "node-1", "node-1": "node-0"}[first]
        result = system.flytctl_run("migrate", "alice", "--to", other, *PATIENCE, timeout=400)
        expect_equal(result.status, 0, "flytctl migrate", result)
        within(30, lambda: values(system, "uuid,pci.bus_id,name,memory.total,memory.used,compute_cap") == before,
               "the same at the other node")
        expect_equal(allocations(system, 0)[0]["node"], other, "where it is")
        expect_equal(program.names()[0][0], before[0][0], "UUID, as CUDA says")
        within(20, lambda: values(system, "pid,used_memory", query="compute-apps") == [[str(program.pid), before[0][4]]], "programs")
        program.end()


@scenario
def how_busy():
    with whole_system(gpus=1) as system:
        add_vm(system, 0)
        program = Named(system)
        program.say("work 20000")
        within(20, lambda: values(system, "utilization.gpu")[0][0] not in ("0", "[N/A]"), "a busy GPU")
        # However often one looks: between two words of a server, too.
        seen = []
        for _ in range(24):
            seen.append(int(values(system, "utilization.gpu")[0][0]))
            time.sleep(0.25)
        # A software GPU is as busy as this machine's CPUs let it be.
        expect(min(seen) > 0 and max(seen) > 5, "how busy it is", seen)
        expect_equal(program.line(), "work 0", "the work")
        within(20, lambda: values(system, "utilization.gpu") == [["0"]], "an idle GPU")
        program.end()


@scenario
def several_devices():
    """Each is its own; what nobody can divide among them is not told."""
    with whole_system() as system:
        add_vm(system, 0, "--devices", "2")
        program = Named(system)
        within(20, lambda: values(system, "name")[1][0] != "[N/A]", "the GPUs' names")
        expect_equal([line[0] for line in values(system, "uuid")], [device[0] for device in program.names()], "UUIDs")
        expect_equal(program.ask("take 50"), 0, "an allocation")
        within(20, lambda: used(system)[0] >= 50 and used(system)[1] < 50, "memory of each")
        expect_equal(values(system, "utilization.gpu"), [["[N/A]"]] * 2, "utilization of each")
        expect_equal(values(system, "pid,used_memory", query="compute-apps"), [[str(program.pid), "[N/A]"]] * 2, "programs")
        second = values(system, "uuid,pci.bus_id")[1]
        for way in ("1", *second):
            expect_equal(lines(smi(system, "-i", way, "-L").out), ["GPU 1: Flyt software GPU (UUID: %s)" % second[0]], way)
        expect("no device 7" in smi(system, "-i", "7", status=6).err, "a device that there is not")
        program.end()


def every_field(system):
    """All fields that --help-query-gpu lists can be asked for at once; it says which have no answer."""
    listed = [line.partition("  (") for line in lines(smi(system, "--help-query-gpu").out)]
    names = [name.split(" or ") for name, _, _ in listed]
    every = [name for one in names for name in one]
    expect_equal(len(set(every)), len(every), "a name has one meaning", every)
    expect(len(every) > 150 and "clocks_throttle_reasons.active" in every, "fields:", every)
    header, said = lines(smi(system, "--query-gpu=" + ",".join(one[-1] for one in names), "--format=csv").out)
    expect_equal([word.split(" [")[0] for word in header.split(", ")], [one[0] for one in names], "the first line")
    said = said.split(", ")
    expect_equal(len(said), len(names), said)
    for one, note, value in zip(names, (note for _, _, note in listed), said):
        is_asked = one[0] not in ("driver_version",)            # which software GPUs have not
        expect_equal(value == "[N/A]", bool(note) or not is_asked, one, note, value)


def other_forms(system, program):
    """A report by sections, into a file, and rounds by milliseconds."""
    path = os.path.join(harness.WORK, "smi")
    said = smi(system, "-q", "-f", path)
    expect_equal((said.out, said.err), ("", ""), "what goes into a file")
    with open(path, encoding="utf-8") as file:
        report = file.read()
    for label, value in (("Product Name", "Flyt software GPU"), ("Total", "256 MiB"), ("GPU Current Temp", "N/A"),
                         ("Process ID", str(program.pid)), ("Name", helper("named")), ("Attached GPUs", "1")):
        expect(any(line.split(":", 1)[0].strip() == label and line.split(": ", 1)[-1] == value for line in lines(report)),
               label, value, report)
    expect("[N/A]" not in report and "    FB Memory Usage\n        Total " in report, report)
    for words in (["-lms", "50"], ["--loop-ms=50"]):
        begin = time.monotonic()
        rounds = harness.start([*system.in_vm(0), SMI, "--query-gpu=index", "--format=csv,noheader", *words],
                               env=system.vm_environment(0), stdout=subprocess.PIPE)
        expect_equal([rounds.stdout.readline() for _ in range(5)], [b"0\n"] * 5, words)
        harness.kill_group(rounds)
        rounds.stdout.close()
        expect(0.2 <= time.monotonic() - begin < 20, words, time.monotonic() - begin)


@scenario
def what_people_type():
    with whole_system(gpus=1) as system:
        add_vm(system, 0, memory="256M")
        program = Named(system)
        within(20, lambda: values(system, "name") == [["Flyt software GPU"]], "the GPU's name")
        table = smi(system).out
        expect("Flyt software GPU" in table and "/ 256MiB" in table and str(program.pid) in table and "named" in table, table)
        expect_equal(len({len(line) for line in lines(table)}), 1, "widths of the table's lines", table)
        said = lines(smi(system, "--query-gpu=index,memory.total,temperature.gpu", "--format=csv").out)
        expect_equal(said, ["index, memory.total [MiB], temperature.gpu", "0, 256 MiB, [N/A]"], "CSV")
        said = lines(smi(system, "--query-compute-apps=pid,process_name", "--format=csv,noheader").out)
        expect_equal(said, ["%d, %s" % (program.pid, helper("named"))], "programs as CSV")
        every_field(system)
        other_forms(system, program)
        for words, what in ((["--query-gpu=index,nonsense", "--format=csv"], '"nonsense"'), (["--query-gpu="], '""'),
                            (["-lms"], "milliseconds"), (["-lms", "0"], "0"), (["--loop-ms=x"], "x"), (["-f", "/nowhere/x"], "/nowhere/x"),
                            (["--query-gpu=index"], "--format=csv"), (["--format=csv"], "queries"),
                            (["--query-gpu=index", "--format=xml"], "xml"), (["-l", "0"], "0"), (["--loop=x"], "x"),
                            (["nothing"], "nothing"), (["--bogus"], "bogus")):
            result = smi(system, *words, status=2)
            expect(what in result.err and len(lines(result.err)) == 1 and not result.out, words, result)
        expect("memory.used" in smi(system, "--help-query-gpu").out, "the list of fields")
        # A library that is loaded by name, through flyt-run; and in direct mode nobody is there to ask.
        code = "import ctypes; print(ctypes.CDLL('libnvidia-ml.so.1').nvmlInit_v2())"
        result = system.run_in_vm(0, sys.executable, "-c", code)
        expect_equal(result.out.strip(), "0", "nvmlInit through flyt-run", result)
        # What is refused is named once, for who asks for it.
        code = ("import ctypes; n = ctypes.CDLL('libnvidia-ml.so.1'); h = ctypes.c_void_p(); x = ctypes.c_uint(); n.nvmlInit_v2();"
                "n.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(h));"
                "print([n.nvmlDeviceGetTemperature(h, 0, ctypes.byref(x)) for _ in range(3)])")
        result = system.run_in_vm(0, sys.executable, "-c", code, FLYT_LOG="debug")
        expect(result.out.strip() == "[3, 3, 3]" and result.err.count("nvmlDeviceGetTemperature") == 1, "a refused function", result)
        direct = harness.run([SMI], {**system.vm_environment(0), "FLYT_SERVER": "tcp://127.0.0.1:1"})
        expect(direct.status == 9 and "FLYT_SERVER" in direct.err, direct)
        program.end()


@scenario
def a_monitor_keeps_nothing():
    """It looks every second while the allocation of a program that has ended goes away, and while its client manager dies."""
    with whole_system(gpus=1, cluster={"allocation_linger_s": 1}) as system:
        add_vm(system, 0)
        log = open(system.path("monitor", "log"), "wb")
        monitor = harness.start([*system.in_vm(0), SMI, "-l", "1", "--query-gpu=memory.used", "--format=csv,noheader,nounits"],
                                system.vm_environment(0), stdout=log, stderr=log)
        program = Named(system)
        expect_equal(program.ask("take 64"), 0, "an allocation")
        within(20, lambda: used(system)[0] >= 64, "memory in use")
        program.end()
        within(30, lambda: not allocations(system), "the end of the allocation while it is looked at")

        def count():
            with open(log.name, "rb") as f:
                return len(f.read().splitlines())
        before = count()
        system.kill("vm-0")
        within(30, lambda: count() >= before + 3, "the monitor goes on")
        expect_equal(monitor.poll(), None, "the monitor has ended")
        within(20, lambda: used(system) == [0], "the device that the VM is to have")
        expect_equal(servers(system)[1:], (0, 0), "allocations and sessions")
        monitor.terminate()
        monitor.wait(timeout=20)
        log.close()


ASK_BY_PYTHON = """
import json, pynvml as n
n.nvmlInit()
h = n.nvmlDeviceGetHandleByIndex(0)
m = n.nvmlDeviceGetMemoryInfo(h)
m2 = n.nvmlDeviceGetMemoryInfo(h, version=n.nvmlMemory_v2)
def text(x): return x.decode() if isinstance(x, bytes) else x
try:
    n.nvmlDeviceGetTemperature(h, 0)
    temperature = "told"
except n.NVMLError_NotSupported:
    temperature = "not supported"
said = dict(count=n.nvmlDeviceGetCount(), uuid=text(n.nvmlDeviceGetUUID(h)), name=text(n.nvmlDeviceGetName(h)),
            bus=text(n.nvmlDeviceGetPciInfo(h).busId), total=m.total, used=m.used, used2=m2.used,
            capability=n.nvmlDeviceGetCudaComputeCapability(h), cuda=n.nvmlSystemGetCudaDriverVersion(),
            pids=[p.pid for p in n.nvmlDeviceGetComputeRunningProcesses(h)],
            memory=[p.usedGpuMemory for p in n.nvmlDeviceGetComputeRunningProcesses(h)],
            gpu=n.nvmlDeviceGetUtilizationRates(h).gpu, mig=n.nvmlDeviceGetMigMode(h), temperature=temperature,
            again=text(n.nvmlDeviceGetUUID(n.nvmlDeviceGetHandleByUUID(n.nvmlDeviceGetUUID(h)))),
            by_bus=text(n.nvmlDeviceGetUUID(n.nvmlDeviceGetHandleByPciBusId(n.nvmlDeviceGetPciInfo(h).busId))))
n.nvmlShutdown()
print(json.dumps(said))
"""


@scenario
def by_nvidia_ml_py():
    if not has_module("pynvml"):
        print("skip: %s has no nvidia-ml-py (FLYT_NVML_PYTHON)" % PYTHON)
        return
    with whole_system() as system:
        add_vm(system, 0, "--name", "alice", "--sessions", "4", memory="256M")
        program = Named(system)

        def ask():
            result = system.run_in_vm(0, PYTHON, "-c", ASK_BY_PYTHON)
            expect_equal(result.status, 0, "nvidia-ml-py", result)
            return json.loads(result.out)

        def is_right(total_mib):
            (uuid, bus_id, _, capability, name), = program.names()
            said = within(20, lambda: [s for s in [ask()] if s["memory"][:1] not in ([], [None], [0])], "its memory is known")[0]
            expect_equal([said[k] for k in ("count", "uuid", "again", "by_bus", "name", "bus", "total", "pids", "mig",
                                            "temperature")],
                         [1, uuid, uuid, uuid, name, "0000" + bus_id, total_mib * MIB, [program.pid], [0, 0], "not supported"],
                         "what it says", said)
            expect_equal("%d.%d" % tuple(said["capability"]), capability, "capability")
            expect(said["used"] == said["used2"] >= said["memory"][0] > 0, "memory", said)
        within(20, lambda: values(system, "name") == [["Flyt software GPU"]], "the GPU's name")
        is_right(256)
        system.flytctl("resize", "alice", "--memory", "512M")
        is_right(512)
        result = system.flytctl_run("migrate", "alice", *PATIENCE, timeout=400)
        expect_equal(result.status, 0, "flytctl migrate", result)
        is_right(512)
        if has_module("nvitop"):
            result = system.run_in_vm(0, PYTHON, "-m", "nvitop", "-1")
            expect(result.status == 0 and "512.0MiB" in result.out and str(program.pid) in result.out, "nvitop", result)
        program.end()


main()
