#include "cpu/client/cuda/image.h"

#include <elf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "cpu/client/bulk/transfer.h"
#include "cpu/client/core/instance.h"
#include "cpu/client/core/thread.h"
#include "cpu/client/cuda/device.h"
#include "rpc/base/fatbin.h"
#include "rpc/base/sha256.h"

/* PTX begins with white space, comments or a directive; anything else that is not one of the containers is no image. */
static bool looks_like_text(const unsigned char *data)
{
    for (int i = 0; i < 4; i++)
        if (data[i] == 0)
            return i > 0;
        else if (data[i] > 0x7e || (data[i] < ' ' && !strchr("\t\n\r\f\v", data[i])))
            return false;
    return true;
}

/* Where the ELF file ends: behind the last of section headers, program headers and sections. */
static size_t elf_bytes(const unsigned char *data)
{
    Elf64_Ehdr head;
    memcpy(&head, data, sizeof head);
    if (head.e_ident[EI_CLASS] != ELFCLASS64 || head.e_shentsize != sizeof(Elf64_Shdr))
        return 0;
    uint64_t end = head.e_phoff + (uint64_t)head.e_phnum * head.e_phentsize;
    uint64_t sections_end = head.e_shoff + (uint64_t)head.e_shnum * head.e_shentsize;
    if (sections_end > end)
        end = sections_end;
    for (unsigned i = 0; i < head.e_shnum; i++) {
        Elf64_Shdr section;
        memcpy(&section, data + head.e_shoff + i * sizeof section, sizeof section);
        if (section.sh_type != SHT_NOBITS && section.sh_offset + section.sh_size > end)
            end = section.sh_offset + section.sh_size;
    }
    return end <= FLYT_FATBIN_IMAGE_BYTES_MAX ? end : 0;
}

size_t flyt_image_bytes(const void *image)
{
    struct flyt_fatbin fatbin;
    image = flyt_fatbin_unwrap(image);
    if (flyt_fatbin_is(image))
        return flyt_fatbin_init(image, FLYT_FATBIN_BYTES_UNKNOWN, &fatbin) ? 0 : fatbin.total_bytes;
    if (memcmp(image, ELFMAG, SELFMAG) == 0)
        return elf_bytes(image);
    return looks_like_text(image) ? strlen(image) : 0;
}

static CUresult fatbin_code(int error)
{
    switch (error) {
    case 0:
        return CUDA_SUCCESS;
    case -ENOENT:
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    case -ENOMEM:
        return CUDA_ERROR_OUT_OF_MEMORY;
    default:
        return CUDA_ERROR_INVALID_IMAGE;
    }
}

CUresult flyt_image_target(const void *image, int device, struct flyt_fatbin_device *ret_target)
{
    const struct flyt_device_info *info;
    *ret_target = (struct flyt_fatbin_device){0};
    if (!flyt_fatbin_is(flyt_fatbin_unwrap(image)))
        return CUDA_SUCCESS;
    CUresult result = flyt_device_info_now(device, &info);
    if (result)
        return result;
    /* Not of the attributes: the program may have been told of another device than it has now. */
    int capability = __atomic_load_n(&info->code_capability, __ATOMIC_RELAXED);
    *ret_target = (struct flyt_fatbin_device){
        .major = capability / 10,
        .minor = capability % 10,
        .runs_cubin = !info->is_software,
        .prefers_portable = info->is_software,
    };
    return CUDA_SUCCESS;
}

static CUresult choose_in_fatbin(const void *data, const struct flyt_fatbin_device *device,
                                 struct flyt_image *ret_image)
{
    struct flyt_fatbin_entry entry;
    int error = flyt_fatbin_choose(data, FLYT_FATBIN_BYTES_UNKNOWN, device, &entry);
    if (error)
        return fatbin_code(error);
    /* A copy even where nothing is compressed: padding goes, so that equal code has equal hashes. */
    error = flyt_fatbin_decompress(&entry, &ret_image->owned, &ret_image->bytes);
    ret_image->data = ret_image->owned;
    ret_image->kind = entry.kind == FLYT_FATBIN_PTX ? CU_JIT_INPUT_PTX : CU_JIT_INPUT_CUBIN;
    return fatbin_code(error);
}

CUresult flyt_image_choose(const void *image, const struct flyt_fatbin_device *target, struct flyt_image *ret_image)
{
    *ret_image = (struct flyt_image){0};
    const void *data = flyt_fatbin_unwrap(image);
    if (flyt_fatbin_is(data))
        return choose_in_fatbin(data, target, ret_image);
    ret_image->data = data;
    ret_image->bytes = flyt_image_bytes(data);
    return ret_image->bytes ? CUDA_SUCCESS : CUDA_ERROR_INVALID_IMAGE;
}

/* Names of architectures, each once, as many as fit. */
struct name_list {
    char text[256];
    size_t bytes;
};

static void add_name(struct name_list *list, const char *prefix, const struct flyt_fatbin_entry *entry)
{
    const char *suffix = entry->flags & FLYT_FATBIN_FLAG_ARCH_SPECIFIC     ? "a"
                         : entry->flags & FLYT_FATBIN_FLAG_FAMILY_SPECIFIC ? "f"
                                                                           : "";
    char name[32];
    snprintf(name, sizeof name, "%s%u%s", prefix, entry->arch, suffix);
    const char *known = strstr(list->text, name);
    if (known && (known[strlen(name)] == ',' || !known[strlen(name)]))
        return;
    int bytes =
        snprintf(list->text + list->bytes, sizeof list->text - list->bytes, "%s%s", list->bytes ? ", " : "", name);
    if (bytes > 0 && (size_t)bytes < sizeof list->text - list->bytes)
        list->bytes += (size_t)bytes;
    list->text[list->bytes] = 0;
}

static void refuse_fatbin(const void *data, const struct flyt_fatbin_device *target, CUresult result,
                          struct flyt_jit_logs *logs)
{
    struct flyt_fatbin fatbin;
    struct flyt_fatbin_entry entry;
    struct name_list code = {0}, ptx = {0};
    if (flyt_fatbin_init(data, FLYT_FATBIN_BYTES_UNKNOWN, &fatbin))
        return;
    while (flyt_fatbin_next(&fatbin, &entry) > 0) {
        if (entry.kind == FLYT_FATBIN_PTX)
            add_name(&ptx, "compute_", &entry);
        else if (entry.kind == FLYT_FATBIN_CUBIN)
            add_name(&code, "sm_", &entry);
    }
    if (ptx.bytes)
        flyt_jit_logs_refuse(logs, result, "no PTX for this device, of compute capability %d.%d: it is for %s",
                             target->major, target->minor, ptx.text);
    else if (code.bytes)
        flyt_jit_logs_refuse(logs, result,
                             "machine code only (%s), no PTX for this device, of compute capability %d.%d", code.text,
                             target->major, target->minor);
    else
        flyt_jit_logs_refuse(logs, result, "the fat binary has neither PTX nor machine code");
}

void flyt_image_refuse(const void *image, const struct flyt_fatbin_device *target, CUresult result,
                       struct flyt_jit_logs *logs)
{
    const void *data = flyt_fatbin_unwrap(image);
    if (result == CUDA_ERROR_NO_BINARY_FOR_GPU && flyt_fatbin_is(data))
        refuse_fatbin(data, target, result, logs);
    else if (result == CUDA_ERROR_INVALID_IMAGE)
        flyt_jit_logs_refuse(logs, result, "it is neither PTX nor machine code nor a fat binary, or damaged");
}

void flyt_image_fini(struct flyt_image *image)
{
    free(image->owned);
    *image = (struct flyt_image){0};
}

/* ---- copies ---- */

static size_t padded(size_t bytes)
{
    return (bytes + 2 * FLYT_IMAGE_PADDING_BYTES - 1) & ~(size_t)(FLYT_IMAGE_PADDING_BYTES - 1);
}

/* One block: the wrapper, the list of its units, the linked image, the units. */
static CUresult copy_units(const struct flyt_fatbin_wrapper *wrapper, const void *const *units, char **ret_copy)
{
    unsigned count = 0;
    size_t at, total, bytes = flyt_image_bytes(wrapper->data);
    total = bytes ? padded(bytes) : 0;
    for (; total && units[count]; count++) {
        bytes = flyt_image_bytes(units[count]);
        total = bytes ? total + padded(bytes) : 0;
    }
    if (!total)
        return CUDA_ERROR_INVALID_IMAGE;
    at = padded(sizeof *wrapper + (count + 1) * sizeof *units);
    char *copy = calloc(1, at + total);
    if (!copy)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct flyt_fatbin_wrapper *head = (struct flyt_fatbin_wrapper *)(void *)copy;
    const void **list = (const void **)(void *)(head + 1);
    *head = *wrapper;
    head->data = copy + at;
    head->file_name_or_units = list;
    for (unsigned i = 0; i <= count; i++) {
        const void *from = i ? flyt_fatbin_unwrap(units[i - 1]) : wrapper->data;
        bytes = flyt_image_bytes(from);
        memcpy(copy + at, from, bytes);
        if (i)
            list[i - 1] = copy + at;
        at += padded(bytes);
    }
    *ret_copy = copy;
    return CUDA_SUCCESS;
}

CUresult flyt_image_copy(const void *image, char **ret_copy)
{
    const void *const *units = flyt_fatbin_units(image);
    if (units)
        return copy_units(image, units, ret_copy);
    size_t bytes = flyt_image_bytes(image);
    char *copy = bytes ? calloc(1, bytes + FLYT_IMAGE_PADDING_BYTES) : NULL;
    if (!copy)
        return bytes ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_IMAGE;
    memcpy(copy, flyt_fatbin_unwrap(image), bytes);
    *ret_copy = copy;
    return CUDA_SUCCESS;
}

CUresult flyt_image_read(const char *path, char **ret_data, size_t *ret_bytes)
{
    struct stat status;
    CUresult result = CUDA_ERROR_FILE_NOT_FOUND;
    FILE *file = path ? fopen(path, "rbe") : NULL;
    if (!file)
        return path ? result : CUDA_ERROR_INVALID_VALUE;
    if (fstat(fileno(file), &status) == 0 && S_ISREG(status.st_mode)) {
        char *data = calloc(1, (size_t)status.st_size + FLYT_IMAGE_PADDING_BYTES);
        size_t bytes = data ? fread(data, 1, (size_t)status.st_size, file) : 0;
        result = !data ? CUDA_ERROR_OUT_OF_MEMORY : bytes < 4 ? CUDA_ERROR_INVALID_IMAGE : CUDA_SUCCESS;
        if (result)
            free(data);
        else
            *ret_data = data;
        if (!result && ret_bytes)
            *ret_bytes = bytes;
    }
    fclose(file);
    return result;
}

/* ---- sending ---- */

CUresult flyt_image_send(struct flyt_channel *channel, const struct flyt_image *image, unsigned char *ret_hash)
{
    flyt_image_find_args find_args = {.thread = flyt_thread_number()};
    flyt_image_find_res find_res = {0};
    flyt_sha256_of(image->data, image->bytes, ret_hash);
    memcpy(find_args.image_hash, ret_hash, FLYT_HASH_BYTES);
    int status = flyt_call_image_find(channel, &find_args, &find_res);
    CUresult result = flyt_client_reply(status, find_res.result, "image_find");
    if (result || find_res.is_known)
        return result;
    /* The call that stores is answered when the bytes are there: they go beside it. */
    struct flyt_host_box box = {
        .address = (uint64_t)(uintptr_t)image->data, .width_bytes = image->bytes, .height = 1, .depth = 1};
    struct flyt_transfer *transfer = flyt_transfer_new(&box, false, 0);
    if (!transfer)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct flyt_channel_group group; /* a server must not get one without the other */
    status = flyt_channel_group_begin(channel, &group);
    if (status) {
        result = flyt_client_status(status, "image_store");
        flyt_transfer_finish(transfer, result);
        flyt_transfer_unref(transfer);
        return result;
    }
    flyt_transfer_send(channel, transfer);
    flyt_image_store_args args = {
        .thread = flyt_thread_number(), .transfer_id = flyt_transfer_id(transfer), .bytes = image->bytes};
    flyt_image_store_res res = {0};
    memcpy(args.image_hash, ret_hash, FLYT_HASH_BYTES);
    status = flyt_call_image_store(channel, &args, &res);
    flyt_channel_group_end(channel, &group);
    result = flyt_client_reply(status, res.result, "image_store");
    CUresult sent = flyt_transfer_wait(transfer); /* a refusal may come before the last byte was read */
    flyt_transfer_unref(transfer);
    return result ? result : sent;
}
