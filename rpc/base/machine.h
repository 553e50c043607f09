/*
 * Which machine this is, as programs of other machines can tell it from theirs: by the id of its kernel's boot. A
 * virtual machine has an id of its own; a container has that of its host, and need not have its files.
 */
#ifndef FLYT_BASE_MACHINE_H
#define FLYT_BASE_MACHINE_H

#include "rpc/base/error.h"
#include "rpc/base/url.h"

/* The id of this boot, of FLYT_URL_BOOT_ID_BYTES with its NUL; empty where it cannot be read
 * (/proc/sys/kernel/random/boot_id, random(4)). Reads it each time. */
void flyt_machine_boot_id(char *ret_id);

/* 0; -EHOSTUNREACH and a sentence in *err (may be NULL): the address is a unix socket of another machine. */
int flyt_machine_check(const struct flyt_url *url, struct flyt_error *err);

#endif
