/* Certificates made: requests of nodes, VMs and operators, and what the manager signs for them. */
#include "control/base/tls.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include "control/base/tls_role.h"

enum { CLOCKS_DIFFER_S = 300, SERIAL_BITS = 159, VALID_DAYS_MAX = 36500, COMMON_NAME_MAX = 64 };

static const char *last_reason(void)
{
    const char *reason = ERR_reason_error_string(ERR_peek_last_error());

    return reason ? reason : "out of memory";
}

/* What was written to a BIO as a string of its own. */
static char *take_text(BIO *bio)
{
    char *data;
    long bytes = BIO_get_mem_data(bio, &data);
    char *text = bytes > 0 ? strndup(data, (size_t)bytes) : NULL;

    return text;
}

/* The URI and nothing else as subject alternative name. The API, not its configuration language: nothing is parsed. */
static GENERAL_NAMES *alternative_names(const char *uri)
{
    GENERAL_NAMES *names = GENERAL_NAMES_new();
    GENERAL_NAME *name = GENERAL_NAME_new();
    ASN1_IA5STRING *text = ASN1_IA5STRING_new();

    if (!names || !name || !text || !ASN1_STRING_set(text, uri, -1)) {
        ASN1_IA5STRING_free(text);
        GENERAL_NAME_free(name);
        GENERAL_NAMES_free(names);
        return NULL;
    }
    GENERAL_NAME_set0_value(name, GEN_URI, text);
    if (!sk_GENERAL_NAME_push(names, name)) {
        GENERAL_NAME_free(name);
        GENERAL_NAMES_free(names);
        return NULL;
    }
    return names;
}

/* RFC 5280 bounds a common name; a longer one is cut: only the URI counts. */
static int set_subject(X509_NAME *subject, const char *name)
{
    char cut[COMMON_NAME_MAX + 1];

    snprintf(cut, sizeof cut, "%s", name);
    return X509_NAME_add_entry_by_NID(subject, NID_commonName, MBSTRING_ASC, (const unsigned char *)cut, -1, -1, 0);
}

/* ---- requests ---- */

/* uri NULL: it does not say for whom it is. */
static X509_REQ *request_new(EVP_PKEY *key, const char *name, const char *uri)
{
    X509_REQ *request = X509_REQ_new();
    GENERAL_NAMES *names = uri ? alternative_names(uri) : NULL;
    STACK_OF(X509_EXTENSION) *extensions = NULL;

    bool is_good = request && X509_REQ_set_version(request, X509_REQ_VERSION_1) &&
                   set_subject(X509_REQ_get_subject_name(request), name) && X509_REQ_set_pubkey(request, key);
    if (is_good && uri)
        is_good = names && X509V3_add1_i2d(&extensions, NID_subject_alt_name, names, 0, 0) == 1 &&
                  X509_REQ_add_extensions(request, extensions);
    is_good = is_good && X509_REQ_sign(request, key, EVP_sha256()) > 0;
    sk_X509_EXTENSION_pop_free(extensions, X509_EXTENSION_free);
    GENERAL_NAMES_free(names);
    if (is_good)
        return request;
    X509_REQ_free(request);
    return NULL;
}

static char *key_text(EVP_PKEY *key)
{
    BIO *bio = BIO_new(BIO_s_secmem());
    char *text = bio && PEM_write_bio_PrivateKey(bio, key, NULL, NULL, 0, NULL, NULL) ? take_text(bio) : NULL;

    BIO_free(bio);
    return text;
}

int flyt_tls_request(enum flyt_role role, const char *name, struct flyt_error *err, char **ret_key,
                     unsigned char **ret_request, size_t *ret_request_bytes)
{
    char *uri = name ? flyt_tls_role_uri(role, name) : NULL;

    if (name && !uri)
        return flyt_error_set(err, -EINVAL, "'%s' cannot be the name in a certificate", name);
    ERR_clear_error();
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509_REQ *request = key ? request_new(key, name ? name : "joining", uri) : NULL;
    unsigned char *encoded = NULL, *copy = NULL;
    int bytes = request ? i2d_X509_REQ(request, &encoded) : -1;
    char *text = bytes > 0 ? key_text(key) : NULL;
    if (text)
        copy = malloc((size_t)bytes);
    int status = 0;
    if (copy) {
        memcpy(copy, encoded, (size_t)bytes);
        *ret_key = text;
        *ret_request = copy;
        *ret_request_bytes = (size_t)bytes;
    } else {
        free(text);
        status = flyt_error_set(err, -ENOMEM, "cannot make a certificate request: %s", last_reason());
    }
    OPENSSL_free(encoded);
    X509_REQ_free(request);
    EVP_PKEY_free(key);
    free(uri);
    return status;
}

/* ---- signing ---- */

static X509 *read_certificate(const char *file, struct flyt_error *err)
{
    BIO *bio = BIO_new_file(file, "r");

    ERR_clear_error();
    X509 *certificate = bio ? PEM_read_bio_X509(bio, NULL, NULL, NULL) : NULL;
    if (!bio)
        flyt_error_set(err, errno ? -errno : -EIO, "cannot read '%s': %m", file);
    else if (!certificate)
        flyt_error_set(err, -EINVAL, "'%s' has no certificate: %s", file, last_reason());
    BIO_free(bio);
    return certificate;
}

static EVP_PKEY *read_key(const char *file, struct flyt_error *err)
{
    struct stat info;

    if (stat(file, &info)) {
        flyt_error_set(err, -errno, "cannot read the key '%s': %m", file);
        return NULL;
    }
    if (info.st_mode & 077) {
        flyt_error_set(err, -EACCES, "the key '%s' can be read by others: chmod 600 it", file);
        return NULL;
    }
    BIO *bio = BIO_new_file(file, "r");
    EVP_PKEY *key = bio ? PEM_read_bio_PrivateKey(bio, NULL, NULL, NULL) : NULL;
    if (!key)
        flyt_error_set(err, -EINVAL, "cannot read the key '%s': %s", file, last_reason());
    BIO_free(bio);
    return key;
}

/* The request's key, where its owner has it and it is of our curve. It is borrowed from the request. */
static EVP_PKEY *requested_key(X509_REQ *request)
{
    char group[32] = "";
    EVP_PKEY *key = X509_REQ_get0_pubkey(request);

    if (!key || X509_REQ_verify(request, key) != 1 || !EVP_PKEY_is_a(key, "EC") ||
        !EVP_PKEY_get_group_name(key, group, sizeof group, NULL) || strcmp(group, "prime256v1"))
        return NULL;
    return key;
}

static int set_random_serial(X509 *certificate)
{
    BIGNUM *number = BN_new();
    /* The highest bit is set: never 0, always 20 bytes, never negative. */
    int is_good = number && BN_rand(number, SERIAL_BITS, BN_RAND_TOP_ONE, BN_RAND_BOTTOM_ANY) &&
                  BN_to_ASN1_INTEGER(number, X509_get_serialNumber(certificate));

    BN_free(number);
    return is_good;
}

static int add_extension(X509 *certificate, X509V3_CTX *context, int nid, const char *value)
{
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, context, nid, value);
    int is_good = extension && X509_add_ext(certificate, extension, -1);

    X509_EXTENSION_free(extension);
    return is_good;
}

static int add_extensions(X509 *certificate, X509 *authority, const char *uri)
{
    X509V3_CTX context;
    GENERAL_NAMES *names = alternative_names(uri);
    int is_good = names && X509_add1_ext_i2d(certificate, NID_subject_alt_name, names, 0, X509V3_ADD_DEFAULT) == 1;

    GENERAL_NAMES_free(names);
    X509V3_set_ctx_nodb(&context);
    X509V3_set_ctx(&context, authority, certificate, NULL, NULL, 0);
    return is_good && add_extension(certificate, &context, NID_basic_constraints, "critical,CA:FALSE") &&
           add_extension(certificate, &context, NID_key_usage, "critical,digitalSignature") &&
           add_extension(certificate, &context, NID_ext_key_usage, "clientAuth") &&
           add_extension(certificate, &context, NID_subject_key_identifier, "hash") &&
           add_extension(certificate, &context, NID_authority_key_identifier, "keyid:always");
}

static X509 *certificate_new(X509 *authority, EVP_PKEY *authority_key, EVP_PKEY *key, const char *name, const char *uri,
                             unsigned valid_days)
{
    X509 *certificate = X509_new();

    if (certificate && X509_set_version(certificate, X509_VERSION_3) && set_random_serial(certificate) &&
        X509_set_issuer_name(certificate, X509_get_subject_name(authority)) &&
        set_subject(X509_get_subject_name(certificate), name) && X509_set_pubkey(certificate, key) &&
        X509_gmtime_adj(X509_getm_notBefore(certificate), -CLOCKS_DIFFER_S) &&
        X509_time_adj_ex(X509_getm_notAfter(certificate), (int)valid_days, 0, NULL) &&
        add_extensions(certificate, authority, uri) && X509_sign(certificate, authority_key, EVP_sha256()) > 0)
        return certificate;
    X509_free(certificate);
    return NULL;
}

/* The certificate as text, and behind it the authority's where that is an intermediate one. */
static char *chain_text(X509 *certificate, X509 *authority)
{
    BIO *bio = BIO_new(BIO_s_mem());
    bool is_root = X509_check_issued(authority, authority) == X509_V_OK;
    bool is_good = bio && PEM_write_bio_X509(bio, certificate) && (is_root || PEM_write_bio_X509(bio, authority));
    char *text = is_good ? take_text(bio) : NULL;

    BIO_free(bio);
    return text;
}

static int sign(X509 *authority, EVP_PKEY *authority_key, X509_REQ *request, enum flyt_role role, const char *name,
                unsigned valid_days, struct flyt_error *err, char **ret_certificates, char **ret_serial)
{
    char serial[64];
    EVP_PKEY *key = requested_key(request);

    if (!key)
        return flyt_error_set(err, -EINVAL, "the request is not signed by its own key on the curve P-256");
    if (X509_check_private_key(authority, authority_key) != 1)
        return flyt_error_set(err, -EINVAL, "the CA's key does not belong to its certificate");
    char *uri = flyt_tls_role_uri(role, name);
    if (!uri)
        return flyt_error_set(err, -EINVAL, "'%s' cannot be the name in a certificate", name);
    X509 *certificate = certificate_new(authority, authority_key, key, name, uri, valid_days);
    free(uri);
    char *text = certificate ? chain_text(certificate, authority) : NULL;
    char *serial_text = text && !flyt_tls_serial(certificate, serial) ? strdup(serial) : NULL;
    X509_free(certificate);
    if (!serial_text) {
        free(text);
        return flyt_error_set(err, -ENOMEM, "cannot sign a certificate for '%s': %s", name, last_reason());
    }
    *ret_certificates = text;
    *ret_serial = serial_text;
    return 0;
}

int flyt_tls_sign(const char *authority_file, const char *authority_key_file, const unsigned char *request,
                  size_t request_bytes, enum flyt_role role, const char *name, unsigned valid_days,
                  struct flyt_error *err, char **ret_certificates, char **ret_serial)
{
    struct flyt_error cause = {0};
    const unsigned char *end = request;

    if (!valid_days || valid_days > VALID_DAYS_MAX || request_bytes > FLYT_CERTIFICATE_BYTES_MAX)
        return flyt_error_set(err, -EINVAL, "the request is too long, or the days are not 1–%d", VALID_DAYS_MAX);
    if (role == FLYT_ROLE_MANAGER || role == FLYT_ROLE_ANONYMOUS)
        return flyt_error_set(err, -EINVAL, "this role cannot enrol");
    ERR_clear_error();
    X509_REQ *asked = d2i_X509_REQ(NULL, &end, (long)request_bytes);
    if (!asked || end != request + request_bytes) {
        X509_REQ_free(asked);
        return flyt_error_set(err, -EINVAL, "this is no certificate request");
    }
    X509 *authority = read_certificate(authority_file, &cause);
    EVP_PKEY *authority_key = authority ? read_key(authority_key_file, &cause) : NULL;
    int status = authority_key ? sign(authority, authority_key, asked, role, name, valid_days, &cause, ret_certificates,
                                      ret_serial)
                               : cause.code;
    EVP_PKEY_free(authority_key);
    X509_free(authority);
    X509_REQ_free(asked);
    return status ? flyt_error_set(err, status, "%s", cause.text) : 0;
}

int flyt_tls_request_role(const unsigned char *request, size_t request_bytes, enum flyt_role *ret_role, char *ret_name)
{
    X509_REQ *asked =
        request_bytes <= FLYT_CERTIFICATE_BYTES_MAX ? d2i_X509_REQ(NULL, &request, (long)request_bytes) : NULL;
    int status = asked ? flyt_tls_role_of_request(asked, ret_role, ret_name) : -ENOENT;

    X509_REQ_free(asked);
    return status;
}

/* NULL: it is good; else why not. */
static const char *verify(const char *authority_file, X509 *certificate, STACK_OF(X509) * others)
{
    X509_STORE *trusted = X509_STORE_new();
    X509_STORE_CTX *context = X509_STORE_CTX_new();
    const char *reason = "out of memory";

    if (trusted && context && X509_STORE_load_file(trusted, authority_file) != 1)
        reason = "the CA's file cannot be read";
    else if (trusted && context && X509_STORE_CTX_init(context, trusted, certificate, others) == 1 &&
             X509_STORE_CTX_set_purpose(context, X509_PURPOSE_SSL_CLIENT) == 1)
        reason =
            X509_verify_cert(context) == 1 ? NULL : X509_verify_cert_error_string(X509_STORE_CTX_get_error(context));
    X509_STORE_CTX_free(context);
    X509_STORE_free(trusted);
    return reason;
}

int flyt_tls_read_member(const char *authority_file, const void *data, size_t bytes, struct flyt_error *err,
                         enum flyt_role *ret_role, char *ret_name, char ret_serial[64])
{
    BIO *bio = bytes <= FLYT_CERTIFICATE_BYTES_MAX ? BIO_new_mem_buf(data, (int)bytes) : NULL;
    X509 *certificate = bio ? PEM_read_bio_X509(bio, NULL, NULL, NULL) : NULL, *other;
    STACK_OF(X509) *others = sk_X509_new_null();
    int status = 0;

    while (certificate && others && (other = PEM_read_bio_X509(bio, NULL, NULL, NULL)))
        if (!sk_X509_push(others, other))
            X509_free(other);
    const char *reason = certificate && others ? verify(authority_file, certificate, others) : NULL;
    if (!certificate || !others)
        status = flyt_error_set(err, -EINVAL, "this is no certificate (PEM)");
    else if (reason)
        status = flyt_error_set(err, -EACCES, "the certificate is not one of this cluster's CA: %s", reason);
    else if (flyt_tls_role(certificate, ret_role, ret_name) || flyt_tls_serial(certificate, ret_serial))
        status = flyt_error_set(err, -EINVAL, "the certificate says no role (flyt:node:…), or has no serial number");
    sk_X509_pop_free(others, X509_free);
    X509_free(certificate);
    BIO_free(bio);
    ERR_clear_error();
    return status;
}

int flyt_tls_fingerprint(const char *file, struct flyt_error *err, unsigned char ret_hash[32])
{
    struct flyt_error cause = {0};
    unsigned char hash[EVP_MAX_MD_SIZE];
    X509 *certificate = read_certificate(file, &cause);
    int is_good = certificate && X509_digest(certificate, EVP_sha256(), hash, NULL);

    if (certificate && !is_good)
        flyt_error_set(&cause, -ENOMEM, "out of memory");
    X509_free(certificate);
    if (!is_good)
        return flyt_error_set(err, cause.code, "%s", cause.text);
    memcpy(ret_hash, hash, 32);
    return 0;
}
