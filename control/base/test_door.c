#include "control/base/test_door.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "rpc/base/descriptors.h"
#include "rpc/transport/endpoint/listen.h"

/* ---- the program ---- */

static struct test_side *side_of(const struct flyt_call *call)
{
    struct test_side *side = flyt_peer_user(flyt_call_peer(call));

    side->served_count++;
    return side;
}

static void serve_echo(struct flyt_call *call, void *args)
{
    side_of(call);
    flyt_call_reply(call, args);
}

static void serve_keep(struct flyt_call *call, void *args)
{
    struct test_side *side = side_of(call);

    assert_true(side->kept_count < TEST_CALLS_MAX);
    side->kept_args[side->kept_count] = args; /* lives as long as the call: the answer is made of it */
    side->kept[side->kept_count++] = call;
}

void test_answer(struct test_side *side)
{
    assert_true(side->kept_count > 0);
    struct flyt_call *call = side->kept[0];
    flyt_event *args = side->kept_args[0];

    side->kept_count--;
    memmove(side->kept, side->kept + 1, side->kept_count * sizeof side->kept[0]);
    memmove(side->kept_args, side->kept_args + 1, side->kept_count * sizeof side->kept_args[0]);
    flyt_call_reply(call, args);
}

static void serve_note(struct flyt_call *call, void *args)
{
    struct test_side *side = side_of(call);

    side->note_count++;
    side->last_note = ((const flyt_event *)args)->sequence;
    flyt_call_done(call);
}

static void serve_node(struct flyt_call *call, void *args)
{
    const struct flyt_identity *identity = flyt_call_identity(call);
    flyt_outcome outcome = {.text = (char *)identity->name};

    side_of(call);
    flyt_call_reply(call, &outcome);
}

static void serve_fail(struct flyt_call *call, void *args)
{
    side_of(call);
    flyt_call_fail(call);
}

static void serve_big(struct flyt_call *call, void *args)
{
    const flyt_view_args *view = args;
    flyt_view_res result = {.next = view->wait_ms};

    side_of(call);
    result.json.json_len = view->wait_ms;
    result.json.json_val = malloc(view->wait_ms + 1u);
    assert_non_null(result.json.json_val);
    for (u_int i = 0; i < view->wait_ms; i++)
        result.json.json_val[i] = (char)(i * 31 + (i >> 12));
    flyt_call_reply(call, &result);
    free(result.json.json_val);
}

static void serve_wrong(struct flyt_call *call, void *args)
{
    static char text[FLYT_TEXT_BYTES_MAX + 2];
    flyt_outcome outcome = {.text = text};

    side_of(call);
    memset(text, 'x', sizeof text - 1);
    flyt_call_reply(call, &outcome);
}

static void serve_last(struct flyt_call *call, void *args)
{
    struct flyt_peer *peer = flyt_call_peer(call);
    flyt_outcome outcome = {.text = (char *)"bye"};

    side_of(call)->peer = NULL;
    flyt_call_reply(call, &outcome);
    flyt_peer_close_when_sent(peer);
}

#define EVENT (xdrproc_t) xdr_flyt_event, sizeof(flyt_event), (xdrproc_t)xdr_flyt_event
#define VIEW  (xdrproc_t) xdr_flyt_view_args, sizeof(flyt_view_args), (xdrproc_t)xdr_flyt_view_res
#define TABLE(any)                                                                                                     \
    {                                                                                                                  \
        {TEST_ECHO, "echo", any, EVENT, serve_echo}, {TEST_KEEP, "keep", any, EVENT, serve_keep},                      \
            {TEST_NOTE, "note", any, (xdrproc_t)xdr_flyt_event, sizeof(flyt_event), NULL, serve_note},                 \
            {TEST_NODE, "node", FLYT_ROLE_NODE, NULL, 0, (xdrproc_t)xdr_flyt_outcome, serve_node},                     \
            {TEST_FAIL, "fail", any, NULL, 0, NULL, serve_fail}, {TEST_BIG, "big", any, VIEW, serve_big},              \
            {TEST_WRONG, "wrong", any, NULL, 0, (xdrproc_t)xdr_flyt_outcome, serve_wrong},                             \
            {TEST_LAST, "last", any, NULL, 0, (xdrproc_t)xdr_flyt_outcome, serve_last},                                \
        {                                                                                                              \
            .number = 0                                                                                                \
        }                                                                                                              \
    }

static const struct flyt_procedure procedures[] = TABLE(FLYT_ROLE_ANY);
static const struct flyt_procedure known_procedures[] = TABLE(FLYT_ROLE_ANY & ~FLYT_ROLE_ANONYMOUS);
const struct flyt_program test_program = {FLYT_CONTROL_PROGRAM, FLYT_CONTROL_VERSION, procedures};
const struct flyt_program test_known_program = {FLYT_CONTROL_PROGRAM, FLYT_CONTROL_VERSION, known_procedures};

/* ---- sides ---- */

static void on_ready(struct flyt_peer *peer, void *user)
{
    struct test_side *side = user;

    side->ready_count++;
    side->peer = peer;
}

static void on_ended(struct flyt_peer *peer, const struct flyt_error *cause, void *user)
{
    struct test_side *side = user;

    assert_int_not_equal(cause->code, 0);
    assert_string_not_equal(cause->text, "");
    side->ended_count++;
    side->cause = *cause;
    if (side->peer == peer)
        side->peer = NULL;
}

static void on_measured(const char *procedure, bool is_served, uint64_t took_us, bool has_failed, void *user)
{
    struct test_side *side = user;

    assert_non_null(procedure);
    side->measured_count++;
    side->failed_count += has_failed;
}

void test_side_init(struct test_side *side, sd_event *event, const struct flyt_program *program)
{
    *side = (struct test_side){.event = event};
    side->config = (struct flyt_peer_config){
        .event = event,
        .serves = program,
        .record_bytes_max = FLYT_CONTROL_RECORD_BYTES_MAX,
        .user = side,
        .ready = on_ready,
        .ended = on_ended,
        .measured = on_measured,
    };
}

static bool on_admit(struct flyt_identity *identity, void *user)
{
    struct test_door *door = user;

    door->asked = *identity;
    return !door->refuse || strcmp(door->refuse, identity->name);
}

void test_door_init(struct test_door *door, sd_event *event, const struct flyt_program *program)
{
    *door = (struct test_door){.listen_fd = -1};
    test_side_init(&door->side, event, program);
    door->config = (struct flyt_door_config){.peer = door->side.config, .admit = on_admit};
    _Static_assert(offsetof(struct test_door, side) == 0, "the door's user is its side's too");
}

void test_door_open(struct test_door *door, const char *url, struct flyt_tls *tls)
{
    struct flyt_error err = {0};

    if (flyt_listen(url, &err, &door->listen_fd, door->url))
        fail_msg("%s", err.text);
    assert_int_equal(flyt_door_new(door->listen_fd, tls, &door->config, &door->door), 0);
}

void test_door_close(struct test_door *door)
{
    door->door = flyt_door_free(door->door);
    if (door->listen_fd >= 0)
        flyt_unlisten(door->url);
    door->listen_fd = flyt_close(door->listen_fd);
}

/* ---- calls ---- */

static void count_outcome(struct test_outcomes *outcomes, int status)
{
    outcomes->done_count++;
    outcomes->good_count += !status;
    outcomes->last_status = status;
}

void test_done(void *user, int status, void *result)
{
    struct test_outcomes *outcomes = user;

    count_outcome(outcomes, status);
    assert_true(!status == !!result);
    if (result)
        outcomes->last_sequence = ((const flyt_event *)result)->sequence;
}

void test_done_outcome(void *user, int status, void *result)
{
    count_outcome(user, status);
}

int test_call(struct flyt_peer *peer, uint32_t procedure, uint64_t sequence, uint64_t timeout_ms,
              struct test_outcomes *outcomes)
{
    flyt_event event = {.sequence = sequence, .kind = (char *)"test", .text = (char *)"some text"};

    return flyt_peer_call(peer, FLYT_CONTROL_PROGRAM, FLYT_CONTROL_VERSION, procedure, (xdrproc_t)xdr_flyt_event,
                          &event, (xdrproc_t)xdr_flyt_event, sizeof event, timeout_ms, outcomes ? test_done : NULL,
                          outcomes);
}

/* ---- the loop ---- */

void test_run_once(sd_event *event)
{
    int status = sd_event_run(event, (uint64_t)TEST_WAIT_S * 1000000);

    assert_true(status >= 0);
    if (!status)
        fail_msg("what was waited for did not happen in %d s", TEST_WAIT_S);
}

void test_run_idle(sd_event *event)
{
    while (sd_event_run(event, 1000) > 0)
        ;
}

/* ---- raw sockets ---- */

int test_raw_connect(const char *url)
{
    struct flyt_error err;
    int fd;

    if (flyt_connect(url, TEST_WAIT_S * 1000, &err, &fd))
        fail_msg("%s", err.text);
    assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    return fd;
}

size_t test_raw_read(sd_event *event, int fd, void *data, size_t bytes)
{
    size_t done = 0;

    for (unsigned turns = 0; done < bytes;) {
        ssize_t received = recv(fd, (char *)data + done, bytes - done, 0);
        if (!received || (received < 0 && errno != EAGAIN))
            break;
        if (received > 0) {
            done += (size_t)received;
            continue;
        }
        assert_true(turns++ < TEST_WAIT_S * 1000);
        sd_event_run(event, 1000);
    }
    return done;
}

size_t test_raw_write(sd_event *event, int fd, const void *data, size_t bytes)
{
    size_t done = 0;

    for (unsigned turns = 0; done < bytes;) {
        ssize_t sent = send(fd, (const char *)data + done, bytes - done, MSG_NOSIGNAL);
        if (sent < 0 && errno != EAGAIN)
            break;
        if (sent > 0) {
            done += (size_t)sent;
            continue;
        }
        if (turns++ > 1000)
            break;
        sd_event_run(event, 1000);
    }
    return done;
}

size_t test_raw_call(unsigned char *data, uint32_t xid, const uint32_t *words, unsigned count)
{
    uint32_t mark = htonl(0x80000000u | (4 + 4 * count)), word = htonl(xid);

    memcpy(data, &mark, 4);
    memcpy(data + 4, &word, 4);
    for (unsigned i = 0; i < count; i++) {
        word = htonl(words[i]);
        memcpy(data + 8 + 4 * i, &word, 4);
    }
    return 8 + 4 * count;
}
