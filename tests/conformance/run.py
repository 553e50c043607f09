#!/usr/bin/env python3
"""Calls every function of the toolkit's headers with arguments that are wrong in some way (main.c), each function in processes of
its own, and says what came of it.

usage: run.py PROGRAM [FUNCTION…]      PROGRAM: build/tests/conformance/conformance

A line for each: the function, and for each way WAY=RESULT, where RESULT is the code that was returned (`CODE+LATER` where the next
synchronization returned another one), `signal N`, or `blocks`. Natively, on a GPU, that is what native.txt has.
"""
import concurrent.futures
import os
import signal
import subprocess
import sys
import tempfile

WAYS = ("uninitialized", "bare", "zero", "room", "wrong", "high", "ones", "ended")
PATIENCE_S = 60


class Ended(Exception):
    """A process that ended when it should not have."""


def functions(program, env=None):
    return subprocess.run([program, "--list"], stdout=subprocess.PIPE, text=True, env=env, check=True).stdout.split()


def process(program, name, first, env):
    """What it printed, and how it ended: None where that was well."""
    with tempfile.TemporaryDirectory() as folder:
        child = subprocess.Popen([program, name, str(first)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                 env=env, cwd=folder, start_new_session=True)
        try:
            out, err = child.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            out, err = child.communicate()
            return out.decode(errors="replace"), "blocks"
    if child.returncode > 0:
        raise Ended("%s: %s%s" % (name, out.decode(errors="replace"), err.decode(errors="replace")))
    return out.decode(errors="replace"), "signal %d" % -child.returncode if child.returncode else None


def call(program, name, env=None):
    """{way: result} of one function."""
    results, first = {}, 0
    while first < len(WAYS):
        text, end = process(program, name, first, env)
        way = None
        for words in (line.split(" ", 2) for line in text.splitlines()):
            if words[0] == name and len(words) == 3:
                way = words[1]
                results[way] = words[2]
        if end is None:
            break
        if way is None or WAYS.index(way) < first:
            raise Ended("%s: %s before it was called" % (name, end))
        results[way] = end      # of that call, or of what came of it
        first = WAYS.index(way) + 1
    return results


def call_all(program, names, env=None, jobs=os.cpu_count() or 1):
    """(function, {way: result}) of all of them, in their order."""
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        yield from zip(names, pool.map(lambda name: call(program, name, env), names))


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    program = os.path.abspath(sys.argv[1])
    for name, results in call_all(program, sys.argv[2:] or functions(program)):
        print(name, " ".join("%s=%s" % (way, result.replace(" ", "-")) for way, result in results.items()), flush=True)


if __name__ == "__main__":
    main()
