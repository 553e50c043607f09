#include "cpu/server/core/print.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

#include "cpu/server/core/session.h"
#include "rpc/base/log.h"

enum {
    /* Text in the file beyond this is cut off, once it has been sent. */
    KEPT_BYTES_MAX = 1 << 20,
};

/* A sanitized build's findings are for the log, not for the program. */
static void report_sanitizer_to(int fd)
{
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_set_report_fd((void *)(intptr_t)fd);
#endif
}

/* Puts a file in memory in the place of descriptor `fd`. Appending, so that it can be cut to nothing under the driver's
 * descriptor. 0 or a negative errno. */
static int redirect(struct flyt_print_output *output, int fd)
{
    int before_fd = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    int file_fd = memfd_create("flyt-output", MFD_CLOEXEC);
    if (before_fd < 0 || file_fd < 0 || fcntl(file_fd, F_SETFL, O_APPEND) != 0 || dup2(file_fd, fd) < 0) {
        int status = -errno;
        if (before_fd >= 0)
            close(before_fd);
        if (file_fd >= 0)
            close(file_fd);
        return status;
    }
    *output = (struct flyt_print_output){.before_fd = before_fd, .fd = file_fd};
    return 0;
}

static void put_back(struct flyt_print_output *output, int fd)
{
    if (output->fd < 0)
        return;
    dup2(output->before_fd, fd);
    close(output->before_fd);
    close(output->fd);
    output->fd = -1;
}

int flyt_print_init(struct flyt_print *print)
{
    print->output.fd = print->error.fd = -1;
    int status = redirect(&print->output, STDOUT_FILENO);
    if (!status)
        status = redirect(&print->error, STDERR_FILENO);
    if (status) {
        flyt_print_fini(print);
        return status;
    }
    flyt_log_set_fd(print->error.before_fd);
    report_sanitizer_to(print->error.before_fd);
    return 0;
}

void flyt_print_fini(struct flyt_print *print)
{
    if (print->error.fd >= 0) {
        flyt_log_set_fd(STDERR_FILENO);
        report_sanitizer_to(STDERR_FILENO);
    }
    put_back(&print->output, STDOUT_FILENO);
    put_back(&print->error, STDERR_FILENO);
}

bool flyt_print_can(const void *image, uint64_t bytes)
{
    static const char printing[] = "vprintf", asserting[] = "__assertfail";
    static const unsigned char fatbin[] = {0x50, 0xed, 0x55, 0xba};
    /* What is inside a fat binary may be compressed. */
    return (bytes >= sizeof fatbin && memcmp(image, fatbin, sizeof fatbin) == 0) ||
           memmem(image, bytes, printing, sizeof printing - 1) || memmem(image, bytes, asserting, sizeof asserting - 1);
}

/* Sends what an output has gained since the last time. */
static void send_new(struct flyt_session *session, struct flyt_print_output *output, bool is_error)
{
    struct stat file;
    char text[FLYT_OUTPUT_BYTES_MAX];
    if (fstat(output->fd, &file) != 0)
        return;
    while (output->sent_bytes < (uint64_t)file.st_size) {
        ssize_t bytes = pread(output->fd, text, sizeof text, (off_t)output->sent_bytes);
        if (bytes <= 0) {
            flyt_warn("session %s: what kernels printed cannot be read: %m", session->label);
            return;
        }
        output->sent_bytes += (uint64_t)bytes;
        flyt_back_output back = {.is_error = is_error, .text = {.text_len = (u_int)bytes, .text_val = text}};
        flyt_connection_call_back(session->connection, FLYT_BACK_OUTPUT, (xdrproc_t)xdr_flyt_back_output, &back);
    }
    if (output->sent_bytes > KEPT_BYTES_MAX && ftruncate(output->fd, 0) == 0)
        output->sent_bytes = 0;
}

/*
 * The driver writes out a context's whole buffer whenever somebody synchronizes with something in it. A stream of our
 * own that never has work makes that possible without waiting for the program's.
 */
static void make_driver_write(struct flyt_session *session, struct flyt_device *device)
{
    CUresult result = flyt_device_use(device);
    if (session->fatal != CUDA_SUCCESS) {
        /* Nothing runs any more, and no stream can be made: its answer is the fatal error once more. */
        session->driver->cuCtxSynchronize();
        return;
    }
    if (result == CUDA_SUCCESS && !device->cu_idle_stream)
        result = session->driver->cuGreenCtxStreamCreate(&device->cu_idle_stream, device->partition->cu_green,
                                                         CU_STREAM_NON_BLOCKING, 0);
    if (result == CUDA_SUCCESS)
        flyt_session_check_work(session, session->driver->cuStreamSynchronize(device->cu_idle_stream));
    else
        flyt_session_check(session, result);
}

void flyt_print_flush(struct flyt_session *session)
{
    if (session->print.output.fd < 0 || !session->print.is_used)
        return;
    for (unsigned i = 0; i < session->device_count; i++)
        if (session->devices[i].is_made)
            make_driver_write(session, &session->devices[i]);
    send_new(session, &session->print.output, false);
    send_new(session, &session->print.error, true);
}
