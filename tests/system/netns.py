"""Machines that are network namespaces, for tests: a hub, where managers and nodes run, and VMs, each with a wire to it.

Names end with the process id, and everything goes with close(). Nothing of the host's own network is touched.
"""
import ctypes
import os
import socket
import subprocess
import threading

CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)
_count = 0

HUB_ADDRESS = "10.77.255.1"
NOBODY = "02:00:00:00:00:99"    # a network card that nobody has


def ip(*words):
    """Runs ip(8); OSError where it fails."""
    result = subprocess.run(["ip", *words], capture_output=True, text=True)
    if result.returncode:
        raise OSError("ip %s: %s" % (" ".join(words), result.stderr.strip()))


def inside(namespace, function):
    """Calls function in a namespace (None: here) and returns what it returned; sockets that it made stay there."""
    if namespace is None:
        return function()
    outcome = {}

    def enter():
        try:
            with open("/run/netns/" + namespace) as f:
                if _libc.setns(f.fileno(), CLONE_NEWNET) != 0:
                    raise OSError(ctypes.get_errno(), "setns " + namespace)
            outcome["value"] = function()
        except BaseException as error:      # told to the caller
            outcome["error"] = error

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    if "error" in outcome:
        raise outcome["error"]
    return outcome["value"]


def forward():
    """Lets the namespace that it is called in pass on what is for others."""
    with open("/proc/sys/net/ipv4/ip_forward", "w") as f:
        f.write("1")


class Network:
    """A hub and `count` VMs. VM i (from 0) has vm_address(i); all reach HUB_ADDRESS and, through the hub, each other.
    OSError where that is not possible here."""

    def __init__(self, count):
        global _count
        _count += 1
        prefix = "flyt-%d-%d" % (os.getpid(), _count)
        self.hub = prefix + "-hub"
        self.vms = ["%s-vm%d" % (prefix, i) for i in range(count)]
        self._made = []
        try:
            for name in [self.hub, *self.vms]:
                ip("netns", "add", name)
                self._made.append(name)
                ip("-n", name, "link", "set", "lo", "up")
            ip("-n", self.hub, "addr", "add", HUB_ADDRESS + "/32", "dev", "lo")
            inside(self.hub, forward)
            for i, name in enumerate(self.vms):
                wire = "vm%d" % i
                ip("-n", self.hub, "link", "add", wire, "type", "veth", "peer", "name", "eth0", "netns", name)
                ip("-n", self.hub, "addr", "add", "10.77.%d.1/24" % (i + 1), "dev", wire)
                ip("-n", self.hub, "link", "set", wire, "up")
                ip("-n", name, "addr", "add", vm_address(i) + "/24", "dev", "eth0")
                ip("-n", name, "link", "set", "eth0", "up")
                ip("-n", name, "route", "add", "default", "via", "10.77.%d.1" % (i + 1))
        except OSError:
            self.close()
            raise

    def cut(self, i):
        """Takes VM i's wire out, without a word to either side; mend() puts it back."""
        ip("-n", self.hub, "link", "set", "vm%d" % i, "down")

    def drop(self, i):
        """VM i's wire loses everything, in both directions, and looks well to both sides; mend() puts it back."""
        for name, device, address in ((self.hub, "vm%d" % i, vm_address(i)), (self.vms[i], "eth0", "10.77.%d.1" % (i + 1))):
            ip("-n", name, "neigh", "replace", address, "lladdr", NOBODY, "dev", device, "nud", "permanent")

    def mend(self, i):
        ip("-n", self.hub, "link", "set", "vm%d" % i, "up")
        for name, device in ((self.hub, "vm%d" % i), (self.vms[i], "eth0")):
            ip("-n", name, "neigh", "flush", "dev", device, "nud", "permanent")

    def close(self):
        while self._made:
            subprocess.run(["ip", "netns", "del", self._made.pop()], capture_output=True)


def vm_address(i):
    return "10.77.%d.2" % (i + 1)


def is_possible():
    """Whether namespaces can be made here."""
    try:
        Network(1).close()
        return True
    except OSError:
        return False


def reserve_port(address="127.0.0.1"):
    """A TCP port that the kernel chose and gives to nobody else by itself as long as the socket is open: (socket, port).
    Who sets SO_REUSEADDR may listen there."""
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind((address, 0))
    return s, s.getsockname()[1]
