#include "control/base/name.h"

#include <arpa/inet.h>
#include <string.h>

#include "rpc/proto/control_limits.h"

#define ALPHANUMERIC "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"

bool flyt_is_address(const char *text)
{
    unsigned char address[sizeof(struct in6_addr)];

    return inet_pton(AF_INET, text, address) == 1 || inet_pton(AF_INET6, text, address) == 1;
}

bool flyt_is_name(const char *text)
{
    size_t bytes = strlen(text);

    return bytes && bytes <= FLYT_NAME_BYTES_MAX && !strspn(text, "._-@") && strspn(text, ALPHANUMERIC "._-@") == bytes;
}
