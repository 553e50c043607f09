#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "control/flytctl/doctor.h"
#include "control/flytctl/probe.h"
#include "control/flytctl/text.h"
#include "control/flytctl/view.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/machine.h"

/* Of flyt.x; see doctor_node.c. */
enum { DATA_PROGRAM = 0x20000f17, DATA_VERSION = 1 };

/* ---- libraries ---- */

/* Whether a file is one of Flyt's libraries: they all name their core. */
static bool is_ours(const char *path)
{
    static const char mark[] = "libflyt-client.so.1";
    flyt_auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat about;

    if (fd < 0 || fstat(fd, &about) || about.st_size <= 0)
        return false;
    void *data = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED)
        return false;
    bool is_found = memmem(data, (size_t)about.st_size, mark, sizeof mark - 1);
    munmap(data, (size_t)about.st_size);
    return is_found;
}

/* Asks the loader itself, which looks where it would for a program that this shell starts. */
static void look_at_library(struct flyt_doctor *doctor, const char *name)
{
    void *library = dlopen(name, RTLD_LAZY | RTLD_LOCAL);
    const struct link_map *map = NULL;

    if (!library) {
        flyt_doctor_say(doctor, FLYT_VERDICT_FAIL, "libraries",
                        "make install, then flyt-client-lib install; or set LD_LIBRARY_PATH; or use flyt-run",
                        "the loader does not find %s", name);
        return;
    }
    if (dlinfo(library, RTLD_DI_LINKMAP, &map) || !map || !*map->l_name)
        flyt_doctor_say(doctor, FLYT_VERDICT_WARN, "libraries", "", "where %s comes from cannot be seen", name);
    else if (is_ours(map->l_name))
        flyt_doctor_say(doctor, FLYT_VERDICT_OK, "libraries", "", "%s would be Flyt's, %s", name, map->l_name);
    else
        flyt_doctor_say(
            doctor, FLYT_VERDICT_FAIL, "libraries",
            "flyt-client-lib install puts Flyt's in its place; LD_LIBRARY_PATH goes before it; so does flyt-run",
            "%s would be %s, which is not Flyt's", name, map->l_name);
    dlclose(library);
}

static void look_at_environment(struct flyt_doctor *doctor)
{
    const char *server = getenv("FLYT_SERVER");

    if (server && *server)
        flyt_doctor_say(doctor, FLYT_VERDICT_WARN, "environment", "unset FLYT_SERVER",
                        "FLYT_SERVER is %s: programs of this shell go there, past the client manager", server);
    flyt_doctor_say(doctor, FLYT_VERDICT_OK, "static runtime",
                    "link programs with nvcc -cudart shared; ldd PROGRAM then shows libcudart.so.13",
                    "nvcc's default, the static runtime, brings its own libcudart: no replaced one is used by such a "
                    "program");
}

/* ---- the client manager ---- */

/* A unix socket of this machine, or vsock to its host, where programs go on over the other addresses when it is not to
 * be had; a socket of another machine is not meant for them. */
static void look_at_near_url(struct flyt_doctor *doctor, const struct flyt_url *near, const char *url)
{
    struct flyt_error err;

    if (flyt_machine_check(near, NULL))
        return;
    if (flyt_probe_null(url, DATA_PROGRAM, DATA_VERSION, FLYT_DOCTOR_PROBE_MS, &err))
        flyt_doctor_say(doctor, FLYT_VERDICT_WARN, "data",
                        near->scheme == FLYT_URL_UNIX
                            ? "does this container have the socket's folder?"
                            : "has this VM a vsock device, and does it run on the GPU's node?",
                        "programs do not get the node's nearest address: %s", err.text);
    else
        flyt_doctor_say(doctor, FLYT_VERDICT_OK, "data", "", "the GPU's node answers at %s", url);
}

static void look_at_data_url(struct flyt_doctor *doctor, const char *url)
{
    struct flyt_url parsed;
    struct flyt_error err;

    if (!flyt_url_parse(url, NULL, &parsed) &&
        (parsed.scheme == FLYT_URL_VSOCK || (parsed.scheme == FLYT_URL_UNIX && *parsed.host)))
        look_at_near_url(doctor, &parsed, url);
    else if (flyt_probe_null(url, DATA_PROGRAM, DATA_VERSION, FLYT_DOCTOR_PROBE_MS, &err))
        flyt_doctor_say(doctor, FLYT_VERDICT_FAIL, "data",
                        "is there a route to the node, does a firewall stand between, does its node manager run?",
                        "the GPU's node is not reachable: %s", err.text);
    else
        flyt_doctor_say(doctor, FLYT_VERDICT_OK, "data", "", "the GPU's node answers at %s", url);
}

static void look_at_status(struct flyt_doctor *doctor, const cJSON *status)
{
    const cJSON *allocation = cJSON_GetObjectItemCaseSensitive(status, "allocation"), *url;
    const char *configured = flyt_doctor_text(doctor, "vm_ip", "");

    if (strcmp(flyt_row_text(status, "vm_ip"), configured) && *configured)
        flyt_doctor_say(doctor, FLYT_VERDICT_WARN, "client manager", "restart flyt-client-manager",
                        "it runs as VM %s, but the configuration says %s", flyt_row_text(status, "vm_ip"), configured);
    if (cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(status, "connected")))
        flyt_doctor_say(doctor, FLYT_VERDICT_OK, "connection", "", "it is connected to %s",
                        flyt_row_text(status, "manager"));
    else
        flyt_doctor_say(doctor, FLYT_VERDICT_FAIL, "connection", "see the findings about manager and certificate",
                        "it has no connection to the cluster manager %s: %s", flyt_row_text(status, "manager"),
                        flyt_row_text(status, "cause"));
    if (!cJSON_IsObject(allocation)) {
        flyt_doctor_say(doctor, FLYT_VERDICT_WARN, "allocation",
                        "start a CUDA program; if it gets none, flytctl explain VM on the cluster manager says why",
                        "this VM holds no allocation now");
        return;
    }
    flyt_doctor_say(doctor, FLYT_VERDICT_OK, "allocation", "", "allocation %s on node %s with %d device(s)",
                    flyt_row_text(allocation, "id"), flyt_row_text(allocation, "node"),
                    cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(allocation, "devices")));
    cJSON_ArrayForEach(url, cJSON_GetObjectItemCaseSensitive(allocation, "data_urls"))
    {
        if (cJSON_IsString(url))
            look_at_data_url(doctor, url->valuestring);
    }
}

static const char add_user[] = "add the user to allow_users or allow_groups";

static void say_no_socket(struct flyt_doctor *doctor, const char *socket, const struct flyt_error *err)
{
    const struct passwd *user = getpwuid(geteuid());

    if (err->code == -EPIPE)
        flyt_doctor_say(doctor, FLYT_VERDICT_FAIL, "client manager", add_user,
                        "it closes the connection: user %s may not use this VM's GPU",
                        user ? user->pw_name : "unknown");
    else if (err->code == -EACCES)
        flyt_doctor_say(doctor, FLYT_VERDICT_FAIL, "client manager", "let every user reach the socket (mode 0666)",
                        "%s: permission denied", socket);
    else
        flyt_doctor_say(doctor, FLYT_VERDICT_FAIL, "client manager",
                        "start flyt-client-manager (systemctl status flyt-client-manager)", "it does not answer: %s",
                        err->text);
}

static void look_at_client_manager(struct flyt_doctor *doctor)
{
    const char *socket = flyt_doctor_text(doctor, "socket", "/run/flyt/client.sock");
    char *url = flyt_text_format("unix://%s", socket);
    flyt_local_status_res res = {0};
    struct flyt_error err;

    int status = flyt_probe(url, FLYT_LOCAL_PROGRAM, FLYT_LOCAL_VERSION, FLYT_LOCAL_STATUS,
                            (xdrproc_t)xdr_flyt_local_status_res, &res, FLYT_DOCTOR_PROBE_MS, &err);
    free(url);
    if (status) {
        say_no_socket(doctor, socket, &err);
        return;
    }
    cJSON *json = cJSON_ParseWithLength(res.json.json_val, res.json.json_len);
    if (res.outcome.status == FLYT_STATUS_DENIED) {
        flyt_doctor_say(doctor, FLYT_VERDICT_FAIL, "client manager", add_user, "%s", res.outcome.text);
    } else if (res.outcome.status != FLYT_STATUS_OK || !cJSON_IsObject(json)) {
        flyt_doctor_say(doctor, FLYT_VERDICT_FAIL, "client manager", "look at its log", "it answers with an error: %s",
                        res.outcome.text);
    } else {
        flyt_doctor_say(doctor, FLYT_VERDICT_OK, "client manager", "", "it answers at %s, and this user may use it",
                        socket);
        look_at_status(doctor, json);
    }
    cJSON_Delete(json);
    xdr_free((xdrproc_t)xdr_flyt_local_status_res, &res);
}

void flyt_doctor_vm(struct flyt_doctor *doctor)
{
    const char *state_dir = flyt_doctor_text(doctor, "state_dir", "/var/lib/flyt/client");

    flyt_doctor_trust(doctor, state_dir, FLYT_ROLE_VM, flyt_doctor_text(doctor, "vm_ip", ""));
    look_at_client_manager(doctor);
    look_at_library(doctor, "libcudart.so.13");
    look_at_library(doctor, "libcuda.so.1");
    look_at_environment(doctor);
}
