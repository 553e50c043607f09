#include "rpc/transport/endpoint/secure_library.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

/* One instance in a process, made by whoever comes first and constant from then on. */
static struct {
    pthread_once_t once;
    bool is_loaded;
    char cause[256];
    struct flyt_secure_library table;
} instance = {.once = PTHREAD_ONCE_INIT};

static void load(void)
{
    struct flyt_error err = {0};
    /* Local: a program that has an OpenSSL of its own keeps it. What libssl needs of libcrypto comes with it. */
    void *library = dlopen("libssl.so.3", RTLD_NOW | RTLD_LOCAL);
    void *crypto = library ? dlopen("libcrypto.so.3", RTLD_NOW | RTLD_LOCAL) : NULL;

    if (!library || !crypto) {
        const char *why = dlerror();
        flyt_error_set(&err, -ENOSYS, "encryption needs OpenSSL 3 (libssl.so.3): %.160s", why ? why : "not found");
        memcpy(instance.cause, err.text, sizeof instance.cause - 1);
        return;
    }
    /* A table of function pointers is filled through void *, as dlsym's users must. */
#define X(function)                                                                                                    \
    {                                                                                                                  \
        void *address = dlsym(library, #function);                                                                     \
        if (!address)                                                                                                  \
            address = dlsym(crypto, #function);                                                                        \
        if (!address) {                                                                                                \
            strcpy(instance.cause, "encryption needs OpenSSL 3: libssl.so.3 lacks " #function);                        \
            return;                                                                                                    \
        }                                                                                                              \
        memcpy(&instance.table.function, &address, sizeof address);                                                    \
    }
    FLYT_SECURE_FUNCTIONS(X)
#undef X
    instance.is_loaded = true;
}

const struct flyt_secure_library *flyt_secure_library(struct flyt_error *err)
{
    pthread_once(&instance.once, load);
    if (instance.is_loaded)
        return &instance.table;
    flyt_error_set(err, -ENOSYS, "%s", instance.cause);
    return NULL;
}
