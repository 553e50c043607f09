#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/timex.h>
#include <time.h>
#include <unistd.h>

#include "control/base/tls.h"
#include "control/flytctl/certificate.h"
#include "control/flytctl/doctor.h"
#include "control/flytctl/probe.h"
#include "control/flytctl/text.h"

enum { SECONDS_OF_DAY = 86400, EXPIRY_WARN_DAYS = 30, FIRST_SANE_YEAR = 2024 };

void flyt_doctor_folder(struct flyt_doctor *doctor, const char *subject, const char *path)
{
    struct stat about;

    if (stat(path, &about)) {
        int error = errno;
        flyt_doctor_say(doctor, error == EACCES ? FLYT_VERDICT_WARN : FLYT_VERDICT_FAIL, subject,
                        error == EACCES ? "run flytctl doctor as root to see more"
                                        : "make the folder, or let the service's unit make it (StateDirectory=)",
                        "%s cannot be looked at: %s", path, strerror(error));
    } else if (!S_ISDIR(about.st_mode)) {
        flyt_doctor_say(doctor, FLYT_VERDICT_FAIL, subject, "name a folder", "%s is no folder", path);
    } else if (!access(path, W_OK)) {
        flyt_doctor_say(doctor, FLYT_VERDICT_OK, subject, "", "%s can be written", path);
    } else if (errno == EROFS) {
        flyt_doctor_say(doctor, FLYT_VERDICT_FAIL, subject, "put it on a file system that can be written",
                        "%s is on a read-only file system", path);
    } else {
        flyt_doctor_say(doctor, FLYT_VERDICT_WARN, subject, "run flytctl doctor as the service's user to be certain",
                        "%s cannot be written by this user (%s); its owner is uid %u", path, strerror(errno),
                        (unsigned)about.st_uid);
    }
}

static void look_at_clock(struct flyt_doctor *doctor)
{
    struct timex state = {.modes = 0};
    time_t now = time(NULL);
    struct tm parts;

    gmtime_r(&now, &parts);
    if (parts.tm_year + 1900 < FIRST_SANE_YEAR)
        flyt_doctor_say(doctor, FLYT_VERDICT_FAIL, "clock", "set the clock and run a time service (chrony, timesyncd)",
                        "the clock says the year %d: no certificate is valid then", parts.tm_year + 1900);
    else if (adjtimex(&state) == TIME_ERROR || state.status & STA_UNSYNC)
        flyt_doctor_say(doctor, FLYT_VERDICT_WARN, "clock", "run a time service (chrony, timesyncd)",
                        "the kernel does not know the clock to be synchronised");
    else
        flyt_doctor_say(doctor, FLYT_VERDICT_OK, "clock", "", "the clock is synchronised");
}

static void look_at_validity(struct flyt_doctor *doctor, const struct flyt_certificate *certificate)
{
    int64_t now = time(NULL), left_days = (certificate->ends_s - now) / SECONDS_OF_DAY;
    char ends[FLYT_NUMBER_BYTES];

    flyt_text_moment(ends, (double)certificate->ends_s * 1000);
    if (now < certificate->begins_s)
        flyt_doctor_say(doctor, FLYT_VERDICT_FAIL, "validity", "set this machine's clock",
                        "the certificate is not valid yet: this clock is at least %lld s behind the issuer's",
                        (long long)(certificate->begins_s - now));
    else if (now >= certificate->ends_s)
        flyt_doctor_say(doctor, FLYT_VERDICT_FAIL, "validity",
                        "enrol again with a new token (--join), or set the clock", "the certificate ended at %s", ends);
    else if (left_days < EXPIRY_WARN_DAYS)
        flyt_doctor_say(doctor, FLYT_VERDICT_WARN, "validity", "enrol again with a new token (--join) before that",
                        "the certificate ends at %s, in %lld days", ends, (long long)left_days);
    else
        flyt_doctor_say(doctor, FLYT_VERDICT_OK, "validity", "", "the certificate is valid until %s", ends);
}

static void look_at_identity(struct flyt_doctor *doctor, const struct flyt_certificate *certificate,
                             enum flyt_role role, const char *name)
{
    if (certificate->role == role && !strcmp(certificate->name, name))
        flyt_doctor_say(doctor, FLYT_VERDICT_OK, "identity", "", "the certificate is of %s %s, as configured",
                        flyt_role_name(role), name);
    else
        flyt_doctor_say(doctor, FLYT_VERDICT_FAIL, "identity",
                        "correct the name in the configuration, or enrol with a token for this name",
                        "the certificate is of %s %s, but this is %s %s", flyt_role_name(certificate->role),
                        certificate->name, flyt_role_name(role), name);
}

/* The files of the settings, or those that --join has written. Returns a context where they are good. */
static struct flyt_tls *look_at_certificate(struct flyt_doctor *doctor, const char *state_dir, enum flyt_role role,
                                            const char *name, bool *ret_has_files)
{
    static const char *const settings[] = {"tls.authority", "tls.certificate", "tls.key"};
    static const char *const written[] = {"authority.pem", "certificate.pem", "key.pem"};
    struct flyt_certificate certificate;
    struct flyt_tls *tls = NULL;
    struct flyt_error err;
    char *paths[3];

    for (int i = 0; i < 3; i++) {
        const char *set = flyt_doctor_text(doctor, settings[i], NULL);
        paths[i] = set ? flyt_text_format("%s", set) : flyt_text_format("%s/%s", state_dir, written[i]);
    }
    *ret_has_files = flyt_doctor_text(doctor, settings[1], NULL) || !access(paths[1], F_OK) || errno == EACCES;
    if (!*ret_has_files) {
        flyt_doctor_say(doctor, FLYT_VERDICT_WARN, "certificate",
                        "enrol: flytctl node|vm join-token on the cluster manager, then --join TOKEN here",
                        "there is no certificate: the cluster manager can be used over loopback only");
    } else if (flyt_certificate_read(paths[1], &certificate, &err)) {
        flyt_doctor_say(doctor, err.code == -EACCES ? FLYT_VERDICT_WARN : FLYT_VERDICT_FAIL, "certificate",
                        err.code == -EACCES ? "run flytctl doctor as root to see more" : "enrol again (--join)", "%s",
                        err.text);
    } else {
        flyt_doctor_say(doctor, FLYT_VERDICT_OK, "certificate", "", "%s can be read", paths[1]);
        look_at_validity(doctor, &certificate);
        look_at_identity(doctor, &certificate, role, name);
        const struct flyt_tls_files files = {paths[0], paths[1], paths[2]};
        if (access(paths[2], R_OK) && errno == EACCES)
            flyt_doctor_say(doctor, FLYT_VERDICT_WARN, "key", "run flytctl doctor as root to see more",
                            "%s cannot be read by this user", paths[2]);
        else if (flyt_tls_new(&files, false, &err, &tls))
            flyt_doctor_say(doctor, FLYT_VERDICT_FAIL, "key", "enrol again (--join)", "%s", err.text);
        else
            flyt_doctor_say(doctor, FLYT_VERDICT_OK, "key", "", "key, certificate and CA fit together");
    }
    for (int i = 0; i < 3; i++)
        free(paths[i]);
    return tls;
}

static void look_at_manager(struct flyt_doctor *doctor, const char *url, struct flyt_tls *tls)
{
    struct flyt_error err;

    int status = flyt_probe_null(url, FLYT_CONTROL_PROGRAM, FLYT_CONTROL_VERSION, FLYT_DOCTOR_PROBE_MS, &err);
    if (status) {
        flyt_doctor_say(doctor, FLYT_VERDICT_FAIL, "manager",
                        "is the address right, does flyt-cluster-manager run there, does a firewall stand between?",
                        "the cluster manager is not reachable: %s", err.text);
        return;
    }
    if (tls && !strncmp(url, "tcp:", 4) && flyt_probe_tls(url, tls, FLYT_DOCTOR_PROBE_MS, &err)) {
        flyt_doctor_say(doctor, FLYT_VERDICT_FAIL, "manager",
                        "compare the CAs, the clocks, and the name in the cluster manager's certificate; enrol where "
                        "it is no member",
                        "%s answers, but TLS fails: %s", url, err.text);
        return;
    }
    flyt_doctor_say(doctor, FLYT_VERDICT_OK, "manager", "", "the cluster manager at %s answers%s", url,
                    tls ? ", and TLS with it works" : "");
}

void flyt_doctor_trust(struct flyt_doctor *doctor, const char *state_dir, enum flyt_role role, const char *name)
{
    const char *managers[FLYT_DOCTOR_LIST_MAX];
    unsigned count = flyt_doctor_list(doctor, "managers", managers);
    bool has_files;

    look_at_clock(doctor);
    struct flyt_tls *tls = look_at_certificate(doctor, state_dir, role, name, &has_files);
    if (!count)
        flyt_doctor_say(doctor, role == FLYT_ROLE_VM ? FLYT_VERDICT_FAIL : FLYT_VERDICT_WARN, "manager",
                        "set managers in the configuration", "no cluster manager is configured");
    for (unsigned i = 0; i < count; i++)
        look_at_manager(doctor, managers[i], tls);
    flyt_tls_free(tls);
}
