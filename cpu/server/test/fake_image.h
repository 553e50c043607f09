/*
 * For tests: a program that speaks the wire by itself (fake_node.h) and works while its session's image is written, and
 * the server where it goes on from that. Functions fail the running test where something is not as it should be.
 */
#ifndef FLYT_SERVER_FAKE_IMAGE_H
#define FLYT_SERVER_FAKE_IMAGE_H

#include "cpu/server/test/fake_node.h"

enum { FAKE_IMAGE_MOVE_ID = 31 };

struct fake_image {
    struct fake_node node;
    struct fake_work work;
    char path[256]; /* of an image */
};

/* Of each test; *state is a struct fake_image then. */
int fake_image_set_up(void **state);
int fake_image_tear_down(void **state);

/* The program's session on the first server. */
void fake_image_begin(struct fake_image *self);
/* Where the program keeps words of its own. */
uint64_t fake_image_words(const struct fake_image *self);
/* It works as ever. */
void fake_image_work(struct fake_image *self);
/* It works on, and stops with everything in the image. */
void fake_image_work_and_stop(struct fake_image *self);
/* It stops. */
void fake_image_stop(struct fake_image *self, uint64_t move_id);
/* Starts the second server and has it prepare the session; with these arguments. */
void fake_image_prepare(struct fake_image *self);
void fake_image_prepare_with(struct fake_image *self, const char *const *arguments);
/* What the second server has made is what the first one has, byte by byte. */
void fake_image_compare(const struct fake_image *self);
/* The program leaves the first server, which ends; the second one waits for it, and it comes. */
void fake_image_leave(struct fake_image *self);
void fake_image_come_back(struct fake_image *self);
/* Everything that it had is there, the time between its first two events included. */
void fake_image_check(struct fake_image *self, float before_ms);

#endif
