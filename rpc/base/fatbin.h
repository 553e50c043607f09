/*
 * Fat binaries: the container in which nvcc embeds a module's images (PTX and machine code for several GPUs).
 *
 * A pure reader, without CUDA and without state: it looks at bytes that the caller keeps alive and returns pointers
 * into them. Every function may be called from any thread. Nothing found in the bytes is trusted: a container that is
 * truncated or contradicts itself is -EBADMSG, never a read outside of it.
 *
 * NVIDIA does not document the container; the layout below is what the output of nvcc 13 shows. All numbers are
 * little-endian.
 *
 *   header (16 bytes)            entry header (64 bytes or more)          options (where the entry has them)
 *    0 u32 magic 0xBA55ED50       0 u16 kind (1 PTX, 2 cubin, …)           0 u32 offset of the text, 0x48 or more
 *    4 u16 version 1              2 u16 version 0x0101                     4 u32 its length
 *    6 u16 header bytes           4 u32 entry header bytes
 *    8 u64 bytes that follow      8 u64 payload bytes, padded to 8
 *   then entries, each header    16 u32 bytes of it that are compressed data, 0: not compressed
 *   followed by its payload      20 u32 offset of the options, 0: none
 *                                24 u16 minor, u16 major version of the code's format (PTX 9.0: 0, 9)
 *                                28 u32 architecture, e.g. 75
 *                                32 u32 offset, u32 length of the source file's name
 *                                40 u64 flags (enum flyt_fatbin_flag)
 *                                48 u64 (a hash in link-time entries, else 0)
 *                                56 u64 bytes of the image after decompression, 0: not compressed
 */
#ifndef FLYT_BASE_FATBIN_H
#define FLYT_BASE_FATBIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An image larger than this after decompression is taken for a corrupt container. */
#define FLYT_FATBIN_IMAGE_BYTES_MAX ((uint64_t)1 << 30)

/* Pass as data_bytes where only the container itself says how long it is (an image that a program has in memory). */
#define FLYT_FATBIN_BYTES_UNKNOWN UINT64_MAX

enum flyt_fatbin_kind {
    FLYT_FATBIN_PTX = 1,
    FLYT_FATBIN_CUBIN = 2, /* machine code: an ELF file */
    FLYT_FATBIN_NVVM = 8,  /* intermediate code for link-time optimisation; not loadable */
};

enum flyt_fatbin_flag {
    FLYT_FATBIN_FLAG_64BIT = 0x1,
    FLYT_FATBIN_FLAG_DEBUG = 0x2,
    FLYT_FATBIN_FLAG_LZ4 = 0x2000,
    FLYT_FATBIN_FLAG_ZSTD = 0x8000,
    FLYT_FATBIN_FLAG_ARCH_SPECIFIC = 0x100000,   /* sm_90a: this architecture only */
    FLYT_FATBIN_FLAG_FAMILY_SPECIFIC = 0x200000, /* sm_100f: this one and later ones of the same major number */
};

/* One image of a container. All pointers point into the container. */
struct flyt_fatbin_entry {
    uint16_t kind;      /* enum flyt_fatbin_kind; others occur and are to be skipped */
    bool is_compressed; /* payload must go through flyt_fatbin_decompress */
    uint32_t arch;      /* 10 × major + minor, e.g. 90 */
    uint64_t flags;     /* enum flyt_fatbin_flag, and others */
    const void *payload;
    uint64_t payload_bytes; /* without padding where compressed; else padded with up to 7 zero bytes */
    uint64_t image_bytes;   /* after decompression; equals payload_bytes where not compressed */
    uint64_t hash;          /* as in the container, 0 where it has none */
};

/* A position in a container. Initialise with flyt_fatbin_init. */
struct flyt_fatbin {
    const uint8_t *data;
    uint64_t total_bytes; /* of the whole container, its header included */
    uint64_t next_offset; /* of the entry that flyt_fatbin_next will return */
};

/* What a device can run, for flyt_fatbin_choose. */
struct flyt_fatbin_device {
    int major, minor;      /* compute capability */
    bool runs_cubin;       /* false: only PTX counts (software GPU) */
    bool prefers_portable; /* between images for the same architecture: the one not bound to it (software GPU) */
};

/* Whether `data` (at least 4 bytes) begins with a container's magic number. */
bool flyt_fatbin_is(const void *data);

/*
 * The container behind a __fatBinC_Wrapper_t (fatbinary_section.h), the form in which compiled programs register
 * their images; `image` itself where it is no wrapper. `image` has at least 4 bytes, 24 where it is a wrapper.
 */
const void *flyt_fatbin_unwrap(const void *image);

/* __fatBinC_Wrapper_t, whose own header belongs to the CUDA toolkit. Version 1: file_name_or_units is a name or NULL.
 * Version 2, of relocatable device code: `data` is the linked image, and file_name_or_units points to the containers of
 * the units that it was linked from, a NULL behind them. */
struct flyt_fatbin_wrapper {
    uint32_t magic; /* FLYT_FATBIN_WRAPPER_MAGIC */
    uint32_t version;
    const void *data;
    const void *file_name_or_units;
};

enum { FLYT_FATBIN_WRAPPER_MAGIC = 0x466243B1, FLYT_FATBIN_WRAPPER_UNITS_VERSION = 2 };

/* The units' containers behind a wrapper of relocatable device code, a NULL behind them; NULL: `image` is another
 * thing. */
const void *const *flyt_fatbin_units(const void *image);

/*
 * Looks at a container's header. data_bytes: how many bytes are readable at `data` (more than the container's own
 * length is allowed), or FLYT_FATBIN_BYTES_UNKNOWN.
 * 0 and *ret_fatbin set; -EINVAL: not a fat binary; -EBADMSG: truncated or corrupt header.
 */
int flyt_fatbin_init(const void *data, uint64_t data_bytes, struct flyt_fatbin *ret_fatbin);

/*
 * The next entry. 1 and *ret_entry set; 0 at the end; -EBADMSG: corrupt (an end is then not found any more).
 */
int flyt_fatbin_next(struct flyt_fatbin *fatbin, struct flyt_fatbin_entry *ret_entry);

/*
 * The image that suits a device best: machine code for the same major and at most its minor number, the highest
 * first; else the PTX of the highest architecture not above the device's. Images bound to one architecture or family
 * count only there.
 * 0 and *ret_entry set; -ENOENT: none suits; -EINVAL, -EBADMSG as above. Reads every header, so that a corrupt
 * container is found whatever it holds.
 */
int flyt_fatbin_choose(const void *data, uint64_t data_bytes, const struct flyt_fatbin_device *device,
                       struct flyt_fatbin_entry *ret_entry);

/*
 * A copy of the entry's image, decompressed where it is compressed, with one NUL byte behind it. *ret_image belongs
 * to the caller (free). *ret_image_bytes counts neither the NUL nor, for PTX, padding or NULs at the end.
 * 0; -EBADMSG: the data does not decompress to what the entry promises; -ENOTSUP: compressed in an unknown way;
 * -ENOMEM.
 */
int flyt_fatbin_decompress(const struct flyt_fatbin_entry *entry, char **ret_image, size_t *ret_image_bytes);

#endif
