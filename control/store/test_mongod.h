/*
 * A MongoDB for tests: the server that FLYT_TEST_MONGODB_URI names (a URI without a database, e.g.
 * "mongodb://127.0.0.1:27017/?replicaSet=rs0"), else the stand-in, started as a child that ends with the test. Every
 * function fails the test where it cannot do its work.
 */
#ifndef FLYT_CONTROL_TEST_MONGOD_H
#define FLYT_CONTROL_TEST_MONGOD_H

#include <bson/bson.h>
#include <stdbool.h>
#include <stddef.h>

/* Starts the stand-in where no server is named, and says which of the two it is. Once in a program. */
void test_mongod_start(void);
void test_mongod_stop(void);
bool test_mongod_is_stand_in(void);
/* The URI of a database, for flyt_store_open. */
void test_mongod_uri(const char *database, char *ret_uri, size_t bytes);
/* A name that no other test uses. */
void test_mongod_database(char *ret_name, size_t bytes);

/* Stand-in only: a line for its standard input (mongod_stand_in.py says which there are); it must answer "ok". */
void test_mongod_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Stand-in only: SIGSTOP, SIGCONT. */
void test_mongod_pause(void);
void test_mongod_resume(void);

/* Runs a database command (extended JSON) as a person would, on either. It must succeed, without write errors. */
void test_mongod_hand(const char *database, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Inserts a document. */
void test_mongod_insert(const char *database, const char *collection, const bson_t *document);
/* Reads the first document that a filter (extended JSON) finds; the caller destroys *ret_bson. */
void test_mongod_find(const char *database, const char *collection, const char *filter, bson_t *ret_bson);
void test_mongod_drop(const char *database);

#endif
