#!/usr/bin/env python3
"""Somebody with a cluster manager's certificate says that he leads (leader_by_hand.py), while the real one is away: one of
an epoch before the highest that the node has seen is refused with everything that he orders, also after the node manager's
restart; one that does not answer is left. Programs notice nothing."""
import json

import by_hand
import netns
from by_hand import opaque, u32, u64
from cluster import metric_values
from harness import expect, expect_equal, main, scenario, within
from leader_by_hand import ORDER_APPLY, ORDER_GPU_SET, ORDER_SESSION_KILL, LeaderByHand, allocation, apply
from steady import MIB, Steady, add_vm, all_agree, nodes_up
from trust import Trusted


class Between(Trusted):
    """The node knows two cluster managers: the real one, and one by hand at `other_port`."""

    def __init__(self, **options):
        self._other, self.other_port = netns.reserve_port()
        super().__init__(node=lambda i: {"managers": [self.manager_url, "tcp://127.0.0.1:%d" % self.other_port]}, **options)

    def lead(self, epoch):
        certificate, key = "manager-other.pem", "manager-other-key.pem"
        return LeaderByHand(self.other_port, self.authority, self.path("pki", certificate), self.path("pki", key), epoch)

    def close(self):
        super().close()
        self._other.close()

    def state(self):
        """What the node manager keeps."""
        with open(self.path("node-0", "state", "state.json")) as f:
            return json.load(f)

    def limits(self):
        return metric_values(self.metrics("node-0"), "flyt_node_allocation_memory_limit_bytes")


def all_orders(system, epoch, row, session):
    """One of each kind, each of which would change something."""
    return [(ORDER_APPLY, apply(epoch, removed=[int(row["id"], 16)])),
            (ORDER_APPLY, apply(epoch, [allocation(row, system.vm_ip(0), 1000, 96 * MIB)])),
            (ORDER_SESSION_KILL, u64(epoch) + u64(int(session["id"], 16))),
            (ORDER_GPU_SET, u64(epoch) + opaque(row["gpu"]) + u32(2))]


@scenario
def an_older_epoch():
    with Between(nodes=1, vms=1, memory="512M") as system:
        system.pki("issue", system.path("pki"), "manager", "other", "--host", "127.0.0.1")
        add_vm(system, 0, memory="128M")
        system.restart("cluster")       # so that there is an epoch before
        nodes_up(system)
        program = Steady(system, 0)
        program.takes(32)
        row, session = system.allocation(0), within(20, lambda: system.flytctl("sessions"), "the session")[0]
        epoch = system.flytctl("status")[0]["epoch"]
        expect(epoch > 1, "an epoch before", epoch)
        system.supervisor.stop("cluster")
        before, limits = system.state(), system.limits()
        expect_equal((int(before["epoch"]), [v for _, v in limits]), (epoch, [128 * MIB]), "what the node has", before)
        with system.lead(epoch - 1) as old:
            for starts in (1, 2):
                if starts == 2:
                    old.orders = []
                    system.kill("node-0")       # it has the epoch written down
                old.orders = all_orders(system, epoch - 1, row, session)
                for (procedure, _), answer in zip(old.orders, old.wait_orders()):
                    expect_equal(answer.outcome, ("STALE", "the node follows a later leader"), "order", procedure)
                    if procedure == ORDER_APPLY:
                        expect_equal(answer.skip_outcome().u64(), epoch, "the epoch that the node names")
                # It is not kept by him, who answers its registration: it looks for another one.
                before_count = old.registrations
                within(40, lambda: old.registrations > before_count + 1, "it comes again")
                expect_equal((system.state(), system.limits()), (before, limits), "state and limits")
                within(20, lambda: system.supervisor.get("node-0")["status"].endswith("1 sessions, no cluster manager"),
                       "the node does not say that somebody leads it")
                expect_equal(system.log("node-0").count("refused a cluster manager that led at epoch %d" % (epoch - 1)),
                             starts, "the node says so, once each time that it runs")
                program.goes_on()
                expect_equal(program.total(), 128, "MiB")
        system.restart("cluster")
        nodes_up(system)
        event = system.event("leader.refused", "epoch %d" % (epoch - 1), "epoch %d" % epoch)
        expect_equal((event["who"], event["object"]), ("node:node-0", "node-0"), "the event", event)
        expect_equal(system.allocation(0)["id"], row["id"], "the allocation")
        expect_equal([s["id"] for s in system.flytctl("sessions")], [session["id"]], "sessions")
        all_agree(system)
        program.goes_on()
        # The same from one who came later is done: the epoch decides, nothing else.
        epoch = system.flytctl("status")[0]["epoch"]
        system.supervisor.stop("cluster")
        with system.lead(epoch + 3) as later:
            later.orders = [all_orders(system, epoch + 3, row, session)[2]]
            expect_equal(later.wait_orders()[0].outcome, ("OK", ""), "the order of a later leader")
            code, said = program.ends_with_error()
            expect(code != 0 and "session" in said, "what the program was told:", code, said)
            within(20, lambda: int(system.state()["epoch"]) == epoch + 3, "the later epoch is kept")


@scenario
def one_that_hangs():
    """It takes the registration and does not answer: the node goes to another one."""
    with Between(nodes=1, vms=1, memory="512M") as system:
        system.pki("issue", system.path("pki"), "manager", "other", "--host", "127.0.0.1")
        add_vm(system, 0, memory="128M")
        program = Steady(system, 0)
        epoch = system.flytctl("status")[0]["epoch"]
        with system.lead(epoch) as other:
            other.is_mute = True
            system.supervisor.stop("cluster")
            within(20, lambda: other.registrations, "it registers at the other one")
            system.restart("cluster")
            nodes_up(system)
            expect("did not answer in time" in system.log("node-0"), "the node says so", system.log("node-0")[-2000:])
            program.goes_on()
            program.ends_right()


if __name__ == "__main__":
    main()
