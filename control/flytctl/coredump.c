/* coredump list, coredump remove: core dumps of the GPU that programs have left on this node. Nothing is asked of a
 * cluster manager. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "control/flytctl/commands.h"
#include "control/flytctl/json.h"
#include "control/flytctl/text.h"
#include "control/flytctl/view.h"
#include "rpc/base/descriptors.h"

/* Where a node manager has them that its settings name no other state_dir. */
static const char default_folder[] = "/var/lib/flyt/node/coredumps";
static const char suffix[] = ".nvcudmp";

static const struct flyt_column columns[] = {
    {"VM", "vm", .format = FLYT_SHOW_TEXT},
    {"SESSION", "session_id", .format = FLYT_SHOW_TEXT},
    {"MADE", "created_ms", .format = FLYT_SHOW_MOMENT},
    {"SIZE", "bytes", .format = FLYT_SHOW_SIZE},
    {"FILE", "file", .format = FLYT_SHOW_TEXT},
    {0},
};

static enum flyt_exit complain(const char *path)
{
    const enum flyt_exit status = errno == ENOENT                     ? FLYT_EXIT_NOT_FOUND
                                  : errno == EACCES || errno == EPERM ? FLYT_EXIT_DENIED
                                                                      : FLYT_EXIT_REFUSED;

    return flyt_complain(status, "%s: %s", path, strerror(errno));
}

static bool is_dump(const char *name)
{
    size_t bytes = strlen(name);

    return *name != '.' && bytes > strlen(suffix) && !strcmp(name + bytes - strlen(suffix), suffix);
}

/* core.SESSION.TIME.DEVICE.nvcudmp, a regular file. */
static void add_row(cJSON *rows, const char *folder, const char *vm, const char *name, const struct stat *info)
{
    cJSON *row = flyt_must(cJSON_CreateObject());
    const char *session = strchr(name, '.');
    char *id = flyt_text_format("%.*s", session ? (int)strcspn(session + 1, ".") : 0, session ? session + 1 : "");
    char *path = flyt_text_format("%s/%s/%s", folder, vm, name);

    cJSON_AddStringToObject(row, "vm", vm);
    cJSON_AddStringToObject(row, "session_id", id);
    cJSON_AddNumberToObject(row, "created_ms", (double)info->st_mtim.tv_sec * 1000);
    cJSON_AddNumberToObject(row, "bytes", (double)info->st_size);
    cJSON_AddStringToObject(row, "file", path);
    cJSON_AddItemToArray(rows, row);
    free(id);
    free(path);
}

static void add_vm(cJSON *rows, const char *folder, const char *vm, int fd)
{
    DIR *entries = fdopendir(fd);
    struct stat info;

    if (!entries) {
        flyt_close(fd);
        return;
    }
    for (const struct dirent *entry; (entry = readdir(entries));)
        if (is_dump(entry->d_name) && !fstatat(dirfd(entries), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) &&
            S_ISREG(info.st_mode))
            add_row(rows, folder, vm, entry->d_name, &info);
    closedir(entries);
}

enum flyt_exit flyt_run_coredump_list(struct flyt_ctl *ctl, const struct flyt_arguments *arguments)
{
    const char *folder = arguments->word_count ? arguments->words[0] : default_folder;
    DIR *vms = opendir(folder);

    if (!vms)
        return complain(folder);
    cJSON *rows = flyt_must(cJSON_CreateArray());
    for (const struct dirent *entry; (entry = readdir(vms));) {
        int fd = *entry->d_name == '.'
                     ? -1
                     : openat(dirfd(vms), entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd >= 0)
            add_vm(rows, folder, entry->d_name, fd);
    }
    closedir(vms);
    if (ctl->output == FLYT_OUTPUT_JSON) {
        char *text = flyt_must(cJSON_PrintUnformatted(rows));
        flyt_json_put(ctl->out, text, strlen(text), ctl->is_terminal);
        free(text);
    } else {
        flyt_view_put_rows(ctl, columns, rows);
    }
    cJSON_Delete(rows);
    return FLYT_EXIT_OK;
}

enum flyt_exit flyt_run_coredump_remove(struct flyt_ctl *ctl, const struct flyt_arguments *arguments)
{
    const char *path = arguments->words[0], *slash = strrchr(path, '/');
    struct stat info;

    if (!is_dump(slash ? slash + 1 : path))
        return flyt_complain(FLYT_EXIT_USAGE, "%s is no core dump's name", path);
    if (lstat(path, &info))
        return complain(path);
    if (!S_ISREG(info.st_mode))
        return flyt_complain(FLYT_EXIT_REFUSED, "%s is no file", path);
    return unlink(path) ? complain(path) : FLYT_EXIT_OK;
}
