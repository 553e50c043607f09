/*
 * How many processes may use the software GPU, as a GPU shared through a daemon has a number of clients.
 *
 * A slot is a byte of a file that all of them open, and whoever has it holds a lock on that byte. Such locks belong to
 * a process, not to its descriptors or children, and go with it however it ends. They would also go if the process
 * opened and closed the file once more: nobody else here does.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>

#include "cpu/softgpu/driver/driver.h"

struct flyt_soft_clients {
    pthread_mutex_t mutex;
    unsigned slot_count;
    int fd;
    bool has_slot;
};

int flyt_soft_clients_new(const char *folder, unsigned slot_count, struct flyt_soft_clients **ret_clients)
{
    struct flyt_soft_clients *clients;
    char *path;
    int status = 0;

    if (asprintf(&path, "%s/clients", folder) < 0)
        return -ENOMEM;
    clients = calloc(1, sizeof(*clients));
    if (clients) {
        clients->slot_count = slot_count;
        clients->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        if (clients->fd < 0)
            status = -errno;
        pthread_mutex_init(&clients->mutex, NULL);
    } else {
        status = -ENOMEM;
    }
    free(path);
    if (status)
        free(clients);
    else
        *ret_clients = clients;
    return status;
}

/* The first slot that nobody has. */
static CUresult slot_take_locked(struct flyt_soft_clients *clients)
{
    for (unsigned i = 0; i < clients->slot_count; i++) {
        struct flock slot = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)i, .l_len = 1};

        if (fcntl(clients->fd, F_SETLK, &slot) == 0) {
            clients->has_slot = true;
            return CUDA_SUCCESS;
        }
        if (errno != EAGAIN && errno != EACCES)
            return CUDA_ERROR_MPS_CONNECTION_FAILED;
    }
    return CUDA_ERROR_MPS_MAX_CLIENTS_REACHED;
}

CUresult flyt_soft_client_admit(struct flyt_soft_clients *clients)
{
    CUresult r = CUDA_SUCCESS;

    if (!clients)
        return CUDA_SUCCESS;
    pthread_mutex_lock(&clients->mutex);
    if (!clients->has_slot)
        r = slot_take_locked(clients);
    pthread_mutex_unlock(&clients->mutex);
    return r;
}
