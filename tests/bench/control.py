#!/usr/bin/env python3
"""usage: tests/bench/control.py [TOPIC…]      topics: attach, flood, crowd, resize, cluster, turns,
node_turns, takeover; without one: all

Measures the control plane on software GPUs: medians in Markdown tables, what was asked beside what was seen. FLYT_BUILD
names the build folder. With `cluster`, `turns` and `takeover`, FLYT_NODES and FLYT_VMS make the simulated cluster smaller;
with `node_turns` FLYT_NODE_VMS the node's VMs, of FLYT_NODE_SESSIONS programs each. The exit status is 1 where something
went wrong, or a turn of a loop in `flood`, `turns` or `node_turns` was longer than 50 ms.
"""
import contextlib
import os
import platform
import re
import statistics
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "system"))
import by_hand
import harness
from cluster import System
from load import Fleet, Managers, histogram_mean, histogram_quantile
from mongod import Mongod
from trust import Trusted

TURN_MAX_MS = 50        # of a daemon's loop: CPU time plus time blocked
FLOOD = os.path.join(harness.ROOT, "tests", "system", "programs", "flood_known.py")
ATTACH = os.path.join(harness.BUILD, "tests", "bench", "attach")
NODES, VMS = int(os.environ.get("FLYT_NODES", 1000)), int(os.environ.get("FLYT_VMS", 10000))
SIMULATED = ("%d nodes with 8 GPUs each, %d VMs, all simulated by one process beside it, in clear over loopback" %
             (NODES, VMS))


def table(title, rows):
    print("\n%s\n\n| figure | asked | seen |\n|---|---|---|" % title)
    for what, asked, seen in rows:
        print("| %s | %s | %s |" % (what, asked or "–", seen))
    sys.stdout.flush()


def milliseconds(values, digits=1):
    values = list(values)
    return "%.*f ms (%.*f–%.*f)" % (digits, statistics.median(values), digits, min(values), digits, max(values))


def gigabytes(count):
    return "%.2f GB" % (count / 1e9) if count >= 1e9 else "%.0f MB" % (count / 1e6)


@contextlib.contextmanager
def attached(process):
    """Of `attach once`: milliseconds of the first call, and until the first kernel has run."""
    line = process.stdout.readline().split()
    if len(line) != 2:
        raise harness.Failed("attach: %r" % harness.finish(process))
    yield [int(word) / 1e6 for word in line]
    result = harness.finish(process)
    harness.expect_equal(result.status, 0, result)


# ---- one program ----

def attach():
    rounds, pause_s = 21, 0.4     # a warm server is made again while nobody waits
    direct, managed, first = [], [], []
    with harness.server(arguments=("--soft", "1", "--warm", "2")) as server, \
            System(tls=False, sms=32, node={"warm": 2}, cluster={"allocation_linger_s": 0.5}) as system:
        system.flytctl("vm", "add", system.vm_ip(0), "--sm", 16, "--memory", "256M")

        def straight():
            return harness.start(harness.through_flyt(server.url, ATTACH, "once"), stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE)

        with attached(system.start_in_vm(0, ATTACH, "once")):     # keeps the VM's allocation
            for _ in range(rounds):
                for start, times in ((straight, direct), (lambda: system.start_in_vm(0, ATTACH, "once"), managed)):
                    time.sleep(pause_s)
                    with attached(start()) as took:
                        times.append(took)
        for _ in range(5):
            harness.within(60, lambda: not system.flytctl("allocations"), "the allocation goes when nobody has it")
            with attached(system.start_in_vm(0, ATTACH, "once")) as took:
                first.append(took)
            time.sleep(pause_s)
    more = [[took[i] for took in managed] for i in range(2)]
    base = [[took[i] for took in direct] for i in range(2)]
    difference = [statistics.median(more[i]) - statistics.median(base[i]) for i in range(2)]
    table("Attach to a warm server (median, smallest and largest of %d, alternating)" % rounds, [
        ("first CUDA call, direct mode", "", milliseconds(base[0], 2)),
        ("first CUDA call, through client manager and node manager", "", milliseconds(more[0], 2)),
        ("difference of the medians", "≤ 10 ms", "%.2f ms" % difference[0]),
        ("until the first kernel has run: direct", "", milliseconds(base[1], 2)),
        ("the same, managed", "", milliseconds(more[1], 2)),
        ("difference of the medians", "≤ 10 ms", "%.2f ms" % difference[1]),
        ("first CUDA call of a VM without an allocation: placed, recorded, ordered", "", milliseconds(
            (took[0] for took in first), 2)),
    ])


# ---- attaches in a flood ----

def hundredths(values):
    """Median and 99 of 100, of milliseconds."""
    values = sorted(values)
    return "%.1f; %.1f ms" % (statistics.median(values), values[len(values) * 99 // 100])


def attach_anew(system, vm_ip):
    """How often it was closed before it was answered: on a machine without time it may take too long to say who it is."""
    for again in range(100):
        peer = None
        with contextlib.suppress(OSError):
            peer = system.connect(system.identity("vm", vm_ip))
            if peer.hello("vm", vm_ip).state == "done":
                answer = peer.call(by_hand.ATTACH, by_hand.u32(0))
                if answer.state == "done":
                    harness.expect_equal(answer.outcome, ("OK", ""), "an attach of", vm_ip)
                    peer.close()
                    return again
        if peer:
            peer.close()
    raise harness.Failed("the cluster manager does not let VM %s in" % vm_ip)


def attaches(system, vms, goes_on):
    """Milliseconds of attaches while goes_on(): of a VM whose client manager is connected, and from its connection on; and
    how many connections were closed before they were answered."""
    connected, anew, closed = [], [], 0
    standing = system.peer("vm", vms[0])
    while goes_on(len(anew)):
        begin = time.monotonic()
        harness.expect_equal(standing.call(by_hand.ATTACH, by_hand.u32(0)).outcome, ("OK", ""), "an attach")
        connected.append((time.monotonic() - begin) * 1e3)
        vm_ip = vms[1 + len(anew) % (len(vms) - 1)]
        begin = time.monotonic()
        closed += attach_anew(system, vm_ip)
        anew.append((time.monotonic() - begin) * 1e3)
        time.sleep(0.02)
    standing.close()
    return connected, anew, closed


def flood():
    """One VM's certificate with connections without end, from another address, and what other VMs' attaches take meanwhile."""
    wanted, floods, seconds = 20000, 4, 60
    vms = ["10.8.0.%d" % i for i in range(1, 17)]
    with Trusted(nodes=1, vms=0, gpus=4, sms=32) as system:
        for vm_ip in vms:
            system.flytctl("vm", "add", vm_ip, "--sm", 8, "--memory", "64M", "--reserved")
            system.identity("vm", vm_ip)
        harness.within(60, lambda: len(system.flytctl("allocations")) == len(vms), "all have their allocations")
        begin = time.monotonic()
        connected, anew, _ = attaches(system, vms, lambda count: count < 300 and time.monotonic() < begin + seconds / 2)
        port, files = system.manager_url.rsplit(":", 1)[1], system.identity("vm", "10.9.9.9")
        command = [sys.executable, FLOOD, port, "127.0.0.66", str(wanted // floods), system.authority,
                   *files, "10.9.9.9"]
        running = [harness.start(command, stdout=subprocess.PIPE) for _ in range(floods)]
        begin, said = time.monotonic(), 0
        for process in running:
            os.set_blocking(process.stdout.fileno(), False)

        def goes_on(count):
            nonlocal said
            said += sum(process.stdout.readline() == b"flooding\n" for process in running)
            return time.monotonic() < begin + seconds and said < floods

        flooded, flooded_anew, closed = attaches(system, vms, goes_on)
        took, opened = time.monotonic() - begin, 0
        for process in running:
            os.set_blocking(process.stdout.fileno(), True)
            process.terminate()
            opened += sum(int(word) for word in harness.finish(process).out.split() if word.isdigit())
        harness.expect_equal(system.supervisor.get("cluster")["starts"], 1, "starts of the cluster manager")
        longest_ms = 1e3 * float(re.search(r"^flyt_manager_loop_turn_max_seconds (\S+)", system.metrics("cluster"), re.M)[1])
    table("Attaches of %d VMs while one VM's certificate opens connections without end, with TLS over loopback, from %d "
          "processes; median and 99 of 100 (load of the machine at the end: %.1f)" % (
              len(vms), floods, os.getloadavg()[0]), [
                  ("connections that were opened; in", "20,000", "%d; %.0f s" % (opened, took)),
                  ("attach, connected already: without the flood, of %d" % len(connected), "", hundredths(connected)),
                  ("the same in the flood, of %d" % len(flooded), "", hundredths(flooded)),
                  ("connection, TLS, HELLO and attach: without the flood, of %d" % len(anew), "", hundredths(anew)),
                  ("the same in the flood, of %d; closed before they were answered" % len(flooded_anew), "", "%s; %d" % (
                      hundredths(flooded_anew), closed)),
                  ("longest turn of the cluster manager's loop, CPU time and time blocked", "≤ %d ms" % TURN_MAX_MS,
                   "%.1f ms" % longest_ms),
              ])
    expect_short("cluster manager", longest_ms)


# ---- many programs ----

def memory_of(pids):
    """(resident each, proportional share of all together) in bytes."""
    resident, share = [], 0
    for pid in pids:
        with open("/proc/%d/smaps_rollup" % pid) as f:
            text = f.read()
        resident.append(int(re.search(r"^Rss:\s+(\d+)", text, re.M)[1]) * 1024)
        share += int(re.search(r"^Pss:\s+(\d+)", text, re.M)[1]) * 1024
    return statistics.median(resident), share


def available_bytes():
    with open("/proc/meminfo") as f:
        return int(re.search(r"MemAvailable:\s+(\d+)", f.read())[1]) * 1024


def crowd():
    gpus, each = 8, 32
    count = gpus * each
    before = available_bytes()
    with System(tls=False, vms=gpus, gpus=gpus, sms=32, memory="1G",
                node={"warm": each, "client_slots": 2 * each, "vm.attach_burst": 4 * each}) as system:
        for i in range(gpus):
            system.flytctl("vm", "add", system.vm_ip(i), "--sm", 8, "--memory", "512M", "--sessions", each,
                           "--policy", "spread", "--reserved")
        node = system.supervisor.get("node-0")["pid"]

        def servers():
            return harness.descendants(node)

        def is_warm():
            values = re.findall(r"^flyt_node_gpu_warm_servers\S* (\S+)", system.metrics("node-0"), re.M)
            return sum(map(float, values)) >= count if values else len(servers()) >= count

        sockets = [system.client_socket(i) for i in range(gpus)]

        def starts(what, *sockets):
            command = [harness.FLYT_RUN, "--", ATTACH, "many", str(count), what, *sockets]
            result = harness.run(command, system.vm_environment(0), timeout=300)
            harness.expect_equal(result.status, 0, result)
            return int(result.out) / 1e6

        managed, nothing, resident, share = [], [], 0, 0
        for _ in range(3):
            harness.within(300, is_warm, "%d warm servers" % count)
            time.sleep(2)
            if not resident:
                resident, share = memory_of(servers())
                used = before - available_bytes()
            nothing.append(starts("nothing"))
            managed.append(starts("attach", *sockets))
            harness.within(120, lambda: not system.flytctl("sessions"), "all sessions have ended")
    table("%d programs at once: %d VMs, %d software GPUs, %d warm servers on each (median, smallest and largest of 3)" %
          (count, gpus, gpus, each), [
              ("memory of a warm server: resident", "", gigabytes(resident)),
              ("all %d servers: proportional shares together" % count, "", gigabytes(share)),
              ("what the machine has less for the whole system", "", "%s of %s" % (gigabytes(used), gigabytes(before))),
              ("%d processes that ask for nothing" % count, "", milliseconds(nothing, 0)),
              ("%d processes until all have their GPU" % count, "≤ 2000 ms", milliseconds(managed, 0)),
          ])


# ---- resize ----

def resize():
    rounds = 21
    resized, asked, applied = [], [], []
    with System(tls=False, sms=32, memory="2G") as system:
        system.flytctl("vm", "add", system.vm_ip(0), "--sm", 16, "--memory", "256M")
        with attached(system.start_in_vm(0, ATTACH, "once")):
            for i in range(rounds):
                size = "%dM" % (512 if i % 2 == 0 else 256)
                begin = time.monotonic()
                result = system.flytctl_run("resize", system.vm_ip(0), "--memory", size)
                resized.append((time.monotonic() - begin) * 1e3)
                harness.expect_equal(result.status, 0, "acknowledged:", result)
                begin = time.monotonic()
                system.flytctl_run("status")
                asked.append((time.monotonic() - begin) * 1e3)
            values = dict(re.findall(r'^flyt_call_duration_seconds_(sum|count)\{procedure="resize",direction="served"\} (\S+)',
                                     system.metrics("cluster"), re.M))
            applied = float(values["sum"]) / float(values["count"]) * 1e3
    table("flytctl resize --memory, acknowledged by the running server (median, smallest and largest of %d)" % rounds, [
        ("the whole command", "< 100 ms", milliseconds(resized)),
        ("of it in the cluster manager, mean", "", "%.1f ms" % applied),
        ("flytctl status, for comparison", "", milliseconds(asked)),
    ])


# ---- a large cluster ----

def cpu_share(managers, i, seconds):
    begin, used = time.monotonic(), managers.cpu_seconds(i)
    time.sleep(seconds)
    return 100 * (managers.cpu_seconds(i) - used) / (time.monotonic() - begin)


def restarted(fleet, act):
    fleet.take("all_up")
    begin = time.monotonic()
    act()
    fleet.wait("all_up", 300)
    return time.monotonic() - begin


def synchronous_write_ms():
    """What this disk takes for the least that a store can write."""
    path, times = os.path.join(harness.WORK, "synchronous"), []
    with open(path, "wb", buffering=0) as f:
        for _ in range(101):
            begin = time.monotonic()
            f.write(bytes(4096))
            os.fdatasync(f.fileno())
            times.append((time.monotonic() - begin) * 1e3)
    os.unlink(path)
    return times


def recorded(managers, i):
    """Waits until nothing waits for the store."""
    harness.within(300, lambda: managers.metrics(i)["flyt_store_waiting"] == 0, "everything is recorded")


def in_one_file(rows):
    rows += [("4 KiB written synchronously on this disk", "", milliseconds(synchronous_write_ms(), 2))]
    managers = Managers(allocation_linger_s=2)
    managers.write_documents(VMS)
    managers.start(0)
    fleet = Fleet(managers.urls, NODES, VMS)
    up = fleet.wait("all_up", 300)
    begin = time.monotonic()
    recorded(managers, 0)
    rows += [("all connect at once to a new manager", "", "%.1f s" % up["seconds"]),
             ("all GPUs and nodes are recorded (each document synchronously) after another", "",
              "%.1f s" % (time.monotonic() - begin))]
    time.sleep(5)
    rows += [("at rest: CPU of a core", "", "%.0f %%" % cpu_share(managers, 0, 20)),
             ("at rest: resident memory", "", gigabytes(managers.memory_bytes(0)))]
    kept = VMS // 2
    filled = fleet.ask("fill %d 100" % kept, "filled", 300)
    rows += [("%d VMs attach, 100 at a time" % filled["granted"], "", "%.0f in a second" % (kept / filled["seconds"]))]
    time.sleep(5)
    seconds, rate = 60, 50
    before, begin, used = managers.metrics(0), time.monotonic(), managers.cpu_seconds(0)
    loaded = fleet.ask("load %d %d 1000" % (rate, seconds), "loaded", 300)
    share = 100 * (managers.cpu_seconds(0) - used) / (time.monotonic() - begin)
    after = managers.metrics(0)
    name = "flyt_attach_duration_seconds"
    rows += [
        ("%d attaches a second for %d s: answered" % (rate, seconds), "all", "%d of %d, %d asked again, %d refused%s" % (
            loaded["granted"], loaded["asked"], loaded["again"], loaded["refused"],
            loaded["refusal"] and " (%s)" % loaded["refusal"])),
        ("from due time to grant: median, 99 of 100, worst", "", "%.1f, %.1f, %.1f ms" % (
            loaded["p50_ms"], loaded["p99_ms"], loaded["max_ms"])),
        ("the manager's own histogram: mean; 99 of 100 within", "", "%.1f ms; %g ms" % (
            1e3 * histogram_mean(before, after, name), 1e3 * histogram_quantile(before, after, name, 0.99))),
    ]
    placed = histogram_mean(before, after, "flyt_placement_duration_seconds")
    if placed:
        rows += [("choosing the GPU among %d, mean" % (NODES * 8), "", "%.2f ms" % (1e3 * placed))]
    rows += [("under this load: CPU of a core", "", "%.0f %%" % share),
             ("under this load: resident memory", "", gigabytes(managers.memory_bytes(0)))]
    time.sleep(5)
    took = []
    for _ in range(3):
        recorded(managers, 0)
        took.append(restarted(fleet, lambda: (managers.kill(0), managers.start(0))))
    rows += [("killed and started again (SQLite): all are back after", "≤ 10 s", "%.1f s (%.1f–%.1f of 3)" % (
        statistics.median(took), min(took), max(took)))]
    begin = time.monotonic()
    fleet.say("end")
    harness.within(600, lambda: (time.sleep(0.5), fleet.status()["held"] == 0)[1], "all is given back")
    rows += [("%d allocations end at once: all given back after" % kept, "", "%.1f s" % (time.monotonic() - begin)),
             ("given twice, lost or not as asked", "0", str(fleet.status()["violations"]))]
    fleet.close()
    managers.stop(0)


def cluster():
    rows = []
    try:
        in_one_file(rows)
    finally:
        table("One cluster manager, " + SIMULATED, rows)


# ---- turns of the loop ----

VIEWS = ("nodes", "gpus", "vms", "allocations", "sessions", "tenants", "status")


def repeated(act, stopping, failures):
    """A thread that does it again and again, and keeps the first failure."""
    def run():
        try:
            while not stopping.is_set():
                act()
        except Exception as error:                               # told by who waits for the thread
            failures.append(error)
            stopping.set()
    thread = threading.Thread(target=run)
    thread.start()
    return thread


def expect_short(whose, longest_ms):
    harness.expect(longest_ms <= TURN_MAX_MS, "the longest turn of a %s's loop took %.1f ms, more than the %d that it may" % (
        whose, longest_ms, TURN_MAX_MS))


def turns():
    """The longest turns of a cluster manager's loop while it is scraped, looked at and resized."""
    seconds, kept = 30, VMS // 2
    managers = Managers(allocation_linger_s=600)
    managers.write_documents(VMS)
    managers.start(0)
    fleet = Fleet(managers.urls, NODES, VMS)
    fleet.wait("all_up", 300)
    recorded(managers, 0)
    fleet.ask("fill %d 100" % kept, "filled", 300)
    recorded(managers, 0)
    counts, failures, stopping = {"scrapes": 0, "views": 0, "resizes": 0}, [], threading.Event()

    def scrape():
        counts["scrapes"] += bool(managers.metrics(0))
        stopping.wait(1)

    def flytctl(*words):
        program = os.path.join(harness.BUILD, "bin", "flytctl")
        result = harness.run([program, "--manager", managers.urls[0], *map(str, words)], timeout=60)
        harness.expect_equal(result.status, 0, words, result)

    def view():
        flytctl(VIEWS[counts["views"] % len(VIEWS)], "-o", "json")
        counts["views"] += 1

    def resize_one():
        number = counts["resizes"] % kept
        flytctl("resize", "10.%d.%d.%d" % (64 + (number >> 16), number >> 8 & 255, number & 255), "--memory",
                "2G" if counts["resizes"] // kept % 2 else "3G")
        counts["resizes"] += 1

    def bounds(before, after):
        name, inside = "flyt_manager_loop_turn_seconds", {}
        for quantile in (0.99, 0.9999, 1):
            inside[quantile] = histogram_quantile(before, after, name, quantile)
        return inside, after[name + "_count"] - before[name + "_count"]

    before = managers.metrics(0)
    threads = [repeated(act, stopping, failures) for act in (scrape, view, resize_one)]
    stopping.wait(seconds)
    stopping.set()
    for thread in threads:
        thread.join()
    harness.expect(not failures, failures)
    after = managers.metrics(0)
    inside, count = bounds(before, after)
    longest_ms = 1e3 * after["flyt_manager_loop_turn_max_seconds"]
    table("Turns of a cluster manager's loop for %d s, %d allocations held, %s (CPU time and time blocked; load of the "
          "machine at the end: %.1f)" % (seconds, kept, SIMULATED, os.getloadavg()[0]), [
              ("scrapes of %d series; views of everything; resizes" % len(after), "", "%d; %d; %d" % (
                  counts["scrapes"], counts["views"], counts["resizes"])),
              ("turns; 99 of 100 and 9,999 of 10,000 within", "", "%d; %g and %g ms" % (
                  count, 1e3 * inside[0.99], 1e3 * inside[0.9999])),
              ("all within", "≤ 50 ms", "%g ms" % (1e3 * inside[1])),
              ("the longest of the last minute or two, which may have seen all connect and attach",
               "≤ %d ms" % TURN_MAX_MS, "%.1f ms" % longest_ms),
          ])
    fleet.close()
    managers.stop(0)
    expect_short("cluster manager", longest_ms)


def histogram(text, name):
    """Of /metrics: [(upper bound, how many are within)], their number."""
    bounds = re.findall(r'^%s_bucket\{le="([^"]+)"\} (\S+)' % name, text, re.M)
    return [(float(bound), float(count)) for bound, count in bounds], float(re.search(r"^%s_count (\S+)" % name, text, re.M)[1])


def node_turns():
    """The longest turns of a node manager's loop: its VMs have all their programs, others begin and end, SMs and memory change."""
    seconds, gpus, vms = 30, 8, int(os.environ.get("FLYT_NODE_VMS", 16))
    each, name = int(os.environ.get("FLYT_NODE_SESSIONS", 16)), "flyt_node_loop_turn_seconds"
    counts, failures, stopping = {"scrapes": 0, "programs": 0, "resizes": 0}, [], threading.Event()
    with System(tls=False, vms=vms, gpus=gpus, sms=64, memory="4G",
                node={"warm": 2, "client_slots": 2 * each * vms // gpus + 8, "vm.attach_burst": 4 * each,
                      "vm.attach_rate": 100}) as system:
        for i in range(vms):
            system.flytctl("vm", "add", system.vm_ip(i), "--sm", 8, "--memory", "256M", "--sessions", each + 1,
                           "--policy", "spread", "--reserved")
        programs = []
        for i in range(vms * each):
            programs.append(attached(system.start_in_vm(i % vms, ATTACH, "once")))
            programs[-1].__enter__()

        def scrape():
            counts["scrapes"] += bool(system.metrics("node-0"))
            stopping.wait(1)

        def run_one():
            with attached(system.start_in_vm(counts["programs"] % vms, ATTACH, "once")):
                counts["programs"] += 1

        def resize_one():
            number = counts["resizes"] % vms
            system.flytctl("resize", system.vm_ip(number), "--memory", "%dM" % (
                384 if counts["resizes"] // vms % 2 == 0 else 256))
            counts["resizes"] += 1

        before = system.metrics("node-0")
        threads = [repeated(act, stopping, failures) for act in (scrape, run_one, resize_one)]
        stopping.wait(seconds)
        stopping.set()
        for thread in threads:
            thread.join()
        harness.expect(not failures, failures)
        after = system.metrics("node-0")
        (old, old_count), (new, new_count) = histogram(before, name), histogram(after, name)
        inside = {quantile: min(bound for (bound, count), (_, base) in zip(new, old)
                                if count - base >= quantile * (new_count - old_count)) for quantile in (0.99, 0.9999, 1)}
        longest_ms = 1e3 * float(re.search(r"^flyt_node_loop_turn_max_seconds (\S+)", after, re.M)[1])
        table("Turns of a node manager's loop for %d s: %d VMs with %d programs each on %d software GPUs (CPU time and time "
              "blocked; load of the machine at the end: %.1f)" % (seconds, vms, each, gpus, os.getloadavg()[0]), [
                  ("scrapes; programs that began and ended; resizes", "", "%d; %d; %d" % (
                      counts["scrapes"], counts["programs"], counts["resizes"])),
                  ("turns; 99 of 100 and 9,999 of 10,000 within", "", "%d; %g and %g ms" % (
                      new_count - old_count, 1e3 * inside[0.99], 1e3 * inside[0.9999])),
                  ("all within", "≤ 50 ms", "%g ms" % (1e3 * inside[1])),
                  ("the longest of the last minute or two, which may have seen all begin", "≤ %d ms" % TURN_MAX_MS,
                   "%.1f ms" % longest_ms),
              ])
        for program in programs:
            program.__exit__(None, None, None)
    expect_short("node manager", longest_ms)


# ---- a takeover ----

LEADS = re.compile(r"this manager leads: .* raised_ms=(\d+) read_ms=(\d+) entered_ms=(\d+)")


def struck(managers, fleet, i):
    """Kills manager i of two. Seconds until the other one leads and until all are back, milliseconds of its steps."""
    begun, leads = len(managers.log(1 - i)), None
    fleet.take("all_up")
    begin = time.monotonic()
    managers.kill(i)
    while True:
        is_up, now = fleet.take("all_up"), time.monotonic() - begin
        found = LEADS.search(managers.log(1 - i), begun)
        if found and leads is None:
            leads = now
        if is_up and found:
            return leads, now, [int(word) for word in found.groups()]
        harness.expect(now < 300, "nobody took over:", managers.log(1 - i)[-1000:])
        time.sleep(0.02)


def seconds(values):
    values = list(values)
    return "%.1f s (%.1f–%.1f)" % (statistics.median(values), min(values), max(values))


def takeover():
    rounds = 7
    mongod = Mongod()
    managers = Managers(2, mongod.uri("flyt"), allocation_linger_s=2)
    managers.write_documents(VMS)
    managers.start(0)
    fleet = Fleet(managers.urls, NODES, VMS)
    fleet.wait("all_up", 300)
    managers.start(1)
    harness.within(60, lambda: "metrics: on port" in managers.log(1), "the second manager is there")
    granted = fleet.ask("fill %d 100" % (VMS // 2), "filled", 300)["granted"]
    took = []
    for i in range(rounds):
        recorded(managers, i % 2)
        time.sleep(5)
        took.append(struck(managers, fleet, i % 2))
        managers.start(i % 2)
        harness.within(60, lambda: managers.metrics(i % 2), "the killed manager is there again")
        time.sleep(5)
    raised, read, entered = zip(*(steps for _, _, steps in took))
    table("The leader of two cluster managers on a stand-in for MongoDB is killed; " + SIMULATED + ", %d allocations held "
          "(median, smallest and largest of %d)" % (granted, rounds), [
              ("until the other one leads", "", seconds(leads for leads, _, _ in took)),
              ("of it: epochs raised and GPUs read", "", milliseconds(raised, 0)),
              ("of it: everything else read; entered into the registry", "", "%s; %s" % (
                  milliseconds(read, 0), milliseconds(entered, 0))),
              ("until all nodes and VMs are back", "≤ 10 s", seconds(back for _, back, _ in took)),
              ("given twice, lost or not as asked", "0", str(fleet.status()["violations"])),
          ])
    fleet.close()


TOPICS = {"attach": attach, "flood": flood, "crowd": crowd, "resize": resize, "cluster": cluster, "turns": turns, "node_turns": node_turns,
          "takeover": takeover}


def main():
    wanted = sys.argv[1:] or list(TOPICS)
    if set(wanted) - set(TOPICS):
        sys.exit(__doc__)
    failed = False
    compiler = subprocess.run([os.environ.get("CC", "gcc"), "--version"], capture_output=True, text=True).stdout.splitlines()
    print("%s, Linux %s, %d CPU cores, software GPUs; load of the machine before: %.1f" % (
        compiler[0] if compiler else "compiler unknown", platform.release(), os.cpu_count(), os.getloadavg()[0]), flush=True)
    with harness.workspace():
        for topic in wanted:
            try:
                TOPICS[topic]()
            except harness.Failed as error:
                failed = True
                print("bench: %s: %s" % (topic, error), file=sys.stderr)
    sys.exit(failed)


main()
