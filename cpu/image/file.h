/*
 * An image that is becoming a file. It has its name, ID.flyt, only once all of it is on disk: whatever happens before,
 * a crash included, the folder is as it was. Where the file system can (O_TMPFILE) the file has no name at all until
 * then; else a hidden one, ".ID.part", which a crash may leave and flyt_checkpoint_folder_read takes for nothing.
 *
 *     flyt_checkpoint_file_create → flyt_checkpoint_put_… with file->writer → flyt_checkpoint_file_commit
 *     flyt_checkpoint_file_open → somebody else writes an image to file->fd → flyt_checkpoint_file_adopt
 *
 * Files have mode 0600: they hold the memory of a program. SIGXFSZ must be ignored (writer.h). One thread at a time.
 */
#ifndef FLYT_IMAGE_FILE_H
#define FLYT_IMAGE_FILE_H

#include "cpu/image/writer.h"
#include "rpc/base/tally.h"

/* "0123…cdef.flyt" and a NUL. */
enum { FLYT_CHECKPOINT_NAME_BYTES = FLYT_CHECKPOINT_ID_TEXT_BYTES + 5 };

struct flyt_checkpoint_file {
    int folder_fd, fd;
    bool has_temporary;
    char name[FLYT_CHECKPOINT_NAME_BYTES];          /* in the folder */
    char temporary[FLYT_CHECKPOINT_NAME_BYTES + 1]; /* where has_temporary */
    struct flyt_checkpoint_writer *writer;          /* NULL: somebody else writes it */
};

/* A new id from the kernel's random numbers. 0 or a negative errno. */
int flyt_checkpoint_id_make(void *ret_id);
void flyt_checkpoint_file_name(const void *id, char *ret_name);

/* Begins the image head->id in the folder, which must be there. 0; -EEXIST: there is one of that id; what open(2) or
 * the writer says. On success end it with commit or abandon. */
int flyt_checkpoint_file_create(const char *folder, const flyt_checkpoint_head *head,
                                enum flyt_checkpoint_packing packing, struct flyt_checkpoint_file *ret_file,
                                struct flyt_error *err);
/* After flyt_checkpoint_put_end: makes file, name and folder last (fsync). Ends the file in any case; on failure
 * nothing of it is left. Blocks as long as the disk takes. */
int flyt_checkpoint_file_commit(struct flyt_checkpoint_file *file, struct flyt_error *err);
/* Begins an image that another process writes, from the first byte on, to file->fd: its id, and so its name, are known
 * when its head is there. As flyt_checkpoint_file_create; end it with adopt or abandon. */
int flyt_checkpoint_file_open(const char *folder, struct flyt_checkpoint_file *ret_file, struct flyt_error *err);
/* A description of the file for that process, at the first byte, open for writing: what the disk says to that one
 * about what could not be written is told to file->fd, too (flusher.h). A descriptor, or a negative errno. */
int flyt_checkpoint_file_share(const struct flyt_checkpoint_file *file);
/* The same, for a process that reads it when it is written. */
int flyt_checkpoint_file_show(const struct flyt_checkpoint_file *file);
/* Its name, as its head gives it, is read into file->name: it is the one that adopt will give it. 0, or as adopt:
 * -EEXIST where something in the folder has that name. It stays open in any case. Blocks as long as the disk takes. */
int flyt_checkpoint_file_learn_name(struct flyt_checkpoint_file *file, struct flyt_error *err);
/*
 * That process has written it whole: it gets the name of the id in its head, which is all that is read of it, and
 * ret_name, if not NULL (FLYT_CHECKPOINT_NAME_BYTES). Ends the file in any case; on failure nothing of it is left:
 * -EEXIST: there is one of that id; that of the reader (reader.h); of fsync(2). Blocks as long as the disk takes.
 */
int flyt_checkpoint_file_adopt(struct flyt_checkpoint_file *file, char *ret_name, struct flyt_error *err);

/* Opens an image for reading, as open(2) does with these flags besides (0, or O_NOFOLLOW): what is no regular file (a
 * pipe, say, that has taken its place since it was last looked at) is refused, and not waited for. A descriptor;
 * -EINVAL: it is no file; what open(2) says; err has the sentence. */
int flyt_checkpoint_file_read(const char *path, int flags, struct flyt_error *err);

/* Nothing of it is left. The first one blocks as the disk does. The second one has a thread do it, for which nobody
 * waits: a network's file system writes at close(2) what is still to be written. *file is at its end at once. `left`
 * (NULL is allowed) counts the thread until its end. */
void flyt_checkpoint_file_abandon(struct flyt_checkpoint_file *file);
void flyt_checkpoint_file_abandon_aside(struct flyt_checkpoint_file *file, struct flyt_tally *left);

#endif
