#include "rpc/base/machine.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "rpc/base/descriptors.h"

void flyt_machine_boot_id(char *ret_id)
{
    flyt_auto_close int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t bytes = fd < 0 ? 0 : read(fd, ret_id, FLYT_URL_BOOT_ID_BYTES - 1);

    ret_id[bytes > 0 ? bytes : 0] = 0;
    ret_id[strcspn(ret_id, "\n")] = 0;
}

int flyt_machine_check(const struct flyt_url *url, struct flyt_error *err)
{
    char boot_id[FLYT_URL_BOOT_ID_BYTES], text[FLYT_URL_TEXT_BYTES];

    if (url->scheme != FLYT_URL_UNIX || !*url->host)
        return 0;
    flyt_machine_boot_id(boot_id);
    if (!strcmp(url->host, boot_id))
        return 0;
    flyt_url_print(url, text);
    return flyt_error_set(err, -EHOSTUNREACH,
                          "address '%s': the socket is on another machine; this one's boot id is %s", text,
                          *boot_id ? boot_id : "not known");
}
