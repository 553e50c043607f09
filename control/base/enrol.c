#include "control/base/enrol.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "control/base/tls.h"
#include "rpc/base/descriptors.h"

enum { ENROL_MS = 30000, CONNECT_MS = 10000 };

struct enrolment {
    sd_event *event;
    struct flyt_peer *peer;
    flyt_enrol_args args;
    flyt_enrol_res res;
    struct flyt_error *err;
    int status; /* 1: under way */
};

static void end(struct enrolment *enrolment, int status)
{
    enrolment->status = status;
    sd_event_exit(enrolment->event, 0);
}

static void answered(void *user, int status, void *result)
{
    struct enrolment *enrolment = user;
    flyt_enrol_res *res = result;
    if (enrolment->status != 1)
        return;
    if (status) {
        end(enrolment,
            flyt_error_set(enrolment->err, status, "the cluster manager does not answer: %s", strerror(-status)));
    } else if (res->outcome.status != FLYT_STATUS_OK) {
        end(enrolment,
            flyt_error_set(enrolment->err, -EACCES, "the cluster manager refuses: %.400s", res->outcome.text));
    } else {
        enrolment->res = *res; /* taken out of the result, which is freed behind us */
        memset(res, 0, sizeof *res);
        end(enrolment, 0);
    }
}

static void ready(struct flyt_peer *peer, void *user)
{
    struct enrolment *enrolment = user;
    int status = flyt_peer_call(peer, FLYT_CONTROL_PROGRAM, FLYT_CONTROL_VERSION, FLYT_ENROL,
                                (xdrproc_t)xdr_flyt_enrol_args, &enrolment->args, (xdrproc_t)xdr_flyt_enrol_res,
                                sizeof(flyt_enrol_res), ENROL_MS, answered, enrolment);
    if (status)
        end(enrolment, flyt_error_set(enrolment->err, status, "the request cannot be sent: %s", strerror(-status)));
}

static void ended(struct flyt_peer *peer, const struct flyt_error *cause, void *user)
{
    struct enrolment *enrolment = user;
    enrolment->peer = NULL;
    if (enrolment->status == 1)
        end(enrolment, flyt_error_set(enrolment->err, cause->code ? cause->code : -EPIPE, "%s", cause->text));
}

static int exchange(struct enrolment *enrolment, const char *url, struct flyt_tls *tls)
{
    const struct flyt_peer_config config = {.event = enrolment->event,
                                            .record_bytes_max = FLYT_CONTROL_RECORD_BYTES_MAX,
                                            .user = enrolment,
                                            .ready = ready,
                                            .ended = ended};
    int status = flyt_peer_connect(url, tls, &config, CONNECT_MS, enrolment->err, &enrolment->peer);
    if (status)
        return status;
    enrolment->status = 1;
    status = sd_event_loop(enrolment->event);
    flyt_peer_close(enrolment->peer);
    return status < 0 ? status : enrolment->status;
}

/* Writes a file beside its place and renames it: nobody ever sees half of it. */
static int write_file(const char *folder, const char *name, const void *data, size_t bytes, mode_t mode,
                      struct flyt_error *err)
{
    char path[4096], fresh[4200];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    snprintf(fresh, sizeof fresh, "%s.new", path);
    flyt_auto_close int fd = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, mode);
    int status = fd < 0 ? -errno : 0;
    if (!status && fchmod(fd, mode) != 0)
        status = -errno;
    if (!status && write(fd, data, bytes) != (ssize_t)bytes)
        status = errno ? -errno : -ENOSPC;
    if (!status && (fsync(fd) != 0 || rename(fresh, path) != 0))
        status = -errno;
    if (status)
        unlink(fresh);
    return status ? flyt_error_set(err, status, "%s cannot be written: %s", path, strerror(-status)) : 0;
}

static int write_files(const struct enrolment *enrolment, const char *folder, const char *key)
{
    const flyt_enrol_res *res = &enrolment->res;
    if (mkdir(folder, 0700) != 0 && errno != EEXIST)
        return flyt_error_set(enrolment->err, -errno, "%s cannot be made: %s", folder, strerror(errno));
    int status = write_file(folder, "authority.pem", res->authority.authority_val, res->authority.authority_len, 0644,
                            enrolment->err);
    if (!status)
        status = write_file(folder, "key.pem", key, strlen(key), 0600, enrolment->err);
    if (!status)
        status = write_file(folder, "certificate.pem", res->certificates.certificates_val,
                            res->certificates.certificates_len, 0644, enrolment->err);
    return status;
}

int flyt_enrol(const char *url, const char *token, const char *folder, struct flyt_error *err, char *ret_name)
{
    unsigned char authority_hash[32], secret[32], *request = NULL;
    size_t request_bytes = 0;
    char *key = NULL;
    struct flyt_tls *tls = NULL;
    struct enrolment enrolment = {.err = err};
    if (flyt_join_token_parse(token, authority_hash, secret) != 0)
        return flyt_error_set(err, -EINVAL,
                              "this is no join token (flytctl node join-token and vm join-token make them)");
    int status = flyt_tls_new_joining(authority_hash, err, &tls);
    /* The names in the request are ignored: the token says for whom it is. */
    if (!status)
        status = flyt_tls_request(FLYT_ROLE_NODE, "joining", err, &key, &request, &request_bytes);
    if (!status)
        status = sd_event_new(&enrolment.event);
    if (status >= 0) {
        enrolment.args.token = (char *)token;
        enrolment.args.request.request_val = (char *)request;
        enrolment.args.request.request_len = (u_int)request_bytes;
        status = exchange(&enrolment, url, tls);
    }
    if (!status)
        status = write_files(&enrolment, folder, key);
    if (!status)
        snprintf(ret_name, FLYT_NAME_BYTES_MAX + 1, "%s", enrolment.res.name);
    xdr_free((xdrproc_t)xdr_flyt_enrol_res, &enrolment.res);
    sd_event_unref(enrolment.event);
    flyt_tls_free(tls);
    free(request);
    if (key)
        explicit_bzero(key, strlen(key));
    free(key);
    return status;
}
