#!/usr/bin/env python3
"""Who belongs to the cluster: certificates of flyt-pki and of join tokens, with all daemons; tokens that are no good;
what works before TLS; certificates that are expired, revoked, of another CA, or another's."""
import base64
import os
import shutil
import socket
import ssl
import subprocess
import tempfile
import time

import by_hand
import harness
from by_hand import Answer, Peer, opaque, openssl, u32
from harness import expect, expect_equal, helper, lines, main, scenario, within
from trust import Trusted, other_pki

PKI = os.path.join(harness.ROOT, "scripts", "flyt-pki")


def runs(system, i, what):
    result = system.run_in_vm(i, helper("echo"))
    expect_equal(result.status, 0, what, result)


def refused(system, kind, name, token):
    """A daemon that joins with this token: its sentence, and nothing has been written."""
    folder = tempfile.mkdtemp(prefix="join-", dir=harness.WORK)
    state = os.path.join(folder, "state")
    os.makedirs(state)
    path = os.path.join(folder, "conf")
    with open(path, "w") as f:
        f.write('managers = [ "%s" ];\nstate_dir = "%s";\n%s = "%s";\n' % (
            system.manager_url, state, "name" if kind == "node" else "vm_ip", name))
    program = "flyt-node-manager" if kind == "node" else "flyt-client-manager"
    result = harness.run([system.program(program), "--config", path, "--join", token], system.env)
    expect_equal(result.status, 1, "status of", program, "--join", result)
    expect_equal(len(lines(result.err)), 1, "lines that it wrote", result)
    expect_equal(os.listdir(state), [], "files that it left")
    expect(len(token) < 43 or token[-43:] not in result.err, "the token's secret is in", result.err)
    return result.err


@scenario
def whole_system():
    """By tokens and by certificates of flyt-pki: a program runs, and again after everybody was started anew."""
    for from_pki in (False, True):
        with Trusted(nodes=1, vms=1, from_pki=from_pki) as system:
            system.flytctl("vm", "add", system.vm_ip(0), "--sm", "8", "--memory", "256M")
            runs(system, 0, "a program")
            for daemon in ("node-0", "vm-0"):
                state = system.path(daemon, "state")
                for file, mode in (("authority.pem", None), ("certificate.pem", None), ("key.pem", 0o600)):
                    found = os.stat(os.path.join(state, file)).st_mode & 0o777
                    expect(mode in (None, found), "mode of", daemon, file, oct(found))
                with open(os.path.join(state, "authority.pem")) as mine, open(system.authority) as theirs:
                    expect_equal(mine.read(), theirs.read(), "the CA of", daemon)
                expect(not [f for f in os.listdir(state) if f.endswith((".new", ".part"))], os.listdir(state))
            members = {m["member"] for m in system.flytctl("members")}
            expect_equal(members, {"node:node-0", "vm:" + system.vm_ip(0)}, "members")
            for name in ("cluster", "node-0", "vm-0"):
                system.restart(name)
            within(30, lambda: [n["state"] for n in system.flytctl("nodes")] == ["up"], "the node is back")
            runs(system, 0, "a program afterwards")
            expect("in clear" not in system.log("node-0") + system.log("vm-0"), "a daemon connects in clear")


@scenario
def tokens():
    """Used twice, expired, unknown, for another role or name, cut, of another CA: a sentence, an event, no file."""
    with Trusted(nodes=0, vms=0) as system:
        used = system.token("node", "n1")
        by_hand.join(system.manager_url, system.authority, used, system.path("used", "x")[:-2], "n1")
        serial = {m["member"]: m["serial"] for m in system.flytctl("members")}["node:n1"]
        expired, made = system.token("node", "n2", valid_s=1), time.time()
        unknown = used[:-43] + base64.urlsafe_b64encode(os.urandom(32)).decode().rstrip("=")
        other = other_pki()
        other_hash = openssl("x509", "-in", other + "/ca.pem", "-outform", "DER")
        other_hash = base64.urlsafe_b64encode(bytes.fromhex(openssl("sha256", "-r", data=other_hash).split()[0].decode()))
        for_vm, for_node = system.token("vm", "10.0.0.7"), system.token("node", "n3")
        said = refused(system, "node", "n1", used)
        expect("unknown, was used already, or has expired" in said, said)
        system.event("member.refused", "the join token is unknown, used or expired")
        within(10, lambda: time.time() > made + 1.01, "a second")
        expect("has expired" in refused(system, "node", "n2", expired), "an expired token")
        expect("unknown" in refused(system, "node", "n1", unknown), "an unknown token")
        count = len(system.events("member.refused"))
        expect(count >= 3, "events of refusals", count)
        for kind, name, token, owner in (("node", "n4", for_vm, "vm 10.0.0.7"), ("vm", "10.0.0.7", for_node, "node n3"),
                                         ("node", "n4", for_node, "node n3"), ("vm", "10.0.0.8", for_vm, "vm 10.0.0.7")):
            said = refused(system, kind, name, token)
            expect("the join token is for " + owner in said, "another's token:", said)
        expect_equal(len(system.events("member.refused")), count + 4, "events of tokens for others")
        for kind, name in (("node", "a/b"), ("node", "../n"), ("operator", "x y"), ("viewer", "-v"), ("vm", "web")):
            result = system.flytctl_run(kind, "join-token", "--", name)
            expect(result.status != 0 and not result.out, "a token for", kind, name, result)
        for cut in (used[:-1], used[:20], "", "flyt1", used + "x", used.replace("flyt1", "flyt2")):
            said = refused(system, "vm", "10.0.0.7", cut or " ")
            expect("no join token" in said, "a cut token", repr(cut), said)
        said = refused(system, "node", "n3", "flyt1.%s.%s" % (other_hash.decode().rstrip("="), for_node[-43:]))
        expect("CA" in said or "certificate" in said, "another CA's token:", said)
        # None of these used up what they were not meant for, and nobody became a member.
        by_hand.join(system.manager_url, system.authority, for_node, system.path("used", "x")[:-2], "n3")
        by_hand.join(system.manager_url, system.authority, for_vm, system.path("used", "x")[:-2], "vm")
        members = {m["member"]: m["serial"] for m in system.flytctl("members")}
        expect_equal(set(members), {"node:n1", "node:n3", "vm:10.0.0.7"}, "members")
        expect_equal(members["node:n1"], serial, "the certificate of who joined first")
        for token in (used, expired, unknown, for_vm, for_node):
            expect(token[-43:] not in system.log("cluster"), "a token's secret is in the log")


@scenario
def where_files_go():
    """Into state_dir where the settings name none, folders made on the way; a person's likewise. One form for all."""
    with Trusted(nodes=0, vms=0) as system:
        folder = tempfile.mkdtemp(prefix="files-", dir=harness.WORK)
        mode = lambda *names: os.stat(os.path.join(folder, *names)).st_mode & 0o777
        mask = os.umask(0)
        os.umask(mask)
        for kind, name, program in (("node", "n1", "flyt-node-manager"), ("vm", "10.0.0.50", "flyt-client-manager"),
                                    ("operator", "alice", None)):
            state = os.path.join(folder, kind, "a", "b")
            path = os.path.join(folder, kind + ".conf")
            with open(path, "w") as f:
                f.write('managers = [ "%s" ]; state_dir = "%s"; %s = "%s";\n' % (
                    system.manager_url, state, "name" if kind == "node" else "vm_ip", name))
            command = [system.program(program), "--config", path, "--join"] if program else [
                system.program("flytctl"), "--manager", system.manager_url, "join", "--folder", state]
            result = harness.run([*command, system.token(kind, name)], system.env)
            expect_equal(result.status, 0, kind, "joins", result)
            expect_equal(sorted(os.listdir(state)), ["authority.pem", "certificate.pem", "key.pem"], kind)
            expect_equal((mode(kind), mode(kind, "a"), mode(kind, "a", "b"), mode(kind, "a", "b", "key.pem")),
                         (0o755 & ~mask, 0o755 & ~mask, 0o700, 0o600), "modes of the", kind)
        # The token in a file, or on standard input, so that nobody reads it among the arguments.
        for kind, name, program in (("node", "n1", "flyt-node-manager"), ("vm", "10.0.0.50", "flyt-client-manager")):
            path = os.path.join(folder, kind + ".conf")
            command = [system.program(program), "--config", path]
            token_path = os.path.join(folder, kind + ".token")
            with open(token_path, "w") as f:
                f.write(system.token(kind, name) + "\n")
            expect_equal(harness.run([*command, "--join-file", token_path], system.env).status, 0, kind, "joins by a file")
            for words in (["--join-file", "-"], ["--join", "-"]):
                result = harness.run([*command, *words], system.env, stdin=("  %s \n" % system.token(kind, name)).encode())
                expect_equal(result.status, 0, kind, "joins by standard input", result)
            result = harness.run([*command, "--join-file", os.path.join(folder, "nothing")], system.env)
            expect(result.status == 1 and "No such file" in result.err, "no such file", result)
            result = harness.run([*command, "--join", "-"], system.env, stdin=b"\n")
            expect(result.status == 1 and "standard input holds no token" in result.err, "no token", result)
        result = harness.run([system.program("flytctl"), "--manager", system.manager_url, "join", "--folder",
                              os.path.join(folder, "by-input"), "-"], system.env, stdin=system.token("operator", "alice").encode())
        expect_equal(result.status, 0, "an operator joins by standard input", result)
        # Where the settings name files, there and nowhere else; and where no folder can be made, that is said.
        for kind, name, program in (("node", "n1", "flyt-node-manager"), ("vm", "10.0.0.50", "flyt-client-manager")):
            for place, status in ((os.path.join(folder, kind, "named"), 0), (path + "/below-a-file", 1)):
                own = os.path.join(folder, kind + "-tls.conf")
                with open(own, "w") as f:
                    f.write('managers = [ "%s" ]; state_dir = "%s/unused"; %s = "%s";\n'
                            'tls: { authority = "%s/ca"; certificate = "%s/mine"; key = "%s/secret"; };\n' % (
                                system.manager_url, folder, "name" if kind == "node" else "vm_ip", name, place, place, place))
                result = harness.run([system.program(program), "--config", own, "--join", system.token(kind, name)],
                                     system.env)
                expect_equal(result.status, status, kind, "joins", result)
                if status:
                    expect("below-a-file" in result.err and "cannot be written: Not a directory" in result.err, result)
                else:
                    expect_equal(sorted(os.listdir(place)), ["ca", "mine", "secret"], kind)
            expect(not os.path.exists(os.path.join(folder, "unused")), "state_dir was not needed")


@scenario
def tokens_at_once():
    """Many use one token in the same moment: one gets a certificate."""
    with Trusted(nodes=0, vms=0) as system:
        token = system.token("viewer", "guest")
        key, request = by_hand.new_request(system.path("x")[:-2], "guest")
        peers = [system.connect() for _ in range(8)]
        for peer in peers:
            peer.send(by_hand.mark(by_hand.call_head(5, by_hand.CONTROL, by_hand.ENROL) + opaque(token) + opaque(request)))
        outcomes = sorted(peer.answer().outcome[0] for peer in peers)
        expect_equal(outcomes, ["DENIED"] * 7 + ["OK"], "what they were told")


@scenario
def before_tls():
    """RFC 9289: in clear the null call, nothing else; rpcinfo works."""
    with Trusted(nodes=0, vms=0) as system:
        port = system.manager_url.rsplit(":", 1)[1]
        if shutil.which("rpcinfo"):
            address = "127.0.0.1.%d.%d" % divmod(int(port), 256)
            result = subprocess.run(["rpcinfo", "-a", address, "-T", "tcp", str(by_hand.CONTROL), "1"],
                                    capture_output=True, text=True, timeout=60)
            expect_equal(result.returncode, 0, "rpcinfo", result.stdout, result.stderr)
        peer = Peer(system.manager_url)
        for _ in range(3):
            expect_equal(peer.call(0).state, "done", "the null call in clear")
        peer.close()
        for procedure in [*range(1, 50), 1000]:
            peer = Peer(system.manager_url)
            answer = peer.call(procedure, bytes(64))
            expect(answer.state in ("refused", "closed", "error"), "procedure", procedure, "in clear:", answer)
            peer.close()
        hello = Peer(system.manager_url).hello("operator", "root")
        expect(hello.state in ("refused", "closed"), "HELLO in clear:", hello)
        # What follows STARTTLS in clear is not taken for TLS's.
        peer = Peer(system.manager_url)
        peer.send(by_hand.mark(by_hand.call_head(1, by_hand.CONTROL, 0, by_hand.AUTH_TLS)) +
                  by_hand.mark(by_hand.call_head(2, by_hand.CONTROL, 0)))
        try:
            answer = peer.answer()
            expect(by_hand.wait_closed(peer), "a call behind STARTTLS is answered:", answer)
        except ConnectionError:
            pass
        # TLS without STARTTLS, and an older TLS, are no way in.
        for raw in (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + os.urandom(64), b"GET / HTTP/1.1\r\n\r\n"):
            peer = Peer(system.manager_url)
            peer.send(raw)
            expect(by_hand.wait_closed(peer), "foreign bytes", raw[:4])
        peer = Peer(system.manager_url)
        expect_equal(peer.call(0, flavour=by_hand.AUTH_TLS).verifier, b"STARTTLS", "the verifier")
        old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        old.check_hostname, old.verify_mode, old.maximum_version = False, ssl.CERT_NONE, ssl.TLSVersion.TLSv1_2
        try:
            old.wrap_socket(peer.socket)
            raise harness.Failed("TLS 1.2 was accepted")
        except (ssl.SSLError, OSError):
            pass
        system.flytctl("status")


def knocks(system, files, kind, name):
    """The Answer to HELLO; "closed" where it does not even come to that."""
    try:
        peer = system.connect(files)
        answer = peer.hello(kind, name)
        peer.close()
        return answer
    except (ssl.SSLError, ConnectionError):
        return Answer("closed")


@scenario
def certificates():
    """Expired, of another CA, not admitted, with another name: not let in; the right one is."""
    with Trusted(nodes=0, vms=0) as system:
        good = system.identity("vm", "10.0.0.7")
        expect_equal(knocks(system, good, "vm", "10.0.0.7").outcome, ("OK", ""), "the right certificate")
        # Right CA, another name or role in HELLO.
        for kind, name in (("vm", "10.0.0.8"), ("operator", "10.0.0.7"), ("node", "10.0.0.7"), ("viewer", "10.0.0.7")):
            status, text = knocks(system, good, kind, name).outcome
            expect(status == "DENIED" and "certificate" in text, "HELLO as", kind, name, "was answered", status, text)
        # Of this CA, but admitted by nobody, and with the name of one who was.
        stranger = system.certificate("operator", "mallory")
        expect_equal(knocks(system, stranger, "operator", "mallory").state, "closed", "who is no member")
        system.event("member.refused", "operator:mallory", "no member")
        twin = system.certificate("vm", "10.0.0.7")
        expect_equal(knocks(system, twin, "vm", "10.0.0.7").state, "closed", "another certificate with a member's name")
        # A manager's certificate is no client's.
        manager = [system.path("pki", "manager-cluster" + end) for end in (".pem", "-key.pem")]
        expect_equal(knocks(system, manager, "operator", "cluster").state, "closed", "a manager's certificate")
        # Of another CA, with everything else right.
        folder = other_pki("Flyt CA")
        subprocess.run([PKI, "issue", folder, "vm", "10.0.0.7"], check=True, capture_output=True)
        other = [folder + "/vm-10.0.0.7" + end for end in (".pem", "-key.pem")]
        expect_equal(knocks(system, other, "vm", "10.0.0.7").state, "closed", "another CA's certificate")
        result = system.flytctl_run("member", "admit", other[0])
        expect(result.status != 0 and "CA" in result.err, "another CA's certificate is admitted", result)
        # Expired: made so, and admitted while that was possible.
        expired = system.certificate("operator", "late")
        request = openssl("x509", "-x509toreq", "-in", expired[0], "-signkey", expired[1], "-copy_extensions", "copyall")
        ca, ca_key = system.authority, system.path("pki", "ca-key.pem")
        config = system.path("ext.conf")
        with open(config, "w") as f:
            f.write("subjectAltName=URI:flyt:operator:late\nextendedKeyUsage=clientAuth\n")
        for ends, state in (("20200201000000Z", "closed"), (None, "done")):
            days = ["-not_before", "20200101000000Z", "-not_after", ends] if ends else ["-days", "1"]
            if ends and b"-not_after" not in subprocess.run(["openssl", "x509", "-help"], capture_output=True).stderr:
                days = ["-days", "-1"]
            data = openssl("x509", "-req", "-CA", ca, "-CAkey", ca_key, "-extfile", config, *days, data=request)
            with open(expired[0], "wb") as f:
                f.write(data)
            admitted = system.flytctl_run("member", "admit", expired[0])
            expect_equal(admitted.status == 0, state == "done", "admission of one that ends", ends, admitted)
            expect_equal(knocks(system, expired, "operator", "late").state, state, "a certificate that ends", ends)
        expect_equal(system.flytctl_run("status").status, 0, "the manager afterwards")


@scenario
def wrong_manager():
    """Daemons and flytctl go to nobody who is not this CA's manager with the right name."""
    with Trusted(nodes=1, vms=0) as system:
        certificate, key = system.identity("operator", "alice")
        words = ["--authority", system.authority, "--certificate", certificate, "--key", key, "--manager"]
        ask = lambda url: harness.run([system.program("flytctl"), *words, url, "nodes"], system.env)
        expect_equal(ask(system.manager_url).status, 0, "the right manager")
        by_name = ask(system.manager_url.replace("127.0.0.1", "localhost"))
        expect(by_name.status != 0 and "localhost" in by_name.err + by_name.out, "a name not in the certificate", by_name)
        # An impostor with a certificate of this CA that is a VM's, and one of another CA.
        other = other_pki()
        subprocess.run([PKI, "issue", other, "manager", "cluster", "--host", "127.0.0.1"], check=True, capture_output=True)
        vm = system.identity("vm", "10.0.0.9")
        for files in ([other + "/manager-cluster.pem", other + "/manager-cluster-key.pem"], vm):
            path = system.path("impostor", "cluster.conf")
            with open(path, "w") as f:
                f.write('name = "impostor"; listen = "tcp://127.0.0.1:0"; socket = "%s"; store = "sqlite://%s";\n'
                        'metrics = "127.0.0.1:0"; tls: { authority = "%s"; certificate = "%s"; key = "%s"; };\n' %
                        (system.path("impostor", "sock"), system.path("impostor", "db%d" % len(files[0])),
                         system.authority, files[0], files[1]))
            log = harness.new_log(system.path("impostor", "log"))
            process = harness.start([system.program("flyt-cluster-manager"), "--config", path], system.env, stderr=log)

            def where():
                log.seek(0)
                said = log.read()
                found = [line.split("listens on ")[1].split()[0].rstrip(",") for line in said.splitlines()
                         if "listens on tcp" in line]
                return found or process.poll() is not None and ["ended: " + said]
            url = within(20, where, "the impostor listens")[0]
            if url.startswith("tcp"):
                result = ask(url)
                expect(result.status not in (0, None) and "certificate" in result.err, "flytctl at an impostor", result)
            harness.kill_group(process)
            process.wait()
            log.close()


@scenario
def revoked():
    """Its connections drop, new ones are refused; a VM's tickets are worthless, its running program goes on."""
    with Trusted(nodes=1, vms=2, cluster={"node_lost_s": 8}, client={"attach_timeout": 20}) as system:
        for i in range(2):
            system.flytctl("vm", "add", system.vm_ip(i), "--sm", "8", "--memory", "64M")
        stuck = system.start_in_vm(0, helper("echo"), "wait")
        session = within(30, lambda: system.flytctl("sessions"), "the program's session")[0]
        before = system.allocation(0)
        viewer = system.peer("viewer", "guest")
        system.flytctl("viewer", "revoke", "guest")
        expect(by_hand.wait_closed(viewer), "the viewer's connection")
        expect_equal(knocks(system, system.identity("viewer", "guest"), "viewer", "guest").state, "closed", "once more")
        system.flytctl("vm", "revoke", system.vm_ip(0))
        within(20, lambda: not [v for v in system.flytctl("vms") if v["vm_ip"] == system.vm_ip(0) and v["connected"]],
               "the VM's client manager is thrown out")
        within(20, lambda: system.allocation(0)["generation"] > before["generation"] and
               system.allocation(0)["revision_applied"] == system.allocation(0)["revision"], "its generation is raised")
        late = system.run_in_vm(0, helper("echo"))
        expect(late.status != 0 and len(lines(late.err)) == 1, "a program with a worthless ticket", late)
        expect("revoked" in late.err or "cluster manager" in late.err, "what it is told", late.err)
        expect_equal([s["id"] for s in system.flytctl("sessions")], [session["id"]], "the running program's session")
        expect_equal(stuck.poll(), None, "the running program")
        runs(system, 1, "another VM's program")
        # With a new token it belongs to the cluster again; the session was its own all the time.
        system.supervisor.stop("vm-0")
        token = system.flytctl("vm", "join-token", system.vm_ip(0))["token"]
        path = system.path("vm-0", "client.conf")
        joined = harness.run([system.program("flyt-client-manager"), "--config", path, "--join", token], system.env)
        expect_equal(joined.status, 0, "joining again", joined)
        system.restart("vm-0")
        runs(system, 0, "a program after joining again")
        system.flytctl("session", "kill", session["id"])
        within(20, lambda: not system.flytctl("sessions"), "the session is ended")
        harness.kill_group(stuck)
        expect("connection lost" in harness.finish(stuck).err, "what the program was told")
        # A node: thrown out, and what it serves goes on without the cluster manager.
        system.flytctl("node", "revoke", "node-0")
        within(30, lambda: system.flytctl("nodes")[0]["state"] == "lost", "the node is not heard any more")
        runs(system, 1, "a program at a node that was thrown out")


if __name__ == "__main__":
    main()
