"""What a program of a VM is connected to: sockets, as the kernel tells of them, and what flytctl says."""
import os

from harness import expect, within
from survivor import session


def inodes(path, column, wanted):
    """Of sockets in a table of /proc/net, whose line `wanted` takes."""
    with open(path) as f:
        rows = [line.split() for line in f.readlines()[1:]]
    return {row[column] for row in rows if wanted(row)}


def connections(pid):
    """(unix, tcp) sockets of a process that are connected, without those to its client manager."""
    held = set()
    for name in os.listdir("/proc/%d/fd" % pid):
        try:
            target = os.readlink("/proc/%d/fd/%s" % (pid, name))
        except FileNotFoundError:
            continue
        if target.startswith("socket:["):
            held.add(target[len("socket:["):-1])
    tcp = set()
    for name in ("tcp", "tcp6"):
        tcp |= inodes("/proc/%d/net/%s" % (pid, name), 9, lambda row: row[3] == "01")
    unix = inodes("/proc/%d/net/unix" % pid, 6, lambda row: row[5] == "03" and row[4] == "0001")
    return len(held & unix) - 1, len(held & tcp)


def goes_over(system, program, *transports):
    """One of them: what flytctl says, and what the kernel does. The session."""
    seen = within(60, lambda: (lambda s: s["state"] == "serving" and s["transport"] in transports and s)(session(system)),
                  "the session's transport is " + " or ".join(transports))
    transport = seen["transport"]
    expect(seen["client_address"] == "unix" if transport == "unix" else ":" in seen["client_address"], seen)
    unix, tcp = connections(program.process.pid)
    expect((unix > 0, tcp > 0) == (transport == "unix", transport == "tcp"), "connections: unix", unix, "tcp", tcp)
    return seen
