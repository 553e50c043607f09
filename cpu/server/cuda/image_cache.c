#include "cpu/server/cuda/image_cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "rpc/base/descriptors.h"
#include "rpc/base/log.h"
#include "rpc/base/sha256.h"
#include "rpc/proto/limits.h"

static const char folder_prefix[] = "flyt-images-";

enum { NAME_BYTES = 2 * FLYT_SHA256_BYTES + 1 };

static void name_of(const unsigned char *hash, char *name)
{
    for (unsigned i = 0; i < FLYT_SHA256_BYTES; i++)
        sprintf(name + 2 * i, "%02x", hash[i]);
}

/* Shorter than an image's, so that no hash leads to it. */
static void name_of_code(const unsigned char *key, char *name)
{
    name_of(key, name);
    name[0] = 'c';
    name[NAME_BYTES - 2] = 0;
}

/* ---- the folder ---- */

static void empty_folder(int folder_fd)
{
    int fd = dup(folder_fd);
    DIR *folder = fd < 0 ? NULL : fdopendir(fd);
    if (!folder) {
        flyt_close(fd);
        return;
    }
    rewinddir(folder);
    for (struct dirent *entry; (entry = readdir(folder));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            unlinkat(folder_fd, entry->d_name, 0);
    closedir(folder);
}

static int open_folder(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    return fd < 0 ? -errno : fd;
}

/* Each listener holds a lock on its folder: one that can be locked belongs to nobody any more. */
static void remove_orphans(const char *parent)
{
    DIR *folder = opendir(parent);
    if (!folder)
        return;
    for (struct dirent *entry; (entry = readdir(folder));) {
        char path[PATH_MAX];
        struct stat info;
        if (strncmp(entry->d_name, folder_prefix, sizeof folder_prefix - 1) != 0 ||
            (size_t)snprintf(path, sizeof path, "%s/%s", parent, entry->d_name) >= sizeof path)
            continue;
        flyt_auto_close int fd = open_folder(path);
        if (fd < 0 || fstat(fd, &info) != 0 || info.st_uid != geteuid() || flock(fd, LOCK_EX | LOCK_NB) != 0)
            continue;
        empty_folder(fd);
        rmdir(path);
    }
    closedir(folder);
}

/* Another server that begins at this moment may take a folder that nobody has locked yet for an orphan. Its locked
 * descriptor; -EAGAIN: it is gone; or another negative errno. */
static int lock_folder(const char *path)
{
    struct stat info;
    flyt_auto_close int fd = open_folder(path);
    if (fd < 0)
        return fd == -ENOENT ? -EAGAIN : fd;
    if (flock(fd, LOCK_EX | LOCK_NB) != 0)
        return errno == EWOULDBLOCK ? -EAGAIN : -errno;
    if (fstat(fd, &info) != 0)
        return -errno;
    if (!info.st_nlink)
        return -EAGAIN;
    int locked = fd;
    fd = -1;
    return locked;
}

int flyt_image_cache_make(struct flyt_image_cache *cache, struct flyt_error *err, char *ret_path, size_t path_bytes)
{
    enum { TRIES = 1000 };
    const char *parent = getenv("TMPDIR");
    if (!parent || !*parent)
        parent = "/var/tmp";
    remove_orphans(parent);
    int fd = -EAGAIN;
    for (unsigned i = 0; fd == -EAGAIN && i < TRIES; i++) {
        if ((size_t)snprintf(ret_path, path_bytes, "%s/%sXXXXXX", parent, folder_prefix) >= path_bytes)
            return flyt_error_set(err, -ENAMETOOLONG, "the folder for temporary files has too long a name: %s", parent);
        if (!mkdtemp(ret_path))
            return flyt_error_set(err, -errno, "no folder for module images can be made in %s: %m", parent);
        fd = lock_folder(ret_path);
    }
    if (fd < 0) {
        rmdir(ret_path);
        return flyt_error_set(err, fd, "the folder %s cannot be used: %s", ret_path, strerror(-fd));
    }
    cache->folder_fd = fd;
    return 0;
}

void flyt_image_cache_remove(struct flyt_image_cache *cache, const char *path)
{
    empty_folder(cache->folder_fd);
    rmdir(path);
    cache->folder_fd = flyt_close(cache->folder_fd);
}

int flyt_image_cache_open(struct flyt_image_cache *cache, const char *path)
{
    int fd = open_folder(path);
    return fd < 0 ? fd : flyt_image_cache_adopt(cache, fd);
}

int flyt_image_cache_adopt(struct flyt_image_cache *cache, int folder_fd)
{
    struct stat info;
    int status = fstat(folder_fd, &info) ? -errno : S_ISDIR(info.st_mode) ? 0 : -ENOTDIR;
    if (status) {
        flyt_close(folder_fd);
        return status;
    }
    cache->folder_fd = folder_fd;
    cache->is_of_many = info.st_mode & S_IWOTH;
    return 0;
}

void flyt_image_cache_close(struct flyt_image_cache *cache)
{
    cache->folder_fd = flyt_close(cache->folder_fd);
}

/* ---- images ---- */

bool flyt_image_cache_has(const struct flyt_image_cache *cache, const unsigned char *hash)
{
    char name[NAME_BYTES];
    name_of(hash, name);
    /* It will be asked for: the time stamp keeps it from being removed until then. */
    return utimensat(cache->folder_fd, name, NULL, 0) == 0;
}

/* Finds the image that was used the longest ago, at least unused_s seconds, and what all take together. False: there is
 * none. */
static bool find_oldest(int folder_fd, time_t unused_s, char *ret_name, uint64_t *ret_total_bytes)
{
    int fd = openat(folder_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *folder = fd < 0 ? NULL : fdopendir(fd);
    if (!folder) {
        flyt_close(fd);
        return false;
    }
    time_t oldest = time(NULL) - unused_s + 1;
    bool is_found = false;
    *ret_total_bytes = 0;
    for (struct dirent *entry; (entry = readdir(folder));) {
        struct stat info;
        /* What a killed process has left unfinished counts, too, and goes in its turn. */
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
            fstatat(folder_fd, entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        *ret_total_bytes += (uint64_t)info.st_size;
        if (info.st_mtime < oldest && strlen(entry->d_name) < NAME_BYTES) {
            oldest = info.st_mtime;
            strcpy(ret_name, entry->d_name);
            is_found = true;
        }
    }
    closedir(folder);
    return is_found;
}

/* 0; -EFBIG: the image alone is more than the folder may hold. */
static int make_room(const struct flyt_image_cache *cache, uint64_t bytes)
{
    /* Those used a moment ago are about to be loaded; who uploads more than its bound meanwhile loses them all the
     * same. */
    static const time_t unused_s[] = {FLYT_IMAGE_KEEP_S, 0};
    char name[NAME_BYTES];
    uint64_t total_bytes = 0, bytes_max = cache->bytes_max ? cache->bytes_max : FLYT_IMAGE_CACHE_BYTES_MAX;
    if (bytes > bytes_max)
        return -EFBIG;
    for (unsigned i = 0; i < sizeof unused_s / sizeof unused_s[0]; i++)
        while (find_oldest(cache->folder_fd, unused_s[i], name, &total_bytes) && total_bytes + bytes > bytes_max)
            unlinkat(cache->folder_fd, name, 0);
    return 0;
}

static int write_all(int fd, const char *data, uint64_t bytes)
{
    while (bytes) {
        ssize_t step = write(fd, data, bytes);
        if (step < 0 && errno == EINTR)
            continue;
        if (step < 0)
            return -errno;
        data += step;
        bytes -= (uint64_t)step;
    }
    return 0;
}

/* Two parts, of which the first may be empty, appear as one file. mode: for whom, where there are many users. */
static int put(const struct flyt_image_cache *cache, const char *name, const void *head, size_t head_bytes,
               const void *image, uint64_t bytes, mode_t mode)
{
    char part[64];
    int status = make_room(cache, head_bytes + bytes);
    if (status)
        return status;
    snprintf(part, sizeof part, ".part-%d-%.16s", (int)gettid(), name);
    unlinkat(cache->folder_fd, part, 0); /* of a process of before that had the same number */
    flyt_auto_close int fd = openat(cache->folder_fd, part, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return -errno;
    /* The others read it, and set its time stamp when they use it. */
    if (cache->is_of_many && fchmod(fd, mode))
        status = -errno;
    if (status == 0)
        status = write_all(fd, head, head_bytes);
    if (status == 0)
        status = write_all(fd, image, bytes);
    if (status == 0 && renameat(cache->folder_fd, part, cache->folder_fd, name) != 0)
        status = -errno;
    if (status)
        unlinkat(cache->folder_fd, part, 0);
    return status;
}

static bool is_hash_of(const unsigned char *hash, const void *data, uint64_t bytes)
{
    unsigned char real_hash[FLYT_SHA256_BYTES];
    flyt_sha256_of(data, bytes, real_hash);
    return memcmp(hash, real_hash, sizeof real_hash) == 0;
}

int flyt_image_cache_put(const struct flyt_image_cache *cache, const unsigned char *hash, const void *image,
                         uint64_t bytes)
{
    char name[NAME_BYTES];
    if (!is_hash_of(hash, image, bytes))
        return -EBADMSG;
    name_of(hash, name);
    return put(cache, name, "", 0, image, bytes, 0666);
}

/* Its hash is in front of it. */
int flyt_image_cache_put_code(const struct flyt_image_cache *cache, const unsigned char *key, const void *code,
                              uint64_t bytes)
{
    unsigned char hash[FLYT_SHA256_BYTES];
    char name[NAME_BYTES];
    flyt_sha256_of(code, bytes, hash);
    name_of_code(key, name);
    return put(cache, name, hash, sizeof hash, code, bytes, 0600);
}

/* A descriptor or a negative errno. What is no file is nobody's image: it does not hold its reader up. */
static int open_image(const struct flyt_image_cache *cache, const char *name, struct stat *ret_info)
{
    int fd = openat(cache->folder_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return errno == EACCES || errno == ELOOP ? -ENOENT : -errno;
    int status = fstat(fd, ret_info) ? -errno : S_ISREG(ret_info->st_mode) ? 0 : -ENOENT;
    if (status)
        flyt_close(fd);
    return status ? status : fd;
}

/* All of an open file, with a NUL behind it. */
static int read_all(int fd, uint64_t bytes, char **ret_image)
{
    uint64_t have = 0;
    char *image = bytes <= FLYT_IMAGE_BYTES_MAX ? malloc(bytes + 1) : NULL;
    if (!image)
        return -ENOMEM;
    while (have < bytes) {
        ssize_t step = read(fd, image + have, bytes - have);
        if (step < 0 && errno == EINTR)
            continue;
        if (step <= 0) {
            free(image);
            return step < 0 ? -errno : -EIO;
        }
        have += (uint64_t)step;
    }
    image[bytes] = 0;
    *ret_image = image;
    return 0;
}

/* All of a kept file, which counts as used now. must_be_own: -ENOENT where somebody else has put it there. */
static int read_kept(const struct flyt_image_cache *cache, const char *name, bool must_be_own, char **ret_data,
                     uint64_t *ret_bytes, bool *ret_is_own)
{
    struct stat info;
    flyt_auto_close int fd = open_image(cache, name, &info);
    if (fd < 0)
        return fd;
    *ret_is_own = info.st_uid == geteuid();
    if (must_be_own && !*ret_is_own)
        return -ENOENT;
    futimens(fd, NULL);
    *ret_bytes = (uint64_t)info.st_size;
    return read_all(fd, *ret_bytes, ret_data);
}

/* -ENOENT: nobody else shall find it either. Frees the data. */
static int discard(const struct flyt_image_cache *cache, const char *name, char *data)
{
    flyt_warn("what is kept as %s is not what was put there: removed", name);
    unlinkat(cache->folder_fd, name, 0);
    free(data);
    return -ENOENT;
}

int flyt_image_cache_get(const struct flyt_image_cache *cache, const unsigned char *hash, char **ret_image,
                         uint64_t *ret_bytes)
{
    char name[NAME_BYTES], *image;
    uint64_t bytes;
    bool is_own;
    name_of(hash, name);
    int status = read_kept(cache, name, false, &image, &bytes, &is_own);
    if (status)
        return status;
    /* Of the copy, which nobody else can change. */
    if (!is_own && !is_hash_of(hash, image, bytes))
        return discard(cache, name, image);
    *ret_image = image;
    *ret_bytes = bytes;
    return 0;
}

int flyt_image_cache_get_code(const struct flyt_image_cache *cache, const unsigned char *key, char **ret_code,
                              uint64_t *ret_bytes)
{
    char name[NAME_BYTES], *code;
    uint64_t bytes;
    bool is_own;
    name_of_code(key, name);
    int status = read_kept(cache, name, true, &code, &bytes, &is_own);
    if (status)
        return status;
    if (bytes < FLYT_SHA256_BYTES ||
        !is_hash_of((const unsigned char *)code, code + FLYT_SHA256_BYTES, bytes - FLYT_SHA256_BYTES))
        return discard(cache, name, code);
    bytes -= FLYT_SHA256_BYTES;
    memmove(code, code + FLYT_SHA256_BYTES, bytes + 1);
    *ret_code = code;
    *ret_bytes = bytes;
    return 0;
}

ssize_t flyt_image_cache_read(const struct flyt_image_cache *cache, const unsigned char *hash, uint64_t offset_bytes,
                              void *data, size_t bytes)
{
    char name[NAME_BYTES];
    struct stat info;
    name_of(hash, name);
    flyt_auto_close int fd = open_image(cache, name, &info);
    if (fd < 0)
        return fd;
    if (offset_bytes > FLYT_IMAGE_BYTES_MAX)
        return 0;
    futimens(fd, NULL);
    ssize_t have;
    do
        have = pread(fd, data, bytes, (off_t)offset_bytes);
    while (have < 0 && errno == EINTR);
    return have < 0 ? -errno : have;
}
