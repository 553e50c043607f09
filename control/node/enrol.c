#include "control/node/enrol.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "control/base/tls.h"
#include "rpc/base/descriptors.h"

enum { ENROL_MS = 20000 };

struct flyt_node_enrol {
    const struct flyt_node_settings *settings;
    struct flyt_tls *tls;
    struct flyt_peer *peer;
    char token[FLYT_NAME_BYTES_MAX + 1];
    char *key;
    unsigned char *request;
    size_t request_bytes;
    void (*done)(void *user, const struct flyt_error *err);
    void *user;
};

/* Whole or not at all, with this mode from the beginning. */
static int write_file(const char *path, const void *data, size_t bytes, mode_t mode, struct flyt_error *err)
{
    char part[PATH_MAX];

    snprintf(part, sizeof part, "%s.part", path);
    unlink(part);
    flyt_auto_close int fd = open(part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (fd < 0 || write(fd, data, bytes) != (ssize_t)bytes || fsync(fd) || rename(part, path)) {
        int status = errno ? -errno : -EIO;
        unlink(part);
        return flyt_error_set(err, status, "%s cannot be written: %s", path, strerror(-status));
    }
    return 0;
}

static void finish(struct flyt_node_enrol *enrol, const struct flyt_error *err)
{
    void (*done)(void *user, const struct flyt_error *err) = enrol->done;

    enrol->done = NULL;
    if (done)
        done(enrol->user, err);
}

static void on_enrolled(void *user, int status, void *result)
{
    struct flyt_node_enrol *enrol = user;
    const struct flyt_node_settings *settings = enrol->settings;
    flyt_enrol_res *res = result;
    struct flyt_error err = {0};

    if (status == -ECANCELED)
        return;
    if (status) {
        flyt_error_set(&err, status, "the cluster manager does not answer: %s", strerror(-status));
    } else if (res->outcome.status != FLYT_STATUS_OK) {
        flyt_error_set(&err, -EACCES, "the cluster manager refuses: %.400s", res->outcome.text);
    } else if (res->kind != FLYT_PEER_NODE) {
        flyt_error_set(&err, -EINVAL, "the token is none for a node");
    } else {
        /* The certificate last: where it is, the others are. */
        status = write_file(settings->key, enrol->key, strlen(enrol->key), 0600, &err);
        if (!status)
            status =
                write_file(settings->authority, res->authority.authority_val, res->authority.authority_len, 0644, &err);
        if (!status)
            status = write_file(settings->certificate, res->certificates.certificates_val,
                                res->certificates.certificates_len, 0644, &err);
    }
    finish(enrol, &err);
}

static void on_ready(struct flyt_peer *peer, void *user)
{
    struct flyt_node_enrol *enrol = user;
    const flyt_enrol_args args = {.token = enrol->token,
                                  .request = {(u_int)enrol->request_bytes, (char *)enrol->request}};
    struct flyt_error err = {0};

    int status =
        flyt_peer_call(peer, FLYT_CONTROL_PROGRAM, FLYT_CONTROL_VERSION, FLYT_ENROL, (xdrproc_t)xdr_flyt_enrol_args,
                       &args, (xdrproc_t)xdr_flyt_enrol_res, sizeof(flyt_enrol_res), ENROL_MS, on_enrolled, enrol);
    if (status) {
        flyt_error_set(&err, status, "the cluster manager cannot be asked: %s", strerror(-status));
        finish(enrol, &err);
    }
}

static void on_ended(struct flyt_peer *peer, const struct flyt_error *cause, void *user)
{
    struct flyt_node_enrol *enrol = user;

    enrol->peer = NULL;
    finish(enrol, cause);
}

/* The request's name is the host's or the settings'; the token decides in the end. */
static int make_request(struct flyt_node_enrol *enrol, struct flyt_error *err)
{
    unsigned char authority_hash[32], secret[32];
    char name[FLYT_NAME_BYTES_MAX + 1] = "";

    if (flyt_join_token_parse(enrol->token, authority_hash, secret))
        return flyt_error_set(err, -EINVAL, "that is no join token: flytctl makes one");
    explicit_bzero(secret, sizeof secret);
    if (enrol->settings->name)
        snprintf(name, sizeof name, "%s", enrol->settings->name);
    else if (gethostname(name, sizeof name - 1))
        return flyt_error_set(err, -errno, "this machine has no name: set `name`");
    int status = flyt_tls_request(FLYT_ROLE_NODE, name, err, &enrol->key, &enrol->request, &enrol->request_bytes);
    return status ? status : flyt_tls_new_joining(authority_hash, err, &enrol->tls);
}

int flyt_node_enrol_new(sd_event *event, const struct flyt_node_settings *settings, const char *token, const char *url,
                        void (*done)(void *user, const struct flyt_error *err), void *user, struct flyt_error *err,
                        struct flyt_node_enrol **ret_enrol)
{
    if (!settings->key)
        return flyt_error_set(err, -EINVAL, "the configuration says not where: set tls.authority, certificate and key");
    struct flyt_node_enrol *enrol = calloc(1, sizeof *enrol);
    if (!enrol)
        return flyt_error_set(err, -ENOMEM, "no memory");
    *enrol = (struct flyt_node_enrol){.settings = settings, .done = done, .user = user};
    snprintf(enrol->token, sizeof enrol->token, "%s", token);
    const struct flyt_peer_config config = {.event = event,
                                            .record_bytes_max = FLYT_CONTROL_RECORD_BYTES_MAX,
                                            .user = enrol,
                                            .ready = on_ready,
                                            .ended = on_ended};
    int status = make_request(enrol, err);
    if (!status)
        status = flyt_peer_connect(url, enrol->tls, &config, ENROL_MS, err, &enrol->peer);
    if (status) {
        flyt_node_enrol_free(enrol);
        return status;
    }
    *ret_enrol = enrol;
    return 0;
}

struct flyt_node_enrol *flyt_node_enrol_free(struct flyt_node_enrol *enrol)
{
    if (!enrol)
        return NULL;
    enrol->done = NULL;
    flyt_peer_close(enrol->peer);
    flyt_tls_free(enrol->tls);
    if (enrol->key)
        explicit_bzero(enrol->key, strlen(enrol->key));
    free(enrol->key);
    free(enrol->request);
    explicit_bzero(enrol->token, sizeof enrol->token);
    free(enrol);
    return NULL;
}
