"""A whole system in which certificates are looked at: as cluster.System, on the loopback interface with TLS, with the
means to be anybody before its daemons (by_hand.py).

    with Trusted(nodes=1, vms=1) as system:
        peer = system.peer("viewer", "guest")        # enrolled by token, TLS, HELLO said
"""
import json
import os
import shutil
import subprocess
import tempfile

import by_hand
import harness
import netns
from by_hand import Peer
from cluster import System
from harness import expect, expect_equal, within


class Trusted(System):
    """`from_pki`: nodes and VMs get certificates of flyt-pki, which an operator admits, in place of tokens."""

    def __init__(self, from_pki=False, **options):
        self.from_pki = from_pki
        self._identities = {}
        super().__init__(namespaces=False, tls=True, **options)

    @property
    def authority(self):
        return self.path("pki", "ca.pem")

    def certificate(self, kind, name, *options):
        """Certificate and key of flyt-pki, which nobody has admitted yet."""
        pki = self.path("pki")
        self.pki("issue", pki, kind, name, *options)
        return "%s/%s-%s.pem" % (pki, kind, name), "%s/%s-%s-key.pem" % (pki, kind, name)

    def join(self, kind, name, program, path, prefix):
        if not self.from_pki:
            super().join(kind, name, program, path, prefix)
            return
        certificate, key = self.certificate(kind, name)
        self.flytctl("member", "admit", certificate)
        state = self.path(self.daemon_of(kind, name), "state")
        os.makedirs(state, mode=0o700, exist_ok=True)
        for source, target in ((self.authority, "authority.pem"), (certificate, "certificate.pem"), (key, "key.pem")):
            shutil.copy(source, os.path.join(state, target))

    def daemon_of(self, kind, name):
        if kind == "node":
            return name
        return next("vm-%d" % i for i in range(256) if self.vm_ip(i) == name)

    # ---- being somebody ----

    def operator(self):
        """The operator of the unix socket."""
        peer = Peer(self.operator_url)
        expect_equal(peer.hello("operator", "by-hand").outcome, ("OK", ""), "HELLO on the unix socket")
        return peer

    def token(self, kind, name, valid_s=600):
        """A join token of any kind: flytctl makes those of nodes and VMs only."""
        peer = self.operator()
        answer = peer.call(by_hand.JOIN_TOKEN, by_hand.u32(by_hand.KINDS[kind]) + by_hand.opaque(name) +
                           by_hand.u32(valid_s))
        expect_equal(answer.outcome, ("OK", ""), "a token for", kind, name)
        peer.close()
        return answer.skip_outcome().text()

    def identity(self, kind, name):
        """(certificate, key) of an admitted member, enrolled by token with the first call."""
        if (kind, name) not in self._identities:
            folder = self.path("identities", "x")[:-2]
            self._identities[kind, name] = by_hand.join(self.manager_url, self.authority, self.token(kind, name), folder,
                                                        "%s-%s" % (kind, name))
        return self._identities[kind, name]

    def connect(self, files=(None, None), url=None):
        """A connection with TLS, as who the files say (nobody without any), before HELLO."""
        return Peer(url or self.manager_url).start_tls(self.authority, *files)

    def peer(self, kind, name, url=None):
        peer = self.connect(self.identity(kind, name), url)
        expect_equal(peer.hello(kind, name).outcome, ("OK", ""), "HELLO of", kind, name)
        return peer

    def events(self, kind):
        return [e for e in self.flytctl("events") if e["kind"] == kind]

    def event(self, kind, *words):
        """Waits for one whose text has all the words."""
        return within(20, lambda: [e for e in self.events(kind) if all(w in e["text"] for w in words)],
                      "an event %s that says %s, of %s" % (kind, words, self.events(kind)))[-1]

    def allocation(self, i):
        """The allocation of VM i as flytctl shows it."""
        found = [a for a in self.flytctl("allocations") if a["vm_ip"] == self.vm_ip(i)]
        expect_equal(len(found), 1, "allocations of VM", i)
        return found[0]

    def logs(self):
        """What all daemons have said."""
        return "\n".join(self.log(name) for name in self.daemons())


def other_pki(name="Another CA"):
    """The folder of a CA that nobody here knows, removed with the test's folder."""
    folder = tempfile.mkdtemp(prefix="pki-", dir=harness.WORK)
    result = subprocess.run([os.path.join(harness.ROOT, "scripts", "flyt-pki"), "init", folder, "--name", name],
                            capture_output=True, text=True)
    expect(result.returncode == 0, result.stderr)
    return folder




class Watched(Trusted):
    """One node, whose address is a relay's: `relay` has what passed between programs and node, `node_url` goes past it."""

    def __init__(self, vms=1, node=None, change=None, **options):
        self._node_port, port = netns.reserve_port()
        self.node_url = "tcp://127.0.0.1:%d" % port
        self.relay = by_hand.Relay(self.node_url, change)
        super().__init__(nodes=1, vms=vms, node={"listen": [self.node_url], "data_urls": [self.relay.url], "socket": "",
                                                    **(node or {})},
                         **options)

    def close(self):
        super().close()
        self.relay.close()
        self._node_port.close()

    def node_key(self):
        """The key that all tickets of the node are made of, from its state file."""
        with open(self.path("node-0", "state", "state.json")) as f:
            return bytes.fromhex(json.load(f)["node_key"])

    def forge(self, i, **changes):
        """A ticket for VM i's allocation, good for this node but for what is changed."""
        row = self.allocation(i)
        with open(self.path("node-0", "state", "state.json")) as f:
            key_number = int(json.load(f)["key_number"])
        fields = dict(vm_ip=self.vm_ip(i), allocation=int(row["id"], 16), generation=row["generation"],
                      key_number=key_number)
        fields.update(changes)
        return by_hand.Ticket(by_hand.ticket_of_node(self.node_key(), **fields), **fields)

    def recorded(self, number=-1):
        """(records that a program sent, records that it got) while its connection was not encrypted."""
        seen = self.relay.connections[number]
        return by_hand.records_of(seen["up"])[0], by_hand.records_of(seen["down"])[0]
