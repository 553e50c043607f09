#!/usr/bin/env python3
"""Functions passed by a launch, from the program's call to the driver's: on any machine, and whatever else it does.

usage: tests/bench/functions.py [--beside TREE] [--names]

Builds the client libraries, the server and the software GPU in build-functions with gcc's -finstrument-functions, which
counts a function also where the compiler has put it in its caller's place. What is not of this tree (libc, libtirpc and
their headers) is not counted, nor what the driver does. The program is tests/bench/launch of the usual build. Of the client count the functions from
cudaLaunchKernel's call to its return, all of which the program's thread enters; of the server those that the submission
thread enters from the driver's return of one launch to its call for the next one, where both came in one round of its
loop: the end of the one and the beginning of the next make one launch. Each figure is the median of all launches.
--beside measures a working tree of another commit, too. --names shows the functions of the launch in the middle.
"""
import argparse
import array
import bisect
import collections
import glob
import os
import subprocess
import sys
import tempfile

import figures
from figures import harness

LAUNCHES, ROUNDS = 450, 6
OUTER = ("cudaLaunchKernel", "__cudaLaunchKernel")
DRIVER, DRIVER_CALLS = "libflyt-softgpu", ("cuLaunchKernel", "cuLaunchKernelEx")
ROUND = "take_calls"

# Each thread's functions in their order, RETURN where one returns, in a file of its own; where they are, once per process.
# No process has to end well for it.
RECORDER = r"""
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
enum { EVENTS = 1 << 22, SEEN = 1 << 16, RETURN = 1 };
static __thread uintptr_t *events;
static __thread uint32_t count;
static _Atomic uintptr_t seen[SEEN];
static int open_file(const char *kind, int id)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%d.%s.%d", getenv("FUNCTIONS_IN"), (int)getpid(), kind, id);
    return open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}
static void tell_place(void *function)
{
    Dl_info info;
    char own[4096]; /* of the program itself the loader knows what it was called */
    int file = open_file("places", 0);
    if (file >= 0 && dladdr(function, &info))
        dprintf(file, "%lu %lu %s\n", (unsigned long)function,
                (unsigned long)((char *)function - (char *)info.dli_fbase),
                *info.dli_fname == '/' ? info.dli_fname : realpath("/proc/self/exe", own));
    close(file);
}
static void add(uintptr_t event)
{
    if (!events) {
        int file = open_file("thread", gettid());
        if (file < 0 || ftruncate(file, EVENTS * sizeof *events))
            abort();
        events = mmap(NULL, EVENTS * sizeof *events, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        close(file);
    }
    if (count < EVENTS)
        events[count++] = event;
}
void __cyg_profile_func_enter(void *function, void *from)
{
    const int caller_errno = errno;
    uintptr_t address = (uintptr_t)function, before;
    uint32_t slot = (uint32_t)(address >> 4) % SEEN;
    while ((before = atomic_load(&seen[slot])) != address) {
        uintptr_t none = 0;
        if (!before && atomic_compare_exchange_strong(&seen[slot], &none, address)) {
            tell_place(function);
            break;
        }
        slot = before ? (slot + 1) % SEEN : slot;
    }
    add(address);
    errno = caller_errno;
}
void __cyg_profile_func_exit(void *function, void *from)
{
    const int caller_errno = errno;
    add(RETURN);
    errno = caller_errno;
}
"""
RETURN = 1


class Symbols:
    """The functions of one file."""

    def __init__(self, path):
        said = subprocess.run(["nm", "--defined-only", path], capture_output=True, text=True, check=True).stdout
        rows = sorted((int(address, 16), name) for address, kind, name in (line.split() for line in said.splitlines())
                      if kind in "tTwW")
        self.addresses, self.names = [row[0] for row in rows], [row[1] for row in rows]

    def name(self, offset):
        """All of its names: aliases are one function."""
        first, end = bisect.bisect_left(self.addresses, offset), bisect.bisect_right(self.addresses, offset)
        return self.names[first:end]


def places(folder, pid):
    """{address: (file, names)} of a process's functions; of one that was being entered when it was killed, nothing."""
    symbols, found = {}, collections.defaultdict(lambda: ("", []))
    with open("%s/%s.places.0" % (folder, pid)) as file:
        for line in file:
            address, offset, path = line.split(None, 2)
            path = path.strip()
            if path not in symbols:
                symbols[path] = Symbols(path)
            found[int(address)] = (os.path.basename(path), symbols[path].name(int(offset)))
    return found


def is_any(place, names, file=""):
    return place[0].startswith(file) and any(name in names for name in place[1])


def of_calls(events, where):
    """[the functions] of each call of the program, that one included."""
    calls, depth, call_depth, call = [], 0, 0, None
    for event in events:
        if event == RETURN:
            depth -= 1
            if call is not None and depth < call_depth:
                calls.append(call)
                call = None
            continue
        depth += 1
        if call is None and is_any(where[event], OUTER):
            call, call_depth = [], depth
        if call is not None:
            call.append(event)
    return calls


def of_submissions(events, where):
    """[the functions] between two launches of the driver in one round."""
    calls, depth, inside, call = [], 0, 0, None
    for event in events:
        if event == RETURN:
            inside = inside if depth != inside else 0
            depth -= 1
            continue
        depth += 1
        if inside:
            continue
        if is_any(where[event], DRIVER_CALLS, DRIVER):
            if call is not None:
                calls.append(call)
            inside, call = depth, []
        elif where[event][0].startswith(DRIVER):
            inside = depth
        elif is_any(where[event], (ROUND,)):
            call = None
        elif call is not None:
            call.append(event)
    return calls


def launches(folder, select):
    """[[function]] of the thread that has launches."""
    for path in glob.glob(folder + "/*.thread.*"):
        pid = os.path.basename(path).split(".")[0]
        where = places(folder, pid)
        events = array.array("Q")
        with open(path, "rb") as file:
            events.frombytes(file.read())
        end = events.index(0) if 0 in events else len(events)
        calls = select(events[:end], where)
        if len(calls) > LAUNCHES:
            return [["%s (%s)" % ((where[event][1] or ["?"])[0], where[event][0]) for event in call] for call in calls]
    raise harness.Failed("no thread with launches in " + folder)


def build(tree, *targets):
    # Instrumented code draws warnings that the code as it is does not.
    env = {**os.environ, "CFLAGS": "-finstrument-functions -finstrument-functions-exclude-file-list=/usr/include "
                                   "-Wno-error=dangling-pointer"}
    subprocess.run(["make", "-C", tree, "-j%d" % os.cpu_count(), "B=build-functions", *targets], check=True, env=env,
                   stdout=subprocess.DEVNULL)
    return os.path.join(tree, "build-functions")


def measure(folder_built):
    """{side: the functions of the launch in the middle}"""
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "recorder.c"), "w") as file:
            file.write(RECORDER)
        recorder = os.path.join(folder, "recorder.so")
        subprocess.run(["cc", "-D_GNU_SOURCE", "-O2", "-shared", "-fPIC", "-o", recorder, os.path.join(folder, "recorder.c")],
                       check=True)
        sides = {side: os.path.join(folder, side) for side in ("client", "server")}
        for path in sides.values():
            os.mkdir(path)
        url = "unix://%s/socket" % folder
        env = {**os.environ, "LD_PRELOAD": recorder, "FLYT_LOG": "warn"}
        serving = subprocess.Popen([os.path.join(folder_built, "bin", "flyt-server"), "--listen", url, "--soft", "1"],
                                   env={**env, "FUNCTIONS_IN": sides["server"]}, stdout=subprocess.PIPE,
                                   start_new_session=True)
        try:
            serving.stdout.readline()
            subprocess.run([figures.bench_program("launch"), str(LAUNCHES), str(ROUNDS), "1"], check=True,
                           stdout=subprocess.DEVNULL,
                           env={**env, "FUNCTIONS_IN": sides["client"], "FLYT_SERVER": url,
                                "LD_LIBRARY_PATH": os.path.join(folder_built, "lib")})
        finally:
            harness.kill_group(serving)
            serving.wait()
        selects = {"client": of_calls, "server": of_submissions}
        found = {side: sorted(launches(path, selects[side]), key=len) for side, path in sides.items()}
        return {side: calls[len(calls) // 2] for side, calls in found.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--beside", metavar="TREE")
    parser.add_argument("--names", action="store_true")
    options = parser.parse_args()
    trees = [os.path.abspath(tree) for tree in (options.beside, harness.ROOT) if tree]
    measured = [measure(build(tree, "client", "server")) for tree in trees]
    rows = [[side] + [str(len(found[side])) for found in measured] for side in ("client", "server")]
    rows.append(["both"] + [str(sum(map(len, found.values()))) for found in measured])
    figures.table("Functions per launch", rows, ("side",) + (("before", "now") if options.beside else ("now",)))
    if options.names:
        for tree, found in zip(trees, measured):
            for side, names in found.items():
                print("\n%s, %s:\n  %s" % (tree, side, "\n  ".join(names)))


if __name__ == "__main__":
    sys.exit(main())
