#!/usr/bin/env python3
"""A server is killed, or hangs, at each step of taking its turn and giving it back (rpc/base/README.md): another VM's
program goes on, and the node manager does what it is told."""
import os
import signal
import stat
import tempfile

import harness
from cluster import System
from growth import measured
from harness import expect_equal, main, scenario, within
from steady import add_vm, is_idle
from turns import LONG_STEPS, SLOW, Spin, Turns

# (point, the N-th time, whether the program's kernel is a long one)
POINTS = [("time_slice.ask", 2, False), ("time_slice.asked", 2, False), ("time_slice.take", 2, False), ("time_slice.taken", 2, False),
          ("time_slice.over", 2, False), ("time_slice.give", 1, False), ("time_slice.given", 1, False),
          ("time_slice.step_aside", 1, True), ("time_slice.stepped_aside", 1, True)]

# The first server that starts with something in the file has it as FLYT_FAULT, and no later one.
ONCE = """#!/bin/sh
if [ -s "%s" ]; then FLYT_FAULT=$(cat "%s"); export FLYT_FAULT; : >"%s"; fi
exec "%s" "$@"
"""


class Faulty:
    """Two VMs that share SMs in time; the second one's program works all the time, the first one's servers fail."""

    def __init__(self):
        folder = tempfile.mkdtemp(dir=harness.WORK)
        os.chmod(folder, 0o777)     # servers may be users of their own
        self.fault, server = os.path.join(folder, "fault"), os.path.join(folder, "server")
        real = os.path.abspath(os.path.join(harness.BUILD, "bin/flyt-server"))
        with open(server, "w") as f:
            f.write(ONCE % (self.fault, self.fault, self.fault, real))
        os.chmod(server, os.stat(server).st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
        self.system = System(vms=2, sms=16, memory="512M", node={**SLOW, "server": server, "warm": 1})

    def __enter__(self):
        self.system.__enter__()
        for i in range(2):
            add_vm(self.system, i, "--minimum-share", 50, sm=16, memory="128M")
        self.other = Turns(self.system, 1)
        self.other.goes_on()
        return self

    def __exit__(self, *what):
        return self.system.__exit__(*what)

    def start_faulty(self, point, action, time, is_long):
        """A program in the first VM whose server does that."""
        within(60, lambda: measured(self.system, "node-0", "flyt_node_gpu_warm_servers") >= 1, "a server is warm")
        with open(self.fault, "w") as f:
            f.write("%s:%s:%d" % (point, action, time))
        # The server that is warm now started before; the next one has the fault.
        Turns(self.system, 0).ends_right()
        within(60, lambda: not os.path.getsize(self.fault), "a server has started with the fault")
        within(60, lambda: len(self.system.flytctl("sessions")) == 1, "the program before has ended")
        return Spin(self.system, 0, LONG_STEPS) if is_long else Turns(self.system, 0, ready=False)

    def others_go_on(self, round):
        self.other.goes_on(40)
        self.system.flytctl("resize", self.system.vm_ip(1), "--memory", "%dM" % (128 + 16 * (round % 2)))
        late = Turns(self.system, 1)
        late.goes_on()
        late.ends_right()
        expect_equal(self.system.flytctl("nodes")[0]["state"], "up", "the node")

    def log_says(self, point):
        return self.system.log("node-0").count("at %s: made to end by FLYT_FAULT" % point)


def ends(program):
    if program.process.stdin:
        program.process.stdin.close()
        program.process.stdin = None
    program.process.kill()
    harness.finish(program.process, 60)


@scenario
def a_server_is_killed_at_each_step():
    with Faulty() as faulty:
        for round, (point, time, is_long) in enumerate(POINTS):
            program = faulty.start_faulty(point, "kill", time, is_long)
            within(60, lambda: faulty.log_says(point), "a server is killed at " + point)
            faulty.others_go_on(round)
            ends(program)
            within(60, lambda: len(faulty.system.flytctl("sessions")) == 1, "its session has ended")
            print("#", point)
        faulty.other.ends_right()
        is_idle(faulty.system)


@scenario
def a_server_hangs():
    """Its loop stands still from then on: nobody looks after its turn, and it answers no order."""
    with Faulty() as faulty:
        for round, (point, time, is_long) in enumerate(p for p in POINTS if p[0] in ("time_slice.asked", "time_slice.taken", "time_slice.over")):
            program = faulty.start_faulty(point, "hang", time, is_long)
            within(60, lambda: "at %s: made to hang by FLYT_FAULT" % point in faulty.system.log("node-0"), "it hangs at " + point)
            faulty.others_go_on(round)
            server = within(60, lambda: [s["server_pid"] for s in faulty.system.flytctl("sessions")
                                         if s["vm_ip"] == faulty.system.vm_ip(0)], "its session")[0]
            os.kill(server, signal.SIGKILL)
            ends(program)
            within(60, lambda: len(faulty.system.flytctl("sessions")) == 1, "its session has ended")
        faulty.other.ends_right()
        is_idle(faulty.system)


@scenario
def a_server_is_stopped():
    """By SIGSTOP, in the middle of its turns: as one that hangs, and it goes on when it is let."""
    with Faulty() as faulty:
        program = Turns(faulty.system, 0)
        program.goes_on()
        server = within(60, lambda: [s["server_pid"] for s in faulty.system.flytctl("sessions")
                                     if s["vm_ip"] == faulty.system.vm_ip(0)], "its session")[0]
        os.kill(server, signal.SIGSTOP)
        for round in range(2):
            faulty.others_go_on(round)
        os.kill(server, signal.SIGCONT)
        program.goes_on()
        program.ends_right()
        faulty.other.ends_right()
        is_idle(faulty.system)


if __name__ == "__main__":
    main()
