#!/usr/bin/env python3
"""Measures how long programs stand still, and what they notice, while their VM moves and while they are written to images.

A program (tests/bench/rewrite.cu) rewrites a share of its memory's pages in each second, and knows each gap between two of
its rounds; it compares all of its memory at the end. In a whole system on this machine's NVIDIA GPUs under MPS, or, where
there is none or with FLYT_TEST_SOFTWARE=1, on software GPUs, whose figures say something of the way and nothing of a GPU.

  tcp                plain connections over the loopback interface, which those between nodes are compared with
  migrate            flytctl migrate, there and back: to new server processes on the same GPU, to another GPU of the node,
                     to another node (each sees one of the machine's GPUs), whose connections are on the loopback interface
  graphs             flytctl migrate, of a program that has 100 executable graphs of 1,000 kernels, and has none, in turns:
                     at least 10 pairs of moves on each path (--paths same,other,node)
  checkpoint         flytctl checkpoint, with --leave-running and without, and flytctl restore
  driver-checkpoint  the driver's own checkpoint and restore of the program, natively: without Flyt and without MPS
  driver-server      the same of a server process, without MPS: whether it, and what holds its memory, goes on

Markdown tables of medians (smallest–largest), a line for each move meanwhile. --out FOLDER keeps all figures as
TOPIC.json, written anew after each row, and what there is to read of a failure as failure-N.log. FLYT_BUILD names the build
folder. Exit status: 1 where a command failed or a program was not intact, else 0.
"""
import argparse
import contextlib
import json
import multiprocessing
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import figures
from figures import HAS_GPU, spread, table
import harness
from cluster import System
from rewriter import Rewriter, now_us
from steady import allocation

GIB = 1 << 30
COMMAND_S = 900
CALM_S = 0.5 if HAS_GPU else 1.5        # before each move: the program's rate without one
AFTER_S = 0.2                           # the program's gap may end a moment after flytctl has
LOOK_S = 0.02                           # between two looks at a move
STOP_MS = 10000 if HAS_GPU else 120000  # so that a long standstill is measured, not ended
SLOT_BYTES = 2 * GIB if HAS_GPU else 64 << 20       # of a VM, beside its program's memory
WARM = 1                                # servers for each GPU
STREAMS = 4                             # connections for contents, between nodes
ENDS_S = 20                             # of a program that something has failed with: for its own end
ROUNDS_MIN = 5                          # fewer say nothing of a rate
WRONG = (harness.Failed, OSError, ValueError, LookupError, TypeError, subprocess.SubprocessError)


class Results:
    """What is kept of a topic, and whether something failed."""

    def __init__(self, topic, options):
        self.topic, self.folder, self.rows, self.failures = topic, options.out, [], []
        self.options = {name: value for name, value in vars(options).items() if name != "topics"}

    def write(self):
        if not self.folder:
            return
        path = os.path.join(self.folder, self.topic + ".json")
        with open(path + ".new", "w", encoding="utf-8") as f:
            json.dump({"topic": self.topic, "machine": figures.machine(), "options": self.options, "rows": self.rows,
                       "failures": self.failures}, f, indent=1)
        os.replace(path + ".new", path)

    def failed(self, what, failure, system=None, program=None):
        """Says it, with the failure's whole text, and keeps what daemons said, before they end, and what becomes of the
        program."""
        said = "%s: %s: %s" % (what, type(failure).__name__, failure)
        self.failures.append(said)
        print("bench: %s: %s" % (self.topic, said), file=sys.stderr, flush=True)
        parts = [("failure", said), *(traces(system) if system else [])]
        if program:
            parts.append(("program", program.remains(ENDS_S if isinstance(failure, WRONG) else 0)))
            print("bench: %s: %s" % (self.topic, parts[-1][1]), file=sys.stderr, flush=True)
        text = "\n".join("==== %s\n%s" % part for part in parts) + "\n"
        if self.folder:
            name = "failure-%s-%d.log" % (self.topic, len(self.failures))
            with open(os.path.join(self.folder, name), "w", encoding="utf-8") as f:
                f.write(text)
        else:
            print(text, file=sys.stderr, flush=True)
        self.write()


def traces(system):
    """[(name, text)]: the daemons' logs, whole, MPS's, and what flytctl says."""
    found = []
    for words in (["events"], ["sessions", "-o", "json"], ["migrations", "-o", "json"], ["checkpoints", "-o", "json"],
                  ["gpus", "-o", "json"], ["allocations", "-o", "json"]):
        with contextlib.suppress(*WRONG):
            result = system.flytctl_run(*words)
            found.append(("flytctl " + " ".join(words), result.out + result.err))
    for name in system.daemons():
        with contextlib.suppress(*WRONG):
            found.append(("log of " + name, system.log(name)))
    for name in ("control.log", "server.log"):
        path = os.path.join(harness.WORK, "mps", "log", name)
        if os.path.exists(path):
            with open(path, errors="replace") as f:
                found.append(("MPS's " + name, f.read()))
    return found


# ---- a system ----

def setting_of(mps):
    """Of each node, by its index."""
    def settings(i):
        if not HAS_GPU:
            return {"warm": WARM}
        own = {"mps_dir": os.path.join(harness.WORK, "mps-%d" % i)} if mps == "start" else {}
        return {"warm": WARM, "mps": mps, **own}
    return settings


def whole(bytes_, gpus=2, nodes=1, mps="start", share=1, **cluster):
    """VM 0 may have a program with so much memory, on any GPU, on one of `share` parts of its SMs."""
    memory_mib = (2 * (bytes_ + SLOT_BYTES)) >> 20
    hardware = HAS_GPU and ("each" if nodes > 1 else True)
    system = System(nodes=nodes, vms=1, gpus=gpus // nodes, hardware=hardware, namespaces=False, sms=32,
                    memory="%dM" % memory_mib, node=setting_of(mps), cluster={"allocation_linger_s": 0.5, **cluster},
                    env=harness.environment(FLYT_LOG_CLOCK="1"))
    try:
        sms = min(gpu["sms"] for gpu in system.flytctl("gpus"))
        system.flytctl("vm", "add", system.vm_ip(0), "--sm", sms // share, "--memory", "%dM" % ((bytes_ + SLOT_BYTES) >> 20))
        return system
    except BaseException:
        system.print_logs()
        system.close()
        raise


def servers_ready(system, programs):
    """So many programs are there, and as many servers as configured are warm: nothing is being started."""
    harness.within(120, lambda: len(system.flytctl("sessions")) == programs and all(
        gpu["warm"] >= WARM and gpu["health"] == "ok" for gpu in system.flytctl("gpus")),
        "%d programs, and %d warm servers for each GPU" % (programs, WARM))


def follow(system, *words, view="migrations"):
    """Begins it and looks at it until it is over: its row, (time, phase) when each was seen first, and the largest rate."""
    begun = system.flytctl(*words, "--detach")
    seen, rate = [(now_us(), begun["phase"])], 0
    while True:
        row = system.flytctl(view, begun["id"])[0]
        if row["phase"] != seen[-1][1]:
            seen.append((now_us(), row["phase"]))
        rate = max(rate, row.get("bytes_per_s") or 0)
        if row["ended_ms"] is not None:
            harness.expect(row["phase"] == "done", words[0], row["phase"] + ":", row["reason"], row)
            return row, seen, rate
        time.sleep(LOOK_S)


def slower(program, before, from_us, to_us):
    """By how many per cent its rounds were fewer in that time; None where it was too short to say."""
    if to_us <= from_us:
        return None
    span = program.span(from_us, to_us)
    if span["rounds"] < ROUNDS_MIN or not before["rounds_per_s"]:
        return None
    return 100 * (1 - span["rounds_per_s"] / before["rounds_per_s"])


def stopped_at(during, reported_us):
    """The gap that is the stop: a shorter one before it may come of the copying, or a longer one. The last of those that
    are about as long as what was reported; the longest, where nothing was."""
    like = [gap for gap in during["gaps"] if reported_us and gap["us"] >= reported_us / 2]
    return max(like, key=lambda gap: gap["began_us"]) if like else during["gaps"][0]


# What the node manager and the new server process say when a session has moved.
SAID = (re.compile(r": has moved, .*"), re.compile(r": goes on, client_pid=.*"))
FIGURE = re.compile(r"\b([a-z_]+)=(\d+)\b")


def steps_of(system):
    """{name: number}: the steps of the last standstill, as they are in the log of the node that has said so last: the node
    manager's, and in them the new server's."""
    steps, logs = {}, [system.log("node-%d" % i) for i in range(system.node_count)]
    for said in SAID:
        lines = [line for log in logs for line in log.splitlines() if said.search(line)]
        newest = max(lines, key=lambda line: float(line.split()[0]), default="")    # FLYT_LOG_CLOCK
        steps.update((name, int(number)) for name, number in FIGURE.findall(newest)
                     if name.endswith("_us") or name in ("calls", "extents", "adopted", "loaded"))
    return steps


def watched(program, action):
    """What action() did, a row and what follow() says beside it, and what the program saw of it, between a calm time before
    and a round after."""
    program.after(CALM_S)
    begin = now_us()
    row, seen, rate = action()
    end = program.after(AFTER_S)
    before, during = program.span(begin - CALM_S * 1e6, begin), program.span(begin, end)
    stop = stopped_at(during, row["standstill_us"])
    copying = next((when for when, phase in seen if phase == "copying"), begin)
    copying_s = (stop["ended_us"] - copying) / 1e6
    return {"row": row, "phases": [[(when - begin) / 1e6, phase] for when, phase in seen], "largest_bytes_per_s": rate,
            "before": before, "during": during, "began_us": begin, "stop": stop,
            "seen_ms": during["gaps"][0]["us"] / 1e3, "reported_ms": row["standstill_us"] / 1e3,
            "total_s": row["elapsed_ms"] / 1e3,
            "copied_gib": row["copied_bytes"] / GIB, "copying_s": copying_s,
            "gb_per_s": row["copied_bytes"] / copying_s / 1e9 if row["copied_bytes"] and copying_s > 0 else None,
            "slower_pct": slower(program, before, copying, stop["began_us"])}


def said_of(values, form="%.1f"):
    """Median, smallest and largest of those that there are."""
    known = [value for value in values if value is not None]
    return spread(known, form) if known else "–"


def middle(values, form="%.2f"):
    known = [value for value in values if value is not None]
    return form % statistics.median(known) if known else "–"


def rewriting(share):
    return "all the time" if share == "all" else share + " %/s"


# ---- migrate ----

class Path:
    """A way that a VM can take. `target`: the words of flytctl migrate, of the system and of the GPU where it is; `cluster`:
    settings of the cluster manager."""

    def __init__(self, what, gpus, target, nodes=1, **cluster):
        self.what, self.gpus, self.nodes, self.target, self.cluster = what, gpus, nodes, target, cluster


def names_of_gpus(system):
    return {gpu["uuid"]: "%s:%d" % (gpu["node"], gpu["index"]) for gpu in system.flytctl("gpus")}


def other_gpu(system, here):
    node = here.split(":")[0]
    return ["--to", next(name for name in sorted(names_of_gpus(system).values())
                         if name != here and name.split(":")[0] == node)]


def other_node(streams):
    def target(system, here):
        node = here.split(":")[0]
        return ["--to", next(name for name in sorted(names_of_gpus(system).values()) if name.split(":")[0] != node),
                "--streams", str(streams)]
    return target


PATHS = {"same": Path("new servers on the same GPU", 1, lambda system, here: ["--to", here, "--force"]),
         "other": Path("another GPU of the node", 2, other_gpu),
         "node": Path("another node, %d streams" % STREAMS, 2, other_node(STREAMS), 2),
         "node-1": Path("another node, 1 stream", 2, other_node(1), 2),
         "node-tls": Path("another node, %d streams, TLS" % STREAMS, 2, other_node(STREAMS), 2, encrypted=True)}


def place(system):
    """NODE:INDEX of the GPU that VM 0 has, when nothing is under way with it."""
    def settled():
        row = allocation(system, 0)
        return row if not row["migration"] and row["revision"] == row["revision_applied"] else None
    return names_of_gpus(system)[harness.within(120, settled, "VM 0 is somewhere")["gpu"]]


def move(system, program, path, done):
    """Added to `done`."""
    servers_ready(system, 1)
    words = path.target(system, place(system))
    one = watched(program, lambda: follow(system, "migrate", system.vm_ip(0), *words, "--stop-timeout", STOP_MS))
    one["steps"] = steps_of(system)
    print("  %s: stood still %.1f ms (reported %.1f), %.2f s, %d rounds, %.2f GiB" % (
        " ".join(words), one["seen_ms"], one["reported_ms"], one["total_s"], one["row"]["round"], one["copied_gib"]),
        flush=True)
    print("    " + " ".join("%s=%d" % item for item in one["steps"].items()), flush=True)
    done.append(one)


def moves(system, program, path, options, done):
    """There and back."""
    for _ in range(2 * options.rounds):
        move(system, program, path, done)


def one_share(results, what, share, system, bytes_, do, *more):
    """The row of a program that rewrites so much while do(system, program, row["done"]) is done with it. more: its
    further options."""
    program, name = None, "%s, rewriting %s" % (what, rewriting(share))
    row = {"what": what, "share": share, "bytes": bytes_, "done": [], "end": None}
    results.rows.append(row)
    print(name + ":", flush=True)
    try:
        servers_ready(system, 0)
        program = Rewriter(system, bytes_, share, *more)
        do(system, program, row["done"])
        # The rewriting goes on for a moment: what is compared has been written where the program is now.
        program.after(CALM_S)
        row["end"] = program.ends()
    except BaseException as failure:
        results.failed(name, failure, system, program)
        if not isinstance(failure, WRONG):
            raise
    results.write()
    return row


def each_share(results, what, shares, begin, bytes_, do):
    """A row for each. What follows a failure has a system of its own."""
    left, rows = list(shares), []
    while left:
        try:
            with begin() as system:
                while left:
                    rows.append(one_share(results, what, left.pop(0), system, bytes_, do))
                    if not rows[-1]["end"]:
                        break
        except WRONG as failure:
            results.failed(what + ", a whole system", failure)
            break
    return rows


def is_intact(row):
    return "yes" if row["end"] else "**failed**"


def column(row, name):
    return [one[name] for one in row["done"]]


def migrate(options, results):
    bytes_, rows = int(options.gib * GIB), []
    for name in options.paths:
        path = PATHS[name]
        if HAS_GPU and len(figures.gpus()) < path.gpus:
            print("%s: this machine has %d GPUs" % (path.what, len(figures.gpus())))
            continue
        for row in each_share(results, path.what, options.shares,
                              lambda: whole(bytes_, path.gpus, path.nodes, **path.cluster), bytes_,
                              lambda system, program, done: moves(system, program, path, options, done)):
            rows.append((path.what, rewriting(row["share"]), said_of(column(row, "seen_ms")),
                         said_of(column(row, "reported_ms")), said_of(column(row, "total_s"), "%.2f"),
                         middle([one["row"]["round"] for one in row["done"]], "%d"), middle(column(row, "copied_gib")),
                         middle(column(row, "gb_per_s"), "%.1f"), middle(column(row, "slower_pct"), "%.0f"), is_intact(row)))
    table("A program with %.3g GiB that moves (medians of %d moves, smallest–largest)" % (options.gib, 2 * options.rounds),
          rows, ("to", "rewritten", "standstill as the program sees it, ms", "as reported, ms", "all of it, s", "rounds",
                 "copied, GiB", "GB/s while copying", "rounds of the program fewer while copying, %", "intact"))


# ---- graphs ----

GRAPHS, NODES = 100, 1000
GRAPHS_BYTES = 16 << 20                 # of memory, so that little of a standstill is the memory's
PAIRS_MIN = 10


def pairs(system, program, path, count, done):
    """Each a move without graphs and one with them, of one program, there and back: which goes there takes turns. What the
    machine does meanwhile is the same for both."""
    for pair in range(count):
        for has_graphs in (pair % 2 == 1, pair % 2 == 0):
            harness.expect_equal(program.graphs(has_graphs), GRAPHS if has_graphs else 0, "the graphs of the program")
            move(system, program, path, done)
            done[-1]["has_graphs"], done[-1]["load"] = has_graphs, os.getloadavg()[0]


def in_pairs(done, name):
    """[(without graphs, with them)] of those that were moved both ways."""
    halves = [sorted(done[i:i + 2], key=lambda one: one["has_graphs"]) for i in range(0, len(done) - 1, 2)]
    return [(without[name], with_them[name]) for without, with_them in halves]


def more_of(halves):
    return said_of([with_them - without for without, with_them in halves])


def graphs(options, results):
    """What graphs add to a standstill, in pairs: they are made again at the server that the session goes to."""
    rows, count = [], max(options.rounds, PAIRS_MIN)
    for name in options.paths:
        path = PATHS[name]
        if HAS_GPU and len(figures.gpus()) < path.gpus:
            print("%s: this machine has %d GPUs" % (path.what, len(figures.gpus())))
            continue
        with whole(GRAPHS_BYTES, path.gpus, path.nodes, **path.cluster) as system:
            row = one_share(results, "%s, %d graphs and none" % (path.what, GRAPHS), "0", system, GRAPHS_BYTES,
                            lambda system, program, done: pairs(system, program, path, count, done),
                            "--graphs", "%d,%d" % (GRAPHS, NODES))
        seen = in_pairs(row["done"], "seen_ms")
        rows.append((path.what, said_of([without for without, _ in seen]), said_of([with_them for _, with_them in seen]),
                     more_of(seen), more_of(in_pairs(row["done"], "reported_ms")),
                     said_of([one["load"] for one in row["done"]]), is_intact(row)))
    table("A program with %d graphs of %d kernels and without that moves (medians of %d pairs, smallest–largest)" % (
        GRAPHS, NODES, count), rows,
        ("to", "standstill without graphs, ms", "with them, ms", "more in a pair, ms", "the same as reported, ms",
         "load average", "intact"))


# ---- what such connections can do ----

TCP_PIECE_BYTES = 4 << 20               # as contents of pages go


def send_plain(listener, bytes_):
    with socket.create_connection(listener.getsockname()) as out:
        piece = memoryview(bytearray(os.urandom(1 << 16) * (TCP_PIECE_BYTES >> 16)))
        for _ in range(bytes_ // TCP_PIECE_BYTES):
            out.sendall(piece)


def receive_plain(listener):
    with listener.accept()[0] as come:
        piece = bytearray(TCP_PIECE_BYTES)
        while come.recv_into(piece):
            pass


def plain_tcp(streams, bytes_):
    """GB/s of so many connections on the loopback interface, together, with a process at each end of each."""
    context, listeners = multiprocessing.get_context("fork"), []
    for _ in range(streams):
        listeners.append(socket.create_server(("127.0.0.1", 0)))
    ends = [context.Process(target=receive_plain, args=(listener,)) for listener in listeners]
    ends += [context.Process(target=send_plain, args=(listener, bytes_ // streams)) for listener in listeners]
    begin = time.monotonic()
    for end in ends:
        end.start()
    for end in ends:
        end.join()
    took_s = time.monotonic() - begin
    for listener in listeners:
        listener.close()
    if any(end.exitcode for end in ends):
        raise harness.Failed("a plain TCP connection failed: %r" % [end.exitcode for end in ends])
    return bytes_ / took_s / 1e9


def tcp(options, results):
    rows = []
    for streams in (1, STREAMS):
        rates = [plain_tcp(streams, int(options.gib * GIB)) for _ in range(options.rounds)]
        results.rows.append({"what": "plain TCP", "streams": streams, "gb_per_s": rates})
        rows.append((str(streams), said_of(rates)))
    table("Plain TCP over the loopback interface, %.3g GiB" % options.gib, rows, ("connections", "GB/s together"))


# ---- checkpoint ----

@contextlib.contextmanager
def new_folder(options):
    with tempfile.TemporaryDirectory(prefix="images-", dir=options.to or harness.WORK) as folder:
        yield folder


def written(system, program, folder, is_left_running, options):
    """To an image, and back from it where it was not left running."""
    def action():
        words = ["--leave-running"] if is_left_running else []
        row, seen, rate = follow(system, "checkpoint", system.vm_ip(0), "--to", folder, "--pack", options.pack,
                                 "--stop-timeout", STOP_MS, *words, view="checkpoints")
        if not is_left_running:
            row["restore"] = follow(system, "restore", folder, view="checkpoints")[0]
        return row, seen, rate
    one = watched(program, action)
    one["file_gib"] = sum(entry.stat().st_size for entry in os.scandir(folder)) / GIB
    one["restore_s"] = one["row"]["restore"]["elapsed_ms"] / 1e3 if not is_left_running else None
    one["memory_gb_per_s"] = one["row"]["memory_bytes"] / one["total_s"] / 1e9
    one["is_left_running"] = is_left_running
    if not is_left_running:
        one["reported_ms"] = None       # nobody reports how long it waited
    print("  %s: stood still %.1f ms%s, written in %.2f s%s, %.2f GiB" % (
        "left running" if is_left_running else "restored", one["seen_ms"],
        " (reported %.1f)" % one["reported_ms"] if is_left_running else "", one["total_s"],
        "" if is_left_running else ", read in %.2f s" % one["restore_s"], one["file_gib"]), flush=True)
    return one


def images(system, program, options, done):
    for is_left_running in (True, False):
        for _ in range(options.rounds):
            servers_ready(system, 1)
            with new_folder(options) as folder:
                done.append(written(system, program, folder, is_left_running, options))


def checkpoint(options, results):
    bytes_, rows = int(options.checkpoint_gib * GIB), []
    for row in each_share(results, "images", options.checkpoint_shares, lambda: whole(bytes_, 1), bytes_,
                          lambda system, program, done: images(system, program, options, done)):
        for is_left_running in (True, False):
            some = {"done": [one for one in row["done"] if one["is_left_running"] == is_left_running]}
            rows.append((rewriting(row["share"]), "left running" if is_left_running else "waits, and is restored at once",
                         said_of(column(some, "seen_ms")), said_of(column(some, "reported_ms")),
                         said_of(column(some, "total_s"), "%.2f"), said_of(column(some, "restore_s"), "%.2f"),
                         middle(column(some, "file_gib")), middle(column(some, "memory_gb_per_s")),
                         middle(column(some, "slower_pct"), "%.0f"), is_intact(row)))
    table("A program with %.3g GiB that is written to an image, packing: %s (medians of %d, smallest–largest)" % (
        options.checkpoint_gib, options.pack, options.rounds),
        rows, ("rewritten", "then it", "standstill as the program sees it, ms", "as reported, ms", "written in, s",
               "restored in, s", "image, GiB", "memory written, GB/s", "rounds of the program fewer while it is written, %",
               "intact"))


# ---- the driver's own ----

DRIVER_STEPS = ("lock_ms", "checkpoint_ms", "restore_ms", "unlock_ms")


def driver_row(results, gib, options):
    program, name = None, "%g GiB" % gib
    row = {"what": "the driver's own", "bytes": int(gib * GIB), "done": [], "end": None}
    results.rows.append(row)
    try:
        program = Rewriter(None, row["bytes"], "10")
        for _ in range(options.rounds):
            program.after(CALM_S)
            begin = now_us()
            result = harness.run([figures.bench_program("driver_checkpoint"), str(program.process.pid)],
                                 figures.native_environment(), COMMAND_S)
            harness.expect_equal(result.status, 0, "driver_checkpoint", result)
            during = program.span(begin, program.after(AFTER_S))
            one = {**json.loads(result.out), "seen_ms": during["gaps"][0]["us"] / 1e3}
            print("  %s: %r" % (name, one), flush=True)
            row["done"].append({**one, "during": during})
        row["end"] = program.ends()
    except BaseException as failure:
        results.failed(name, failure, None, program)
        if not isinstance(failure, WRONG):
            raise
    results.write()
    return row


def driver_checkpoint(options, results):
    if not HAS_GPU:
        print("driver-checkpoint: no NVIDIA GPU here")
        return
    pipes = os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps")
    if os.path.exists(os.path.join(pipes, "control")):
        results.failed("the machine", harness.Failed("MPS runs here (%s): the driver refuses checkpoints under it" % pipes))
        return
    rows = []
    for gib in options.driver_gib:
        row = driver_row(results, gib, options)
        rows.append(("%g GiB" % gib, said_of(column(row, "seen_ms"), "%.0f"),
                     *(said_of(column(row, step), "%.0f") for step in DRIVER_STEPS), is_intact(row)))
    table("The driver's own checkpoint and restore, without Flyt (medians of %d, smallest–largest)" % options.rounds, rows,
          ("memory", "standstill as the program sees it, ms", *(step.replace("_", ", ") for step in DRIVER_STEPS), "intact"))


# ---- the driver's own, of a server ----

def driver_server_row(results, what, options, *words):
    """A program's server is written by the driver; afterwards the program goes on at another one, with the memory that the
    node manager has held all the time."""
    bytes_ = GIB if HAS_GPU else 64 << 20
    row = {"what": what, "bytes": bytes_, "done": [], "end": None, "steps": []}
    results.rows.append(row)
    with whole(bytes_, mps="off", share=2) as system:
        program = Rewriter(system, bytes_, "10")
        try:
            program.after(CALM_S)
            pid = harness.within(10, lambda: system.flytctl("sessions"), "the program's session")[0]["server_pid"]
            result = harness.run([figures.bench_program("driver_checkpoint"), *words, str(pid)],
                                 figures.native_environment(), COMMAND_S)
            row["steps"].append(("driver_checkpoint", result.status, (result.out + result.err).strip()))
            if result.status == 0:
                program.after(CALM_S)
                result = system.flytctl_run("migrate", system.vm_ip(0), "--to", place(system), "--force", timeout=COMMAND_S)
                row["steps"].append(("flytctl migrate --force", result.status, (result.out + result.err).strip()))
                program.after(CALM_S)
            row["end"] = program.ends()
        except WRONG as failure:
            row["steps"].append(("the program", 1, str(failure).strip()))
            program.process.kill()
    for step in row["steps"]:
        print("  %s: %s: %d: %s" % (what, *step), flush=True)
    results.write()
    return row


def driver_server(options, results):
    if not HAS_GPU:
        print("driver-server: no NVIDIA GPU here")
        return
    rows = [driver_server_row(results, "to the same GPUs", options)]
    if len(figures.gpus()) > 1:
        rows.append(driver_server_row(results, "each GPU's to the next one", options, "--swap"))
    table("The driver's own checkpoint and restore of a server process, without MPS",
          [(row["what"], *("%s: %s" % (name, "yes" if not status else "**no**") for name, status, _ in row["steps"][:2]),
            *[""] * (2 - len(row["steps"])), is_intact(row)) for row in rows],
          ("restored", "the driver did it", "it goes on at another server", "intact"))


# ---- what is asked for ----

TOPICS = {"tcp": tcp, "migrate": migrate, "graphs": graphs, "checkpoint": checkpoint, "driver-checkpoint": driver_checkpoint,
          "driver-server": driver_server}


def words_of(known, text):
    words = text.split(",")
    for word in words:
        if not known(word):
            raise argparse.ArgumentTypeError("%r" % word)
    return words


def is_share(word):
    return word == "all" or (word.replace(".", "", 1).isdigit() and float(word) <= 1000)


def shares(text):
    return words_of(is_share, text)


def paths(text):
    return words_of(PATHS.__contains__, text)


def sizes(text):
    return [float(word) for word in text.split(",")]


def parse():
    smallest = min((memory for _, memory in figures.gpus()), default=0) / GIB
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("topics", nargs="*", metavar="TOPIC", help="%s; without one: all" % ", ".join(TOPICS))
    parser.add_argument("--rounds", type=int, default=int(os.environ.get("FLYT_ROUNDS", 3)),
                        help="of each row: there and back; written; restored (FLYT_ROUNDS, or 3)")
    parser.add_argument("--gib", type=float, default=min(32, smallest // 3) if HAS_GPU else 0.25,
                        help="memory of the program that moves (32 or a third of the GPU's; 0.25 on software GPUs)")
    parser.add_argument("--shares", type=shares, default="0,1,10,100,all",
                        help="%% of the pages that it rewrites in a second, or all (0,1,10,100,all)")
    parser.add_argument("--paths", type=paths, default=",".join(PATHS), help="among %s (all)" % ", ".join(PATHS))
    parser.add_argument("--checkpoint-gib", type=float, default=min(8, smallest // 3) if HAS_GPU else 0.25,
                        help="memory of the program that is written (8; 0.25 on software GPUs)")
    parser.add_argument("--checkpoint-shares", type=shares, default="0,1,10", help="as --shares (0,1,10)")
    parser.add_argument("--pack", choices=("none", "lz4", "zstd"), default="lz4", help="of images (lz4)")
    parser.add_argument("--to", metavar="FOLDER", help="where images are written (the temporary folder)")
    parser.add_argument("--driver-gib", type=sizes, default="8,32", help="memory of the programs of driver-checkpoint (8,32)")
    parser.add_argument("--out", metavar="FOLDER", help="for TOPIC.json and failure-*.log")
    options = parser.parse_args()
    unknown = [topic for topic in options.topics if topic not in TOPICS]
    if unknown or options.rounds < 1:
        parser.error("no such topic: %s" % " ".join(unknown) if unknown else "--rounds is at least 1")
    if options.out:
        os.makedirs(options.out, exist_ok=True)
    return options


def main():
    options, failed = parse(), 0
    print(figures.machine(), flush=True)
    for topic in options.topics or TOPICS:
        results = Results(topic, options)
        TOPICS[topic](options, results)
        results.write()
        failed += len(results.failures)
    if failed:
        print("bench: %d failed" % failed, file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    with harness.workspace():
        sys.exit(main())
