/* What the two sides of the test of valves (valve.api) want of each other: each has its own struct flyt_valve. */
#ifndef FLYT_GEN_TEST_VALVE_TEST_H
#define FLYT_GEN_TEST_VALVE_TEST_H

#include <stdbool.h>
#include <stdint.h>

struct flyt_error;
struct flyt_session;

struct flyt_session *valve_server_new(void);
/* Whose calls come from now on. */
void valve_server_use(struct flyt_session *session);
/* A device is reset; -1: the session ends. */
void valve_server_drop(struct flyt_session *session, int device);
void valve_server_free(struct flyt_session *session);
/* How many it has, and how many it could not make. */
unsigned valve_server_count(const struct flyt_session *session);
unsigned valve_server_refused(const struct flyt_session *session);
/* As where a session goes on: whether one has what the other had. */
int valve_server_compare(struct flyt_session *had, struct flyt_session *has, struct flyt_error *err);
/* How many valves the driver has, whether it can make another, and whether it knows cuValveSums. */
unsigned valve_server_driver_count(void);
void valve_server_fill(bool is_full);
void valve_server_age(bool is_old);
/* Memory of the session's. */
extern struct valve_numbers {
    double factor;
    unsigned offset;
} valve_server_numbers;
/* The result of a call without a reply. */
unsigned valve_server_call(unsigned procedure, void *args, void *res);

#endif
