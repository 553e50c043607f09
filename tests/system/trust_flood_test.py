#!/usr/bin/env python3
"""Who asks for more than is his: floods of strangers on the ports, one VM's connections, sessions and images without end;
and whom the local socket lets in. Others go on."""
import contextlib
import grp
import os
import pwd
import socket
import subprocess
import sys
import time

import by_hand
import harness
from by_hand import Program
from cluster import metric_values
from harness import expect, expect_equal, finish, helper, main, scenario, within
from trust import Trusted, Watched

FLOOD_KNOWN = os.path.join(harness.ROOT, "tests", "system", "programs", "flood_known.py")
FLOOD = os.path.join(harness.ROOT, "tests", "system", "programs", "flood.py")


def flood(url, count, *kinds):
    """From another address than the daemons', as a machine of its own would."""
    process = harness.start([sys.executable, FLOOD, url.rsplit(":", 1)[1], "127.0.0.66", str(count), *kinds],
                            stdout=subprocess.PIPE)
    expect_equal(process.stdout.readline(), b"flooding\n", "the flood")
    return process


def stop(*processes):
    for process in processes:
        harness.kill_group(process)
        process.wait()
        process.stdout.close()


def open_files(pid):
    """How many descriptors a daemon has, which root alone can see: others leave the scenario out."""
    return len(os.listdir("/proc/%d/fd" % pid))


def is_root():
    if os.getuid() != 0:
        print("    left out: needs root")
    return os.getuid() == 0


@scenario
def strangers_at_the_cluster_manager():
    """Hundreds of connections without an identity, again and again: enrolled peers get in, and new ones enrol."""
    if not is_root():
        return
    with Trusted(nodes=1, vms=1) as system:
        system.flytctl("vm", "add", system.vm_ip(0), "--sm", "8", "--memory", "64M")
        certificate, key = system.identity("operator", "alice")
        ask = [system.program("flytctl"), "--authority", system.authority, "--certificate", certificate, "--key", key,
               "--manager", system.manager_url, "nodes"]
        pid = system.supervisor.get("cluster")["pid"]
        before = open_files(pid)
        attack = flood(system.manager_url, 500, "silent", "half", "slow", "starttls", "hello")
        for round_number in range(3):
            within(60, lambda: harness.run(ask, system.env).status == 0, "flytctl over tcp gets in")
        system.restart("vm-0")
        within(60, lambda: system.flytctl("vms")[0]["connected"], "a client manager gets in")
        system.restart("node-0")
        within(60, lambda: [n["state"] for n in system.flytctl("nodes")] == ["up"], "a node gets in")
        result = system.run_in_vm(0, helper("echo"))
        expect_equal(result.status, 0, "a program", result)
        expect(open_files(pid) < before + 64 + 32, "descriptors of the cluster manager", before, open_files(pid))
        stop(attack)
        within(30, lambda: open_files(pid) < before + 16, "the connections of the flood go")
        expect_equal(system.supervisor.get("cluster")["starts"], 1, "starts of the cluster manager")


@scenario
def one_certificate():
    """One VM's certificate with connections without end, from a machine of its own: they have their bound, and everybody else
    gets in: a program that attaches, a node, an operator."""
    bounds = {"connections_max": 100, "connections_per_address_max": 60, "connections_per_identity_max": 16}
    with Trusted(nodes=1, vms=1, cluster=bounds) as system:
        system.flytctl("vm", "add", system.vm_ip(0), "--sm", "8", "--memory", "64M")
        certificate, key = system.identity("operator", "alice")
        ask = [system.program("flytctl"), "--authority", system.authority, "--certificate", certificate, "--key", key,
               "--manager", system.manager_url, "nodes"]
        attack = harness.start([sys.executable, FLOOD_KNOWN, system.manager_url.rsplit(":", 1)[1], "127.0.0.66", "400",
                                system.authority, *system.identity("vm", "10.9.9.9"), "10.9.9.9"], stdout=subprocess.PIPE)
        expect_equal(attack.stdout.readline(), b"flooding\n", "the flood")
        for round_number in range(3):
            within(60, lambda: harness.run(ask, system.env).status == 0, "flytctl over tcp gets in")
        system.restart("vm-0")
        within(60, lambda: system.flytctl("vms", system.vm_ip(0))[0]["connected"], "a client manager gets in")
        system.restart("node-0")
        within(60, lambda: [n["state"] for n in system.flytctl("nodes")] == ["up"], "a node gets in")
        result = system.run_in_vm(0, helper("echo"))
        expect_equal(result.status, 0, "a program", result)
        expect("too many connections of role" in system.log("cluster"), "the manager says so", system.log("cluster")[-2000:])
        stop(attack)
        expect_equal(system.supervisor.get("cluster")["starts"], 1, "starts of the cluster manager")


@scenario
def who_says_no_hello():
    """Goes after a while, with a certificate, too; who has said it may be silent."""
    with Trusted(nodes=0, vms=0) as system:
        greeted = system.peer("vm", "10.9.9.9")
        silent = [system.connect(system.identity("vm", "10.9.9.%d" % i)) for i in (9, 8)]
        for peer in silent:
            within(60, lambda: not peer.is_open(), "one without a HELLO is closed")
        expect(greeted.is_open(), "one with a HELLO stays")
        expect_equal(greeted.call(by_hand.ATTACH, by_hand.u32(0)).state, "done", "and is answered")


@scenario
def strangers_at_the_node():
    if not is_root():
        return
    with Watched(vms=1) as system:
        system.flytctl("vm", "add", system.vm_ip(0), "--sm", "8", "--memory", "64M")
        result = system.run_in_vm(0, helper("echo"))
        expect_equal(result.status, 0, "a program", result)
        running = system.start_in_vm(0, helper("marker"), "wait")
        expect_equal(running.stdout.readline(), b"waiting\n", "a program that runs")
        pid = system.supervisor.get("node-0")["pid"]
        before = open_files(pid)
        attack = flood(system.node_url, 600, "silent", "half", "slow")
        within(30, lambda: open_files(pid) > before + 200, "all places are taken")
        for number in range(5):
            result = system.run_in_vm(0, helper("echo"))
            expect_equal(result.status, 0, "program", number, "that begins in the flood", result)
            print("    a program in the flood: %.1f s" % result.seconds, flush=True)
        expect(open_files(pid) < before + 256 + 32, "descriptors of the node manager", before, open_files(pid))
        running.stdin.close()
        running.stdin = None
        ended = finish(running)
        expect_equal((ended.status, ended.out.strip()), (0, "correct"), "the program that ran", ended)
        expect_equal([n["state"] for n in system.flytctl("nodes")], ["up"], "the node")
        stop(attack)
        within(30, lambda: open_files(pid) < before + 16, "the connections of the flood go")


def at_once(system, i, handshake, count):
    """What so many programs of VM i are told whose tickets come to the node at one moment; they end then."""
    programs = [Program(system.node_url) for _ in range(count)]
    ticket = system.forge(i)
    handshake = handshake.changed(credentials=ticket.credentials)
    asked = [program.handshake(handshake) for program in programs]
    for program, reply in zip(programs, asked):
        if reply and reply.status == "CHALLENGE":
            program.begin(handshake, ticket.proof(reply.challenge, program.sent))
    replies = [program.reply() for program, reply in zip(programs, asked) if reply and reply.status == "CHALLENGE"]
    for program in programs:
        program.close()
    return [reply for reply in replies if reply]


@scenario
def sessions_of_one_vm():
    """Sessions beyond sessions_max and beyond the attach rate are refused; another VM's programs run."""
    limits = {"vm.attach_rate": 1, "vm.attach_burst": 6}
    with Watched(vms=3, node=limits) as system:
        for i in range(3):
            system.flytctl("vm", "add", system.vm_ip(i), "--sm", "8", "--memory", "64M", "--sessions", 40 if i == 2 else 3)
        expect_equal(system.run_in_vm(0, helper("echo")).status, 0, "a program")
        handshake, _ = by_hand.parse_handshake(system.recorded(0)[0][0])
        beside = system.start_in_vm(1, helper("marker"), "wait")
        expect_equal(beside.stdout.readline(), b"waiting\n", "another VM's program")
        mine, words = [], set()
        for _ in range(6):
            program = Program(system.node_url)
            reply = program.attach(handshake, system.forge(0))
            expect(reply is not None and reply.status in ("OK", "BUSY"), "an attach", reply)
            if reply.status == "OK":
                mine.append(program)
            else:
                words.add(reply.message)
                program.close()
        expect_equal(len(mine), 3, "sessions that were let in")
        expect(any("as many as its allocation allows" in w for w in words), "the reason:", words)
        for program in mine:
            program.close()
        within(20, lambda: len(system.flytctl("sessions")) == 1, "they have ended")
        # Many at once of a VM that may have so many: the rate holds, however long the node takes for one.
        expect_equal(system.run_in_vm(2, helper("echo")).status, 0, "a program of the third VM")
        begin, let_in, refused = time.monotonic(), 0, set()
        while not any("in a second" in r for r in refused):
            expect(let_in < 400, "as many as", let_in, "programs began at once")
            replies = at_once(system, 2, handshake, 40)
            let_in += sum(reply.status == "OK" for reply in replies)
            refused |= {reply.message for reply in replies if reply.status != "OK"}
        seconds = time.monotonic() - begin
        expect(let_in <= 6 + seconds + 1, "programs that were let in within %.1f s: %d" % (seconds, let_in))
        result = system.run_in_vm(1, helper("echo"))
        expect_equal(result.status, 0, "another VM's program", result)
        beside.stdin.close()
        beside.stdin = None
        ended = finish(beside)
        expect_equal((ended.status, ended.out.strip()), (0, "correct"), "another VM's program", ended)
        # When it has calmed down it is let in again.
        within(30, lambda: system.run_in_vm(2, helper("echo")).status == 0, "the VM's own programs")


def kept_bytes(folder):
    """What the module images of all VMs take on a node."""
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.path.getsize(os.path.join(path, name))
            except OSError:
                pass                                      # it went meanwhile
    return total


@scenario
def uploads_without_end():
    """A VM that loads ever new modules keeps no more than vm.image_cache on the node; all of them are right, too large
    ones are refused, and another VM's programs run."""
    bound = 1 << 20
    with Watched(vms=2, node={"vm.image_cache": "1M", "vm.attach_rate": 1000}) as system:
        for i in range(2):
            system.flytctl("vm", "add", system.vm_ip(i), "--sm", "8", "--memory", "64M")
        flooding = system.start_in_vm(0, helper("uploads"), "60", str(256 << 10))
        images, most = system.path("node-0", "state", "images"), 0
        while flooding.poll() is None:
            most = max(most, kept_bytes(images))
            result = system.run_in_vm(1, helper("echo"))
            expect_equal(result.status, 0, "another VM's program", result)
        result = finish(flooding)
        expect_equal((result.status, result.out), (0, "loaded 60\n"), "the program that uploads", result)
        most = max(most, kept_bytes(images))
        # The other VM has its own, of some kilobytes.
        expect(bound // 2 < most <= bound + (64 << 10), "images that were kept:", most, "bytes")
        result = system.run_in_vm(0, helper("uploads"), "1", str(2 << 20))
        expect(result.status == 1 and "cudaLibraryLoadData" in result.out, "an image larger than all may be", result)


def member_and_group():
    """A user and a group that names him as a member, which is not his own group; None where nobody is in one."""
    for group in grp.getgrall():
        for name in group.gr_mem:
            with contextlib.suppress(KeyError):
                user = pwd.getpwnam(name)
                if user.pw_uid and user.pw_gid != group.gr_gid:
                    return name, group.gr_name
    return None


def open_to_all(system):
    """Other users can reach VM 0's socket."""
    for folder in (harness.WORK, system.folder, system.path("vm-0", "x")[:-2], system.path("vm-0", "run", "x")[:-2]):
        os.chmod(folder, 0o755)


@scenario
def local_users():
    """allow_users and allow_groups: programs of a named user and of members get in, others read why not."""
    if not is_root():
        return
    member = member_and_group()
    groups = ["games"] + ([member[1]] if member else [])
    with Trusted(nodes=1, vms=1, client={"allow_users": ["daemon", "4"], "allow_groups": groups}) as system:
        system.flytctl("vm", "add", system.vm_ip(0), "--sm", "8", "--memory", "64M")
        open_to_all(system)

        def run_as(user, program):
            """A CUDA program, as this user with the groups that the machine says he has."""
            return harness.run(["setpriv", "--reuid=" + user, "--regid=%d" % pwd.getpwnam(user).pw_gid, "--init-groups",
                                *system.vm_command(0, helper(program))], system.vm_environment(0))
        reach = subprocess.run(["setpriv", "--reuid=nobody", "--clear-groups", "test", "-x", helper("echo")])
        if reach.returncode:
            print("    left out: other users cannot reach", harness.BUILD)
            return
        allowed = ["daemon", "sync", "games"] + ([member[0]] if member else [])     # sync is number 4
        expect_equal(pwd.getpwnam("sync").pw_uid, 4, "the number of sync")
        for user in allowed + ["root"]:
            result = run_as(user, "echo")
            expect_equal(result.status, 0, "a program of", user, result)
        if not member:
            print("    left out: nobody here is a further member of a group")
        for user in ("nobody", "bin"):
            result = run_as(user, "echo")
            expect(result.status != 0, "a program of", user, result)
            expect_equal(harness.lines(result.err), [
                "flyt: the client manager gives no GPU: user %s may not use this VM's GPU: neither allow_users nor "
                "allow_groups of client.conf lets him" % user], "what it reads", result)
            expect("user %s is neither in allow_users nor in allow_groups" % user in system.log("vm-0"), "the log")
        refused = metric_values(system.metrics("vm-0"), "flyt_client_refused_users_total")
        expect_equal([value for _, value in refused], [2], "users that were refused")
        within(60, lambda: not system.flytctl("sessions"), "no session is left")


@scenario
def local_socket():
    """Connections of programs are bounded: those that say nothing, and those of a user who may not."""
    if not is_root():
        return
    with Trusted(nodes=1, vms=1, client={"allow_users": ["daemon"], "programs_max": 40,
                                                    "programs_per_user_max": 25}) as system:
        system.flytctl("vm", "add", system.vm_ip(0), "--sm", "8", "--memory", "64M")
        open_to_all(system)
        # Bounded: many connections of one who may; further ones are closed, and there is room again afterwards.
        many = []
        for _ in range(60):
            s = socket.socket(socket.AF_UNIX)
            s.connect(system.client_socket(0))
            many.append(s)
        pid = system.supervisor.get("vm-0")["pid"]
        within(20, lambda: sum(closed(s) for s in many) >= 20, "connections beyond the bound are closed")
        expect(open_files(pid) < 40 + 40, "descriptors of the client manager", open_files(pid))
        for s in many:
            s.close()
        result = system.run_in_vm(0, helper("echo"))
        expect_equal(result.status, 0, "a program afterwards", result)
        # One user's connections leave room for another's.
        many = [socket.socket(socket.AF_UNIX) for _ in range(60)]
        for s in many:
            s.connect(system.client_socket(0))
        within(20, lambda: sum(closed(s) for s in many) >= 60 - 25, "connections of one user beyond his bound are closed")
        result = harness.run(["setpriv", "--reuid=daemon", "--regid=%d" % pwd.getpwnam("daemon").pw_gid, "--clear-groups",
                              *system.vm_command(0, helper("echo"))], system.vm_environment(0))
        expect_equal(result.status, 0, "another user's program", result)
        for s in many:
            s.close()
        # Who may not and does not ask keeps no place.
        stranger = subprocess.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", sys.executable, "-c",
                                   SILENT, system.client_socket(0)], capture_output=True, text=True, timeout=60)
        expect_equal(stranger.stdout, "closed\n" * 30, "silent connections of another user", stranger.stderr)


SILENT = """
import socket, sys
many = [socket.socket(socket.AF_UNIX) for _ in range(30)]
for s in many:
    s.connect(sys.argv[1])
for s in many:
    s.settimeout(60)
    print("said something" if s.recv(4) else "closed")
"""


def closed(s):
    s.setblocking(False)
    try:
        return s.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


if __name__ == "__main__":
    main()
