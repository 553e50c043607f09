#!/usr/bin/env python3
"""usage: tests/bench/limits.py [TOPIC…]      topics: sms, memory, resize, share, gate, faults, replace; without one: all

Measures what limits of SMs are worth, and how soon all is well after a fault: tenants in VMs of a whole system on this
machine's NVIDIA GPU under MPS, or, where there is none, on a software GPU, whose figures say something of the limits and
nothing of a GPU. Medians of ROUNDS rounds in Markdown tables, what was asked beside what was seen. FLYT_BUILD names the
build folder.
"""
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from figures import HAS_GPU, bench_program, native_environment, spread, table    # and where the modules below are
import harness
from cluster import System
from greedy import Greedy
from steady import events
from survivor import is_quiet

TENANT = bench_program("tenant")
ROUNDS = int(os.environ.get("FLYT_ROUNDS", 5))
SMS = 132
MEASURE_MS = 600 if HAS_GPU else 1500
SOFTWARE_SM_RATE = 500000       # so low that two cores keep up with 132 SMs

# Of programs/tenant: kernels of about 1.2 ms and of 0.08 ms on all SMs of an H200, in waves of 18 µs; 2.5 GB/ms there.
COMPUTE = ("compute", SMS * 8 * 64, 2000) if HAS_GPU else ("compute", SMS, 10)
SHORT = ("compute", SMS * 8 * 4, 2000) if HAS_GPU else ("compute", SMS // 2, 2)
SHARE_MS = 10000 if HAS_GPU else 4000
LAUNCH = ("20000", "5", "100") if HAS_GPU else ("2000", "3", "100")
MEMORY = ("memory", SMS * 16, 4096) if HAS_GPU else ("memory", 32, 1)


class Tenant:
    """tests/bench/tenant in VM i, or natively (i None), at rest."""

    def __init__(self, system, i, kind):
        words = [str(word) for word in kind]
        if i is None:
            self.process = harness.start([TENANT, *words], native_environment(), stdin=subprocess.PIPE,
                                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        else:
            self.process = system.start_in_vm(i, TENANT, *words)
        self.read("ready")
        self.rest()

    def say(self, words):
        self.process.stdin.write(words.encode() + b"\n")
        self.process.stdin.flush()

    def read(self, word):
        line = self.process.stdout.readline().decode().split()
        if not line or line[0] != word:
            raise harness.Failed("a tenant said %r, not %s: %r" % (line, word, harness.finish(self.process)))
        return [int(number) for number in line[1:]]

    def rest(self):
        self.say("rest")
        self.read("rest")

    def go(self):
        self.say("go")
        self.read("go")

    def end(self):
        self.say("end")
        count = self.read("right")[0]
        harness.expect_equal(harness.finish(self.process).status, 0, "a tenant's end")
        return count


class Figures:
    """kernels per second, and the median and longest time between the ends of two, in ms"""

    def __init__(self, numbers):
        kernels, ns, median_ns, longest_ns = numbers
        self.rate, self.median_ms, self.longest_ms = kernels / (ns / 1e9), median_ns / 1e6, longest_ns / 1e6


def measure(tenants, ms=MEASURE_MS):
    """All of them at once; others that are at rest stay so."""
    for tenant in tenants:
        tenant.go()
    for tenant in tenants:
        tenant.say("measure %d" % ms)
    figures = [Figures(tenant.read("measured")) for tenant in tenants]
    for tenant in tenants:
        tenant.rest()
    return figures


def whole(vms, isolation="shared", env=None, **node):
    settings = {"warm": vms, **node}
    if HAS_GPU:
        settings["mps"] = "start" if isolation == "shared" else "off"
        settings["mps_dir"] = os.path.join(harness.WORK, "mps")
    else:
        settings["software_sm_rate"] = SOFTWARE_SM_RATE
    if isolation != "shared":
        settings["isolation"] = isolation
    return System(nodes=1, vms=vms, hardware=HAS_GPU, namespaces=False, sms=SMS, memory="4G", node=settings,
                  cluster={"allocation_linger_s": 0.5}, env=env)


def add(system, i, sm, *words, sessions=1):
    system.flytctl("vm", "add", system.vm_ip(i), "--sm", sm, "--memory", "8G" if HAS_GPU else "64M", "--sessions", sessions,
                   *words)
    return system.vm_ip(i)


# ---- SMs ----

def side_by_side(group_size, sizes, kind):
    """By tenant: its speed beside the others relative to its speed alone, round by round; and its speeds alone."""
    with whole(len(sizes)) as system:
        if group_size != 8:
            system.flytctl("gpu", "set", "node-0:0", "--group-size", group_size)
        for i, sm in enumerate(sizes):
            add(system, i, sm)
        tenants = [Tenant(system, i, kind) for i in range(len(sizes))]
        held = {a["vm_ip"]: a["sms"] for a in system.flytctl("allocations")}
        harness.expect_equal([held[system.vm_ip(i)] for i in range(len(sizes))], list(sizes), "SMs")
        ratios, alone = [[] for _ in sizes], [[] for _ in sizes]
        measure(tenants, MEASURE_MS / 4)     # clocks and caches
        for _ in range(ROUNDS):
            apart = [measure([tenant])[0].rate for tenant in tenants]
            together = [figures.rate for figures in measure(tenants)]
            for i in range(len(sizes)):
                ratios[i].append(together[i] / apart[i])
                alone[i].append(apart[i])
        for tenant in tenants:
            tenant.end()
    return ratios, alone


def sms():
    rows = []
    for group_size, sizes in ((2, (66, 66)), (2, (32, 32, 32, 32)), (8, (56, 64)), (8, (24, 24, 24, 24))):
        ratios, _ = side_by_side(group_size, sizes, COMPUTE)
        for i, sm in enumerate(sizes):
            rows.append(("groups of %d, %s: tenant %d on %d SMs, of its speed alone" % (
                group_size, " + ".join(map(str, sizes)), i + 1, sm), "≥ 0.98", spread(ratios[i])))
    with whole(1) as system:
        system.flytctl("gpu", "set", "node-0:0", "--group-size", 2)
        add(system, 0, SMS)
        tenant = Tenant(system, 0, COMPUTE)
        full = statistics.median(measure([tenant])[0].rate for _ in range(ROUNDS))
        tenant.end()
    sizes = (40, 92)
    ratios, alone = side_by_side(2, sizes, COMPUTE)
    for i, sm in enumerate(sizes):
        ideal = 100 * sm / SMS
        for what, rates in (("the other idle", alone[i]), ("the other busy", [a * r for a, r in zip(alone[i], ratios[i])])):
            shares = [100 * rate / full for rate in rates]
            rows.append(("%d of %d SMs, %s: share of the whole GPU's speed" % (sm, SMS, what), "%.1f ± 3 %%" % ideal,
                         spread(shares, "%.1f %%")))
    table("Compute-bound tenants on SMs of their own (median, smallest, largest of %d)" % ROUNDS, rows)


def memory():
    rows = []
    for sizes in ((56, 64), (24, 24, 24, 24)):
        ratios, _ = side_by_side(8, sizes, MEMORY)
        for i, sm in enumerate(sizes):
            rows.append(("%s: tenant %d on %d SMs, of its speed alone" % (" + ".join(map(str, sizes)), i + 1, sm),
                         "reported", spread(ratios[i])))
    table("Memory-bound tenants on SMs of their own (median, smallest, largest of %d)" % ROUNDS, rows)


# ---- resize ----

def server_pid(system):
    return [session["server_pid"] for session in system.flytctl("sessions")][0]


def resident_kib(pid):
    with open("/proc/%d/status" % pid) as f:
        return int(re.search(r"^VmRSS:\s+(\d+)", f.read(), re.M)[1])


def gpu_used_mib():
    if not HAS_GPU:
        return 0
    out = subprocess.run(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"], capture_output=True,
                         text=True, check=True).stdout
    return int(out.split()[0])


def resize():
    count = 1000
    with whole(1) as system:
        vm = add(system, 0, 64)
        tenant = Tenant(system, 0, SHORT)
        sizes = (32, 64, 16, 64, 48, 120)
        still, moved, median, took = [], [], [], []
        for _ in range(ROUNDS):
            still.append(measure([tenant], 1000)[0].longest_ms)
            tenant.go()
            tenant.say("measure 1500")
            until, i = time.monotonic() + 1.2, 0
            while time.monotonic() < until:
                before = time.monotonic()
                system.flytctl("resize", vm, "--sm", sizes[i % len(sizes)])
                took.append((time.monotonic() - before) * 1e3)
                i += 1
            figures = Figures(tenant.read("measured"))
            moved.append(figures.longest_ms)
            median.append(figures.median_ms)
            system.flytctl("resize", vm, "--sm", 64)
            tenant.rest()
        pid = server_pid(system)
        before, before_gpu = resident_kib(pid), gpu_used_mib()
        tenant.go()
        for i in range(count):
            system.flytctl("resize", vm, "--sm", sizes[i % len(sizes)])
        harness.within(60, lambda: system.flytctl("allocations")[0]["switch_state"] == "vacated", "vacated")
        grown, grown_gpu = resident_kib(pid) - before, gpu_used_mib() - before_gpu
        kernels = tenant.end()
    table("Resize under full load (medians of %d rounds, %d resizes; then %d in a row)" % (ROUNDS, len(took), count), [
        ("longest time between two kernels' ends, without a resize", "", spread(still, "%.2f ms")),
        ("the same while SMs change", "≤ 10 ms more than queued work", spread(moved, "%.2f ms")),
        ("median time between two kernels' ends meanwhile", "", spread(median, "%.2f ms")),
        ("flytctl resize until acknowledged, its process included", "< 50 ms", spread(took, "%.1f ms")),
        ("%d in a row: kernels with the right result" % count, "all", "all of %d" % kernels),
        ("growth of the server process; of the GPU's memory in use", "none", "%d KiB; %d MiB" % (grown, grown_gpu)),
    ])


# ---- time ----

def time_shared(isolation, *tenants):
    """A system with a VM for each tuple of options, each with all SMs in turns with the others, and a tenant in it."""
    system = whole(len(tenants), isolation)
    for i, words in enumerate(tenants):
        add(system, i, SMS, "--isolation", isolation, "--sharing", "time", *words)
    return system


def split(isolation, minima, ms):
    """Per cent of all kernels that each tenant ran, and of its speed alone that all together had, round by round."""
    shares, sums = [[] for _ in minima], []
    with time_shared(isolation, *[("--minimum-share", minimum) for minimum in minima]) as system:
        tenants = [Tenant(system, i, COMPUTE) for i in range(len(minima))]
        measure(tenants, MEASURE_MS / 4)
        for _ in range(ROUNDS):
            alone = measure([tenants[0]])[0].rate
            rates = [figures.rate for figures in measure(tenants, ms)]
            sums.append(sum(rates) / alone)
            for i, rate in enumerate(rates):
                shares[i].append(100 * rate / sum(rates))
        for tenant in tenants:
            tenant.end()
    return shares, sums


def capped(isolation, maximum):
    """Speed of a lone tenant with a maximum, relative to without one."""
    ratios = []
    with time_shared(isolation, ()) as system:
        tenant = Tenant(system, 0, COMPUTE)
        for _ in range(ROUNDS):
            system.flytctl("resize", system.vm_ip(0), "--maximum-share", 0)
            free = measure([tenant], SHARE_MS / 4)[0].rate
            system.flytctl("resize", system.vm_ip(0), "--maximum-share", maximum)
            ratios.append(100 * measure([tenant], SHARE_MS / 2)[0].rate / free)
        tenant.end()
    return ratios


def lone():
    """Speed of a lone tenant that may have all, relative to the program without Flyt."""
    ratios = []
    for _ in range(ROUNDS if HAS_GPU else 0):
        native = Tenant(None, None, COMPUTE)
        rate = measure([native])[0].rate
        native.end()
        with time_shared("strict", ("--minimum-share", 20)) as system:
            tenant = Tenant(system, 0, COMPUTE)
            ratios.append(measure([tenant])[0].rate / rate)
            tenant.end()
    return ratios


def share():
    rows = []
    for isolation in ("strict", "shared"):
        shares, sums = split(isolation, (20, 80), SHARE_MS)
        for i, minimum in enumerate((20, 80)):
            rows.append(("%s, %d of 20 + 80: share of the work in %.0f s" % (isolation, minimum, SHARE_MS / 1000),
                         "%d ± 2 %%" % minimum, spread(shares[i], "%.1f %%")))
        rows.append(("%s: both together, of one alone" % isolation, "", spread(sums)))
        rows.append(("%s, at most 20, nobody else: of its speed without a bound" % isolation, "20 ± 2 %",
                     spread(capped(isolation, 20), "%.1f %%")))
    ratios = lone()
    rows.append(("strict, nobody else, no bound: of native", "≥ 0.97", spread(ratios) if ratios else "no GPU here"))
    table("Tenants that share all SMs in time (median, smallest, largest of %d)" % ROUNDS, rows)


def launches(system, i):
    """µs for each of many launches back to back, the last one's end included, of tests/bench/launch in VM i."""
    result = system.run_in_vm(i, bench_program("launch"), *LAUNCH, timeout=120)
    harness.expect_equal(result.status, 0, "launch", result)
    return float(re.search(r"^launch_back_to_back (\S+) us$", result.out, re.M)[1])


def gate():
    """What a launch costs more where SMs are shared in time: alternately in a VM that does and one that does not."""
    figures = [[], []]
    with whole(2) as system:
        add(system, 0, 64)
        add(system, 1, 64, "--sharing", "time", "--minimum-share", 20)
        for _ in range(3 * ROUNDS):
            for i in range(2):
                figures[i].append(launches(system, i))
    table("The gate (medians of %d runs, alternating)" % (3 * ROUNDS), [
        ("launch back to back, SMs of its own", "", spread(figures[0], "%.2f µs")),
        ("launch back to back, SMs shared in time, nobody else", "", spread(figures[1], "%.2f µs")),
        ("difference of the medians", "≤ 0.2 µs", "%.2f µs" % (
            statistics.median(figures[1]) - statistics.median(figures[0]))),
    ])


# ---- faults ----

def short_program(system, i):
    return system.run_in_vm(i, harness.helper("echo")).status == 0


def settle(system):
    """Waits until nothing runs and servers are warm."""
    def is_quiet():
        return not system.flytctl("sessions") and all(g["warm"] >= 2 and g["health"] == "ok" for g in system.flytctl("gpus"))
    harness.within(60, is_quiet, "no programs, and warm servers")


def victim(system):
    """A tenant under full load in VM 1, its session and its server. The node may tell of a short program's session when that
    has already ended, so others may be shown beside it."""
    tenant = Tenant(system, 1, SHORT)
    tenant.go()
    session = harness.within(60, lambda: [s for s in system.flytctl("sessions") if s["program"] == "tenant"], "its session")[0]
    return tenant, session["id"], session["server_pid"]


def ends_with_error(tenant):
    result = harness.finish(tenant.process)
    harness.expect(result.status != 0 and result.err, "a tenant that lost its GPU", result)


def fault(system):
    """ms from the beginning and from the end of a program that faults until a new one of its neighbour's VM has ended
    right, and how many were refused before."""
    settle(system)
    tenant, _, _ = victim(system)
    begin, refused = time.monotonic(), 0
    culprit = system.run_in_vm(0, harness.app("fault_address"))
    end = time.monotonic()
    harness.expect_equal(culprit.status, 0, "the program that faults", culprit)
    while not short_program(system, 1):
        refused += 1
        harness.expect(time.monotonic() - end < 60, "no program of the neighbour's VM is right again")
    now = time.monotonic()
    ends_with_error(tenant)
    return (now - begin) * 1e3, (now - end) * 1e3, refused


def session_kill(system):
    """ms until the order is acknowledged, until the server has gone, and until the session is shown no more."""
    settle(system)
    tenant, session, pid = victim(system)
    begin = time.monotonic()
    system.flytctl("session", "kill", session)
    acknowledged = time.monotonic()
    harness.within(60, lambda: not harness.is_alive(pid), "the server has gone")
    gone = time.monotonic()
    harness.within(60, lambda: not system.flytctl("sessions"), "the session has gone")
    unseen = time.monotonic()
    ends_with_error(tenant)
    return [(moment - begin) * 1e3 for moment in (acknowledged, gone, unseen)]


def faults():
    env = harness.environment()
    if not HAS_GPU:
        env["FLYT_SOFT_FAULT_FOLDER"] = tempfile.mkdtemp(prefix="faults-", dir=harness.WORK)
    undisturbed, after_fault, kills = [], [], []
    with whole(2, env=env) as system:
        for i in range(2):
            add(system, i, 32, "--include-gpu", "node-0:0", sessions=4)
        for _ in range(ROUNDS):
            settle(system)
            begin = time.monotonic()
            harness.expect(short_program(system, 1), "a short program")
            undisturbed.append((time.monotonic() - begin) * 1e3)
            after_fault.append(fault(system))
            kills.append(session_kill(system))
        happened = [e["kind"] for e in system.flytctl("events")].count("gpu.fault")
    harness.expect_equal(happened, ROUNDS, "faults that the node told of")
    from_begin, from_end, refused = zip(*after_fault)
    acknowledged, gone, unseen = zip(*kills)
    table("After a fault on a shared GPU (medians of %d rounds)" % ROUNDS, [
        ("a short program, first to last, nothing else there", "", spread(undisturbed, "%.0f ms")),
        ("from the end of the program that faulted until a new one of its neighbour's VM has ended right", "≤ 5 s",
         spread(from_end, "%.0f ms")),
        ("the same from the beginning of the program that faulted", "≤ 5 s", spread(from_begin, "%.0f ms")),
        ("new programs that were refused before that", "", spread(refused, "%d")),
        ("flytctl session kill under full load until acknowledged, its process included", "≤ 5 s",
         spread(acknowledged, "%.0f ms")),
        ("until its server process has gone", "≤ 5 s", spread(gone, "%.0f ms")),
        ("until flytctl sessions shows it no more", "≤ 5 s", spread(unseen, "%.0f ms")),
    ])


# ---- a server's death ----

def moment(system, kind, count):
    """When the last one of so many events of this kind was, in ms of the wall clock."""
    happened = harness.within(60, lambda: e if len(e := events(system, kind)) == count else None, kind)
    return happened[-1]["time_ms"]


REPLACED = re.compile(r": was replaced, .*")
PIECES_MIB = (8, 64, 512) if HAS_GPU else (1, 8)     # of the memory of a program whose server is killed


def killed(system, mib):
    """A program that holds all that it gets in pieces of so much, and is at rest; its server process is killed, ROUNDS times.
    Prints where the time went, as the node manager says it. [ms until the process had gone], [ms until the session went on],
    pieces."""
    program, before = Greedy(system, 0), len(events(system, "session.resumed"))
    pieces, dying, together = program.ask("fill %d" % mib)[0], [], []
    for i in range(before, before + ROUNDS):
        one = harness.within(60, lambda: is_quiet(system), "nothing is under way")
        begin = time.time() * 1e3
        os.kill(one["server_pid"], signal.SIGKILL)
        dying.append(moment(system, "session.server_lost", i + 1) - begin)
        together.append(moment(system, "session.resumed", i + 1) - begin)
        program.ask("info")
    program.ends()
    harness.within(60, lambda: not system.flytctl("sessions"), "the session has gone")
    for line in [line for line in system.log("node-0").splitlines() if REPLACED.search(line)][-ROUNDS:]:
        print("  " + " ".join(re.findall(r"\b(?:extents|[a-z_]+_us)=\d+", line)))
    return dying, together, pieces


def replace():
    rows = []
    with whole(1) as system:
        add(system, 0, 64)
        for mib in PIECES_MIB:
            dying, together, pieces = killed(system, mib)
            what = "%d pieces of %d MiB: from SIGKILL until " % (pieces, mib)
            rows += [(what + "the process has gone", "", spread(dying, "%.0f ms")),
                     (what + "the session goes on at another server", "≤ 100 ms", spread(together, "%.0f ms"))]
    table("A killed server is replaced: a program at rest (medians of %d rounds)" % ROUNDS, rows)


TOPICS = {"sms": sms, "memory": memory, "resize": resize, "share": share, "gate": gate, "faults": faults, "replace": replace}


def main(topics):
    unknown = [topic for topic in topics if topic not in TOPICS]
    if unknown or "--help" in topics:
        print(__doc__.strip())
        return 2 if unknown else 0
    if HAS_GPU:
        subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], check=True)
    else:
        print("Software GPU, %d SMs of %d instructions per second each." % (SMS, SOFTWARE_SM_RATE))
    print("%d CPU cores." % os.cpu_count())
    failed = 0
    for topic in topics or TOPICS:
        try:
            TOPICS[topic]()
        except harness.Failed as failure:
            print("bench: %s: %s" % (topic, failure), file=sys.stderr)
            failed = 1
    return failed


if __name__ == "__main__":
    with harness.workspace():
        sys.exit(main([word for word in sys.argv[1:]]))
