#!/usr/bin/env python3
"""A program on its GPU's own machine goes over the node manager's unix socket without being told; one of another machine (it
has another boot id), or one that cannot have the socket, goes over TCP, from its start, after its server's death, and after a
move."""
import os
import shutil
import socket
import tempfile

import harness
from cluster import System
from connections import goes_over
from harness import app, expect, expect_equal, finish, helper, main, run, scenario, skip, through_flyt, within
from steady import add_vm, is_idle
from survivor import Survivor, its_server_is_killed, session
from two_nodes import PATIENCE, TwoNodes, ends

BOOT_ID = "/proc/sys/kernel/random/boot_id"
FOREIGN = "0a1b2c3d-1111-4222-8333-0123456789ab"
# With a file as this machine's boot id; then the command.
ELSEWHERE_SHELL = 'mount --bind "$0" %s && exec "$@"' % BOOT_ID
OPTIONS = {"vms": 1, "gpus": 1, "sms": 48, "memory": "1G"}


def boot_id():
    with open(BOOT_ID) as f:
        return f.read().strip()


def listed(system, i=0):
    return next(n for n in system.flytctl("nodes") if n["name"] == system.node_name(i))["data_urls"]


def once(system, transport, prefix=()):
    """A program from its start to its end."""
    program = Survivor(system, 0, prefix)
    goes_over(system, program, transport)
    program.does("check", "right 1")
    ends(system, program)


@scenario
def without_being_told():
    with System(local=True, **OPTIONS) as system:
        add_vm(system, 0, memory="512M")
        path = system.node_socket(0)
        expect_equal(listed(system)[1:], ["unix://%s%s" % (boot_id(), path)], "what programs are told besides")
        expect_equal(os.stat(path).st_mode & 0o777, 0o666, "who may connect")
        program = Survivor(system, 0)
        program.does("check", "right 1")
        goes_over(system, program, "unix")
        its_server_is_killed(system)
        program.does("check", "right 2")
        goes_over(system, program, "unix")
        for strike in (system.kill, system.restart):        # of the node manager
            strike("node-0")
            its_server_is_killed(system)
            program.does("check", "right 3" if strike == system.kill else "right 4")
            goes_over(system, program, "unix")
        system.flytctl("migrate", system.vm_ip(0), "--to", "node-0:0", "--force", *PATIENCE)
        program.does("check", "right 5")
        goes_over(system, program, "unix")
        ends(system, program)
        for name in ("memory", "bulk_copies"):      # large copies, which have data streams of their own
            result = system.run_in_vm(0, app(name))
            expect_equal((result.status, result.err), (0, ""), name, result)


@scenario
def encrypted():
    with System(local=True, cluster={"encrypted": True}, **OPTIONS) as system:
        add_vm(system, 0, memory="512M")
        program = Survivor(system, 0)
        expect(goes_over(system, program, "unix")["encrypted"], "it is encrypted")
        its_server_is_killed(system)
        program.does("check", "right 1")
        ends(system, program)


@scenario
def forbidden():
    """socket = "" in node.conf."""
    with System(local=False, **OPTIONS) as system:
        add_vm(system, 0, memory="512M")
        expect_equal([url[:6] for url in listed(system)], ["tcp://"], "what programs are told")
        once(system, "tcp")


@scenario
def of_another_machine():
    """As in a VM, or where the socket's folder is shared with other machines: the file is there, and is not theirs."""
    if os.geteuid():
        skip("root is needed")
    path = os.path.join(tempfile.mkdtemp(prefix="boot-", dir=harness.WORK), "id")
    with open(path, "w") as f:
        f.write(FOREIGN + "\n")
    elsewhere = ["unshare", "--mount", "sh", "-c", ELSEWHERE_SHELL, path]
    if run([*elsewhere, "true"]).status:
        skip("nothing can be mounted here")
    with System(local=True, **OPTIONS) as system:
        add_vm(system, 0, memory="512M")
        once(system, "tcp", elsewhere)
        once(system, "unix")
    url = "unix://%s/tmp/of-another-machine" % boot_id()
    result = run([*elsewhere, *through_flyt(url, helper("echo"))])
    expect(result.status and "on another machine" in result.err and FOREIGN in result.err and url in result.err, result)
    result = run([*elsewhere, os.path.join(harness.BUILD, "bin", "flyt-server"), "--listen", url, "--soft", "1"])
    expect(result.status and "on another machine" in result.err and not os.path.exists("/tmp/of-another-machine"), result)


@scenario
def the_socket_cannot_be_had():
    """Its file is gone; nobody listens there; somebody else does, who closes every connection."""
    with System(local=True, **OPTIONS) as system:
        add_vm(system, 0, memory="512M")
        once(system, "unix")
        path = system.node_socket(0)
        os.unlink(path)
        once(system, "tcp")
        with socket.socket(socket.AF_UNIX) as s:
            s.bind(path)
            once(system, "tcp")
            s.listen()
            s.settimeout(60)
            program = system.start_in_vm(0, helper("echo"), stdin=None)
            with s.accept()[0]:
                pass
            expect_equal(finish(program).status, 0, "a program that is let in elsewhere")
            os.unlink(path)
        is_idle(system)
        # The next one makes it anew, although the descriptor was kept.
        system.restart("node-0")
        within(60, lambda: os.path.exists(path), "there is a socket again")
        once(system, "unix")


@scenario
def the_socket_goes_while_it_runs():
    """The session's next server is looked for where it was, and then where its client manager says."""
    with System(local=True, **OPTIONS) as system:
        add_vm(system, 0, memory="512M")
        program = Survivor(system, 0)
        program.does("check", "right 1")
        goes_over(system, program, "unix")
        os.unlink(system.node_socket(0))
        program.does("check", "right 2")
        its_server_is_killed(system)
        program.does("check", "right 3")
        goes_over(system, program, "tcp")
        ends(system, program)


@scenario
def from_node_to_node():
    """Of two nodes one has a socket. Where that is slow to answer, as on a busy machine, TCP is tried next; not every time."""
    with TwoNodes(local=True, node=lambda i: {"socket": ""} if i else {}) as system:
        program, arrived = Survivor(system, 0), []
        goes_over(system, program, "unix")
        for i in range(3):
            program.does("check", "right %d" % (2 * i + 1))
            system.moves()
            goes_over(system, program, "tcp")
            program.does("check", "right %d" % (2 * i + 2))
            system.moves()
            arrived.append(goes_over(system, program, "unix", "tcp")["transport"])
        expect("unix" in arrived, "over what it came back", arrived)
        ends(system, program)


@scenario
def a_node_without_room_for_it():
    """It serves all the same, over TCP."""
    folder = tempfile.mkdtemp(prefix="room-", dir=harness.WORK)
    with System(node={"socket": folder}, **OPTIONS) as system:
        add_vm(system, 0, memory="512M")
        expect("a file that is no socket is there" in system.log("node-0"), system.log("node-0"))
        once(system, "tcp")
    shutil.rmtree(folder)


main()
