#!/usr/bin/env python3
"""The cluster manager before a simulated cluster: nothing is given twice, every question is answered, everything comes
back, also over kills and a takeover. In full (FLYT_SOAK=1): 1,000 nodes with 8 GPUs each and 10,000 VMs."""
import os
import time

from harness import expect, expect_equal, main, scenario, within
from load import Fleet, Managers
from mongod import Mongod

IS_FULL = bool(os.environ.get("FLYT_SOAK"))
NODES, VMS, GPUS = (1000, 10000, 8) if IS_FULL else (20, 200, 1)
RATE, SECONDS, HOLD_MS = (50, 60, 1000) if IS_FULL else (20, 5, 500)
UP_S = 120


def expect_sound(fleet, what):
    expect_equal(fleet.violations(), [], what)


def expect_answered(figures, what):
    expect_equal(figures["granted"] + figures["refused"], figures["asked"], what, figures)


def release(fleet):
    fleet.say("end")
    within(300, lambda: fleet.status()["held"] == 0, "everything that was held is given back")
    expect_sound(fleet, "after the release")


@scenario
def attaches_and_releases():
    managers = Managers(allocation_linger_s=1)
    managers.write_documents(VMS)
    managers.start(0)
    fleet = Fleet(managers.urls, NODES, VMS, GPUS)
    fleet.wait("all_up", UP_S)
    filled = fleet.ask("fill %d 50" % (VMS // 4), "filled", 300)
    expect_equal(filled["granted"], VMS // 4, "there is room for these", filled)
    loaded = fleet.ask("load %d %d %d" % (RATE, SECONDS, HOLD_MS), "loaded", SECONDS + 120)
    expect_equal(loaded["asked"], RATE * SECONDS)
    expect_equal(loaded["granted"], loaded["asked"], "there is room for these too", loaded)
    release(fleet)
    figures = managers.metrics(0)
    expect_equal(figures['flyt_attaches_total{outcome="granted"}'] >= filled["granted"] + loaded["granted"], True, figures)
    fleet.close()
    expect_equal(managers.stop(0), 0, "the manager's exit status", managers.log(0)[-2000:])


@scenario
def more_than_there_is():
    """Two small nodes: what does not fit is refused with a reason, and what was given back is given again."""
    managers = Managers(allocation_linger_s=0.5)
    managers.write_documents(100)
    managers.start(0)
    fleet = Fleet(managers.urls, nodes=2, vms=100, gpus=1)
    fleet.wait("all_up", UP_S)
    filled = fleet.ask("fill 100 20", "filled", 60)
    expect_answered(filled, "all are answered")
    # In turn 8, 16, 20 and 32 SMs, of 132 on each of two GPUs.
    expect(8 <= filled["granted"] <= 2 * 132 // 8, "some fit, some do not:", filled)
    expect("SMs" in filled["refusal"], "why:", filled)
    expect_equal(fleet.status()["held"], filled["granted"])
    release(fleet)
    again = fleet.ask("fill 6 2", "filled", 60)
    expect_equal(again["granted"], 6, "what was given back is given again", again)
    release(fleet)
    fleet.close()


@scenario
def killed_under_load():
    managers = Managers(allocation_linger_s=1)
    managers.write_documents(VMS)
    managers.start(0)
    fleet = Fleet(managers.urls, NODES, VMS, GPUS)
    fleet.wait("all_up", UP_S)
    kept = fleet.ask("fill %d 50" % (VMS // 4), "filled", 300)["granted"]
    fleet.say("load %d %d %d" % (RATE, SECONDS, HOLD_MS))
    for _ in range(2):
        time.sleep(SECONDS / 4)
        managers.kill(0)
        managers.start(0)
        fleet.wait("all_up", UP_S)
    loaded = fleet.wait("loaded", SECONDS + 300)
    expect_answered(loaded, "every VM is answered")
    # Who comes back before the nodes do is told that.
    expect(loaded["granted"] == loaded["asked"] or "node not connected" in loaded["refusal"], loaded)
    expect(fleet.status()["running"] >= kept, "programs of before go on", fleet.status())
    release(fleet)
    fleet.close()


@scenario
def taken_over():
    mongod = Mongod()
    managers = Managers(2, mongod.uri("flyt"), allocation_linger_s=1)
    vms = VMS if IS_FULL else 60
    managers.write_documents(vms)
    managers.start(0)
    fleet = Fleet(managers.urls, NODES, vms, GPUS)
    fleet.wait("all_up", UP_S)
    managers.start(1)
    within(30, lambda: "metrics: on port" in managers.log(1), "the second manager is there")
    kept = fleet.ask("fill %d 20" % (vms // 4), "filled", 300)["granted"]
    managers.kill(0)
    fleet.wait("all_up", UP_S)
    loaded = fleet.ask("load %d 3 500" % (RATE // 2), "loaded", 300)
    expect_equal(loaded["granted"], loaded["asked"], "the second one decides", loaded)
    expect(fleet.status()["running"] >= kept, "programs of before go on", fleet.status())
    release(fleet)
    fleet.close()


main()
