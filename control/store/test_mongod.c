#include "control/store/test_mongod.h"

#include <mongoc/mongoc.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

/* The one server of this test program. */
static struct {
    pid_t pid; /* 0: a real server */
    FILE *to, *from;
    unsigned port;
    const char *uri; /* of the real one */
    unsigned database_count;
} mongod;

static void start_stand_in(void)
{
    int to[2], from[2];

    assert_int_equal(pipe(to), 0);
    assert_int_equal(pipe(from), 0);
    mongod.pid = fork();
    if (mongod.pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(to[0], STDIN_FILENO);
        dup2(from[1], STDOUT_FILENO);
        for (int fd = 3; fd < 64; fd++)
            close(fd);
        setenv("PYTHONDONTWRITEBYTECODE", "1", 1);
        execlp("python3", "python3", "tests/system/mongod_stand_in.py", NULL);
        _exit(127);
    }
    close(to[0]);
    close(from[1]);
    mongod.to = fdopen(to[1], "w");
    mongod.from = fdopen(from[0], "r");
    if (fscanf(mongod.from, "listening on %u", &mongod.port) != 1 || fgetc(mongod.from) != '\n')
        fail_msg("tests/system/mongod_stand_in.py did not start (run this from the repository's root)");
}

void test_mongod_start(void)
{
    mongoc_init();
    mongod.uri = getenv("FLYT_TEST_MONGODB_URI");
    if (mongod.uri && *mongod.uri) {
        print_message("against the MongoDB server that FLYT_TEST_MONGODB_URI names\n");
    } else {
        start_stand_in();
        print_message("against the stand-in, not MongoDB (FLYT_TEST_MONGODB_URI names a real server)\n");
    }
}

void test_mongod_stop(void)
{
    int status;

    if (!mongod.pid)
        return;
    kill(mongod.pid, SIGKILL);
    waitpid(mongod.pid, &status, 0);
    fclose(mongod.to);
    fclose(mongod.from);
}

bool test_mongod_is_stand_in(void)
{
    return mongod.pid != 0;
}

void test_mongod_uri(const char *database, char *ret_uri, size_t bytes)
{
    const char *options = mongod.pid ? NULL : strchr(mongod.uri, '?');
    size_t hosts = options ? (size_t)(options - mongod.uri) : mongod.pid ? 0 : strlen(mongod.uri);

    if (mongod.pid) {
        snprintf(ret_uri, bytes, "mongodb://127.0.0.1:%u/%s", mongod.port, database);
        return;
    }
    while (hosts && mongod.uri[hosts - 1] == '/')
        hosts--;
    snprintf(ret_uri, bytes, "%.*s/%s%s", (int)hosts, mongod.uri, database, options ? options : "");
}

void test_mongod_database(char *ret_name, size_t bytes)
{
    snprintf(ret_name, bytes, "flyt_test_%ld_%u", (long)getpid(), mongod.database_count++);
}

void test_mongod_say(const char *format, ...)
{
    char answer[4096] = "";
    va_list values;

    va_start(values, format);
    vfprintf(mongod.to, format, values);
    va_end(values);
    fputc('\n', mongod.to);
    fflush(mongod.to);
    if (!fgets(answer, sizeof answer, mongod.from) || strcmp(answer, "ok\n") != 0)
        fail_msg("the stand-in answered \"%s\" to %s", answer, format);
}

void test_mongod_pause(void)
{
    int status;
    /* kill(2) returns before the process has stopped. */
    assert_int_equal(kill(mongod.pid, SIGSTOP), 0);
    assert_int_equal(waitpid(mongod.pid, &status, WUNTRACED), mongod.pid);
    assert_true(WIFSTOPPED(status));
}

void test_mongod_resume(void)
{
    assert_int_equal(kill(mongod.pid, SIGCONT), 0);
}

static mongoc_client_t *connect_by_hand(void)
{
    char uri[512];

    test_mongod_uri("admin", uri, sizeof uri);
    mongoc_client_t *client = mongoc_client_new(uri);
    assert_non_null(client);
    return client;
}

static void run_by_hand(const char *database, const bson_t *command)
{
    mongoc_client_t *client = connect_by_hand();
    bson_error_t error;
    bson_t reply;

    if (!mongoc_client_command_simple(client, database, command, NULL, &reply, &error))
        fail_msg("by hand: %s", error.message);
    if (bson_has_field(&reply, "writeErrors"))
        fail_msg("by hand: %s", bson_as_relaxed_extended_json(&reply, NULL));
    bson_destroy(&reply);
    mongoc_client_destroy(client);
}

void test_mongod_hand(const char *database, const char *format, ...)
{
    bson_error_t error;
    va_list values;
    bson_t command;
    char *text;

    va_start(values, format);
    assert_true(vasprintf(&text, format, values) > 0);
    va_end(values);
    if (!bson_init_from_json(&command, text, -1, &error))
        fail_msg("%s: %s", text, error.message);
    run_by_hand(database, &command);
    bson_destroy(&command);
    free(text);
}

void test_mongod_insert(const char *database, const char *collection, const bson_t *document)
{
    bson_t command = BSON_INITIALIZER;

    BCON_APPEND(&command, "insert", BCON_UTF8(collection), "documents", "[", BCON_DOCUMENT(document), "]");
    run_by_hand(database, &command);
    bson_destroy(&command);
}

void test_mongod_find(const char *database, const char *collection, const char *filter, bson_t *ret_bson)
{
    mongoc_client_t *client = connect_by_hand();
    mongoc_collection_t *found_in = mongoc_client_get_collection(client, database, collection);
    bson_error_t error;
    const bson_t *found;
    bson_t wanted;

    if (!bson_init_from_json(&wanted, filter, -1, &error))
        fail_msg("%s: %s", filter, error.message);
    mongoc_cursor_t *cursor = mongoc_collection_find_with_opts(found_in, &wanted, NULL, NULL);
    if (!mongoc_cursor_next(cursor, &found))
        fail_msg("nothing in %s is %s", collection, filter);
    bson_copy_to(found, ret_bson);
    mongoc_cursor_destroy(cursor);
    bson_destroy(&wanted);
    mongoc_collection_destroy(found_in);
    mongoc_client_destroy(client);
}

void test_mongod_drop(const char *database)
{
    test_mongod_hand(database, "{\"dropDatabase\":1}");
}
