#include "cpu/server/move/out/scan.h"

#include <stdlib.h>
#include <string.h>

#include "cpu/server/move/common/own_kernel.h"

enum { THREADS = 512, BLOCKS_PER_SM = 4, NATIVE_BYTES = 4 << 20, WORD_BYTES = 8 };

/* As the kernel reads it. */
struct entry {
    uint64_t begin, end;
};

/* One scan. */
struct scan {
    const struct flyt_driver *driver;
    CUdevice cu_device;
    CUstream cu_stream;
    unsigned sms_count;
    CUlibrary cu_library;
    CUkernel cu_kernel;
    CUdeviceptr places, found; /* the kernel's variables */
    uint64_t *words;           /* where the CPU looks: NATIVE_BYTES of them */
    struct entry *entries;     /* of all places: by address, overlapping ones as one */
    uint32_t entry_count;
    unsigned char *marks; /* of the entries */
};

static int compare(const void *left, const void *right)
{
    const struct entry *a = left, *b = right;
    return a->begin < b->begin ? -1 : a->begin > b->begin;
}

/* CUDA_SUCCESS or CUDA_ERROR_OUT_OF_MEMORY. */
static CUresult make_entries(struct scan *self, const struct flyt_scan_place *places, uint32_t place_count)
{
    uint32_t count = 0;
    self->entries = calloc(place_count, sizeof *self->entries);
    self->marks = calloc(place_count, 1);
    if (!self->entries || !self->marks)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < place_count; i++)
        self->entries[i] =
            (struct entry){places[i].address, places[i].address + (places[i].bytes ? places[i].bytes : 1)};
    qsort(self->entries, place_count, sizeof *self->entries, compare);
    for (uint32_t i = 0; i < place_count; i++) {
        struct entry *last = count ? &self->entries[count - 1] : NULL;
        if (!last || self->entries[i].begin >= last->end)
            self->entries[count++] = self->entries[i];
        else if (self->entries[i].end > last->end)
            last->end = self->entries[i].end;
    }
    self->entry_count = count;
    return CUDA_SUCCESS;
}

/* The last entry that begins at the address or before it and has it inside; -1: none. */
static int64_t entry_of(const struct entry *entries, uint32_t count, uint64_t address)
{
    uint32_t low = 0, high = count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (entries[middle].begin > address)
            high = middle;
        else
            low = middle + 1;
    }
    return low && address < entries[low - 1].end ? (int64_t)low - 1 : -1;
}

/* ---- by the kernel ---- */

static CUresult load_kernel(struct scan *self)
{
    const struct flyt_driver *driver = self->driver;
    size_t places_bytes, found_bytes;
    CUresult result = flyt_own_kernel_load(driver, self->cu_device, FLYT_OWN_SCAN, &self->cu_library);
    if (result != CUDA_SUCCESS)
        return result;
    result = driver->cuLibraryEnumerateKernels(&self->cu_kernel, 1, self->cu_library);
    if (result == CUDA_SUCCESS)
        result = driver->cuLibraryGetGlobal(&self->places, &places_bytes, self->cu_library, "flyt_scan_places");
    if (result == CUDA_SUCCESS)
        result = driver->cuLibraryGetGlobal(&self->found, &found_bytes, self->cu_library, "flyt_scan_found");
    if (result == CUDA_SUCCESS &&
        (places_bytes != FLYT_SCAN_PLACES_MAX * sizeof(struct entry) || found_bytes != FLYT_SCAN_PLACES_MAX))
        result = CUDA_ERROR_INVALID_IMAGE;
    return result;
}

static CUresult launch(const struct scan *self, uint64_t address, uint64_t words, const struct entry *entries,
                       uint32_t count)
{
    uint64_t first = entries[0].begin, span = entries[count - 1].end - first;
    void *params[] = {&address, &words, &first, &span, &count};
    uint64_t blocks = (words + THREADS - 1) / THREADS;
    if (blocks > (uint64_t)self->sms_count * BLOCKS_PER_SM)
        blocks = (uint64_t)self->sms_count * BLOCKS_PER_SM;
    return self->driver->cuLaunchKernel((CUfunction)self->cu_kernel, (unsigned)blocks, 1, 1, THREADS, 1, 1, 0,
                                        self->cu_stream, params, NULL);
}

/* The words of a range that are whole and aligned. */
static uint64_t words_of(const struct flyt_scan_range *range, uint64_t *ret_address)
{
    uint64_t begin = (range->address + WORD_BYTES - 1) / WORD_BYTES * WORD_BYTES, end = range->address + range->bytes;
    *ret_address = begin;
    return end > begin ? (end - begin) / WORD_BYTES : 0;
}

/* One pass for up to FLYT_SCAN_PLACES_MAX entries. */
static CUresult look_with_kernel(const struct scan *self, const struct flyt_scan_range *ranges, uint32_t range_count,
                                 uint32_t first, uint32_t count)
{
    const struct flyt_driver *driver = self->driver;
    CUresult result =
        driver->cuMemcpyHtoDAsync(self->places, self->entries + first, count * sizeof(struct entry), self->cu_stream);
    if (result == CUDA_SUCCESS)
        result = driver->cuMemsetD8Async(self->found, 0, FLYT_SCAN_PLACES_MAX, self->cu_stream);
    for (uint32_t i = 0; i < range_count && result == CUDA_SUCCESS; i++) {
        uint64_t address, words = words_of(&ranges[i], &address);
        if (words)
            result = launch(self, address, words, self->entries + first, count);
    }
    if (result == CUDA_SUCCESS)
        result = driver->cuMemcpyDtoHAsync(self->marks + first, self->found, count, self->cu_stream);
    /* In any case: the copies read and write what is freed afterwards. */
    CUresult waited = driver->cuStreamSynchronize(self->cu_stream);
    return result == CUDA_SUCCESS ? waited : result;
}

/* ---- by the CPU ---- */

static void look_at(const struct scan *self, const uint64_t *words, uint64_t count)
{
    uint64_t first = self->entries[0].begin, span = self->entries[self->entry_count - 1].end - first;
    for (uint64_t i = 0; i < count; i++) {
        if (words[i] - first > span)
            continue;
        for (uint64_t back = 0; back < 2; back++) { /* it may be the address of the end */
            int64_t entry = entry_of(self->entries, self->entry_count, words[i] - back);
            if (entry >= 0)
                self->marks[entry] = 1;
        }
    }
}

static CUresult look_natively(const struct scan *self, const struct flyt_scan_range *ranges, uint32_t range_count)
{
    CUresult result = CUDA_SUCCESS;
    for (uint32_t i = 0; i < range_count; i++) {
        uint64_t address, words = words_of(&ranges[i], &address);
        for (uint64_t done = 0, count; done < words && result == CUDA_SUCCESS; done += count) {
            count = words - done < NATIVE_BYTES / WORD_BYTES ? words - done : NATIVE_BYTES / WORD_BYTES;
            result = self->driver->cuMemcpyDtoHAsync(self->words, address + done * WORD_BYTES, count * WORD_BYTES,
                                                     self->cu_stream);
            CUresult waited = self->driver->cuStreamSynchronize(self->cu_stream);
            if (result == CUDA_SUCCESS)
                result = waited;
            if (result == CUDA_SUCCESS)
                look_at(self, self->words, count);
        }
    }
    return result;
}

/* ---- either ---- */

static CUresult look(struct scan *self, const struct flyt_scan_range *ranges, uint32_t range_count)
{
    if (self->driver->is_soft) {
        self->words = malloc(NATIVE_BYTES);
        return self->words ? look_natively(self, ranges, range_count) : CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = load_kernel(self);
    for (uint32_t first = 0, count; first < self->entry_count && result == CUDA_SUCCESS; first += count) {
        count = self->entry_count - first < FLYT_SCAN_PLACES_MAX ? self->entry_count - first : FLYT_SCAN_PLACES_MAX;
        result = look_with_kernel(self, ranges, range_count, first, count);
    }
    return result;
}

CUresult flyt_scan(const struct flyt_driver *driver, CUdevice cu_device, const struct flyt_scan_range *ranges,
                   uint32_t range_count, struct flyt_scan_place *places, uint32_t place_count, unsigned sms_count,
                   CUstream cu_stream)
{
    struct scan self = {.driver = driver, .cu_device = cu_device, .cu_stream = cu_stream, .sms_count = sms_count};
    if (!place_count || !range_count)
        return CUDA_SUCCESS;
    CUresult result = make_entries(&self, places, place_count);
    if (result == CUDA_SUCCESS)
        result = look(&self, ranges, range_count);
    for (uint32_t i = 0; i < place_count && result == CUDA_SUCCESS; i++)
        places[i].is_referenced |= self.marks[entry_of(self.entries, self.entry_count, places[i].address)] != 0;
    if (self.cu_library) {
        CUresult unloaded = flyt_own_kernel_unload(driver, self.cu_library);
        if (result == CUDA_SUCCESS)
            result = unloaded;
    }
    free(self.words);
    free(self.entries);
    free(self.marks);
    return result;
}
