/*
 * Module images that clients have sent, by their SHA-256: files in a folder that all server processes of one
 * flyt-server share, so that a program's second run sends nothing. The listener makes the folder and removes it.
 *
 * A file appears under its name only when it is complete and its hash was checked. Where the servers that share a
 * folder are users of their own (its mode lets everybody write; only they can reach it), what another one has put there
 * is checked once more when it is used: none can give the others an image under a name that is not its own.
 *
 * Each function may be called from any
 * thread and process at any time.
 */
#ifndef FLYT_SERVER_IMAGE_CACHE_H
#define FLYT_SERVER_IMAGE_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "rpc/base/error.h"

/* Beyond this, images that were not used for longest go; those used in the last FLYT_IMAGE_KEEP_S seconds only where
 * nothing else is left. */
#define FLYT_IMAGE_CACHE_BYTES_MAX (4ull << 30)
enum { FLYT_IMAGE_KEEP_S = 60 };

struct flyt_image_cache {
    int folder_fd;
    uint64_t bytes_max; /* 0: FLYT_IMAGE_CACHE_BYTES_MAX */
    bool is_of_many;    /* users */
};

/* Makes a private folder under $TMPDIR or /var/tmp, removes those of servers that are gone, and opens it. ret_path has
 * `path_bytes` of room. 0 or a negative errno with a sentence in *err. */
int flyt_image_cache_make(struct flyt_image_cache *cache, struct flyt_error *err, char *ret_path, size_t path_bytes);
/* Removes the folder that _make made. */
void flyt_image_cache_remove(struct flyt_image_cache *cache, const char *path);
/* In a server process. 0 or a negative errno. */
int flyt_image_cache_open(struct flyt_image_cache *cache, const char *path);
/* The same with a descriptor of the folder, which is the cache's afterwards, and closed where it fails. */
int flyt_image_cache_adopt(struct flyt_image_cache *cache, int folder_fd);
void flyt_image_cache_close(struct flyt_image_cache *cache);

bool flyt_image_cache_has(const struct flyt_image_cache *cache, const unsigned char *hash);
/* Keeps an image. 0; -EBADMSG: it has another hash; -EFBIG: it is larger than bytes_max; another negative errno: it
 * cannot be written. */
int flyt_image_cache_put(const struct flyt_image_cache *cache, const unsigned char *hash, const void *image,
                         uint64_t bytes);
/* A copy of the image with a NUL byte behind it, to be freed by the caller. 0; -ENOENT: it is not there, or was not
 * what its name says and is gone now; another negative errno. */
int flyt_image_cache_get(const struct flyt_image_cache *cache, const unsigned char *hash, char **ret_image,
                         uint64_t *ret_bytes);
/*
 * Machine code that was made of an image (machine_code.h), under a key that is no hash of it. It is kept beside the
 * images, counts and goes as these do, and only who has put it there gets it: nobody could check another one's.
 * flyt_image_cache_put_code: 0; -EFBIG; another negative errno. flyt_image_cache_get_code: as _get; -ENOENT also where
 * it is damaged.
 */
int flyt_image_cache_put_code(const struct flyt_image_cache *cache, const unsigned char *key, const void *code,
                              uint64_t bytes);
int flyt_image_cache_get_code(const struct flyt_image_cache *cache, const unsigned char *key, char **ret_code,
                              uint64_t *ret_bytes);
/* Reads up to `bytes` bytes of an image from an offset. How many, 0 at its end; or a negative errno. */
ssize_t flyt_image_cache_read(const struct flyt_image_cache *cache, const unsigned char *hash, uint64_t offset_bytes,
                              void *data, size_t bytes);

#endif
