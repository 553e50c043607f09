#include "cpu/server/move/in/load_variables.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/server/core/driver.h"
#include "cpu/server/core/session.h"
#include "rpc/base/fault_point.h"

enum { ALIGN = 16 };

static int driver_failed(const char *symbol, CUresult result, struct flyt_error *err)
{
    return flyt_error_set(err, result == CUDA_ERROR_OUT_OF_MEMORY ? -ENOMEM : -EIO,
                          "the variable %s cannot be written, cuda_result=%d", symbol, (int)result);
}

static CUresult make_buffer(const struct flyt_driver *driver, unsigned char **buffer)
{
    void *memory;
    if (*buffer)
        return CUDA_SUCCESS;
    CUresult result = driver->cuMemHostAlloc(&memory, FLYT_LOAD_VARIABLES_ROOM, CU_MEMHOSTALLOC_PORTABLE);
    if (result == CUDA_SUCCESS)
        *buffer = memory;
    return result;
}

static bool overlaps(const struct flyt_load_variables *self, CUdeviceptr address, uint64_t bytes)
{
    for (unsigned i = 0; i < self->count; i++)
        if (address < self->pieces[i].address + self->pieces[i].bytes && self->pieces[i].address < address + bytes)
            return true;
    return false;
}

int flyt_load_variables_room(struct flyt_load_variables *self, CUdeviceptr address, uint64_t bytes,
                             unsigned char **ret_place, struct flyt_error *err)
{
    const struct flyt_driver *driver = self->session->driver;
    if (self->count == FLYT_LOAD_VARIABLES_PIECES_MAX || bytes > FLYT_LOAD_VARIABLES_ROOM - self->used_bytes ||
        overlaps(self, address, bytes)) {
        int status = flyt_load_variables_settle(self, err);
        if (status)
            return status;
    }
    CUresult result = make_buffer(driver, &self->written);
    if (result == CUDA_SUCCESS)
        result = make_buffer(driver, &self->read);
    if (result != CUDA_SUCCESS)
        return flyt_error_set(err, -ENOMEM, "there is no page-locked memory for variables, cuda_result=%d",
                              (int)result);
    *ret_place = self->written + self->used_bytes;
    return 0;
}

int flyt_load_variables_write(struct flyt_load_variables *self, unsigned ordinal, CUdeviceptr address, uint64_t bytes,
                              const char *symbol, struct flyt_error *err)
{
    struct flyt_load_piece *piece = &self->pieces[self->count];
    *piece = (struct flyt_load_piece){address, self->used_bytes, bytes, ordinal, strdup(symbol)};
    if (!piece->symbol)
        return flyt_error_set(err, -ENOMEM, "out of host memory");
    self->count++;
    self->used_bytes += (bytes + ALIGN - 1) / ALIGN * ALIGN;
    CUresult result =
        self->session->driver->cuMemcpyHtoDAsync(address, self->written + piece->offset_bytes, bytes, NULL);
    return result == CUDA_SUCCESS ? 0 : driver_failed(symbol, result, err);
}

static CUresult enter(const struct flyt_load_variables *self, unsigned ordinal)
{
    self->session->current_device = NULL;
    return self->session->driver->cuCtxSetCurrent(self->session->devices[ordinal].cu_primary);
}

/* All pieces of the first one's device, which are neighbours: begins to read them back, and waits for it. Returns the
 * number of the one behind them. */
static unsigned read_back(struct flyt_load_variables *self, unsigned first, CUresult *ret_result)
{
    const struct flyt_driver *driver = self->session->driver;
    const unsigned ordinal = self->pieces[first].ordinal;
    unsigned n = first;
    CUresult result = enter(self, ordinal), waited;
    for (; n < self->count && self->pieces[n].ordinal == ordinal; n++)
        if (result == CUDA_SUCCESS)
            result = driver->cuMemcpyDtoHAsync(self->read + self->pieces[n].offset_bytes, self->pieces[n].address,
                                               self->pieces[n].bytes, NULL);
    waited = driver->cuStreamSynchronize(NULL);
    *ret_result = result == CUDA_SUCCESS ? waited : result;
    return n;
}

static int compare(const struct flyt_load_variables *self, const struct flyt_load_piece *piece, struct flyt_error *err)
{
    if (flyt_fault_point("prepare.variable") == FLYT_FAULT_ERROR)
        self->read[piece->offset_bytes] ^= 1;
    if (memcmp(self->read + piece->offset_bytes, self->written + piece->offset_bytes, piece->bytes) == 0)
        return 0;
    return flyt_error_set(err, -EIO, "what arrived differs: the variable %s is not what was written", piece->symbol);
}

static void forget(struct flyt_load_variables *self)
{
    while (self->count)
        free(self->pieces[--self->count].symbol);
    self->used_bytes = 0;
}

int flyt_load_variables_settle(struct flyt_load_variables *self, struct flyt_error *err)
{
    int status = 0;
    for (unsigned first = 0, end; first < self->count && !status; first = end) {
        CUresult result;
        end = read_back(self, first, &result);
        if (result != CUDA_SUCCESS)
            status = driver_failed(self->pieces[first].symbol, result, err);
        for (unsigned n = first; n < end && !status; n++)
            status = compare(self, &self->pieces[n], err);
    }
    if (!status)
        forget(self);
    return status;
}

void flyt_load_variables_end(struct flyt_load_variables *self)
{
    const struct flyt_driver *driver = self->session->driver;
    for (unsigned n = 0; n < self->count; n++)
        if (!n || self->pieces[n].ordinal != self->pieces[n - 1].ordinal)
            if (enter(self, self->pieces[n].ordinal) == CUDA_SUCCESS)
                driver->cuStreamSynchronize(NULL);
    forget(self);
    if (self->written)
        driver->cuMemFreeHost(self->written);
    if (self->read)
        driver->cuMemFreeHost(self->read);
    self->written = self->read = NULL;
}
