#!/usr/bin/env python3
"""Twenty programs compute and compare on two nodes with two GPUs each while their VMs are resized, moved, written to images,
restored and suspended, and while daemons and servers are killed at moments by chance: cluster manager, node managers,
client managers, servers that have a session, that are warm, that load one. A program is harmed only where its own server was
killed; what is granted is what servers have; in the end nothing is under way and nothing is left.

FLYT_KILLS=N kills so often (60; 1,000 with FLYT_SOAK=1); FLYT_SEED=N takes the choices of an earlier run, which printed it;
FLYT_KEEP=FOLDER has the daemons' logs copied there.
Runs alone: it has twenty programs at once.
"""
import collections
import contextlib
import os
import random
import re
import shutil
import signal
import tempfile
import threading
import time

import harness
import movers
from cluster import System, metric_values
from harness import expect, expect_equal, main, scenario, within
from steady import MIB, Steady, add_vm, all_agree, all_is_free, allocations, nodes_up
from survivor import Survivor

KILLS = int(os.environ.get("FLYT_KILLS") or (1000 if os.environ.get("FLYT_SOAK") else 60))
SETTLES_AFTER = 20 if KILLS < 200 else 40   # kills: then all is looked at
PAUSE_S = 1.5               # the most between two kills; a quarter of them come with the one before
EARLY = 0.3                 # share of daemons that are killed whether or not they are ready; others are waited for
NODES, GPUS, SMS, VMS = 2, 2, 32, 4
MOVERS_OF_A_VM = 3          # and one of steady.cu, and one of survivor.cu
OPERATORS = 3
# Cases that a resize of memory, or the death of a server that is replaced, changes something for: the memory that there is,
# and the times of events of before.
LEFT_OUT = (*movers.STAY, "memory_info", "device_properties", "event_times", "old_events")
RESTORES = 3                # of an image, at most: what is not restored by then is when all settles
LOST_CODE = 46              # cudaErrorDevicesUnavailable, of a lost connection
PATIENCE = ("--stop-timeout", "30000", "--timeout", "60")


class Work:
    """One program's place: where its server was killed and it could not go on, there is a next one."""

    def __init__(self, soak, i, make, moves_on):
        self.soak, self.i, self.make, self.moves_on = soak, i, make, moves_on
        self.harmed = 0
        self.program = make()

    def restarts_if_harmed(self, failure=None):
        """Whether its program has ended, because its server was killed; any other end is a failure."""
        process = self.program.process
        if failure is None:
            said = "" if process.stdout.closed else self.program.reads_all()
            if process.poll() is None:
                return False
        self.soak.may_be_harmed(self.program, failure or said)
        self.harmed += 1
        self.program = self.make()
        return True

    def restarts_if_unaware(self, sessions):
        """A program whose calls its client answers does not hear of its server's death."""
        pid = self.program.process.pid
        if all(s["client_pid"] != pid for s in sessions) and any(map(self.soak.was_killed, self.soak.sessions_of(pid))):
            self.program.close()
            self.harmed += 1
            self.program = self.make()

    def goes_on(self):
        while True:
            try:
                return self.moves_on(self.program)
            except harness.Failed as failure:
                self.program.process.wait(harness.PATIENCE_S)
                self.restarts_if_harmed(failure)


class Operator(threading.Thread):
    """Has something done to VMs by flytctl, until it is stopped; what it is told is counted."""

    def __init__(self, soak, chance):
        super().__init__()
        self.soak, self.chance, self.is_over, self.failure = soak, chance, threading.Event(), None

    def run(self):
        try:
            while not self.is_over.is_set():
                getattr(self, self.chance.choice(OPERATIONS))(self.soak.system.vm_ip(self.chance.randrange(VMS)))
                self.is_over.wait(self.chance.uniform(0, 0.5))
        except Exception as failure:    # pylint: disable=broad-except
            self.failure = failure

    def does(self, what, *words):
        result = self.soak.system.flytctl_run(*words, timeout=4 * harness.PATIENCE_S)
        self.soak.outcomes[what, result.status] += 1
        return result.status == 0

    def resizes(self, vm_ip):
        self.does("resize", "resize", vm_ip, "--sm", self.chance.choice((8, 16, 24)))

    def resizes_memory(self, vm_ip):
        self.does("resize of memory", "resize", vm_ip, "--memory", self.chance.choice(("512M", "640M", "768M")))

    def migrates(self, vm_ip):
        places = ["node-%d" % n for n in range(NODES)] + ["node-%d:%d" % (n, g) for n in range(NODES) for g in range(GPUS)]
        self.does("migration", "migrate", vm_ip, "--to", self.chance.choice(places), *PATIENCE)

    def cancels(self, vm_ip):
        self.does("cancelled migration", "migrate", vm_ip, "--cancel")

    def checkpoints(self, vm_ip):
        folder = tempfile.mkdtemp(prefix="images-", dir=harness.WORK)
        stays = self.chance.random() < 0.5
        is_done = self.does("checkpoint", "checkpoint", vm_ip, "--to", folder, *PATIENCE, *(["--leave-running"] if stays else []))
        for _ in range(RESTORES if is_done and not stays else 0):
            if self.does("restore", "restore", folder, "--timeout", "60"):
                break
            self.is_over.wait(self.chance.uniform(0, 1))

    def drains(self, _):
        node = self.soak.system.node_name(self.chance.randrange(NODES))
        self.does("drain", "drain", node, "--migrate", "--timeout", "60")
        self.does("end of a drain", "uncordon", node)

    def runs(self, vm_ip):
        """One more program, from its beginning to its end."""
        i = next(i for i in range(VMS) if self.soak.system.vm_ip(i) == vm_ip)
        program = Steady(self.soak.system, i, ready=False)
        try:
            program.wait_ready()
            program.takes(4)
            program.ends_right()
            self.soak.outcomes["program", 0] += 1
        except harness.Failed as failure:
            self.soak.may_be_harmed(program, failure)
            self.soak.outcomes["program", 1] += 1

    def suspends(self, vm_ip):
        self.does("suspension", "suspend", vm_ip)
        self.is_over.wait(self.chance.uniform(0, 0.5))
        within(120, lambda: self.does("end of a suspension", "resume", vm_ip), vm_ip + " works again")


OPERATIONS = ("resizes", "resizes_memory", "migrates", "migrates", "migrates", "cancels", "checkpoints", "checkpoints", "drains",
              "runs", "runs", "suspends")


class Soak:
    def __init__(self, system, seed):
        self.system, self.chance = system, random.Random(seed)
        self.killed, self.outcomes = collections.Counter(), collections.Counter()
        self.killed_pids, self.works = set(), []
        self.operators, self.longest_ms = [], collections.Counter()
        cases = [case for case in movers.cases("fault") if case.name not in LEFT_OUT]
        for i in range(VMS):
            add_vm(system, i, "--sessions", 12, "--policy", "spread", sm=8, memory="640M")
            self.add(i, lambda i=i: self.steady(i), lambda program: program.goes_on())
            self.add(i, lambda i=i: Survivor(system, i), self.survives)
            for case in self.chance.sample(cases, MOVERS_OF_A_VM):
                self.add(i, lambda i=i, case=case, seed=self.chance.randrange(1 << 31): self.mover(i, case, seed),
                         lambda program: program.goes_on())

    def add(self, *words):
        self.works.append(Work(self, *words))

    # ---- the programs ----

    def steady(self, i):
        program = Steady(self.system, i, 50)
        program.takes(16)
        return program

    def mover(self, i, case, seed):
        program = movers.Mover(self.system, i, case, seed, 200)
        program.wait_ready()
        return program

    @staticmethod
    def survives(program):
        program.checks = getattr(program, "checks", 0) + 1
        program.does("check", "right %d" % program.checks)

    def node_names(self):
        return [self.system.node_name(n) for n in range(NODES)]

    def node_logs(self):
        return "\n".join(self.system.log(name) for name in self.node_names())

    def sessions_of(self, client_pid):
        return set(re.findall(r"session (\w+): started, vm=.* client_pid=%d " % client_pid, self.node_logs()))

    def was_killed(self, session):
        """Whether a server was killed that the session had."""
        said = [line for line in self.node_logs().splitlines() if "session %s:" % session in line]
        return any("ended by signal 9" in line for line in said) or \
            any(int(pid) in self.killed_pids for line in said for pid in re.findall(r"server_pid=(\d+)", line))

    def may_be_harmed(self, program, said):
        """A failure unless a server of this program, which ends or has ended, was killed, and it was told so."""
        said = str(said) + ("" if program.process.stdout.closed else repr(harness.finish(program.process)))
        sessions = self.sessions_of(program.process.pid)
        expect(any(self.was_killed(session) for session in sessions), program.name, "with process", program.process.pid,
               "was harmed, sessions", sessions, "whose servers were not killed:", said)
        expect(re.search(r"\b%d\b" % LOST_CODE, said) and "connection lost" in said, program.name, "was not told why:", said)

    # ---- the killing ----

    def servers(self):
        """All server processes, also those whose node manager was killed."""
        found = []
        for pid in harness.descendants(self.system.supervisor.process.pid):
            with contextlib.suppress(OSError), open("/proc/%d/comm" % pid, encoding="ascii") as comm:
                if comm.read().strip() == "flyt-server":
                    found.append(pid)
        return sorted(found)

    def kill_one(self):
        kind, which = self.chance.choices(("cluster", "node", "vm", "server"), (2, 3, 2, 4))[0], self.chance.random()
        is_early = self.chance.random() < EARLY
        if kind == "server":
            servers = self.servers()
            pid = servers[int(which * len(servers))] if servers else 0
            self.killed_pids.add(pid)
        else:
            names = [name for name in self.system.daemons() if name.startswith(kind)]
            pid = self.system.supervisor.wait(names[int(which * len(names))], lambda s: s["pid"] and (
                is_early or s["state"] == "ready"), "begins, or is ready")["pid"]
        with contextlib.suppress(ProcessLookupError):       # a server that ends just now
            if pid:
                os.kill(pid, signal.SIGKILL)
                self.killed[kind] += 1

    def disturbs(self, kills):
        self.operators = [Operator(self, random.Random(self.chance.randrange(1 << 62))) for _ in range(OPERATORS)]
        for operator in self.operators:
            operator.start()
        target = sum(self.killed.values()) + kills
        try:
            while sum(self.killed.values()) < target:
                time.sleep(max(0, self.chance.uniform(-PAUSE_S / 3, PAUSE_S)))
                self.kill_one()
                for work in self.works:
                    work.restarts_if_harmed()
        finally:
            for operator in self.operators:
                operator.is_over.set()
            for operator in self.operators:
                operator.join()
        for operator in self.operators:
            if operator.failure:
                raise operator.failure

    # ---- what holds when nobody is killed ----

    def settles(self):
        for name in self.system.daemons():
            self.system.supervisor.wait_ready(name)
        nodes_up(self.system)
        for name in self.node_names():
            within(120, lambda: self.system.flytctl_run("uncordon", name).status == 0, name + " takes programs")
        within(240, self.nothing_is_under_way, "nothing is under way")
        for work in self.works:
            work.goes_on()
        self.all_are_served()
        all_agree(self.system)
        self.servers_have_what_was_granted()
        self.measures_turns()

    def nothing_is_under_way(self):
        for kind in ("migrations", "checkpoints"):
            if any(row["phase"] not in ("done", "failed") for row in self.system.flytctl(kind)):
                return False
        for folder in {os.path.dirname(s["why_not"].split()[-1]) for s in self.system.flytctl("sessions")
                       if s["state"] == "checkpointed"}:
            self.system.flytctl_run("restore", folder, "--timeout", "60", timeout=240)
        return all(not a["migration"] and a["revision"] == a["revision_applied"] and a["sms"] == a["sms_now"] and
                   a["switch_state"] == "vacated" and not a["suspend_state"] for a in allocations(self.system))

    def measures_turns(self):
        """The longest turn of each kind of daemon's loop."""
        for name in self.system.daemons():
            for _, seconds in re.findall(r"^(flyt_\w+_loop_turn_max_seconds) (\S+)$", self.system.metrics(name), re.MULTILINE):
                kind = name.partition("-")[0]
                self.longest_ms[kind] = max(self.longest_ms[kind], 1e3 * float(seconds))

    def all_are_served(self):
        """Each program by one server, and each server has one or is warm."""
        def are_served():
            sessions = self.system.flytctl("sessions")
            for work in self.works:
                if not work.restarts_if_harmed():
                    work.restarts_if_unaware(sessions)
            warm = sum(value for name in self.node_names() for _, value in
                       metric_values(self.system.metrics(name), "flyt_node_gpu_warm_servers"))
            wrong[:] = [sorted(s["client_pid"] for s in sessions if s["state"] == "serving"),
                        sorted(work.program.process.pid for work in self.works),
                        sorted(s["server_pid"] for s in sessions), warm, self.servers()]
            return wrong[0] == wrong[1] and set(wrong[2]) <= set(wrong[4]) and len(wrong[4]) == len(wrong[2]) + warm
        wrong = []
        try:
            within(120, are_served, "all are served")
        except harness.Failed:
            raise harness.Failed("programs served %s of %s; servers %s, %d warm, of %s" % tuple(wrong)) from None

    def servers_have_what_was_granted(self):
        """SMs as a kernel sees them, and memory as the kernel of the machine does, beside the managers' books."""
        for i in range(VMS):
            row, = allocations(self.system, i)
            program = next(w.program for w in self.works if w.i == i and type(w.program) is Steady)
            expect_equal(program.ask("sms"), [row["sms"]], "SMs on which kernels of VM", i, "run:", row)
            expect_equal(program.total() * MIB, row["memory_bytes"], "memory that VM", i, "is told")
            def held():
                pids = [s["server_pid"] for s in self.system.flytctl("sessions") if s["vm_ip"] == self.system.vm_ip(i)]
                return extents_bytes(pids), allocations(self.system, i)[0]["memory_used_bytes"]
            within(60, lambda: held()[0] <= held()[1] <= row["memory_bytes"], "VM %d has what is charged" % i)

    def tells(self):
        for what in sorted({what for what, _ in self.outcomes}):
            statuses = {status: count for (w, status), count in self.outcomes.items() if w == what}
            print("    %s: %d, of which done %d" % (what, sum(statuses.values()), statuses.get(0, 0)))
        print("    longest turns of the daemons' loops: %s" % ", ".join("%s %.1f ms" % of for of in sorted(self.longest_ms.items())))
        if os.environ.get("FLYT_KEEP"):
            for name in self.system.daemons():
                shutil.copy(self.system.supervisor.get(name)["log"], os.environ["FLYT_KEEP"])

    def ends(self):
        """All programs end, right; nothing is left of them."""
        for work in self.works:
            if isinstance(work.program, Survivor):
                work.program.does("end", "ended")
                expect_equal(harness.finish(work.program.process).status, 0, work.program.name)
            else:
                work.program.ends_right()
        all_is_free(self.system)
        nodes = [self.system.supervisor.get(name)["pid"] for name in self.node_names()]
        within(60, lambda: not extents_bytes(nodes + self.servers()), "no memory of programs is left")


def names_in(folder):
    with contextlib.suppress(OSError):
        return os.listdir(folder)
    return []


def extents_bytes(pids):
    """Of the software GPUs' memory that these processes have mapped or open, each piece once."""
    sizes = {}
    for pid in pids:
        for folder in ("map_files", "fd"):
            for name in names_in("/proc/%d/%s" % (pid, folder)):
                path = "/proc/%d/%s/%s" % (pid, folder, name)
                with contextlib.suppress(OSError):
                    if "flyt-softgpu-extent" in os.readlink(path):
                        status = os.stat(path)
                        sizes[status.st_ino] = status.st_size
    return sum(sizes.values())


@scenario
def kills_at_random():
    seed = movers.seed()
    chance = random.Random(seed)
    is_local, is_encrypted = chance.random() < 0.5, chance.random() < 0.3
    print("    over %s%s" % ("unix sockets" if is_local else "TCP", ", encrypted" if is_encrypted else ""), flush=True)
    with System(nodes=NODES, vms=VMS, gpus=GPUS, sms=SMS, memory="2G", namespaces=False, local=is_local,
                cluster={"allocation_linger_s": 2, "encrypted": is_encrypted}) as system:
        soak = Soak(system, seed)
        try:
            soak.settles()
            while sum(soak.killed.values()) < KILLS:
                soak.disturbs(min(SETTLES_AFTER, KILLS - sum(soak.killed.values())))
                soak.settles()
                print("    %s killed; harmed %d" % (dict(soak.killed), sum(w.harmed for w in soak.works)), flush=True)
            soak.ends()
        except (harness.Failed, OSError) as failure:
            raise harness.Failed("FLYT_SEED=%d, killed %s: %s" % (seed, dict(soak.killed), failure)) from None
        finally:
            soak.tells()


if __name__ == "__main__":
    main()
