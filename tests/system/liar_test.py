#!/usr/bin/env python3
"""VMs share SMs in time, and a server process that was taken over (programs/liar.c) lies about its turn: the node manager
finds it out by the GPU's own account, and ends it. A program whose one kernel takes long goes on, and is told of."""
import os
import tempfile

import harness
from cluster import System, metric_values
from harness import expect, expect_equal, helper, main, scenario, within
from steady import add_vm, allocation, events, is_idle, server_of
from turns import LONG_STEPS, SLOW, Spin, Turns


class Liars:
    """Two VMs, half of the time each; the second one's program works all the time."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(dir=harness.WORK)
        os.chmod(self.folder, 0o777)        # servers may be users of their own
        self.told = os.path.join(self.folder, "told")
        env = harness.environment(LD_PRELOAD=helper("liar.so"), FLYT_TEST_LIAR=self.told, FLYT_SOFT_ACCOUNT=self.folder)
        self.system = System(vms=2, sms=16, memory="512M", node=SLOW, env=env)

    def __enter__(self):
        self.system.__enter__()
        for i in range(2):
            add_vm(self.system, i, "--minimum-share", 50, sm=16, memory="128M")
        self.other = Turns(self.system, 1)
        self.other.goes_on()
        return self

    def __exit__(self, *what):
        return self.system.__exit__(*what)

    def lie(self, how):
        within(60, lambda: len(self.system.flytctl("sessions")) == 2, "both are known")
        with open(self.told + ".new", "w") as f:
            f.write("%d %s" % (server_of(self.system, 0), how))
        os.rename(self.told + ".new", self.told)

    def is_ended(self, program, reason):
        told = within(60, lambda: events(self.system, "session." + reason), "the liar is ended")
        expect_equal(len(told), 1, told)
        expect(self.system.vm_ip(0) in told[0]["text"], told)
        ended = [v for labels, v in metric_values(self.system.metrics("node-0"), "flyt_sessions_ended_by_account_total")
                 if labels["reason"] == reason]
        expect_equal(ended, [1], reason)
        program.process.stdin.close()
        program.process.stdin = None
        harness.finish(program.process, 60)
        self.other.goes_on(40)
        self.other.ends_right()
        is_idle(self.system)


@scenario
def who_works_and_says_that_he_does_not_is_ended():
    with Liars() as liars:
        program = Spin(liars.system, 0, 0)
        liars.lie("idle")
        liars.is_ended(program, "out_of_time_slice")
        expect(allocation(liars.system, 0)["shared_us"] >= 2000000, "its VM has paid")


@scenario
def who_keeps_his_turn_and_does_nothing_is_ended():
    with Liars() as liars:
        program = Spin(liars.system, 0, LONG_STEPS // 2)
        liars.lie("keeps")
        liars.is_ended(program, "time_slice_kept")


@scenario
def a_long_kernel_goes_on():
    with Liars() as liars:
        program = Spin(liars.system, 0, LONG_STEPS)
        told = within(60, lambda: events(liars.system, "session.overdue"), "it is told")
        expect(liars.system.vm_ip(0) in told[0]["text"], told)
        liars.other.goes_on(40)
        values = metric_values(liars.system.metrics("node-0"), "flyt_time_slices_overdue_total")
        expect(values and values[0][1] >= 1, values)
        expect_equal(program.line("its end", 300), "done")
        for kind in ("session.out_of_time_slice", "session.time_slice_kept"):
            expect_equal(events(liars.system, kind), [], "nobody is ended")
        program.process.stdin.close()
        program.process.stdin = None
        expect_equal(harness.finish(program.process, 60).status, 0, "the program's end")
        liars.other.ends_right()
        is_idle(liars.system)


if __name__ == "__main__":
    main()
