#include "control/flytctl/certificate.h"

#include <errno.h>
#include <openssl/asn1.h>
#include <openssl/pem.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "control/base/tls_role.h"

const char *flyt_role_name(enum flyt_role role)
{
    switch (role) {
    case FLYT_ROLE_NODE:
        return "node";
    case FLYT_ROLE_VM:
        return "vm";
    case FLYT_ROLE_OPERATOR:
        return "operator";
    case FLYT_ROLE_VIEWER:
        return "viewer";
    case FLYT_ROLE_MANAGER:
        return "manager";
    default:
        return "nobody";
    }
}

static int64_t seconds_of(const ASN1_TIME *time)
{
    struct tm parts;

    return time && ASN1_TIME_to_tm(time, &parts) == 1 ? (int64_t)timegm(&parts) : 0;
}

int flyt_certificate_read(const char *file, struct flyt_certificate *ret_certificate, struct flyt_error *err)
{
    FILE *in = fopen(file, "re");

    if (!in)
        return flyt_error_set(err, -errno, "%s: %s", file, strerror(errno));
    X509 *certificate = PEM_read_X509(in, NULL, NULL, NULL);
    fclose(in);
    if (!certificate)
        return flyt_error_set(err, -EINVAL, "%s has no certificate (PEM)", file);
    *ret_certificate = (struct flyt_certificate){.begins_s = seconds_of(X509_get0_notBefore(certificate)),
                                                 .ends_s = seconds_of(X509_get0_notAfter(certificate))};
    int status = flyt_tls_role(certificate, &ret_certificate->role, ret_certificate->name);
    X509_free(certificate);
    if (status)
        return flyt_error_set(err, -ENOTSUP, "%s: the certificate has no role of Flyt (flyt:operator:NAME …)", file);
    return 0;
}
