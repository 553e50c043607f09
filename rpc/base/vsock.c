#include "rpc/base/vsock.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <sys/ioctl.h>

#include "rpc/base/descriptors.h"

_Static_assert(FLYT_URL_CID_LOCAL == VMADDR_CID_LOCAL && FLYT_URL_CID_HOST == VMADDR_CID_HOST &&
                   FLYT_URL_VSOCK_ANY == VMADDR_CID_ANY && FLYT_URL_VSOCK_ANY == VMADDR_PORT_ANY,
               "url.h repeats numbers of linux/vm_sockets.h");

static uint32_t read_own_cid(void)
{
    flyt_auto_close int fd = open("/dev/vsock", O_RDONLY | O_CLOEXEC);
    uint32_t cid;

    return fd < 0 || ioctl(fd, IOCTL_VM_SOCKETS_GET_LOCAL_CID, &cid) ? FLYT_URL_VSOCK_ANY : cid;
}

/* The kernel binds to no CID that is not this machine's. */
static bool can_bind(uint32_t cid)
{
    flyt_auto_close int fd = socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const struct sockaddr_vm address = {.svm_family = AF_VSOCK, .svm_cid = cid, .svm_port = VMADDR_PORT_ANY};

    return fd >= 0 && !bind(fd, (const struct sockaddr *)&address, sizeof address);
}

void flyt_vsock_look(struct flyt_vsock_machine *ret_machine)
{
    *ret_machine = (struct flyt_vsock_machine){.own_cid = read_own_cid(), .has_loopback = can_bind(FLYT_URL_CID_LOCAL)};
}

int flyt_vsock_check(const struct flyt_vsock_machine *machine, uint32_t cid, struct flyt_error *err)
{
    bool is_guest = machine->own_cid > FLYT_URL_CID_HOST && machine->own_cid != FLYT_URL_VSOCK_ANY;

    if (cid == FLYT_URL_CID_LOCAL && !machine->has_loopback)
        return flyt_error_set(err, -EADDRNOTAVAIL,
                              "this kernel has no vsock within the machine (module vsock_loopback)");
    if (cid == FLYT_URL_CID_HOST && !is_guest)
        return flyt_error_set(
            err, -EHOSTUNREACH,
            "CID %u is a guest's host, and this machine has no vsock device of a guest, or /dev/vsock "
            "cannot be read",
            cid);
    return 0;
}

struct sockaddr_vm flyt_vsock_peer(const struct flyt_url *url)
{
    return (struct sockaddr_vm){.svm_family = AF_VSOCK,
                                .svm_cid = url->cid == FLYT_URL_VSOCK_ANY ? FLYT_URL_CID_LOCAL : url->cid,
                                .svm_port = url->port};
}

struct sockaddr_vm flyt_vsock_listener(const struct flyt_url *url)
{
    return (struct sockaddr_vm){
        .svm_family = AF_VSOCK, .svm_cid = url->cid, .svm_port = url->port ? url->port : VMADDR_PORT_ANY};
}
