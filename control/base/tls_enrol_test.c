/* Certificates that are made: by request and signature, by flyt-pki; join tokens; roles that are none. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include "control/base/tls.h"
#include "control/base/tls_role.h"

static char folder[] = "/tmp/flyt-enrol-XXXXXX";

/* The exit status of a command in the folder; what it says goes to "said". */
static int command(const char *text)
{
    char line[1024];

    snprintf(line, sizeof line, "cd %s && { %s; } >said 2>&1", folder, text);
    int status = system(line);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

#define pki(arguments) command("'" FLYT_PKI "' " arguments)

static const char *path(const char *file)
{
    static char paths[8][256];
    static unsigned next;
    char *text = paths[next++ % 8];

    snprintf(text, sizeof paths[0], "%s/%s", folder, file);
    return text;
}

static char *read_text(const char *file)
{
    static char text[8192];
    FILE *stream = fopen(path(file), "r");

    assert_non_null(stream);
    text[fread(text, 1, sizeof text - 1, stream)] = 0;
    fclose(stream);
    return text;
}

static void write_text(const char *file, const char *text)
{
    FILE *stream = fopen(path(file), "w");

    assert_non_null(stream);
    assert_true(fputs(text, stream) >= 0);
    assert_int_equal(fclose(stream), 0);
    assert_int_equal(chmod(path(file), 0600), 0);
}

static X509 *certificate_of(const char *pem)
{
    BIO *bio = BIO_new_mem_buf(pem, -1);
    X509 *certificate = PEM_read_bio_X509(bio, NULL, NULL, NULL);

    BIO_free(bio);
    assert_non_null(certificate);
    return certificate;
}

static int make_ca(void **state)
{
    return mkdtemp(folder) && !pki("init ca --name 'Test CA'") ? 0 : -1;
}

static int remove_ca(void **state)
{
    char line[64];

    snprintf(line, sizeof line, "rm -rf %s", folder);
    return system(line);
}

/* ---- requests and signatures ---- */

struct request {
    char *key;
    unsigned char *data;
    size_t bytes;
};

static struct request request_for(enum flyt_role role, const char *name)
{
    struct request request;
    struct flyt_error err = {0};

    if (flyt_tls_request(role, name, &err, &request.key, &request.data, &request.bytes))
        fail_msg("%s", err.text);
    return request;
}

static void request_free(struct request *request)
{
    free(request->key);
    free(request->data);
}

static int sign(const unsigned char *data, size_t bytes, enum flyt_role role, const char *name, unsigned days,
                char **ret_text, char **ret_serial)
{
    struct flyt_error err = {0};
    int status = flyt_tls_sign(path("ca/ca.pem"), path("ca/ca-key.pem"), data, bytes, role, name, days, &err, ret_text,
                               ret_serial);

    assert_true(!status == !err.text[0]);
    return status;
}

static void test_signed_certificate_says_what_the_manager_says(void **state)
{
    struct request request = request_for(FLYT_ROLE_OPERATOR, "mallory");
    char *text, *serial, own_serial[64], name[FLYT_NAME_BYTES_MAX + 1];
    enum flyt_role role;
    struct flyt_error err;
    struct flyt_tls *tls;

    assert_int_equal(sign(request.data, request.bytes, FLYT_ROLE_NODE, "n7", 10, &text, &serial), 0);
    X509 *certificate = certificate_of(text);
    assert_int_equal(flyt_tls_role(certificate, &role, name), 0);
    assert_int_equal(role, FLYT_ROLE_NODE);
    assert_string_equal(name, "n7");
    assert_int_equal(flyt_tls_serial(certificate, own_serial), 0);
    assert_string_equal(own_serial, serial);
    assert_int_equal(strlen(serial), 40);
    assert_null(strstr(text, "mallory"));
    write_text("joined.pem", text);
    write_text("joined-key.pem", request.key);
    /* openssl's own judgement, and what it shows. */
    assert_int_equal(command("openssl verify -x509_strict -purpose sslclient -CAfile ca/ca.pem joined.pem"), 0);
    assert_int_not_equal(command("openssl verify -purpose sslserver -CAfile ca/ca.pem joined.pem"), 0);
    assert_int_equal(command("openssl x509 -in joined.pem -noout -ext subjectAltName"), 0);
    assert_non_null(strstr(read_text("said"), "URI:flyt:node:n7\n"));
    assert_null(strchr(strstr(read_text("said"), "URI:"), ','));
    const struct flyt_tls_files files = {path("ca/ca.pem"), path("joined.pem"), path("joined-key.pem")};
    assert_int_equal(flyt_tls_new(&files, false, &err, &tls), 0);
    assert_in_range(flyt_tls_expires(tls), time(NULL) + 10 * 86400 - 60, time(NULL) + 10 * 86400);
    flyt_tls_free(tls);
    X509_free(certificate);
    free(text);
    free(serial);
    request_free(&request);
}

static void test_serials_differ(void **state)
{
    struct request request = request_for(FLYT_ROLE_VM, "10.0.0.7");
    char *text, *first, *second;

    assert_int_equal(sign(request.data, request.bytes, FLYT_ROLE_VM, "10.0.0.7", 1, &text, &first), 0);
    free(text);
    assert_int_equal(sign(request.data, request.bytes, FLYT_ROLE_VM, "10.0.0.7", 1, &text, &second), 0);
    assert_string_not_equal(first, second);
    free(text);
    free(first);
    free(second);
    request_free(&request);
}

static void test_bad_requests_are_not_signed(void **state)
{
    struct request request = request_for(FLYT_ROLE_NODE, "n1");
    char *text = NULL, *serial = NULL;

    for (size_t cut = 0; cut < request.bytes; cut++)
        assert_int_equal(sign(request.data, cut, FLYT_ROLE_NODE, "n1", 1, &text, &serial), -EINVAL);
    for (size_t at = 0; at < request.bytes; at++) { /* every byte is signed, or of the form */
        request.data[at] ^= 0x20;
        assert_int_not_equal(sign(request.data, request.bytes, FLYT_ROLE_NODE, "n1", 1, &text, &serial), 0);
        request.data[at] ^= 0x20;
    }
    assert_int_equal(sign(request.data, request.bytes, FLYT_ROLE_NODE, "n1", 0, &text, &serial), -EINVAL);
    assert_int_equal(sign(request.data, request.bytes, FLYT_ROLE_NODE, "n1", 40000, &text, &serial), -EINVAL);
    assert_int_equal(sign(request.data, request.bytes, FLYT_ROLE_MANAGER, "n1", 1, &text, &serial), -EINVAL);
    assert_int_equal(sign(request.data, request.bytes, FLYT_ROLE_ANONYMOUS, "n1", 1, &text, &serial), -EINVAL);
    assert_int_equal(sign(request.data, request.bytes, FLYT_ROLE_NODE, "a,URI:flyt:operator:b", 1, &text, &serial),
                     -EINVAL);
    assert_int_equal(sign(request.data, request.bytes, FLYT_ROLE_NODE, "", 1, &text, &serial), -EINVAL);
    assert_null(text);
    assert_null(serial);
    request_free(&request);
}

static void test_other_curves_are_not_signed(void **state)
{
    static unsigned char data[8192];
    char *text, *serial;

    assert_int_equal(
        command("openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-384 -nodes -keyout k -subj /CN=x "
                "-outform DER -out r"),
        0);
    FILE *stream = fopen(path("r"), "r");
    size_t bytes = fread(data, 1, sizeof data, stream);
    fclose(stream);
    assert_int_equal(sign(data, bytes, FLYT_ROLE_NODE, "n1", 1, &text, &serial), -EINVAL);
}

static void test_ca_files_that_cannot_be_used(void **state)
{
    struct request request = request_for(FLYT_ROLE_NODE, "n1");
    struct flyt_error err = {0};
    char *text, *serial;

    assert_int_equal(pki("init second"), 0);
    assert_int_equal(flyt_tls_sign(path("none"), path("ca/ca-key.pem"), request.data, request.bytes, FLYT_ROLE_NODE,
                                   "n1", 1, &err, &text, &serial),
                     -ENOENT);
    assert_int_equal(flyt_tls_sign(path("ca/ca.pem"), path("none"), request.data, request.bytes, FLYT_ROLE_NODE, "n1",
                                   1, &err, &text, &serial),
                     -ENOENT);
    assert_int_equal(flyt_tls_sign(path("ca/ca.pem"), path("second/ca-key.pem"), request.data, request.bytes,
                                   FLYT_ROLE_NODE, "n1", 1, &err, &text, &serial),
                     -EINVAL);
    assert_int_equal(chmod(path("second/ca-key.pem"), 0644), 0);
    assert_int_equal(flyt_tls_sign(path("second/ca.pem"), path("second/ca-key.pem"), request.data, request.bytes,
                                   FLYT_ROLE_NODE, "n1", 1, &err, &text, &serial),
                     -EACCES);
    assert_non_null(strstr(err.text, "chmod 600"));
    request_free(&request);
}

static void test_names_of_requests(void **state)
{
    static const char *const bad[] = {"", "a b", "a/b", "a,b", "a\nb", "\xc3\xa9"};
    struct flyt_error err;
    struct request request;
    char longest[FLYT_NAME_BYTES_MAX + 2];

    for (unsigned i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(flyt_tls_request(FLYT_ROLE_NODE, bad[i], &err, &request.key, &request.data, &request.bytes),
                         -EINVAL);
    memset(longest, 'x', sizeof longest);
    longest[FLYT_NAME_BYTES_MAX + 1] = 0;
    assert_int_equal(flyt_tls_request(FLYT_ROLE_NODE, longest, &err, &request.key, &request.data, &request.bytes),
                     -EINVAL);
    longest[FLYT_NAME_BYTES_MAX] = 0;
    request = request_for(FLYT_ROLE_NODE, longest);
    char *text, *serial, name[FLYT_NAME_BYTES_MAX + 1];
    enum flyt_role role;
    assert_int_equal(sign(request.data, request.bytes, FLYT_ROLE_NODE, longest, 1, &text, &serial), 0);
    X509 *certificate = certificate_of(text);
    assert_int_equal(flyt_tls_role(certificate, &role, name), 0);
    assert_string_equal(name, longest);
    X509_free(certificate);
    free(text);
    free(serial);
    request_free(&request);
}

/* ---- roles ---- */

static int role_of_names(const char *names, enum flyt_role *role, char *name)
{
    X509 *certificate = X509_new();
    X509V3_CTX context;

    X509V3_set_ctx_nodb(&context);
    X509V3_set_ctx(&context, certificate, certificate, NULL, NULL, 0);
    X509_EXTENSION *extension = *names ? X509V3_EXT_conf_nid(NULL, &context, NID_subject_alt_name, names) : NULL;
    if (extension)
        X509_add_ext(certificate, extension, -1);
    X509_EXTENSION_free(extension);
    int status = flyt_tls_role(certificate, role, name);
    X509_free(certificate);
    return status;
}

static void test_one_role_and_well_formed(void **state)
{
    static const char *const bad[] = {"",
                                      "DNS:flyt",
                                      "URI:http://x",
                                      "URI:flyt:node:",
                                      "URI:flyt:node",
                                      "URI:flyt:root:x",
                                      "URI:flyt:nod:x",
                                      "URI:flyt:nodes:x",
                                      "URI:FLYT:node:x",
                                      "URI:flyt:node:a b",
                                      "URI:flyt:node:x,URI:flyt:operator:x",
                                      "URI:flyt:node:x,URI:flyt:bad"};
    char name[FLYT_NAME_BYTES_MAX + 1];
    enum flyt_role role;

    for (unsigned i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(role_of_names(bad[i], &role, name), -ENOENT);
    assert_int_equal(role_of_names("DNS:a,URI:http://x,URI:flyt:vm:fe80::1,IP:10.0.0.1", &role, name), 0);
    assert_int_equal(role, FLYT_ROLE_VM);
    assert_string_equal(name, "fe80::1");
    assert_int_equal(role_of_names("URI:flyt:viewer:bob@example.org", &role, name), 0);
    assert_int_equal(role, FLYT_ROLE_VIEWER);
}

static void test_nul_in_a_role_is_refused(void **state)
{
    static const char text[] = "flyt:operator:alice\0.example";
    X509 *certificate = X509_new();
    GENERAL_NAMES *names = GENERAL_NAMES_new();
    GENERAL_NAME *one = GENERAL_NAME_new();
    ASN1_IA5STRING *uri = ASN1_IA5STRING_new();
    char name[FLYT_NAME_BYTES_MAX + 1];
    enum flyt_role role;

    assert_int_equal(ASN1_STRING_set(uri, text, sizeof text - 1), 1);
    GENERAL_NAME_set0_value(one, GEN_URI, uri);
    sk_GENERAL_NAME_push(names, one);
    assert_int_equal(X509_add1_ext_i2d(certificate, NID_subject_alt_name, names, 0, 0), 1);
    assert_int_equal(flyt_tls_role(certificate, &role, name), -ENOENT);
    GENERAL_NAMES_free(names);
    X509_free(certificate);
}

/* ---- fingerprints and tokens ---- */

static void test_fingerprint_is_openssls(void **state)
{
    unsigned char hash[32];
    char text[65];
    struct flyt_error err;

    assert_int_equal(flyt_tls_fingerprint(path("ca/ca.pem"), &err, hash), 0);
    for (unsigned i = 0; i < 32; i++)
        snprintf(text + 2 * i, 3, "%02x", hash[i]);
    assert_int_equal(pki("show ca/ca.pem"), 0);
    assert_non_null(strstr(read_text("said"), text));
    assert_int_equal(command("openssl x509 -in ca/ca.pem -outform DER | sha256sum"), 0);
    assert_non_null(strstr(read_text("said"), text));
    assert_int_equal(flyt_tls_fingerprint(path("ca/ca-key.pem"), &err, hash), -EINVAL);
    assert_int_equal(flyt_tls_fingerprint(path("none"), &err, hash), -ENOENT);
}

static void test_join_tokens(void **state)
{
    unsigned char hash[32], secret[32], back_hash[32], back_secret[32];
    char text[FLYT_JOIN_TOKEN_BYTES], other[FLYT_JOIN_TOKEN_BYTES + 2];

    for (unsigned i = 0; i < 32; i++) {
        hash[i] = (unsigned char)i;
        secret[i] = (unsigned char)(0xff - i);
    }
    flyt_join_token_make(hash, secret, text);
    /* Python: base64.urlsafe_b64encode(bytes(range(32))) and of bytes(range(255, 223, -1)), without "=". */
    assert_string_equal(text, "flyt1.AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"
                              ".__79_Pv6-fj39vX08_Lx8O_u7ezr6uno5-bl5OPi4eA");
    assert_int_equal(flyt_join_token_parse(text, back_hash, back_secret), 0);
    assert_memory_equal(hash, back_hash, 32);
    assert_memory_equal(secret, back_secret, 32);
    for (size_t cut = 0; cut < strlen(text); cut++) {
        memcpy(other, text, cut);
        other[cut] = 0;
        assert_int_equal(flyt_join_token_parse(other, back_hash, back_secret), -EINVAL);
    }
    snprintf(other, sizeof other, "%sA", text);
    assert_int_equal(flyt_join_token_parse(other, back_hash, back_secret), -EINVAL);
    for (size_t at = 0; at < strlen(text); at++) {
        strcpy(other, text);
        other[at] = '+';
        assert_int_equal(flyt_join_token_parse(other, back_hash, back_secret), -EINVAL);
    }
    strcpy(other, text);
    other[strlen(other) - 1]++; /* the same 32 bytes, with a bit behind them */
    assert_int_equal(flyt_join_token_parse(other, back_hash, back_secret), -EINVAL);
}

/* ---- flyt-pki ---- */

static void test_pki_refuses_what_it_cannot_do(void **state)
{
    static const char *const bad[] = {
        "",
        "frobnicate",
        "init",
        "init ca", /* there already */
        "init new --days x",
        "init new --name 'a/b'",
        "issue ca node",
        "issue ca root x",
        "issue ca node 'a b'",
        "issue ca node 'a,URI:flyt:operator:b'",
        "issue ca node ../x",
        "issue ca manager m1",
        "issue ca manager m1 --host 'a b'",
        "issue ca manager m1 --host",
        "issue ca node n1 --days 0",
        "issue ca node n1 --days 1000000",
        "issue ca node n1 --color red",
        "issue none node n1",
        "show none",
        "show ca/ca-key.pem",
    };
    char line[512];

    for (unsigned i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        snprintf(line, sizeof line, "'%s' %s", FLYT_PKI, bad[i]);
        if (command(line) != 2)
            fail_msg("flyt-pki %s: %s", bad[i], read_text("said"));
        assert_string_not_equal(read_text("said"), "");
    }
    assert_int_equal(pki("--help"), 0);
    assert_int_equal(pki("issue --help"), 0);
    assert_int_equal(command("ls -A ca"), 0);
    assert_string_equal(read_text("said"), "ca-key.pem\nca.pem\n"); /* nothing is left behind */
}

static void test_pki_issues_what_it_was_asked_for(void **state)
{
    assert_int_equal(pki("issue ca manager m1 --host 10.1.2.3 --host manager.example --host fd00::1 --days 7"), 0);
    assert_int_equal(command("openssl verify -x509_strict -purpose sslserver -verify_ip 10.1.2.3 -CAfile ca/ca.pem "
                             "ca/manager-m1.pem && openssl verify -verify_hostname manager.example -CAfile ca/ca.pem "
                             "ca/manager-m1.pem && openssl verify -verify_ip fd00::1 -CAfile ca/ca.pem "
                             "ca/manager-m1.pem && openssl x509 -in ca/manager-m1.pem -noout -checkend 518400 && "
                             "! openssl x509 -in ca/manager-m1.pem -noout -checkend 691200"),
                     0);
    assert_int_equal(command("! openssl verify -verify_ip 10.1.2.4 -CAfile ca/ca.pem ca/manager-m1.pem"), 0);
    assert_int_equal(command("stat -c %a ca/* | sort -u"), 0);
    assert_string_equal(read_text("said"), "600\n");
    assert_int_equal(pki("show ca/manager-m1.pem"), 0);
    assert_non_null(strstr(read_text("said"), "role         manager\n"));
    assert_non_null(strstr(read_text("said"), "10.1.2.3 manager.example "));
    assert_int_equal(pki("issue ca manager m1 --host 10.1.2.3"), 2); /* is there already */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pki_refuses_what_it_cannot_do),
        cmocka_unit_test(test_pki_issues_what_it_was_asked_for),
        cmocka_unit_test(test_signed_certificate_says_what_the_manager_says),
        cmocka_unit_test(test_serials_differ),
        cmocka_unit_test(test_bad_requests_are_not_signed),
        cmocka_unit_test(test_other_curves_are_not_signed),
        cmocka_unit_test(test_ca_files_that_cannot_be_used),
        cmocka_unit_test(test_names_of_requests),
        cmocka_unit_test(test_one_role_and_well_formed),
        cmocka_unit_test(test_nul_in_a_role_is_refused),
        cmocka_unit_test(test_fingerprint_is_openssls),
        cmocka_unit_test(test_join_tokens),
    };

    return cmocka_run_group_tests_name("tls enrol", tests, make_ca, remove_ca);
}
