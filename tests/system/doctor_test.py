#!/usr/bin/env python3
"""flytctl doctor on a VM and on a node, with daemons that run, that do not, and that refuse."""
import json
import os
import socket
import subprocess

import harness
from cluster import System
from harness import BUILD, app, environment, expect, expect_equal, main, run, scenario, skip, start, within

FLYTCTL = os.path.join(BUILD, "bin", "flytctl")
CLUSTER = os.path.join(BUILD, "bin", "flyt-cluster-manager")
CLIENT = os.path.join(BUILD, "bin", "flyt-client-manager")
PKI = os.path.join(harness.ROOT, "scripts", "flyt-pki")
LIBRARIES = os.path.join(BUILD, "lib")

if not all(map(os.path.exists, (FLYTCTL, CLUSTER, CLIENT))):
    skip("the control plane is not built")


def write(name, text):
    path = os.path.join(harness.WORK, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def doctor(*words, status=None, **variables):
    """Findings by subject: a list of (verdict, text, advice) each."""
    result = run([FLYTCTL, "doctor", "-o", "json", *words], env=environment(**variables))
    findings = {}
    for one in json.loads(result.out):
        expect(set(one) == {"verdict", "subject", "text", "advice"} and one["text"], one)
        expect(one["verdict"] in ("ok", "warn", "fail"), one)
        expect(one["advice"] or one["verdict"] == "ok" or one["subject"] == "libraries", "no advice:", one)
        findings.setdefault(one["subject"], []).append((one["verdict"], one["text"], one["advice"]))
    fails = any(one[0] == "fail" for some in findings.values() for one in some)
    expect_equal(result.status, int(fails), "exit status", result)
    if status is not None:
        expect_equal(result.status, status, "exit status", result)
    return findings


def says(findings, subject, verdict, words):
    expect(any(one[0] == verdict and words in one[1] for one in findings.get(subject, [])),
           "no finding '%s: %s: %s' in" % (verdict, subject, words), findings)


def cluster_manager(tls=""):
    """Process and URL."""
    conf = write("cluster.conf", 'listen = "tcp://127.0.0.1:0";\nsocket = "%s/cluster.sock";\nmetrics = "";\n'
                 'store = "sqlite://%s/cluster.db";\n%s' % (harness.WORK, harness.WORK, tls))
    path = os.path.join(harness.WORK, "cluster.log")
    with open(path, "wb") as log:
        process = start([CLUSTER, "--config", conf], stderr=log)

    def listening():
        said = open(path, encoding="utf-8").read()
        expect(process.poll() is None, "the cluster manager ended:", said)
        return [line.split("listens on ")[1].split(",")[0].split()[0] for line in said.splitlines() if "listens on tcp" in line]
    return process, within(20, listening, "the cluster manager listens")[0]


@scenario
def a_vm_without_anything():
    conf = write("client.conf", 'managers = ["tcp://127.0.0.1:1"];\nvm_ip = "10.9.0.1";\nsocket = "%s/none.sock";\n'
                 'state_dir = "%s/none";\n' % (harness.WORK, harness.WORK))
    found = doctor("--config", conf, status=1, LD_LIBRARY_PATH="", FLYT_SERVER="tcp://127.0.0.1:9")
    says(found, "configuration", "ok", conf)
    says(found, "certificate", "warn", "there is no certificate")
    says(found, "manager", "fail", "tcp://127.0.0.1:1")
    says(found, "client manager", "fail", "none.sock")
    says(found, "environment", "warn", "FLYT_SERVER is tcp://127.0.0.1:9")
    says(found, "static runtime", "ok", "static runtime")
    text = run([FLYTCTL, "doctor", "--config", conf])
    expect(text.status == 1 and "\nfail  manager " in text.out and "-> " in text.out, text)


@scenario
def broken_configurations():
    found = doctor("--vm", "--config", write("broken.conf", 'managers = [;\n'), status=1)
    says(found, "configuration", "fail", "broken.conf:1")
    found = doctor("--node", "--config", os.path.join(harness.WORK, "missing.conf"), status=1)
    says(found, "configuration", "fail", "No such file")


def has_vsock_within():
    """Whether this machine can connect to itself over vsock (vsock_loopback)."""
    try:
        with socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM) as s:
            s.bind((1, socket.VMADDR_PORT_ANY))
            return True
    except OSError:
        return False


@scenario
def a_node_that_listens_for_guests():
    conf = write("node.conf", 'listen = ["vsock://1:1", "vsock://:0"];\nsoftware_gpus = 1;\n')
    found = doctor("--node", "--config", conf)
    says(found, "listening", "warn", "vsock://:0 names no port")
    if has_vsock_within():
        says(found, "listening", "fail", "vsock://1:1")
    else:
        says(found, "listening", "warn", "what is for guests cannot be looked at from here")


@scenario
def a_vm_that_is_well():
    manager, url = cluster_manager()
    conf = write("client.conf", 'managers = ["%s"];\nvm_ip = "10.9.0.1";\nsocket = "%s/client.sock";\nmetrics = "";\n'
                 'state_dir = "%s/none";\n' % (url, harness.WORK, harness.WORK))
    client = start([CLIENT, "--config", conf], stderr=subprocess.DEVNULL)

    def connected():
        found = doctor("--config", conf, LD_LIBRARY_PATH=LIBRARIES, FLYT_SERVER=None)
        return found if any(one[0] == "ok" for one in found.get("connection", [])) else None
    found = within(20, connected, "the client manager is connected")
    says(found, "manager", "ok", url)
    says(found, "client manager", "ok", "this user may use it")
    says(found, "allocation", "warn", "holds no allocation")
    says(found, "libraries", "ok", "libcudart.so.13 would be Flyt's, " + LIBRARIES)
    says(found, "libraries", "ok", "libcuda.so.1 would be Flyt's, " + LIBRARIES)
    expect("environment" not in found, found)
    # Another VM's configuration, and a cluster manager that has gone.
    other = write("other.conf", open(conf, encoding="utf-8").read().replace("10.9.0.1", "10.9.0.2"))
    says(doctor("--config", other), "client manager", "warn", "it runs as VM 10.9.0.1, but the configuration says")
    harness.kill_group(manager)
    manager.wait()

    def lost():
        found = doctor("--config", conf)
        return found if any(one[0] == "fail" for one in found.get("connection", [])) else None
    says(within(20, lost, "the loss is seen"), "manager", "fail", url)
    harness.kill_group(client)
    client.wait()


@scenario
def a_user_who_may_not():
    if os.geteuid() != 0:
        print("only root may become another user: not looked at")
        return
    conf = write("client.conf", 'managers = ["tcp://127.0.0.1:1"];\nvm_ip = "10.9.0.1";\nsocket = "%s/u.sock";\n'
                 'allow_users = ["root"];\nmetrics = "";\nstate_dir = "%s/none";\n' % (harness.WORK, harness.WORK))
    client = start([CLIENT, "--config", conf], stderr=subprocess.DEVNULL)
    within(20, lambda: os.path.exists(os.path.join(harness.WORK, "u.sock")), "the client manager listens")
    os.chmod(harness.WORK, 0o755)
    result = subprocess.run([FLYTCTL, "doctor", "-o", "json", "--config", conf], user=65534, group=65534, timeout=60,
                            capture_output=True, text=True, cwd="/")
    expect("may not use this VM's GPU" in result.stdout, result)
    harness.kill_group(client)
    client.wait()


@scenario
def certificates_and_members():
    ca = os.path.join(harness.WORK, "ca")
    expect_equal(run([PKI, "init", ca]).status, 0, "flyt-pki init")
    expect_equal(run([PKI, "issue", ca, "manager", "m", "--host", "127.0.0.1"]).status, 0, "flyt-pki issue")
    issued = run([PKI, "issue", ca, "vm", "10.9.0.7"])  # by the CA, but known to nobody
    expect_equal(issued.status, 0, issued)

    def tls(authority, certificate, key, more=""):
        return 'tls: { authority = "%s"; certificate = "%s"; key = "%s"; %s };\n' % (authority, certificate, key, more)

    def issued_tls(name, more=""):
        return tls(ca + "/ca.pem", "%s/%s.pem" % (ca, name), "%s/%s-key.pem" % (ca, name), more)
    manager, url = cluster_manager(issued_tls("manager-m", 'authority_key = "%s/ca-key.pem";' % ca))
    local = "unix://%s/cluster.sock" % harness.WORK
    within(20, lambda: run([FLYTCTL, "-m", local, "vms"]).status == 0, "the cluster manager leads")

    def token(*words):
        result = run([FLYTCTL, "-m", local, *words])
        expect(result.status == 0 and result.out.startswith("flyt1."), words, result)
        return result.out.strip()

    # Operators and viewers join, and work over TLS with what join has left in their folder.
    def flytctl(who, *words):
        return run([FLYTCTL, "-m", url, *words], env=environment(XDG_CONFIG_HOME=os.path.join(harness.WORK, who)))
    for who, role in (("alice", "operator"), ("bob", "viewer")):
        result = flytctl(who, "join", token(role, "join-token", who))
        expect(result.status == 0 and result.out.startswith(who + " is enrolled"), result)
        expect_equal(os.stat(os.path.join(harness.WORK, who, "flyt", "key.pem")).st_mode & 0o777, 0o600, "mode of the key")
    result = flytctl("alice", "vm", "add", "10.9.0.1", "--sm", "8", "--memory", "1G")
    expect_equal(result.status, 0, result)
    expect_equal(flytctl("bob", "vms").status, 0, "viewer")
    result = flytctl("bob", "vm", "remove", "10.9.0.1")
    expect(result.status == 5 and "a viewer may not do this" in result.err, result)
    result = flytctl("carol", "join", "flyt1.nonsense")
    expect_equal(result.status, 2, result)

    # A VM that has joined, one whose certificate is in no record, and a wrong name.
    text = 'managers = ["%s"];\nvm_ip = "10.9.0.1";\nsocket = "%s/none.sock";\n' % (url, harness.WORK)
    state = os.path.join(harness.WORK, "vm-state")
    conf = write("client.conf", text + 'state_dir = "%s";\nmetrics = "";\n' % state)
    result = run([CLIENT, "--config", conf, "--join", token("vm", "join-token", "10.9.0.1")])
    expect_equal(result.status, 0, result)
    seen = doctor("--config", conf)
    says(seen, "identity", "ok", "of vm 10.9.0.1")
    says(seen, "validity", "ok", "valid until")
    says(seen, "manager", "ok", "TLS with it works")
    seen = doctor("--config", write("client.conf", text + issued_tls("vm-10.9.0.7")), status=1)
    says(seen, "identity", "fail", "of vm 10.9.0.7, but this is vm 10.9.0.1")
    says(seen, "manager", "fail", "a certificate that is no member")
    seen = doctor("--node", "--config", write("node.conf", 'name = "n2";\nsoftware_gpus = 1;\n' + issued_tls("vm-10.9.0.7")))
    says(seen, "identity", "fail", "of vm 10.9.0.7, but this is node n2")
    says(seen, "driver", "ok", "software GPUs")
    says(seen, "listening", "fail", "does not serve programs")
    result = run([FLYTCTL, "-m", url, "--authority", ca + "/ca.pem", "--certificate", ca + "/vm-10.9.0.7.pem", "--key",
                  ca + "/vm-10.9.0.7-key.pem", "vms"])
    expect(result.status == 5 and "operator's or a viewer's" in result.err, result)

    # Revoked is out at once.
    expect_equal(run([FLYTCTL, "-m", local, "operator", "revoke", "alice"]).status, 0, "revoke")
    result = flytctl("alice", "vms")
    expect(result.status == 4 and "flytctl operator join-token" in result.err, result)
    harness.kill_group(manager)
    manager.wait()


@scenario
def a_whole_system():
    """A node and a VM that are well, with a program that runs; and what flytctl shows of them."""
    with System(nodes=1, vms=1, namespaces=False) as system:
        system.flytctl("vm", "add", system.vm_ip(0), "--sm", 8, "--memory", "256M", "--name", "web")
        result = system.run_in_vm(0, app("memory"))
        expect_equal(result.status, 0, "a program", result)
        node = system.path("node-0", "node.conf")
        found = doctor("--config", node)
        says(found, "listening", "warn", "names no port")
        for subject, words in (("driver", "software GPUs"), ("identity", "of node node-0"), ("state", "can be written"),
                               ("manager", "TLS with it works"), ("server", "can be executed")):
            says(found, subject, "ok", words)
        found = doctor("--config", system.path("vm-0", "client.conf"), LD_LIBRARY_PATH=LIBRARIES)
        for subject, words in (("identity", system.vm_ip(0)), ("manager", "TLS with it works"), ("client manager", "answers"),
                               ("allocation", "on node node-0"), ("data", "the GPU's node answers")):
            says(found, subject, "ok", words)
        within(20, lambda: [a["sms_now"] for a in system.flytctl("allocations")] == [8], "the allocation's use is told")
        for words, part in ((("gpus",), "node-0:0"), (("vms",), "web"), (("top", "-n", "1"), " 0/256MiB"),
                            (("status",), "nodes up          1/1"), (("explain", "web"), "It has allocation")):
            # What a program used until just now is told by a later heartbeat.
            within(60, lambda: (result := system.flytctl_run(*words)).status == 0 and part in result.out,
                   "flytctl %s says %s" % (" ".join(words), part))


if __name__ == "__main__":
    main()
