#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/resource.h>
#include <unistd.h>

#include "control/flytctl/doctor.h"
#include "control/flytctl/probe.h"
#include "control/flytctl/text.h"
#include "rpc/base/url.h"

/* Of flyt.x: FLYT_PROGRAM, FLYT_VERSION. Their numbers never change; the doctor needs nothing else of that protocol. */
enum { DATA_PROGRAM = 0x20000f17, DATA_VERSION = 1 };

enum { NOFILE_MIN = 16384, LINE_BYTES = 512 };
#define MEMLOCK_MIN (64ull << 20)

/* ---- driver ---- */

static void look_at_nvml(struct flyt_doctor *doctor)
{
    char version[96] = "unknown";
    unsigned count = 0;
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);

    if (!library) {
        flyt_doctor_say(doctor, FLYT_VERDICT_FAIL, "nvml", "install NVIDIA's driver, or set software_gpus",
                        "libnvidia-ml.so.1 cannot be loaded: %s", dlerror());
        return;
    }
    int (*init)(void) = (int (*)(void))dlsym(library, "nvmlInit_v2");
    int (*get_version)(char *, unsigned) = (int (*)(char *, unsigned))dlsym(library, "nvmlSystemGetDriverVersion");
    int (*get_count)(unsigned *) = (int (*)(unsigned *))dlsym(library, "nvmlDeviceGetCount_v2");
    int (*end)(void) = (int (*)(void))dlsym(library, "nvmlShutdown");
    int status = init && get_version && get_count && end ? init() : -1;
    if (status) {
        flyt_doctor_say(doctor, FLYT_VERDICT_FAIL, "nvml", "is the kernel module loaded (modprobe nvidia; dmesg)?",
                        "NVML does not start (result %d)", status);
    } else {
        get_version(version, sizeof version);
        status = get_count(&count);
        flyt_doctor_say(doctor, status || !count ? FLYT_VERDICT_FAIL : FLYT_VERDICT_OK, "nvml",
                        status || !count ? "look at dmesg for what became of the GPUs" : "", "driver %s shows %u GPU%s",
                        version, count, count == 1 ? "" : "s");
        end();
    }
    dlclose(library);
}

static void look_at_driver(struct flyt_doctor *doctor)
{
    char line[LINE_BYTES] = "";
    FILE *in = fopen("/proc/driver/nvidia/version", "re");

    if (!in) {
        flyt_doctor_say(doctor, FLYT_VERDICT_FAIL, "driver", "install NVIDIA's driver and load it (modprobe nvidia)",
                        "the kernel has no NVIDIA driver loaded");
        return;
    }
    bool is_read = fgets(line, sizeof line, in);
    fclose(in);
    line[strcspn(line, "\n")] = 0;
    flyt_doctor_say(doctor, is_read ? FLYT_VERDICT_OK : FLYT_VERDICT_WARN, "driver", "", "%s",
                    is_read ? line : "the driver does not tell its version");
}

static void look_at_devices(struct flyt_doctor *doctor)
{
    static const char *const needed[] = {"/dev/nvidiactl", "/dev/nvidia-uvm"};
    glob_t found = {0};
    unsigned bad = 0;

    glob("/dev/nvidia[0-9]*", 0, NULL, &found);
    for (size_t i = 0; i < found.gl_pathc + 2; i++) {
        const char *path = i < 2 ? needed[i] : found.gl_pathv[i - 2];
        if (!access(path, R_OK | W_OK))
            continue;
        bad++;
        flyt_doctor_say(doctor, FLYT_VERDICT_FAIL, "devices",
                        errno == ENOENT ? "run nvidia-modprobe -u -c 0, or nvidia-smi once as root"
                                        : "give the node manager's user access to it (udev rule, group)",
                        "%s: %s", path, strerror(errno));
    }
    if (!bad && found.gl_pathc)
        flyt_doctor_say(doctor, FLYT_VERDICT_OK, "devices", "", "%zu of /dev/nvidia0 … can be opened", found.gl_pathc);
    else if (!found.gl_pathc)
        flyt_doctor_say(doctor, FLYT_VERDICT_FAIL, "devices", "is the driver loaded, is there a GPU (lspci)?",
                        "there is no /dev/nvidia0");
    globfree(&found);
}

/* ---- MPS ---- */

static bool is_in_path(const char *program)
{
    const char *path = getenv("PATH");
    char *copy, *at, *folder;
    bool is_found = false;

    if (strchr(program, '/'))
        return !access(program, X_OK);
    at = copy = flyt_text_format("%s", path ? path : "/usr/bin:/bin");
    while ((folder = strsep(&at, ":")) && !is_found) {
        char *file = flyt_text_format("%s/%s", folder, program);
        is_found = !access(file, X_OK);
        free(file);
    }
    free(copy);
    return is_found;
}

/* MPS's control daemon keeps a file `control` in its folder of pipes. */
static bool is_mps_there(const char *pipes)
{
    char *file = flyt_text_format("%s/control", pipes);
    bool is_there = !access(file, F_OK);

    free(file);
    return is_there;
}

static void look_at_mps(struct flyt_doctor *doctor)
{
    const char *mode = flyt_doctor_text(doctor, "mps", "off"),
               *folder = flyt_doctor_text(doctor, "mps_dir", "/run/flyt/mps");
    const char *control = flyt_doctor_text(doctor, "mps_control", "nvidia-cuda-mps-control");
    char *pipes = flyt_text_format("%s/pipe", folder);
    bool is_there = is_mps_there(pipes);

    if (!strcmp(mode, "off")) {
        bool is_foreign = is_mps_there("/tmp/nvidia-mps");
        flyt_doctor_say(doctor, is_foreign ? FLYT_VERDICT_WARN : FLYT_VERDICT_OK, "mps",
                        is_foreign ? "end that daemon, or have it use the folder pipe in mps_dir and set mps to watch"
                                   : "",
                        is_foreign ? "mps is off, but a daemon has its pipes in /tmp/nvidia-mps"
                                   : "MPS is off, as configured: programs that share a GPU take turns");
    } else if (!strcmp(mode, "start") && !is_in_path(control)) {
        flyt_doctor_say(doctor, FLYT_VERDICT_FAIL, "mps", "install it with the driver, or set mps_control",
                        "%s is not there, but mps is start", control);
    } else if (is_there) {
        flyt_doctor_say(doctor, FLYT_VERDICT_OK, "mps", "", "MPS has its pipes in %s", pipes);
    } else {
        flyt_doctor_say(doctor, FLYT_VERDICT_FAIL, "mps",
                        !strcmp(mode, "start") ? "is flyt-node-manager running? its log says what became of MPS"
                                               : "start the unit that runs MPS, or set mps_dir to its pipes",
                        "mps is %s, but no MPS daemon has its pipes in %s", mode, pipes);
    }
    free(pipes);
}

/* ---- kernel and limits ---- */

static void look_at_personality(struct flyt_doctor *doctor)
{
    int before = personality(0xffffffff);

    if (before < 0 || personality((unsigned)before | ADDR_NO_RANDOMIZE) < 0) {
        flyt_doctor_say(doctor, FLYT_VERDICT_WARN, "personality", "let the unit or the container allow personality(2)",
                        "personality(ADDR_NO_RANDOMIZE) is not allowed: checkpoints may not fit in another process");
        return;
    }
    personality((unsigned)before);
    flyt_doctor_say(doctor, FLYT_VERDICT_OK, "personality", "", "address randomisation can be switched off");
}

/* The node manager's process, 0: it does not run or cannot be seen. */
static long find_manager(void)
{
    DIR *folder = opendir("/proc");
    const struct dirent *entry;
    long found = 0;

    while (folder && !found && (entry = readdir(folder))) {
        char name[64] = "", path[300];
        if (*entry->d_name < '1' || *entry->d_name > '9')
            continue;
        snprintf(path, sizeof path, "/proc/%s/comm", entry->d_name);
        FILE *in = fopen(path, "re");
        if (!in)
            continue;
        if (fgets(name, sizeof name, in) && !strcmp(name, "flyt-node-manag\n")) /* 15 characters, proc(5) */
            found = strtol(entry->d_name, NULL, 10);
        fclose(in);
    }
    if (folder)
        closedir(folder);
    return found;
}

/* Soft limits of a process, or of this one. */
static bool read_limits(long pid, rlim_t *ret_nofile, rlim_t *ret_memlock)
{
    struct rlimit files, locked;

    if (prlimit((pid_t)pid, RLIMIT_NOFILE, NULL, &files) || prlimit((pid_t)pid, RLIMIT_MEMLOCK, NULL, &locked))
        return false;
    *ret_nofile = files.rlim_cur;
    *ret_memlock = locked.rlim_cur;
    return true;
}

static void look_at_limits(struct flyt_doctor *doctor)
{
    long pid = find_manager();
    rlim_t files = 0, locked = 0;
    const char *whose = "the node manager";

    if (!pid || !read_limits(pid, &files, &locked)) {
        whose =
            pid ? "this shell (the node manager's cannot be seen by this user)" : "this shell (no node manager runs)";
        read_limits(0, &files, &locked);
    }
    bool is_few = files < NOFILE_MIN, is_little = locked != RLIM_INFINITY && locked < MEMLOCK_MIN;
    flyt_doctor_say(doctor, is_few ? FLYT_VERDICT_WARN : FLYT_VERDICT_OK, "descriptors",
                    is_few ? "set LimitNOFILE=65536 or more in the unit" : "", "%s may have %llu open files", whose,
                    (unsigned long long)files);
    if (locked == RLIM_INFINITY)
        flyt_doctor_say(doctor, FLYT_VERDICT_OK, "memlock", "", "%s may lock any amount of memory", whose);
    else
        flyt_doctor_say(doctor, is_little ? FLYT_VERDICT_WARN : FLYT_VERDICT_OK, "memlock",
                        is_little ? "set LimitMEMLOCK=infinity in the unit: pinned memory needs it" : "",
                        "%s may lock %llu KiB of memory", whose, (unsigned long long)locked / 1024);
}

static void look_at_huge_pages(struct flyt_doctor *doctor)
{
    char line[LINE_BYTES] = "";
    FILE *in = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "re");

    if (!in || !fgets(line, sizeof line, in))
        flyt_doctor_say(doctor, FLYT_VERDICT_WARN, "huge pages", "",
                        "whether there are huge pages cannot be seen here");
    else if (strstr(line, "[never]"))
        flyt_doctor_say(doctor, FLYT_VERDICT_WARN, "huge pages",
                        "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
                        "transparent huge pages are off: large copies are slower");
    else
        flyt_doctor_say(doctor, FLYT_VERDICT_OK, "huge pages", "", "transparent huge pages can be had");
    if (in)
        fclose(in);
}

/* ---- itself ---- */

static void look_at_listening(struct flyt_doctor *doctor)
{
    const char *urls[FLYT_DOCTOR_LIST_MAX] = {"tcp://:9810"};
    unsigned count = flyt_doctor_list(doctor, "listen", urls);

    for (unsigned i = 0; i < (count ? count : 1); i++) {
        struct flyt_error err;
        struct flyt_url url;
        char text[FLYT_URL_TEXT_BYTES];
        if (flyt_url_parse(urls[i], &err, &url)) {
            flyt_doctor_say(doctor, FLYT_VERDICT_FAIL, "listening", "correct listen", "%s", err.text);
            continue;
        }
        if (url.scheme != FLYT_URL_UNIX && !url.port) {
            flyt_doctor_say(doctor, FLYT_VERDICT_WARN, "listening", "name a port in listen",
                            "%s names no port: the kernel chooses another one at each start, which cannot be looked at",
                            urls[i]);
            continue;
        }
        if (url.scheme == FLYT_URL_TCP && !*url.host)
            snprintf(url.host, sizeof url.host, "localhost");
        flyt_url_print(&url, text);
        int status = flyt_probe_null(text, DATA_PROGRAM, DATA_VERSION, FLYT_DOCTOR_PROBE_MS, &err);
        if (status == -EADDRNOTAVAIL && url.scheme == FLYT_URL_VSOCK)
            flyt_doctor_say(doctor, FLYT_VERDICT_WARN, "listening", "modprobe vsock_loopback",
                            "what is for guests cannot be looked at from here: %s", err.text);
        else if (status)
            flyt_doctor_say(doctor, FLYT_VERDICT_FAIL, "listening",
                            "start flyt-node-manager (systemctl status flyt-node-manager)",
                            "the node manager does not serve programs: %s", err.text);
        else
            flyt_doctor_say(doctor, FLYT_VERDICT_OK, "listening", "", "the node manager answers at %s", text);
    }
}

void flyt_doctor_node(struct flyt_doctor *doctor)
{
    const char *state_dir = flyt_doctor_text(doctor, "state_dir", "/var/lib/flyt/node");
    const char *server = flyt_doctor_text(doctor, "server", "/usr/local/bin/flyt-server");
    char host[HOST_NAME_MAX + 1] = "";

    gethostname(host, sizeof host - 1);
    if (flyt_doctor_number(doctor, "software_gpus", 0) > 0) {
        flyt_doctor_say(doctor, FLYT_VERDICT_OK, "driver", "", "software GPUs are configured: no driver is needed");
    } else {
        look_at_driver(doctor);
        look_at_nvml(doctor);
        look_at_devices(doctor);
        look_at_mps(doctor);
    }
    look_at_personality(doctor);
    look_at_limits(doctor);
    look_at_huge_pages(doctor);
    flyt_doctor_say(doctor, access(server, X_OK) ? FLYT_VERDICT_FAIL : FLYT_VERDICT_OK, "server",
                    access(server, X_OK) ? "install flyt-server, or set server" : "", "%s %s", server,
                    access(server, X_OK) ? "cannot be executed" : "can be executed");
    flyt_doctor_folder(doctor, "state", state_dir);
    flyt_doctor_trust(doctor, state_dir, FLYT_ROLE_NODE, flyt_doctor_text(doctor, "name", host));
    look_at_listening(doctor);
}
