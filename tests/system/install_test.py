#!/usr/bin/env python3
"""What an operator installs: the example configurations know every setting and its default, and make install-KIND puts
everything where it belongs, again and again, without touching what was changed."""
import filecmp
import glob
import os
import re
import shutil
import tempfile

import configuration
import harness
from configuration import KINDS, daemon, live_settings, parse, settings
from harness import ROOT, expect, expect_equal, main, run, scenario

EXAMPLES = os.path.join(ROOT, "config", "examples")


def read(path):
    with open(path) as f:
        return f.read()


def uncommented(text):
    """The example with its defaults active."""
    return re.sub(r"^#( *\w+ = .*;|\w+: \{|\};)$", r"\1", text, flags=re.M)


def check_config(kind, text):
    path = os.path.join(harness.WORK, kind + ".conf")
    with open(path, "w") as f:
        f.write(text)
    return run([daemon(kind), "--config", path, "--check-config"])


@scenario
def examples_are_right():
    expect(KINDS, "no daemon is built")
    for kind in KINDS:
        text = read(os.path.join(EXAMPLES, kind + ".conf"))
        for variant in (text, uncommented(text)):
            result = check_config(kind, variant)
            expect_equal((result.status, result.err), (0, ""), kind, result)
        result = check_config(kind, text + "nonsense = 1;\n")
        expect(result.status == 2 and "nonsense" in result.err, "an unknown setting of", kind, result)


@scenario
def examples_know_every_setting():
    for kind in KINDS:
        text = read(os.path.join(EXAMPLES, kind + ".conf"))
        table, shown, active = settings(kind), parse(uncommented(text)), parse(text)
        expect_equal(sorted(shown), sorted(table), kind, "settings in the example")
        for path, (what, default) in table.items():
            if default is None:
                expect(active.get(path), kind, path, "is required and must have a value in the example")
            elif path not in active:
                value = shown[path]
                expect_equal(", ".join(value) if isinstance(value, list) else value, default, kind, path, "default")


def said_to_be_live(text):
    """The settings whose comment in an example says (live), or (live but for NAME)."""
    live, comment, group, is_new = set(), "", [], True
    for line in text.splitlines():
        if re.match(r"# \S", line):
            comment = line if is_new else comment + line[1:]
            is_new = False
            continue
        is_new = True
        line = line.lstrip("#").strip()
        if match := re.fullmatch(r"(\w+): \{", line):
            group.append(match[1])
        elif line == "};":
            group.pop()
        elif match := re.match(r"(\w+) =", line):
            said = re.search(r"\(live(?: but for (\w+))?\)", comment)
            if said and said[1] != match[1]:
                live.add(".".join(group + [match[1]]))
    return live


@scenario
def metrics_are_on_loopback_ports():
    """Of each daemon, where its configuration says nothing: others on the machine do not take the same."""
    defaults = [settings(kind)["metrics"][1] for kind in KINDS]
    for kind, default in zip(KINDS, defaults):
        expect(re.fullmatch(r"127\.0\.0\.1:\d+", default), kind, default)
    expect_equal(len(set(defaults)), len(KINDS), defaults)


@scenario
def examples_say_what_a_reload_changes():
    for kind in KINDS:
        live = live_settings(kind)
        expect(live and live < set(settings(kind)), kind, "has live settings and others", live)
        expect_equal(sorted(said_to_be_live(read(os.path.join(EXAMPLES, kind + ".conf")))), sorted(live), kind)


def install(kind, root, prefix="/usr/local"):
    """kind: None is what direct mode needs."""
    target = "install-" + kind if kind else "install"
    result = run(["make", "-s", "--no-print-directory", "-C", ROOT, target, "DESTDIR=" + root,
                  "PREFIX=" + prefix, "B=" + os.path.relpath(harness.BUILD, ROOT)], timeout=250,
                 env={k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS"))})
    expect_equal(result.status, 0, "make", target, result)
    return result


def files(root):
    return sorted(os.path.relpath(os.path.join(folder, name), root) for folder, _, names in os.walk(root)
                  for name in names)


EXPECTED = {
    "cluster": ["etc/flyt/cluster.conf", "{p}/bin/flyt-cluster-manager", "{p}/bin/flytctl", "{p}/bin/flyt-pki",
                "{p}/lib/flyt/libflyt-store-mongodb.so", "{u}/systemd/system/flyt-cluster-manager.service",
                "{u}/sysusers.d/flyt-cluster.conf", "{u}/tmpfiles.d/flyt-cluster.conf",
                "{p}/share/doc/flyt/flyt.json", "{p}/share/doc/flyt/flyt-alerts.yml",
                "{p}/share/man/man1/flyt-pki.1", "etc/flyt/flytctl.conf", "{p}/share/bash-completion/completions/flytctl"],
    "node": ["etc/flyt/node.conf", "{p}/bin/flyt-node-manager", "{p}/bin/flyt-server", "{p}/lib/flyt/libflyt-softgpu.so",
             "{p}/lib/flyt/libflyt-softgpu-libraries.so",
             "{u}/systemd/system/flyt-node-manager.service", "{u}/systemd/system/flyt-node-manager.socket",
             "{u}/systemd/system/flyt-mps.service", "{u}/sysusers.d/flyt-node.conf", "{u}/tmpfiles.d/flyt-node.conf",
             "{p}/share/man/man1/flyt-server.1"],
    "client": ["etc/flyt/client.conf", "{p}/bin/flyt-client-manager", "{p}/bin/flytctl", "{p}/bin/flyt-run",
               "{p}/bin/flyt-client-lib", "{p}/lib/flyt/libflyt-client.so.1", "{p}/lib/flyt/libcudart.so.13",
               "{p}/lib/flyt/libcuda.so.1", "{p}/lib/flyt/libcublas.so.13", "{p}/lib/flyt/libcudnn.so.9", "{p}/lib/flyt/libcudnn_ops.so.9",
               "{p}/lib/flyt/libnccl.so.2",
               "{p}/lib/flyt/libnvidia-ml.so.1", "{p}/bin/flyt-smi", "{p}/share/man/man1/flyt-smi.1",
               "{u}/systemd/system/flyt-client-manager.service",
               "{u}/systemd/system/flyt-client-manager.socket", "{u}/sysusers.d/flyt-client.conf", "{u}/tmpfiles.d/flyt-client.conf",
               "{p}/share/man/man1/flyt-run.1", "etc/flyt/flytctl.conf",
               "{p}/share/bash-completion/completions/flytctl"],
}


@scenario
def install_twice():
    for kind, prefix, units in [(k, "/usr/local", "usr/local/lib") for k in KINDS] + [("client", "/opt/flyt", "etc")]:
        root = tempfile.mkdtemp(prefix="root-", dir=harness.WORK)
        install(kind, root, prefix)
        there = files(root)
        wanted = [name.format(p=prefix[1:], u=units) for name in EXPECTED[kind]]
        expect(set(wanted) <= set(there), "missing:", set(wanted) - set(there))
        conf = "etc/flyt/%s.conf" % kind
        result = run([daemon(kind), "--config", os.path.join(root, conf), "--check-config"])
        expect_equal(result.status, 0, "the installed configuration", result)
        for page in glob.glob(os.path.join(ROOT, "config", "man", "*" + kind + "*.[1-8]")):
            name = os.path.basename(page)
            expect("%s/share/man/man%s/%s" % (prefix[1:], name[-1], name) in there, name, "is not installed")
        for name in there:
            if "systemd/system" in name:
                content = read(os.path.join(root, name))
                expect("@" not in content.replace("@system-service", "").replace("@privileged", "")
                       .replace("@resources", ""), name, "has an @ left")
                expect(not name.endswith("-manager.service") or prefix + "/bin/flyt-" in content, name, "without", prefix)
        before = tempfile.mkdtemp(prefix="before-", dir=harness.WORK)
        shutil.copytree(root, before, dirs_exist_ok=True)
        with open(os.path.join(root, conf), "a") as f:
            f.write("# mine\n")
        os.unlink(os.path.join(root, wanted[1]))        # what is not there comes again
        result = install(kind, root, prefix)
        expect("stays as it is" in result.out, result)
        expect_equal(files(root), there, kind, "files after the second time")
        differing = [n for n in there if not filecmp.cmp(os.path.join(root, n), os.path.join(before, n), shallow=False)]
        expect_equal(differing, [conf], kind, "files that differ after the second time")


@scenario
def installed_programs_run():
    """From where they were installed, without the build's folders in the environment."""
    root = tempfile.mkdtemp(prefix="root-", dir=harness.WORK)
    install("client", root)
    programs = os.path.join(root, "usr/local/bin")
    expect_equal(run([os.path.join(programs, "flyt-client-manager"), "--version"], {}).status, 0, "flyt-client-manager")
    result = run([os.path.join(programs, "flyt-smi"), "-L"], {"FLYT_CLIENT_SOCKET": "/nowhere"})
    expect(result.status == 9 and "client manager" in result.err, "flyt-smi without a client manager", result)
    version = read(os.path.join(root, "usr/local/lib/flyt/VERSION"))
    expect(version.strip(), "no version is installed")
    expect_equal(run([os.path.join(programs, "flyt-run"), "--version"]).out, version, "the installed flyt-run's version")
    with harness.server() as s:
        result = run([os.path.join(programs, "flyt-run"), "--server", s.url, harness.helper("echo")],
                     harness.environment(FLYT_LIB_DIR=None, FLYT_BUILD=None))
        expect_equal(result.status, 0, "a program through the installed flyt-run", result)
        expect("session 1" in s.log(), "no session at the server")
    expect("install-client " in run(["make", "-s", "-C", ROOT, "help"]).out, "make help is silent")



@scenario
def direct_mode_is_installed():
    """make install: a program runs with nothing but what was installed, its server and software GPU included."""
    root = tempfile.mkdtemp(prefix="root-", dir=harness.WORK)
    install(None, root, "/opt/flyt")
    programs = os.path.join(root, "opt/flyt/bin")
    expect(os.path.exists(os.path.join(root, "opt/flyt/share/man/man1/flyt-run.1")), files(root))
    clean = {"PATH": "/usr/bin:/bin", "TMPDIR": harness.WORK}
    result = run([os.path.join(programs, "flyt-run"), "--soft", "1", "--", harness.helper("echo")], clean, cwd="/")
    expect_equal(result.status, 0, "a program through the installed flyt-run and flyt-server", result)
    expect_equal(run([os.path.join(programs, "flyt-run"), "--version"], clean).out,
                 read(os.path.join(root, "opt/flyt/lib/flyt/VERSION")), "the version")
    folder = tempfile.mkdtemp(prefix="wheel-", dir=harness.WORK)
    shutil.copy(os.path.join(harness.CUDA, "lib64", "libcudart.so.13"), folder)
    for words in (["install"], ["restore"]):
        result = run([os.path.join(programs, "flyt-client-lib"), *words, folder], clean)
        expect_equal(result.status, 0, "the installed flyt-client-lib", words, result)
    expect_equal(os.listdir(folder), ["libcudart.so.13"], "NVIDIA's alone is back")


@scenario
def control_plane_needs_no_toolkit():
    """What make would do on a machine without CUDA never comes to the sentence that asks for it."""
    result = run(["make", "-C", ROOT, "-n", "control", "CUDA_PATH=/nonexistent",
                  "B=" + os.path.join(harness.WORK, "none")], timeout=60)
    expect_equal(result.status, 0, "make -n control", result)
    expect("flyt-cluster-manager" in result.out and "no CUDA toolkit" not in result.out, result.out[:2000])


main()
