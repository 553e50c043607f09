#!/usr/bin/env python3
"""usage: tests/bench/textbook.py [--rounds N] [NAME…]

Measures how fast the software GPU executes the textbook programs of tests/apps (matrix product, option pricing, separable
convolution, merge sort, 3D stencil), with one thread that executes kernels, and prints a Markdown table. Each program runs
once with one round of its problem and once with many; what the second takes more is what is shown, so that start,
compilation and the host's check do not count. Seconds are CPU seconds of the server, which a busy machine does not
stretch; medians of N runs. FLYT_BUILD names the build folder. tests/bench/RESULTS.md has what was seen.
"""
import argparse
import os
import platform
import re
import resource
import signal
import statistics
import subprocess
import tempfile

from figures import table
import harness

# What is measured: program, its arguments behind the rounds, size, rounds.
PROBLEMS = {
    "matrix product 160², tiles of 16²": ("matrix_product", 160, 30, "16"),
    "matrix product 160², tiles of 32²": ("matrix_product", 160, 30, "32"),
    "matrix product 320², tiles of 16²": ("matrix_product", 320, 5, "16"),
    "matrix product 320², tiles of 32²": ("matrix_product", 320, 5, "32"),
    "binomial tree, 64 options, 250 steps": ("binomial_options", 64, 10),
    "separable convolution, radius 8, 512²": ("convolution_separable", 512, 5),
    "merge sort, 100,000 pairs": ("merge_sort", 100000, 3),
    "3D stencil, 25 points, 96³, 2 steps": ("stencil_3d", 96, 4),
}


def children_seconds():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def run(program, size, rounds, *arguments):
    """CPU seconds of a server and the program, thread-instructions, and floating-point operations of one round."""
    with tempfile.TemporaryDirectory() as folder:
        url = "unix://%s/socket" % folder
        accounts = os.path.join(folder, "accounts")
        os.mkdir(accounts)
        environment = {**os.environ, "FLYT_SOFT_WORKERS": "1", "FLYT_SOFT_ACCOUNT": accounts, "FLYT_LOG": "error",
                       "FLYT_LIB_DIR": os.path.join(harness.BUILD, "lib")}
        server = subprocess.Popen([os.path.join(harness.BUILD, "bin", "flyt-server"), "--listen", url, "--soft", "1"],
                                  stdout=subprocess.PIPE, env=environment)
        try:
            server.stdout.readline()
            done = subprocess.run([harness.FLYT_RUN, "--server", url, "--", harness.app(program), str(size), str(rounds),
                                   *arguments], capture_output=True, text=True, check=False, env=environment)
            harness.expect(done.returncode == 0, program, done.stderr)
            program_seconds = children_seconds()
            text = "".join(open(os.path.join(accounts, name), encoding="ascii").read() for name in os.listdir(accounts))
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait()
        seconds = children_seconds() - program_seconds
        instructions = sum(int(count) for count in re.findall(r"instructions=(\d+)", text))
        return seconds, instructions, float(done.stdout.split()[1])


def measure(program, size, rounds, *arguments):
    """(CPU seconds, thread-instructions, floating-point operations) of one round."""
    first, many = run(program, size, 1, *arguments), run(program, size, 1 + rounds, *arguments)
    return (many[0] - first[0]) / rounds, (many[1] - first[1]) / rounds, first[2]


def cpu_name():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        found = re.search(r"model name\s*: (.*)", file.read())
    return found.group(1) if found else platform.machine()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("names", nargs="*", help="only problems of these programs")
    options = parser.parse_args()
    rows = []
    for title, problem in PROBLEMS.items():
        if options.names and problem[0] not in options.names:
            continue
        seen = [measure(*problem) for _ in range(options.rounds)]
        seconds, instructions, flop = statistics.median(s for s, _, _ in seen), seen[0][1], seen[0][2]
        rows.append((title, "%.4f" % seconds, "%.0f" % (instructions / 1e6), "%.0f" % (instructions / seconds / 1e6),
                     "%.2f" % (flop / seconds / 1e9) if flop else "–"))
    table("Textbook programs on the software GPU, one core of %s." % cpu_name(), rows,
          ("problem", "CPU seconds", "million thread-instructions", "of them a second", "GFlop/s"))


if __name__ == "__main__":
    main()
