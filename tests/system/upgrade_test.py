#!/usr/bin/env python3
"""Each daemon becomes the version before, and the present one again, one after the other, under running programs: cluster
manager, node managers, client managers, and then servers as programs come and go. Files, links and handshakes of either
version are read by the other; a program waits in an image meanwhile, which the other version restores.

The version before is a build of the revision that tests/previous names (`make previous`), in its folder below the build, or
in FLYT_TEST_PREVIOUS=FOLDER; without it this is skipped.
"""
import os
import tempfile

import harness
from cluster import DAEMON_BUILD, System
from harness import expect, expect_equal, main, scenario, skip, within
from steady import MIB, Steady, add_vm, all_agree, all_is_free, allocation, nodes_up

PREVIOUS = os.environ.get("FLYT_TEST_PREVIOUS") or os.path.join(harness.BUILD, "previous")
VMS = 2                 # and one whose program is in an image
HELD = 16               # MiB of each program
# A daemon is at each start what its file names then, as after a package's upgrade.
AS_NAMED = 'program=$1; shift; exec "$(cat "$0")/bin/$program" "$@"'


class Versions(System):
    """Two nodes and VMs whose daemons begin as the version before."""

    def __init__(self, **options):
        self.builds = {}
        super().__init__(nodes=2, vms=VMS + 1, sms=32, memory="1G", namespaces=False, cluster={"allocation_linger_s": 1}, **options)

    def program(self, name):
        """Servers are what a link names: those that run stay what they are."""
        if name != "flyt-server":
            return os.path.join(PREVIOUS if name in ("flyt-cluster-manager", "flyt-node-manager", "flyt-client-manager")
                                else DAEMON_BUILD, "bin", name)
        if not os.path.islink(self.server_link):
            self.serves_with(PREVIOUS)
        return self.server_link

    @property
    def server_link(self):
        return self.path("server", "flyt-server")

    def serves_with(self, build):
        os.symlink(os.path.join(build, "bin", "flyt-server"), self.server_link + ".new")
        os.rename(self.server_link + ".new", self.server_link)

    def build_path(self, name):
        return self.path(name, "build")

    def becomes(self, name, build):
        with open(self.build_path(name), "w", encoding="utf-8") as file:
            file.write(build)

    def start_daemon(self, name, program, path, prefix=(), **options):
        self.becomes(name, PREVIOUS)
        self.supervisor.start(name=name, command=[*prefix, "sh", "-c", AS_NAMED, self.build_path(name), program, "--config", path],
                              env={**self.env, "FLYT_LOG": "info"}, **options)

    @staticmethod
    def is_of(pid):
        """The folder of what runs."""
        return os.path.dirname(os.path.dirname(os.readlink("/proc/%d/exe" % pid)))


class Lasting:
    """Programs that run all the time: in each VM one with the client libraries of each version."""

    def __init__(self, system):
        self.system = system
        self.programs = [Steady(system, i, FLYT_LIB_DIR=os.path.join(build, "lib")) for i in range(VMS)
                         for build in (PREVIOUS, harness.BUILD)]
        for program in self.programs:
            program.takes(HELD)
        within(60, lambda: len(system.flytctl("sessions")) == len(self.programs), "all have sessions")
        self.sessions = self.ids()

    def ids(self):
        return sorted(s["id"] for s in self.system.flytctl("sessions") if s["vm_ip"] != self.system.vm_ip(VMS))

    def go_on(self, what):
        for program in self.programs:
            program.goes_on()
        within(60, lambda: self.ids() == self.sessions, "the same sessions, " + what)


class Waiting:
    """A program that waits in an image of one version until the other one restores it."""

    def __init__(self, system):
        self.system, self.folder = system, tempfile.mkdtemp(prefix="images-", dir=harness.WORK)
        self.program = Steady(system, VMS)
        self.program.takes(HELD)

    def does(self, *words):
        result = self.system.flytctl_run(*words, "--timeout", "120", timeout=300)
        expect_equal(result.status, 0, "flytctl", *words, result)

    def is_written(self):
        within(60, lambda: [s["state"] for s in self.system.flytctl("sessions", self.system.vm_ip(VMS))] == ["serving"], "it runs")
        self.does("checkpoint", self.system.vm_ip(VMS), "--to", self.folder, "--stop-timeout", "60000")

    def is_restored(self):
        self.does("restore", self.folder)
        self.program.goes_on()


def serves_new_programs(system, build):
    """Those that were warm come first."""
    def is_of_build():
        program = Steady(system, 0)
        pid = within(60, lambda: [s["server_pid"] for s in system.flytctl("sessions") if s["client_pid"] == program.process.pid],
                     "the session of a new program")[0]
        served_by = system.is_of(pid)
        program.ends_right()
        return served_by == build
    within(60, is_of_build, "a new program is served by " + build)


def all_works(system, lasting, step, what):
    """A program comes and goes, a VM is resized and moves to the other node, and what everybody says of it is the same."""
    nodes_up(system)
    lasting.go_on(what)
    for build in (PREVIOUS, harness.BUILD):
        passing = Steady(system, step % VMS, FLYT_LIB_DIR=os.path.join(build, "lib"))
        passing.takes(HELD)
        expect_equal(passing.ask("sms"), [allocation(system, step % VMS)["sms"]], "SMs of a new program,", what)
        passing.ends_right()
    vm_ip, sms = system.vm_ip(step % VMS), (16, 8)[step // VMS % 2]
    result = system.flytctl_run("resize", vm_ip, "--sm", sms, "--memory", "%dM" % (256 + 8 * step), timeout=120)
    expect_equal(result.status, 0, "a resize,", what, result)
    row = allocation(system, step % VMS)
    expect_equal((row["sms"], row["memory_bytes"]), (sms, (256 + 8 * step) * MIB), "what it has", what)
    target = "node-1" if row["node"] == "node-0" else "node-0"
    result = system.flytctl_run("migrate", vm_ip, "--to", target, "--stop-timeout", "60000", "--timeout", "120", timeout=300)
    expect_equal(result.status, 0, "a move,", what, result)
    expect_equal(allocation(system, step % VMS)["node"], target, "where it is,", what)
    lasting.go_on(what + ", after a move")
    all_agree(system)


@scenario
def one_after_the_other():
    with Versions() as system:
        for i in range(VMS + 1):
            add_vm(system, i, "--policy", "spread", memory="256M")
        lasting, waiting, step = Lasting(system), Waiting(system), 0
        all_works(system, lasting, step, "all as the version before")
        for build, word in ((DAEMON_BUILD, "present"), (PREVIOUS, "before")):
            waiting.is_written()
            for name in [*system.daemons(), "servers"]:
                step += 1
                what = "%s of the version %s" % (name, word)
                if name == "servers":
                    system.serves_with(build)
                    serves_new_programs(system, build)
                else:
                    system.becomes(name, build)
                    expect_equal(system.is_of(system.restart(name)["pid"]), build, what)
                all_works(system, lasting, step, what)
                print("    %s" % what, flush=True)
            waiting.is_restored()
        for program in [*lasting.programs, waiting.program]:
            program.ends_right()
        all_is_free(system)


if not os.access(os.path.join(PREVIOUS, "bin", "flyt-cluster-manager"), os.X_OK):
    skip("no build of the version before: make previous, or FLYT_TEST_PREVIOUS=FOLDER")
expect(PREVIOUS != DAEMON_BUILD, "the version before is the present one")
main()
