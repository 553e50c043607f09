#include "cpu/image/answer.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cpu/image/checksum.h"

size_t flyt_answer_put(const struct flyt_answer *answer, unsigned char *ret_bytes)
{
    flyt_checkpoint_answer body = {.is_final = answer->is_final,
                                   .status = answer->status,
                                   .sequence = answer->sequence,
                                   .extent_count = answer->extent_count,
                                   .page_count = answer->page_count,
                                   .sentence = (char *)answer->sentence};
    unsigned char *encoded = ret_bytes + FLYT_RECORD_HEAD_BYTES;
    XDR xdrs;

    xdrmem_create(&xdrs, (char *)encoded, FLYT_ANSWER_BYTES_MAX - FLYT_RECORD_HEAD_BYTES, XDR_ENCODE);
    xdr_flyt_checkpoint_answer(&xdrs, &body); /* fits: the sentence is bounded */
    const struct flyt_record_head head = {.type = FLYT_CHECKPOINT_ANSWER,
                                          .body_bytes = xdr_getpos(&xdrs),
                                          .body_checksum = flyt_checkpoint_checksum(0, encoded, xdr_getpos(&xdrs)),
                                          .payload_checksum = flyt_checkpoint_checksum(0, NULL, 0)};
    flyt_record_head_put(&head, ret_bytes);
    return FLYT_RECORD_HEAD_BYTES + head.body_bytes;
}

static bool decode(const unsigned char *body, uint32_t bytes, struct flyt_answer *ret_answer)
{
    flyt_checkpoint_answer answer = {.sentence = NULL};
    XDR xdrs;

    xdrmem_create(&xdrs, (char *)body, bytes, XDR_DECODE);
    bool is_answer = xdr_flyt_checkpoint_answer(&xdrs, &answer) && xdr_getpos(&xdrs) == bytes && answer.status <= 0 &&
                     (answer.is_final || !answer.status);
    if (is_answer) {
        *ret_answer = (struct flyt_answer){.is_final = answer.is_final,
                                           .status = answer.status,
                                           .sequence = answer.sequence,
                                           .extent_count = answer.extent_count,
                                           .page_count = answer.page_count};
        snprintf(ret_answer->sentence, sizeof ret_answer->sentence, "%s", answer.sentence);
    }
    xdr_free((xdrproc_t)xdr_flyt_checkpoint_answer, &answer);
    return is_answer;
}

int flyt_answer_get(const unsigned char *bytes, size_t count, struct flyt_answer *ret_answer)
{
    struct flyt_record_head head;

    if (count < FLYT_RECORD_HEAD_BYTES)
        return 0;
    if (!flyt_record_head_get(bytes, &head) || head.type != FLYT_CHECKPOINT_ANSWER || head.payload_bytes ||
        head.body_bytes > FLYT_ANSWER_BYTES_MAX - FLYT_RECORD_HEAD_BYTES)
        return -EBADMSG;
    if (count < FLYT_RECORD_HEAD_BYTES + head.body_bytes)
        return 0;
    const unsigned char *body = bytes + FLYT_RECORD_HEAD_BYTES;
    if (flyt_checkpoint_checksum(0, body, head.body_bytes) != head.body_checksum ||
        !decode(body, head.body_bytes, ret_answer))
        return -EBADMSG;
    return (int)(FLYT_RECORD_HEAD_BYTES + head.body_bytes);
}
