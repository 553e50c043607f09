#!/usr/bin/env python3
"""Functions and files passed by an operator's command, from its request to its reply, in all daemons.

usage: tests/bench/operations.py [--names] [TREE...]

Builds each working tree (default: this one) in its folder build-functions with gcc's -finstrument-functions, which counts a
function also where the compiler has put it in its caller's place, and has a cluster manager, two node managers and their
servers of that build, on software GPUs, while a program computes. Counted are distinct functions, and the files that they stand
in, of a tree's own code (neither libraries nor generated code); the two node managers count as one, the servers too. Each
figure is the median of all times that the command is run. `further`: those that no daemon enters while nothing is asked for,
as it does for heartbeats, leases and logs. Programs are those of FLYT_BUILD. --names shows the further ones.
"""
import argparse
import contextlib
import mmap
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

import figures
from figures import harness
import cluster
import functions
from steady import Steady, add_vm

TIMES, IDLE_S, TEXT_BYTES = 7, 5, 64 << 20
PROGRAMS = cluster.DAEMONS
OWN = re.compile("/((?:control|rpc|cpu)/[^:]*)")

# A byte for each byte of a program's text, shared by all of its processes: 1 where a function was entered while `is_on`.
RECORDER = r"""
#include <fcntl.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
enum { TEXT_BYTES = 64 << 20 };
static uintptr_t base;
static volatile uint8_t *entered, *is_on;
static volatile uint8_t *map(const char *name, size_t bytes)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", getenv("FUNCTIONS_IN"), name);
    int file = open(path, O_RDWR | O_CLOEXEC);
    void *at = file < 0 ? MAP_FAILED : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (file >= 0)
        close(file);
    return at == MAP_FAILED ? NULL : at;
}
static int first(struct dl_phdr_info *info, size_t bytes, void *unused)
{
    base = info->dlpi_addr;
    return 1;
}
__attribute__((constructor)) static void init(void)
{
    char exe[4096] = "";
    if (!getenv("FUNCTIONS_IN") || readlink("/proc/self/exe", exe, sizeof exe - 1) < 0)
        return;
    dl_iterate_phdr(first, NULL);
    is_on = map("is_on", 1);
    entered = is_on ? map(strrchr(exe, '/') + 1, TEXT_BYTES) : NULL;
}
void __cyg_profile_func_enter(void *function, void *from)
{
    if (entered && *is_on && (uintptr_t)function - base < TEXT_BYTES)
        entered[(uintptr_t)function - base] = 1;
}
void __cyg_profile_func_exit(void *function, void *from)
{
}
"""


class Recording:
    """What the programs of a build enter, in a folder that their processes find by FUNCTIONS_IN."""

    def __init__(self, build):
        self.build, self.known = build, {}
        self.folder = tempfile.mkdtemp(prefix="functions-", dir=harness.WORK)
        self.recorder = os.path.join(self.folder, "recorder.so")
        with open(os.path.join(self.folder, "recorder.c"), "w", encoding="utf-8") as source:
            source.write(RECORDER)
        subprocess.run(["cc", "-D_GNU_SOURCE", "-O2", "-shared", "-fPIC", "-o", self.recorder, source.name], check=True)
        self.is_on = self._map("is_on", 1)
        self.entered = {program: self._map(program, TEXT_BYTES) for program in PROGRAMS}

    def _map(self, name, size):
        with open(os.path.join(self.folder, name), "w+b") as file:
            file.truncate(size)
            return mmap.mmap(file.fileno(), size)

    @contextlib.contextmanager
    def while_on(self):
        """Yields a set that has (program, file, function) of what was entered, when the block has ended."""
        for program in PROGRAMS:
            self.entered[program][:] = bytes(TEXT_BYTES)
        found = set()
        self.is_on[0] = 1
        try:
            yield found
        finally:
            self.is_on[0] = 0
        for program in PROGRAMS:
            found |= self._names(program, self._offsets(program))

    def _offsets(self, program):
        entered, offset, found = self.entered[program], -1, []
        while (offset := entered.find(b"\1", offset + 1)) >= 0:
            found.append(offset)
        return found

    def _names(self, program, offsets):
        new = [offset for offset in offsets if (program, offset) not in self.known]
        if new:
            command = ["addr2line", "-f", "-e", os.path.join(self.build, "bin", program)]
            said = subprocess.run(command, input="".join("%#x\n" % offset for offset in new), check=True,
                                  stdout=subprocess.PIPE, text=True).stdout.splitlines()
            for offset, name, place in zip(new, said[::2], said[1::2]):
                own = OWN.search(place)
                self.known[program, offset] = (program, own[1], name) if own else None
        return {self.known[program, offset] for offset in offsets} - {None}


def commands():
    """[(name, the words of each time)], while a program computes in the one VM."""
    return (("resize", [("resize", "vm-0", "--sm", 8 + 8 * (i % 2)) for i in range(TIMES)]),
            ("migrate to a GPU", [("migrate", "vm-0", "--to", "node-0:%d" % ((i + 1) % 2)) for i in range(TIMES)]),
            ("migrate to a node", [("migrate", "vm-0", "--to", "node-%d" % ((i + 1) % 2)) for i in range(TIMES)]))


def is_settled(system):
    rows = system.flytctl("allocations")
    return (len(rows) == 1 and not rows[0]["migration"] and rows[0]["revision"] == rows[0]["revision_applied"]
            and rows[0]["switch_state"] == "vacated" and all(gpu["warm"] >= 1 for gpu in system.flytctl("gpus")))


def record(recording):
    """({command: [what each time entered]}, what idle daemons enter)"""
    cluster.DAEMON_BUILD = recording.build
    env = harness.environment(LD_PRELOAD=recording.recorder, FUNCTIONS_IN=recording.folder)
    with cluster.System(nodes=2, gpus=2, sms=32, namespaces=False, env=env, node={"warm": 1}) as system:
        system.flytctl("cordon", "node-1")
        add_vm(system, 0, "--name", "vm-0", "--reserved", sm=16)
        program = Steady(system, 0)
        system.flytctl("uncordon", "node-1")
        harness.within(60, lambda: is_settled(system), "the VM's GPU is ready")
        with recording.while_on() as idle:
            time.sleep(IDLE_S)
        found = {}
        for name, times in commands():
            for words in times:
                with recording.while_on() as entered:
                    system.flytctl(*words)
                found.setdefault(name, []).append(entered)
                harness.within(60, lambda: is_settled(system), "the VM's GPU is ready")
        program.ends_right()
    return found, idle


def medians(sets):
    files = [len({(program, path) for program, path, _ in found}) for found in sets]
    return "%d in %d files" % (statistics.median(map(len, sets)), statistics.median(files))


def report(title, found, idle, has_names):
    rows = []
    for name, times in found.items():
        for program in (*PROGRAMS, "all"):
            own = [{place for place in entered if program in (place[0], "all")} for entered in times]
            if any(own):
                rows.append([name, program, medians(own), medians([entered - idle for entered in own])])
    figures.table(title, rows, ("command", "program", "functions", "further"))
    for name, times in found.items() if has_names else ():
        entered = sorted(sorted(times, key=len)[len(times) // 2] - idle)
        print("\n%s:\n  %s" % (name, "\n  ".join("%s %s %s" % place for place in entered)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--names", action="store_true")
    parser.add_argument("trees", metavar="TREE", nargs="*", default=[harness.ROOT])
    options = parser.parse_args()
    with harness.workspace():
        for tree in map(os.path.realpath, options.trees):
            found, idle = record(Recording(functions.build(tree, "server", "control")))
            report("Functions and files from request to reply: " + os.path.basename(tree), found, idle, options.names)


if __name__ == "__main__":
    sys.exit(main())
