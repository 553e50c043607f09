/*
 * Libraries at another server: the same images, in the same order, under the same ids, with the same contents.
 */
#ifndef FLYT_CLIENT_LIBRARY_RESTORE_H
#define FLYT_CLIENT_LIBRARY_RESTORE_H

struct flyt_restore;

/* Loads the libraries again and compares what is in them (restore.h). 0, or the error, which is then also in
 * restore->err. */
int flyt_library_restore(struct flyt_restore *restore);

#endif
