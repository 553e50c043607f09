#!/usr/bin/env python3
"""Memory and events that processes of one VM share: by IPC handles and by descriptors, between two and three processes; who is
refused, who is charged, and what happens when one of them ends, is killed, or its VM is resized meanwhile."""
import subprocess

import harness
import sharer
from cluster import System
from harness import environment, expect, expect_equal, main, scenario, within
from sharer import MIB, Sharer, sharers, total
from steady import add_vm, is_idle

INVALID_HANDLE, NOT_SUPPORTED = "CUDA_ERROR_INVALID_HANDLE", "CUDA_ERROR_NOT_SUPPORTED"


def whole_system(vms=1, gpus=1, env=None):
    system = System(vms=vms, gpus=gpus, **{**sharer.OPTIONS, **({"env": env} if env else {})})
    try:
        for i in range(vms):
            add_vm(system, i, "--name", "vm%d" % i, "--sessions", 4, "--devices", gpus, sm=16, memory=sharer.VM_MEMORY)
    except BaseException:
        system.close()
        raise
    return system


@scenario
def by_handles():
    with whole_system() as system:
        a, b, c = sharers(system, 3)
        for name, size in (("little", 4096), ("other", 12000), ("large", 5 * MIB)):
            a.does("alloc", name, size)
            a.does("fill", name, 7)
            handle = a.does("handle", name)
            expect_equal(a.does("handle", name), handle, "asked for again")
            for other in (b, c):
                other.does("open", name, handle)
                expect_equal(other.does("sum", name), total(7, size), other.name, name)
            b.does("fill", name, 2**32 - 9)
            for other in (a, c):
                expect_equal(other.does("sum", name), total(2**32 - 9, size), other.name, name)
        a.is_refused("CUDA_ERROR_INVALID_CONTEXT", "open", "own", a.does("handle", "large"))
        b.does("open", "again", a.does("handle", "large"))
        b.does("free", "large")
        expect_equal(b.does("sum", "again"), total(2**32 - 9, 5 * MIB), "what was opened twice and closed once")
        b.does("free", "again")
        b.is_refused(INVALID_HANDLE, "open", "unknown", "00" * 32 + a.does("handle", "large")[64:])
        for one in (a, b, c):
            one.ends()
        is_idle(system)


@scenario
def that_nobody_has_used_yet():
    """The owner's server clears new memory behind the program's back: that undoes nothing of what others write there, and nobody
    reads what was there before."""
    with whole_system(env=environment(FLYT_SOFT_DIRTY="1")) as system:
        for i in range(6):
            a, b = sharers(system, 2)
            a.does("alloc", "large", 200 * MIB)
            b.does("open", "large", a.does("handle", "large"))
            if i % 2:
                expect_equal(b.does("marked", "large"), "0", "what was there before")
            b.does("mark", "large", 1000 + i)
            expect_equal(a.does("marked", "large"), str(1000 + i), "what the other has written")
            for one in (b, a):
                one.ends()
            within(30, lambda: not system.flytctl("sessions"), "both have ended")
        is_idle(system)


@scenario
def of_a_process_and_its_child():
    """tests/apps/ipc_memory.cu, as it runs natively."""
    with whole_system() as system:
        result = system.run_in_vm(0, harness.app("ipc_memory"), FLYT_TEST_FORWARDED="1")
        expect_equal((result.status, result.out), (0, "ok\n"), result)
        is_idle(system)


@scenario
def events_of_a_process_and_its_child():
    """tests/apps/ipc_events.cu, as it runs natively."""
    with whole_system() as system:
        result = system.run_in_vm(0, harness.app("ipc_events"), FLYT_TEST_FORWARDED="1")
        expect_equal((result.status, result.out), (0, "ok\n"), result)
        is_idle(system)


@scenario
def events_order_work():
    """What one process has recorded, two more wait for, whoever of them it was; and all know of the last record."""
    with whole_system() as system:
        a, b, c = sharers(system, 3)
        a.does("alloc", "memory", MIB)
        a.does("make_event", "event")
        handle, event = a.does("handle", "memory"), a.does("event_handle", "event")
        expect_equal(a.does("event_handle", "event"), event, "asked for again")
        a.is_refused("CUDA_ERROR_INVALID_CONTEXT", "open_event", "own", event)
        for other in (b, c):
            other.does("open", "memory", handle)
            other.does("open_event", "event", event)
            other.does("query", "event")
            other.does("synchronize", "event")
            other.is_refused("CUDA_ERROR_INVALID_HANDLE", "event_handle", "event")
        for i, (writer, readers) in enumerate(((a, (b, c)), (b, (c, a)), (c, (a, b)), (a, (c, b)))):
            writer.does("hold")
            writer.does("fill_later", "memory", 1000 + i)
            writer.does("record", "event")
            for reader in readers:
                reader.is_refused("CUDA_ERROR_NOT_READY", "query", "event")
                reader.does("await", "event")
                reader.says("sum", "memory")
            writer.does("let_go")
            for reader in readers:
                expect_equal(reader.hears("ok")[1], total(1000 + i, MIB), reader.name, "behind", writer.name)
                reader.does("query", "event")
        for one in (a, b, c):
            one.ends()
        is_idle(system)


@scenario
def events_of_those_who_go():
    """What a process had under way that was killed is waited for by nobody; an event that its maker has destroyed is
    there for who has it, and for nobody else; another VM's program is refused."""
    with whole_system(vms=2) as system:
        (a, b, c), (stranger,) = sharers(system, 3), sharers(system, 1, 1)
        for name in ("kept", "destroyed"):
            a.does("make_event", name)
            handle = a.does("event_handle", name)
            stranger.is_refused("CUDA_ERROR_MAP_FAILED", "open_event", name, handle)
            for other in (b, c):
                other.does("open_event", name, handle)
        a.does("hold")
        a.does("record", "destroyed")
        a.does("end_event", "destroyed")

        def is_withdrawn():
            b.says("open_event", "again", handle)
            return b.hears()[0] == "CUDA_ERROR_MAP_FAILED"

        b.is_refused("CUDA_ERROR_NOT_READY", "query", "destroyed")
        a.does("let_go")
        b.does("synchronize", "destroyed")
        within(60, is_withdrawn, "what was destroyed cannot be opened")
        b.does("hold")
        b.does("record", "destroyed")
        c.is_refused("CUDA_ERROR_NOT_READY", "query", "destroyed")
        b.does("let_go")
        c.does("synchronize", "destroyed")

        a.does("hold")
        a.does("record", "kept")
        for other in (b, c):
            other.is_refused("CUDA_ERROR_NOT_READY", "query", "kept")
        b.does("await", "kept")
        for other, words in ((b, ("record", "destroyed")), (c, ("synchronize", "kept"))):
            other.says(*words)
        b.hears("ok")
        a.kill()
        c.hears("ok")
        b.does("synchronize", "destroyed")
        b.does("query", "kept")
        for one in (b, c, stranger):
            one.ends()
        is_idle(system)


@scenario
def from_another_device():
    """Opening a handle lets the current device reach what is on another one, as cudaDeviceEnablePeerAccess does."""
    with whole_system(gpus=2) as system:
        a, b, c = sharers(system, 3)
        a.does("alloc", "memory", 3 * MIB)
        a.does("fill", "memory", 17)
        handle = a.does("handle", "memory")
        for other in (b, c):
            other.does("use", 1)
        c.does("peer", 0)
        for other in (b, c):
            other.does("open", "memory", handle)
            other.is_refused("CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer", 0)
            expect_equal(other.does("sum", "memory"), total(17, 3 * MIB), other.name, "by a kernel of device 1")
        b.does("fill", "memory", 2**32 - 3)
        for other in (a, c):
            expect_equal(other.does("sum", "memory"), total(2**32 - 3, 3 * MIB), other.name)
        for one in (b, c, a):
            one.does("free", "memory")
            one.ends()
        is_idle(system)


@scenario
def by_descriptors():
    with whole_system() as system:
        a, b, c = sharers(system, 3)
        a.does("create", "memory", 6 * MIB)
        a.does("fill", "memory", 3)
        for sender, receiver in ((a, b), (b, c)):
            path = system.path("shared." + receiver.name[0])
            receiver.says("receive", "memory", path)
            receiver.hears("listens")
            sender.does("send", "memory", path)
            receiver.hears("ok")
            expect_equal(receiver.does("sum", "memory"), total(3, 6 * MIB), receiver.name)
        c.does("fill", "memory", 11)
        expect_equal(a.does("sum", "memory"), total(11, 6 * MIB), "written by another")
        for one in (c, b, a):
            one.does("free", "memory")
            one.ends()
        is_idle(system)


@scenario
def pools_and_pointers():
    """Of a pool that one process made, two more get what it has taken; they take nothing of it themselves."""
    with whole_system() as system:
        a, b, c = sharers(system, 3)
        path = system.path("pool")
        b.says("receive_pool", path)
        b.hears("listens")
        a.does("make_pool", path)
        b.hears("ok")
        for name, size, seed in (("little", 6000, 2), ("large", 3 * MIB, 2**32 - 5)):
            a.does("take", name, size)
            a.does("fill", name, seed)
            data = a.does("pointer", name)
            b.does("accept", name, data)
            expect_equal(b.does("sum", name), total(seed, size), name)
            b.does("fill", name, 77)
            expect_equal(a.does("sum", name), total(77, size), name, "written by another")
            a.is_refused("CUDA_ERROR_INVALID_VALUE", "handle", name)
        b.is_refused("CUDA_ERROR_INVALID_VALUE", "take", "own", 4096)
        c.is_refused("CUDA_ERROR_INVALID_VALUE", "accept", "large", data)
        for one in (b, a):
            for name in ("little", "large"):
                one.does("free", name)
        for one in (c, b, a):
            one.ends()
        is_idle(system)


@scenario
def others_are_refused():
    """Another VM's program that shows the same token; and everybody when what it names was freed."""
    with whole_system(vms=2) as system:
        (a, b), (stranger,) = sharers(system, 2), sharers(system, 1, 1)
        a.does("alloc", "memory", 3 * MIB)
        handle = a.does("handle", "memory")
        stranger.is_refused(INVALID_HANDLE, "open", "memory", handle)
        b.does("open", "memory", handle)
        a.does("create", "physical", 2 * MIB)
        path = system.path("stranger")
        stranger.says("receive", "physical", path)
        stranger.hears("listens")
        a.does("send", "physical", path)
        stranger.hears(INVALID_HANDLE)
        b.does("free", "memory")
        a.does("free", "memory")

        def is_withdrawn():
            """Freeing is not waited for: its server tells the node manager when it comes to it."""
            b.says("open", "memory", handle)
            answer = b.hears()[0]
            if answer == "ok":
                b.does("free", "memory")
            return answer == INVALID_HANDLE

        within(60, is_withdrawn, "what was freed cannot be opened")
        for one in (a, b, stranger):
            one.ends()
        is_idle(system)


@scenario
def the_owner_is_charged():
    """Once, however many have it; and the VM, as long as others have what its owner has freed, or was killed with."""
    with whole_system() as system:
        (c,) = sharers(system, 1)
        alone = int(c.does("left"))
        a, b = sharers(system, 2)
        for one in (a, b):
            one.does("left")      # its session has begun
        each = (alone - int(c.does("left"))) // 2      # what a driver takes for a server

        def taken(what, mib, sessions=2):
            def is_so():
                return abs(alone - sessions * each - int(c.does("left")) - mib * MIB) <= 12 * MIB
            within(20, is_so, "%d MiB are charged: %s" % (mib, what))

        a.does("create", "memory", 64 * MIB)
        a.does("fill", "memory", 1)
        path = system.path("memory")
        b.says("receive", "memory", path)
        b.hears("listens")
        a.does("send", "memory", path)
        b.hears("ok")
        taken("its owner and another have it", 64)
        a.does("free", "memory")
        taken("its owner has freed it", 64)
        expect_equal(b.does("sum", "memory"), total(1, 64 * MIB), "of what its owner has freed")
        c.is_refused("CUDA_ERROR_OUT_OF_MEMORY", "alloc", "much", int(c.does("left")) + 16 * MIB)
        b.does("free", "memory")
        taken("nobody has it", 0)

        a.does("alloc", "memory", 32 * MIB)
        a.does("fill", "memory", 5)
        b.does("open", "memory", a.does("handle", "memory"))
        a.kill()
        within(60, lambda: len(system.flytctl("sessions")) == 2, "the owner's session has ended")
        taken("its owner was killed", 32, sessions=1)
        expect_equal(b.does("sum", "memory"), total(5, 32 * MIB), "of what its owner was killed with")
        b.kill()
        within(60, lambda: len(system.flytctl("sessions")) == 1, "the other's session has ended")
        taken("all who had it were killed", 0, sessions=0)
        c.ends()
        is_idle(system)


@scenario
def while_the_vm_is_resized():
    with whole_system() as system:
        a, b = sharers(system, 2)
        a.does("alloc", "memory", 8 * MIB)
        b.does("open", "memory", a.does("handle", "memory"))
        for i, sms in enumerate((32, 8, 16)):
            system.flytctl("resize", "vm0", "--sm", sms)
            writer, reader = (a, b) if i % 2 else (b, a)
            writer.does("fill", "memory", i)
            expect_equal(reader.does("sum", "memory"), total(i, 8 * MIB), "with", sms, "SMs")
        for one in (a, b):
            one.ends()
        is_idle(system)


@scenario
def the_node_manager_is_restarted():
    """Tokens, and who has what, are known to the next one."""
    with whole_system() as system:
        a, b, c = sharers(system, 3)
        a.does("create", "memory", 64 * MIB)
        a.does("fill", "memory", 9)
        a.does("alloc", "more", 2 * MIB)
        a.does("fill", "more", 4)
        handle = a.does("handle", "more")
        path = system.path("memory")
        b.says("receive", "memory", path)
        b.hears("listens")
        a.does("send", "memory", path)
        b.hears("ok")
        a.does("make_event", "event")
        event = a.does("event_handle", "event")
        b.does("open_event", "event", event)
        a.does("hold")
        a.does("record", "event")
        before = int(c.does("left"))
        system.kill(system.node_name(0))
        system.restart(system.node_name(0))
        c.does("open", "more", handle)
        c.does("open_event", "event", event)
        for other in (b, c):
            other.is_refused("CUDA_ERROR_NOT_READY", "query", "event")
        a.does("let_go")
        for other in (b, c):
            other.does("synchronize", "event")
        expect_equal(c.does("sum", "more"), total(4, 2 * MIB), "opened by way of the next node manager")
        a.does("free", "memory")
        within(30, lambda: abs(int(c.does("left")) - before) <= 8 * MIB, "what another has is charged still")
        expect_equal(b.does("sum", "memory"), total(9, 64 * MIB), "of what its owner has freed")
        b.does("free", "memory")
        within(30, lambda: int(c.does("left")) >= before + 50 * MIB, "it is free")
        for one in (c, b, a):
            one.ends()
        is_idle(system)


@scenario
def direct_mode_has_no_broker():
    with harness.server() as server:
        a = Sharer(harness.start(
            harness.through_flyt(server.url, harness.helper("sharer")), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE), "A")
        a.does("alloc", "memory", MIB)
        a.is_refused(NOT_SUPPORTED, "handle", "memory")
        a.is_refused(NOT_SUPPORTED, "open", "other", "00" * 64)
        a.does("create", "physical", 2 * MIB)
        a.is_refused(NOT_SUPPORTED, "send", "physical", "/nowhere")
        a.is_refused(NOT_SUPPORTED, "make_event", "event")
        a.is_refused(NOT_SUPPORTED, "open_event", "event", "00" * 64)
        a.ends()


if __name__ == "__main__":
    main()
