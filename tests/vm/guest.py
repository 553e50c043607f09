"""A guest for tests: what it is made of, QEMU that runs it, and programs in it.

Nothing is downloaded here. The kernel with its modules is that of a folder in which a package of a kernel was unpacked
(FLYT_VM_KERNEL, or where kernel.sh does so), or the newest of this machine's in /boot and /lib/modules; all else comes from
this machine and the build. A device that the guest is to have (`Guest(devices=…)`) is words for QEMU; the modules for it are in
MODULES.
"""
import glob
import gzip
import lzma
import os
import re
import shutil
import socket
import stat
import subprocess
import threading
import time

import harness
from harness import Failed, expect

HERE = os.path.dirname(os.path.abspath(__file__))
QEMU = "qemu-system-x86_64"
MODULES = ("virtio_pci", "virtio_net", "virtio_console", "vsock_loopback")
FETCHED_KERNEL = os.path.join(harness.BUILD, "vm-kernel")
UNPACK = {".ko": bytes, ".xz": lzma.decompress, ".gz": gzip.decompress}
PORTS = 4               # programs at a time
BOOT_S = 300            # of a machine that only emulates, beside other work
EXIT = re.compile(rb"flyt-vm: exit (\d+) (\d+)\n")
CUDA_FOLDER = "usr/local/cuda/lib64"
LIBRARY_FOLDER = "lib/x86_64-linux-gnu"


# ---- what there is ----

def kernel():
    """(image, folder of its modules), or None."""
    for root in [os.environ["FLYT_VM_KERNEL"]] if "FLYT_VM_KERNEL" in os.environ else [FETCHED_KERNEL, "/"]:
        for image in sorted(glob.glob(os.path.join(root, "boot", "vmlinuz-*")), key=os.path.getmtime, reverse=True):
            modules = os.path.join(root, "lib", "modules", os.path.basename(image)[len("vmlinuz-"):])
            if os.access(image, os.R_OK) and module_files(modules):
                return image, modules
    return None


def module_files(folder):
    """{name: file} of those modules that can be unpacked here."""
    return {os.path.basename(path).split(".")[0].replace("-", "_"): path
            for path in glob.glob(os.path.join(folder, "kernel", "**", "*.ko*"), recursive=True)
            if os.path.splitext(path)[1] in UNPACK}


def missing():
    """The names of what is needed and not there."""
    names = [name for name in (QEMU, "cpio") if not shutil.which(name)]
    if not busybox():
        names.append("busybox, linked statically (busybox-static)")
    if not kernel():
        names.append("kernel with its modules (linux-image-amd64, or FLYT_VM_KERNEL=FOLDER)")
    return names


def busybox():
    path = shutil.which("busybox")
    is_static = path and "INTERP" not in subprocess.run(["readelf", "-l", path], capture_output=True, text=True).stdout
    return path if is_static else None


# ---- its file system, which is all in memory ----

class Root:
    """A folder that becomes the guest's root."""

    def __init__(self, folder):
        self.folder = folder
        for name in ("bin", "dev", "etc/flyt", LIBRARY_FOLDER, "lib64", "modules", "proc", "run", "sys", "tmp", "usr/bin",
                     CUDA_FOLDER):
            os.makedirs(os.path.join(folder, name), exist_ok=True)
        self.copy(busybox(), "bin/busybox")
        self.copy(os.path.join(HERE, "init"), "init")
        self.copy("/lib64/ld-linux-x86-64.so.2", "lib64/ld-linux-x86-64.so.2")
        self.add_modules()

    def copy(self, source, name):
        path = os.path.join(self.folder, name)
        shutil.copy(os.path.realpath(source), path)
        os.chmod(path, 0o755)
        return path

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w") as f:
            f.write(text)
        os.chmod(path, stat.S_IRUSR | stat.S_IWUSR)
        return path

    def add_modules(self):
        """Each behind those that it depends on, as the kernel's package says; what is built in has no file."""
        _, folder = kernel()
        files, added = module_files(folder), []

        def add(name):
            if name in added or name not in files:
                return
            with open(files[name], "rb") as f:
                data = UNPACK[os.path.splitext(files[name])[1]](f.read())
            depends = re.search(rb"\0depends=([^\0]*)\0", data)
            for other in filter(None, depends[1].decode().split(",") if depends else []):
                add(other)
            with open(os.path.join(self.folder, "modules", "%02d-%s.ko" % (len(added), name)), "wb") as f:
                f.write(data)
            added.append(name)

        for name in MODULES:
            add(name)

    def add_program(self, path):
        """With the libraries that it needs, but for those that are CUDA's: Flyt's are there for these."""
        self.copy(path, os.path.join("bin", os.path.basename(path)))
        self.add_libraries_of(path)

    def add_libraries_of(self, path):
        said = subprocess.run(["ldd", path], capture_output=True, text=True).stdout
        for name, library in re.findall(r"(\S+) => (/\S+)", said):
            there = os.path.join(LIBRARY_FOLDER, name)
            if not name.startswith(("libcu", "libflyt-client", "libnccl")) and not os.path.exists(
                    os.path.join(self.folder, there)):
                self.copy(library, there)

    def add_client_library(self):
        """As a person puts it in the place of NVIDIA's."""
        folder = os.path.join(self.folder, CUDA_FOLDER)
        self.copy(os.path.join(harness.CUDA, "lib64", "libcudart.so.13"), os.path.join(CUDA_FOLDER, "libcudart.so.13"))
        result = harness.run(["make", "-s", "-C", harness.ROOT, "install-client-lib", "DEST=" + folder,
                              "B=" + os.path.relpath(harness.BUILD, harness.ROOT)], timeout=600)
        harness.expect_equal(result.status, 0, "make install-client-lib", result)
        for library in glob.glob(os.path.join(folder, "*.so.*")):
            if not library.endswith(".flyt-original"):
                self.add_libraries_of(library)

    def pack(self, path):
        """The initramfs."""
        with open(path, "wb") as f:
            names = subprocess.Popen(["find", "."], cwd=self.folder, stdout=subprocess.PIPE)
            packed = subprocess.run(["cpio", "-o", "-H", "newc", "--quiet", "-R", "0:0"], cwd=self.folder, stdin=names.stdout,
                                    stdout=f)
            names.stdout.close()
            expect(names.wait() == 0 and packed.returncode == 0, "cpio fails")


# ---- the machine ----

class Guest:
    """QEMU with its guest. `prefix` is a command that executes what follows it (ip netns exec NAME): where the guest's network
    ends; `devices` are further words for QEMU."""

    def __init__(self, folder, root, prefix=(), devices=(), memory="1G", env=None):
        self.folder = folder
        self.log_path = os.path.join(folder, "console")
        initramfs = os.path.join(folder, "initramfs")
        root.pack(initramfs)
        image, _ = kernel()
        command = [*prefix, QEMU, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-machine", "q35,accel=tcg",
                   "-cpu", "max", "-smp", "2", "-m", memory, "-kernel", image, "-initrd", initramfs,
                   "-append", "console=ttyS0 quiet panic=-1 rdinit=/init", "-serial", "file:" + self.log_path,
                   "-netdev", "user,id=net0,ipv6=off", "-device", "virtio-net-pci,netdev=net0,romfile=",
                   "-device", "virtio-serial-pci"]
        for i in range(PORTS):
            command += ["-chardev", "socket,id=port%d,path=%s,server=on,wait=off" % (i, self.port_path(i)),
                        "-device", "virtserialport,chardev=port%d,name=flyt.%d" % (i, i)]
        with open(os.path.join(folder, "qemu"), "wb") as log:
            self.process = harness.start([*command, *devices], env, stdout=log, stderr=log)
        self.ports = [self.connect(i) for i in range(PORTS)]     # before the guest opens them: it would find nobody
        self.boot_id = harness.within(BOOT_S, self.is_ready, "the guest is ready")

    def port_path(self, i):
        return os.path.join(self.folder, "port-%d" % i)

    def connect(self, i):
        s = socket.socket(socket.AF_UNIX)

        def connected():
            self.expect_alive()
            try:
                s.connect(self.port_path(i))
                return True
            except (FileNotFoundError, ConnectionRefusedError):
                return False
        harness.within(60, connected, "QEMU listens")
        return s

    def console(self):
        with open(self.log_path, errors="replace") as f:
            return f.read().replace("\r", "")

    def expect_alive(self):
        if self.process.poll() is not None:
            with open(os.path.join(self.folder, "qemu"), errors="replace") as f:
                raise Failed("QEMU has ended: %s\n%s" % (f.read(), self.console()[-4000:]))

    def is_ready(self):
        self.expect_alive()
        found = re.search(r"flyt-vm: ready, boot (\S+)", self.console()) if os.path.exists(self.log_path) else None
        time.sleep(0.2)
        return found and found[1]

    def start(self, *command):
        expect(self.ports, "more than", PORTS, "programs at a time")
        return Program(self, self.ports.pop(), command)

    def close(self):
        harness.kill_group(self.process)
        self.process.wait()
        for port in self.ports:
            port.close()


class Program:
    """A program in the guest, as subprocess.Popen has one of this machine's: stdin and stdout with descriptors, pid None."""

    pid = None

    def __init__(self, guest, port, command):
        self.guest, self.port, self.args = guest, port, command
        self.returncode = self.stderr_bytes = None
        read_fd, self._write_fd = os.pipe()
        self.stdin, self.stdout = port, os.fdopen(read_fd, "rb", buffering=0)
        port.sendall(" ".join(command).encode() + b"\n")
        self._thread = threading.Thread(target=self._pump, daemon=True)
        self._thread.start()

    def _pump(self):
        """What it prints, to its end; the port is then free for another one."""
        said = b""
        with os.fdopen(self._write_fd, "wb", buffering=0) as out:
            while self.returncode is None:
                chunk = self.port.recv(65536)
                if not chunk:
                    return
                said += chunk
                end = EXIT.search(said)
                whole = said[:end.start()] if end else said[:said.rfind(b"\n") + 1]
                out.write(whole)
                said = said[len(whole):]
                if end:
                    self.stderr_bytes, self.returncode = int(end[2]), int(end[1])
                    self.guest.ports.append(self.port)

    def poll(self):
        return self.returncode

    def communicate(self, timeout):
        """(stdout, stderr) of one that ends. Of stderr it is known how long it is; it is on the guest's console."""
        self._thread.join(timeout)
        if self.returncode is None:
            raise Failed("%s in the guest does not end, or QEMU has: %s" % (self.args, self.guest.console()[-4000:]))
        with self.stdout:
            return self.stdout.read(), self.guest.console()[-4000:].encode() if self.stderr_bytes else b""
