"""What NVML says of a process, on a machine with an NVIDIA driver."""
import ctypes

PROCESSES_MAX = 256
LISTS = ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetMPSComputeRunningProcesses_v3")


class Process(ctypes.Structure):
    """nvmlProcessInfo_t of the functions whose name ends in _v3."""
    _fields_ = [("pid", ctypes.c_uint), ("used_bytes", ctypes.c_ulonglong), ("gpu_instance", ctypes.c_uint),
                ("compute_instance", ctypes.c_uint)]


def call(library, name, *args):
    status = getattr(library, name)(*args)
    if status:
        raise RuntimeError("%s: NVML status %d" % (name, status))


class Nvml:
    def __init__(self):
        self.library = ctypes.CDLL("libnvidia-ml.so.1")
        call(self.library, "nvmlInit_v2")

    def process_bytes(self, pid, gpu=0):
        """Of the GPU's memory; None: NVML does not name the process, or not by this number (another PID namespace)."""
        device = ctypes.c_void_p()
        call(self.library, "nvmlDeviceGetHandleByIndex_v2", gpu, ctypes.byref(device))
        for name in LISTS:
            processes, count = (Process * PROCESSES_MAX)(), ctypes.c_uint(PROCESSES_MAX)
            call(self.library, name, device, ctypes.byref(count), processes)
            for process in processes[:count.value]:
                if process.pid == pid and process.used_bytes != 2 ** 64 - 1:
                    return process.used_bytes
        return None
