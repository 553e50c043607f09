#include "rpc/base/url.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Whether these bytes are a whole decimal number of at most `maximum`. */
static bool parse_number(const char *digits, size_t bytes, uint32_t maximum, uint32_t *ret_number)
{
    uint64_t number = 0;

    if (!bytes)
        return false;
    for (size_t i = 0; i < bytes; i++) {
        if (!isdigit((unsigned char)digits[i]))
            return false;
        number = number * 10 + (unsigned)(digits[i] - '0');
        if (number > maximum)
            return false;
    }
    *ret_number = (uint32_t)number;
    return true;
}

static int parse_tcp(const char *text, const char *rest, struct flyt_error *err, struct flyt_url *url)
{
    const char *host = rest, *end;

    if (*rest == '[') {
        host = rest + 1;
        end = strchr(host, ']');
        if (!end)
            return flyt_error_set(err, -EINVAL, "address '%s': the bracket before the IPv6 address is not closed",
                                  text);
        rest = end + 1;
    } else {
        end = rest + strcspn(rest, ":/");
        rest = end;
        if (*rest == ':' && strchr(rest + 1, ':'))
            return flyt_error_set(err, -EINVAL,
                                  "address '%s': an IPv6 address is written in brackets, tcp://[ADDRESS]:PORT", text);
    }
    size_t host_bytes = (size_t)(end - host);
    if (host_bytes > FLYT_URL_HOST_BYTES_MAX)
        return flyt_error_set(err, -EINVAL, "address '%.64s…': the host is longer than %d characters", text,
                              FLYT_URL_HOST_BYTES_MAX);
    if (*rest != ':')
        return flyt_error_set(err, -EINVAL, "address '%s': no port, expected tcp://HOST:PORT", text);
    if (!parse_number(rest + 1, strlen(rest + 1), UINT16_MAX, &url->port))
        return flyt_error_set(err, -EINVAL, "address '%s': the port '%s' is not a number from 0 to 65535", text,
                              rest + 1);
    memcpy(url->host, host, host_bytes);
    return 0;
}

static int parse_vsock(const char *text, const char *rest, struct flyt_error *err, struct flyt_url *url)
{
    size_t cid_bytes = strcspn(rest, ":");
    const char *port = rest + cid_bytes;

    url->cid = FLYT_URL_VSOCK_ANY;
    if (cid_bytes && (!parse_number(rest, cid_bytes, FLYT_URL_VSOCK_ANY - 1, &url->cid) || !url->cid))
        return flyt_error_set(err, -EINVAL, "address '%.128s': the CID is not a number from 1 to %u", text,
                              FLYT_URL_VSOCK_ANY - 1);
    if (*port != ':')
        return flyt_error_set(err, -EINVAL, "address '%.128s': no port, expected vsock://CID:PORT", text);
    if (!parse_number(port + 1, strlen(port + 1), FLYT_URL_VSOCK_ANY - 1, &url->port))
        return flyt_error_set(err, -EINVAL, "address '%.128s': the port is not a number from 0 to %u", text,
                              FLYT_URL_VSOCK_ANY - 1);
    return 0;
}

/* Whether these bytes are a UUID as the kernel prints it, in lower case. */
static bool is_boot_id(const char *text, size_t bytes)
{
    if (bytes != FLYT_URL_BOOT_ID_BYTES - 1)
        return false;
    for (size_t i = 0; i < bytes; i++) {
        bool is_dash = i == 8 || i == 13 || i == 18 || i == 23;
        if (is_dash ? text[i] != '-' : !strchr("0123456789abcdef", text[i]))
            return false;
    }
    return true;
}

static int parse_unix(const char *text, const char *rest, struct flyt_error *err, struct flyt_url *url)
{
    const char *path = rest + strcspn(rest, "/");
    size_t host_bytes = (size_t)(path - rest);

    if (host_bytes && *path && !is_boot_id(rest, host_bytes))
        return flyt_error_set(err, -EINVAL,
                              "address '%.128s': no boot id stands before the path, expected unix:///PATH or "
                              "unix://BOOT_ID/PATH",
                              text);
    if (*path != '/' || !path[1])
        return flyt_error_set(err, -EINVAL, "address '%s': expected an absolute path, unix:///PATH", text);
    if (strlen(path) > FLYT_URL_PATH_BYTES_MAX)
        return flyt_error_set(err, -EINVAL,
                              "address '%.64s…': the path is longer than the %d bytes that a unix socket allows", text,
                              FLYT_URL_PATH_BYTES_MAX);
    memcpy(url->host, rest, host_bytes);
    strcpy(url->path, path);
    return 0;
}

int flyt_url_parse(const char *text, struct flyt_error *err, struct flyt_url *ret_url)
{
    struct flyt_url url = {.scheme = FLYT_URL_TCP};
    int status;

    if (!strncmp(text, "tcp://", 6)) {
        status = parse_tcp(text, text + 6, err, &url);
    } else if (!strncmp(text, "unix://", 7)) {
        url.scheme = FLYT_URL_UNIX;
        status = parse_unix(text, text + 7, err, &url);
    } else if (!strncmp(text, "vsock://", 8)) {
        url.scheme = FLYT_URL_VSOCK;
        status = parse_vsock(text, text + 8, err, &url);
    } else {
        status = flyt_error_set(err, -EINVAL,
                                "address '%.128s': expected tcp://HOST:PORT, unix:///PATH or vsock://CID:PORT", text);
    }
    if (!status)
        *ret_url = url;
    return status;
}

void flyt_url_print(const struct flyt_url *url, char *text)
{
    if (url->scheme == FLYT_URL_UNIX)
        snprintf(text, FLYT_URL_TEXT_BYTES, "unix://%.36s%s", url->host, url->path);
    else if (url->scheme == FLYT_URL_VSOCK && url->cid == FLYT_URL_VSOCK_ANY)
        snprintf(text, FLYT_URL_TEXT_BYTES, "vsock://:%u", url->port);
    else if (url->scheme == FLYT_URL_VSOCK)
        snprintf(text, FLYT_URL_TEXT_BYTES, "vsock://%u:%u", url->cid, url->port);
    else if (strchr(url->host, ':'))
        snprintf(text, FLYT_URL_TEXT_BYTES, "tcp://[%s]:%u", url->host, url->port);
    else
        snprintf(text, FLYT_URL_TEXT_BYTES, "tcp://%s:%u", url->host, url->port);
}

enum nearness { HERE, UNKNOWN, ELSEWHERE };

static enum nearness nearness_of(const char *text, const char *boot_id)
{
    struct flyt_url url;

    if (flyt_url_parse(text, NULL, &url) || url.scheme != FLYT_URL_UNIX || !*url.host)
        return UNKNOWN;
    return strcmp(url.host, boot_id) ? ELSEWHERE : HERE;
}

unsigned flyt_url_order(char *const *texts, unsigned count, const char *boot_id, char (*ret_texts)[FLYT_URL_TEXT_BYTES])
{
    unsigned used = 0;

    for (enum nearness nearness = HERE; nearness < ELSEWHERE; nearness++)
        for (unsigned i = 0; i < count; i++)
            if (nearness_of(texts[i], boot_id) == nearness)
                snprintf(ret_texts[used++], FLYT_URL_TEXT_BYTES, "%s", texts[i]);
    return used;
}
