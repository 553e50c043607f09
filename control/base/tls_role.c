#include "control/base/tls_role.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <openssl/x509v3.h>

enum { SERIAL_BYTES_MAX = 20 };

static const char scheme[] = "flyt:";

static const struct kind {
    const char *word;
    enum flyt_role role;
} kinds[] = {
    {"node", FLYT_ROLE_NODE},     {"vm", FLYT_ROLE_VM},           {"operator", FLYT_ROLE_OPERATOR},
    {"viewer", FLYT_ROLE_VIEWER}, {"manager", FLYT_ROLE_MANAGER},
};
enum { KIND_COUNT = sizeof kinds / sizeof kinds[0] };

static bool is_good_name(const char *name)
{
    size_t bytes = strlen(name);

    for (size_t i = 0; i < bytes; i++) {
        if (!isalnum((unsigned char)name[i]) && !strchr("._:@-", name[i]))
            return false;
    }
    return bytes && bytes <= FLYT_NAME_BYTES_MAX;
}

/* A role that the text, which begins with the scheme, says. */
static int parse(const char *text, enum flyt_role *ret_role, char *ret_name)
{
    const char *kind = text + strlen(scheme), *colon = strchr(kind, ':');

    if (!colon || !is_good_name(colon + 1))
        return -ENOENT;
    for (unsigned i = 0; i < KIND_COUNT; i++) {
        if (strlen(kinds[i].word) == (size_t)(colon - kind) && !strncmp(kinds[i].word, kind, (size_t)(colon - kind))) {
            *ret_role = kinds[i].role;
            snprintf(ret_name, FLYT_NAME_BYTES_MAX + 1, "%s", colon + 1);
            return 0;
        }
    }
    return -ENOENT;
}

/* Takes over the names. */
static int role_of(GENERAL_NAMES *names, enum flyt_role *ret_role, char *ret_name)
{
    unsigned count = 0;
    int status = -ENOENT;

    for (int i = 0; names && i < sk_GENERAL_NAME_num(names); i++) {
        const GENERAL_NAME *name = sk_GENERAL_NAME_value(names, i);
        if (name->type != GEN_URI)
            continue;
        const char *text = (const char *)ASN1_STRING_get0_data(name->d.uniformResourceIdentifier);
        if (strncmp(text, scheme, strlen(scheme)))
            continue;
        count++;
        if ((size_t)ASN1_STRING_length(name->d.uniformResourceIdentifier) != strlen(text)) /* a NUL would cut it */
            status = -ENOENT;
        else
            status = parse(text, ret_role, ret_name);
    }
    GENERAL_NAMES_free(names);
    return count == 1 ? status : -ENOENT;
}

int flyt_tls_role(const X509 *certificate, enum flyt_role *ret_role, char *ret_name)
{
    return role_of(X509_get_ext_d2i(certificate, NID_subject_alt_name, NULL, NULL), ret_role, ret_name);
}

int flyt_tls_role_of_request(X509_REQ *request, enum flyt_role *ret_role, char *ret_name)
{
    STACK_OF(X509_EXTENSION) *extensions = X509_REQ_get_extensions(request);
    GENERAL_NAMES *names = X509V3_get_d2i(extensions, NID_subject_alt_name, NULL, NULL);

    sk_X509_EXTENSION_pop_free(extensions, X509_EXTENSION_free);
    return role_of(names, ret_role, ret_name);
}

char *flyt_tls_role_uri(enum flyt_role role, const char *name)
{
    char *uri;

    for (unsigned i = 0; i < KIND_COUNT && is_good_name(name); i++) {
        if (kinds[i].role == role)
            return asprintf(&uri, "%s%s:%s", scheme, kinds[i].word, name) < 0 ? NULL : uri;
    }
    return NULL;
}

int flyt_tls_serial(const X509 *certificate, char ret_text[64])
{
    const ASN1_INTEGER *serial = X509_get0_serialNumber(certificate);
    int bytes = ASN1_STRING_length(serial);
    const unsigned char *data = ASN1_STRING_get0_data(serial);

    if (bytes < 1 || bytes > SERIAL_BYTES_MAX || ASN1_STRING_type(serial) != V_ASN1_INTEGER)
        return -EINVAL;
    for (int i = 0; i < bytes; i++)
        snprintf(ret_text + 2 * i, 3, "%02x", data[i]);
    return 0;
}
