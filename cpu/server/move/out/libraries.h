/*
 * The libraries of a session that is moved: told as they come and go, and as they are encoded.
 */
#ifndef FLYT_SERVER_LIBRARIES_H
#define FLYT_SERVER_LIBRARIES_H

#include <stddef.h>
#include <stdint.h>

struct flyt_library;
struct flyt_session;

/* All that are loaded, in the order in which the driver got them; *ret_libraries is to be freed. 0 or -ENOMEM. */
int flyt_save_list_libraries(struct flyt_session *session, struct flyt_library ***ret_libraries, size_t *ret_count);

/* The arguments of its library_load as XDR, into FLYT_SAVE_LIBRARY_BYTES_MAX bytes. How many they are. */
uint32_t flyt_save_encode_library(const struct flyt_library *library, unsigned char *ret_bytes);

/* The library is loaded, or is about to be no more: sends LIBRARY where a move is under way. */
void flyt_save_library(struct flyt_session *session, const struct flyt_library *library);

void flyt_save_library_gone(struct flyt_session *session, const struct flyt_library *library);

/* A move has begun (session->move is set): sends LIBRARY for every library that is loaded, in the order of loading. */
void flyt_save_libraries(struct flyt_session *session);

#endif
