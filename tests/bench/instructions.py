#!/usr/bin/env python3
"""Instructions per launch and per call of NVIDIA's libraries, counted by valgrind's callgrind: on any machine, and whatever else
it does.

usage: tests/bench/instructions.py [--build DIR] [--beside DIR] [--rounds N]

A program launches a kernel with one parameter on the software GPU, 450 times between two synchronizations (fewer than a
stream holds, so that no call has to wait), once 900 times and once 2,700 times: what the second run took more, by 1,800,
is one launch. Of the server the submission thread counts, less all that the driver does when it is called; of the client
the program's thread. How often the server's loop looks for more depends on the moment, and a round costs more than
a launch: beside the instructions stands how many rounds a launch took. Each figure is the median of three such pairs,
or of N. Of calls of NVIDIA's libraries (`libraries.cu`) the client's are counted in the same way. --beside measures another
build, too, e.g. that of the commit before.
"""
import argparse
import glob
import os
import re
import statistics
import subprocess
import sys
import tempfile

import figures
from figures import harness

BATCH, FEW, MANY = 450, 2, 6
DRIVER = "libflyt-softgpu"
LOOP = "flyt_jobs_advance"  # once in each round of the server
# {side: the function by which the thread that counts is known}
LAUNCH = {"client": "flyt_kernel_launch", "server": "flyt_serve_kernel_launch"}
LIBRARY = {"client": "flyt_lib_finish"}
ROWS = ("cublasSaxpy_host", "cublasSgemm_host", "cublasSgemm_device", "cublasLtMatmul", "cufftExecC2C", "cusparseSpMV", "cudnnAddTensor")

# The listener executes /proc/self/exe, which is valgrind there.
SHIM = r"""
#include <string.h>
#include <unistd.h>
int execv(const char *path, char *const argv[])
{
    char own[4096];
    ssize_t bytes = strcmp(path, "/proc/self/exe") ? -1 : readlink(path, own, sizeof own - 1);
    if (bytes >= 0)
        own[bytes] = '\0';
    return execve(bytes >= 0 ? own : path, argv, environ);
}
"""


def name(names, text):
    """A name is written out only where it comes first."""
    number, full = re.match(r"\((\d+)\)(?: (.*))?", text).groups()
    return names.setdefault(number, full)


class Counts:
    """One thread of a callgrind file: instructions of all, and of the driver with what it calls; rounds of the server."""

    def __init__(self, path):
        self.total, self.driver, self.rounds = 0, 0, 0
        self.names, self.functions = {}, {}
        place, callee_place, callee, is_call = "", "", "", False
        with open(path) as lines:
            for line in lines:
                key, _, text = line.rstrip("\n").partition("=")
                if key == "ob":
                    place = callee_place = name(self.names, text)
                elif key == "cob":
                    callee_place = name(self.names, text)
                elif key == "fn":
                    name(self.functions, text)
                elif key == "cfn":
                    callee = name(self.functions, text)
                elif key == "calls":
                    is_call = True
                    self.rounds += int(text.split()[0]) if callee == LOOP else 0
                elif re.match(r"[+\-*0-9]", line):
                    cost = int(line.split()[1])
                    if is_call:
                        self.driver += cost if DRIVER in callee_place and DRIVER not in place else 0
                        callee_place, is_call = place, False
                    else:
                        self.total += cost

    def own(self):
        return self.total - self.driver


def written(pattern, function):
    """The file of the thread that calls the function, once callgrind has written it; None: not yet."""
    for path in glob.glob(pattern):
        with open(path) as file:
            text = file.read()
        if function in text and text.rstrip().rpartition("\n")[2].startswith("totals:"):
            return path
    return None


def count(build, side, batches, row):
    """Of one run of `libraries` with this row, or of `launch` where it is None."""
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "shim.c"), "w") as file:
            file.write(SHIM)
        shim = os.path.join(folder, "shim.so")
        subprocess.run(["cc", "-D_GNU_SOURCE", "-shared", "-fPIC", "-o", shim, os.path.join(folder, "shim.c")], check=True)
        counted = ["valgrind", "-q", "--tool=callgrind", "--trace-children=yes", "--separate-threads=yes",
                   "--callgrind-out-file=%s/out.%%p" % folder]
        url = "unix://%s/socket" % folder
        env = {**os.environ, "LD_BIND_NOW": "1", "FLYT_LOG": "warn"}
        server = [os.path.join(build, "bin", "flyt-server"), "--listen", url, "--soft", "1"]
        if side == "server":
            server = ["setarch", "-R", "env", "LD_PRELOAD=" + shim] + counted + server
        program = [os.path.join(build, "tests", "bench", "libraries" if row else "launch"), str(BATCH), str(batches), row or "1"]
        serving = subprocess.Popen(server, env=env, stdout=subprocess.PIPE, start_new_session=True)
        try:
            serving.stdout.readline()
            subprocess.run((counted if side == "client" else []) + program, check=True, stdout=subprocess.DEVNULL,
                           env={**env, "LD_LIBRARY_PATH": os.path.join(build, "lib"), "FLYT_SERVER": url})
            function = (LIBRARY if row else LAUNCH)[side]
            harness.within(60, lambda: written(folder + "/out.*-*", function), "what callgrind writes")
            return Counts(written(folder + "/out.*-*", function))
        finally:
            harness.kill_group(serving)


def per_call(build, side, pair_count, row=None):
    pairs = [(count(build, side, FEW, row), count(build, side, MANY, row)) for _ in range(pair_count)]
    launches = (MANY - FEW) * BATCH
    instructions = statistics.median((many.own() - few.own()) / launches for few, many in pairs)
    rounds = statistics.median((many.rounds - few.rounds) / launches for few, many in pairs)
    return "%.0f" % instructions + (" in %.2f rounds" % rounds if side == "server" else "")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=harness.BUILD)
    parser.add_argument("--beside")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    builds = [os.path.abspath(build) for build in (options.beside, options.build) if build]
    heads = ("before", "now") if options.beside else ("now",)
    rows = [[side] + [per_call(build, side, options.rounds) for build in builds] for side in LAUNCH]
    figures.table("Instructions per launch", rows, ("side",) + heads)
    rows = [[row] + [per_call(build, "client", options.rounds, row) for build in builds] for row in ROWS]
    figures.table("Instructions per call of a library, client", rows, ("call",) + heads)


if __name__ == "__main__":
    sys.exit(main())
