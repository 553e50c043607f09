#!/usr/bin/env python3
"""Which of NVIDIA's libraries nodes have, and what that means for programs that open some: nodes of software GPUs, of
which one has no libraries and one has older ones (programs/older_library.c)."""
import json
import os
import re

import harness
from cluster import System
from harness import expect, expect_equal, main, scenario, within
from library_program import Program
from steady import add_vm

OLDER = os.path.join(harness.BUILD, "tests", "system", "older_library.so")
PLAIN, OLD, BARE, OTHER = range(4)      # nodes


def folders():
    """Of the node with older libraries, and of the one with none."""
    older, none = (os.path.join(harness.WORK, name) for name in ("older", "none"))
    for folder in (older, none):
        os.makedirs(folder, exist_ok=True)
    for name in ("libcublas.so.13", "libcufft.so.12"):
        path = os.path.join(older, name)
        if not os.path.lexists(path):
            os.symlink(os.path.abspath(OLDER), path)
    return {OLD: {"libraries": older}, BARE: {"libraries": none}}


def doctor(system):
    result = system.flytctl_run("doctor", "--cluster", "-o", "json")
    expect_equal(result.status, 0, "flytctl doctor --cluster", result)
    return [(f["verdict"], f["text"], f["advice"]) for f in json.loads(result.out) if f["subject"] == "libraries"]


def version_of(system, node, name):
    found = {n["name"]: n["libraries"] for n in system.flytctl("nodes")}["node-%d" % node]
    return next((text.split()[1] for text in found or [] if text.split()[0] == name), None)


@scenario
def a_program_goes_where_its_libraries_are():
    settings = folders()
    with System(nodes=4, vms=1, sms=64, node=lambda i: settings.get(i, {})) as system:
        within(60, lambda: all(n["libraries"] is not None for n in system.flytctl("nodes")), "all nodes tell")
        there = version_of(system, PLAIN, "cublas")
        major, minor = map(int, there.split("."))
        expect(major == 13 and minor > 0, "the software GPUs' cuBLAS", there)
        expect_equal((version_of(system, OLD, "cublas"), version_of(system, OLD, "cufft")), ("13.0", "11.0"), "older ones")
        expect_equal(version_of(system, BARE, "cublas"), None)
        expect("cublas 13.0,cufft 11.0" in system.flytctl_run("nodes", "-o", "wide").out.replace(", ", ","), "nodes -o wide")

        found = doctor(system)
        expect(any(v == "warn" and "node-2 has none of NVIDIA's libraries" in text and advice for v, text, advice in found), found)
        expect(any(v == "warn" and "cublas differs: %s: node-0, node-3; 13.0: node-1" % there in text and advice
                   for v, text, advice in found), found)

        for i in (OLD, BARE, OTHER):
            system.flytctl("cordon", "node-%d" % i)
        add_vm(system, 0, "--name", "alice", "--sessions", 8, sm=16, memory="256M")
        program = Program(system, 0, "descent")
        seen = [program.steps()]
        opened = within(30, lambda: [s["libraries"] for s in system.flytctl("sessions") if s["libraries"]],
                        "the session tells")[0]
        expect_equal(opened, ["cublas " + there], "what it has opened")
        for i in (OLD, BARE, OTHER):
            system.flytctl("uncordon", "node-%d" % i)

        for target, has in (("node-1", "has 13.0"), ("node-1:0", "has 13.0"), ("node-2", "has none"), ("node-2:0", "has none")):
            refused = system.flytctl_run("migrate", "alice", "--to", target)
            expect(refused.status and "needs cublas %s, node %s" % (there, has) in refused.err, target, refused)
        expect_equal(system.flytctl("migrations"), [], "nothing has begun")
        moved = system.flytctl_run("migrate", "alice", "--stop-timeout", "60000", timeout=300)
        expect_equal(moved.status, 0, "a move to any node", moved)
        within(30, lambda: [s["node"] for s in system.flytctl("sessions")] == ["node-3"], "it is at the only one with the library")
        seen.append(program.steps())
        expect(len(set(seen)) == 2, "it goes on", seen)
        expect_equal(program.ends().status, 0)


@scenario
def a_vm_gets_a_node_with_what_it_names():
    settings = folders()
    nodes = {0: settings[BARE], 1: settings[OLD], 2: {}}
    with System(nodes=3, vms=3, sms=64, node=nodes.get) as system:
        within(60, lambda: all(n["libraries"] is not None for n in system.flytctl("nodes")), "all nodes tell")
        there = version_of(system, 2, "cublas")
        wrong = system.flytctl_run("vm", "add", system.vm_ip(0), "--sm", "8", "--memory", "64M", "--library", "cuBLAS 13")
        expect(wrong.status and 'libraries has "cuBLAS 13"' in wrong.err, "a library that cannot be read", wrong)
        for i, wanted in enumerate((["cublas " + there], ["cublas", "cufft 11.0"], ["cublas 14.0"])):
            add_vm(system, i, "--name", "vm%d" % i, *sum((["--library", w] for w in wanted), []), sm=8, memory="64M")
        program = Program(system, 0, "descent")
        program.steps()
        expect_equal(within(30, lambda: [s["node"] for s in system.flytctl("sessions")], "its session"), ["node-2"],
                     "the node with the newest")
        expect_equal(program.ends().status, 0)
        expect_equal(system.flytctl("vms", "vm1")[0]["libraries"], ["cublas", "cufft 11.0"])
        told = system.flytctl_run("explain", "vm1").out
        expect("needs cublas, node has none" in told and "node-1" in told, "where vm1 may go", told)
        told = system.flytctl_run("explain", "vm2").out
        expect("needs cublas 14.0, node has 13.0" in told and "needs cublas 14.0, node has " + there in told, "vm2", told)


def of_client(name):
    """The version of that library of Flyt's, which is what a program has."""
    with open(os.path.join(harness.ROOT, "rpc", "library", name + ".rows"), encoding="ascii") as file:
        return re.search(r"^library .* version (\S+)", file.read(), re.MULTILINE).group(1)


@scenario
def an_older_library_serves_no_program():
    """Of an older minor version, and of another major one: the sentence names both."""
    with System(nodes=1, vms=1, sms=64, node=folders()[OLD]) as system:
        add_vm(system, 0, sm=8, memory="64M")
        expect(of_client("cublas") > "13.0", "cuBLAS has a minor version", of_client("cublas"))
        for program, status, name, file, theirs in ((harness.helper("descent"), 7, "cublas", "libcublas.so.13", "13.0"),
                                                    (harness.app("fft"), 1, "cufft", "libcufft.so.12", "11.0")):
            result = system.run_in_vm(0, program)
            expect_equal(result.status, status, "its first call is refused", result)
            expect("the node's %s is version %s, and this program's is %s\n" % (file, theirs, of_client(name)) in result.err, result)
        expect_equal(system.run_in_vm(0, harness.app("launch")).status, 0, "a program without them")


if __name__ == "__main__":
    main()
