/* Bytes from a peer; the first one selects the decoder. The packer must reproduce what a decoder
 * accepts, so a decoder cannot invent anything. */
#include "net/transport.h"

#include "base/status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Packs again and compares with the input. */
static void same_as_input(const sh_buf *out, const uint8_t *data, size_t len)
{
    SH_ASSERT(out->len == len + SH_FRAME_HEAD_LEN);
    SH_ASSERT(memcmp(out->ptr + SH_FRAME_HEAD_LEN, data, len) == 0);
}

static void try_hello(const uint8_t *data, size_t len, sh_buf *out)
{
    static const sh_hello mine = {
        .protocol = SH_PEER_PROTOCOL, .world = 4, .version = "0.1.0", .lanes = 1};
    sh_hello hello;
    sh_err err;
    if (sh_hello_unpack(data, len, &hello, &err) != SH_OK) return;
    if (sh_hello_compare(&mine, &hello, &err) == SH_OK)
        SH_ASSERT(hello.rank < mine.world || hello.world == 0);
    if (hello.protocol != SH_PEER_PROTOCOL) return;
    SH_ASSERT(hello.rank <= SH_RANK_ANY && hello.socket < SH_SOCKETS_MAX);
    SH_ASSERT(hello.to < SH_RANKS_MAX);
    sh_hello_pack(out, SH_FRAME_HELLO, &hello);
    same_as_input(out, data, len);
}

static void try_notice(const uint8_t *data, size_t len, sh_buf *out)
{
    sh_notice notice;
    sh_err err;
    if (sh_notice_unpack(data, len, &notice, &err) != SH_OK) return;
    sh_notice_pack(out, SH_FRAME_ABORT, &notice);
    same_as_input(out, data, len);
}

static void try_table(const uint8_t *data, size_t len, sh_buf *out)
{
    static sh_rank_table table;
    sh_err err;
    if (sh_rank_table_unpack(data, len, &table, &err) != SH_OK) return;
    sh_rank_table_pack(out, &table);
    same_as_input(out, data, len);
}

/* A peer's offers also go to the transports, which answer them, and into the choice, which must be
 * the same from both ends. */
static void try_offers(const uint8_t *data, size_t len, sh_buf *out)
{
    static sh_offers theirs, mine;
    static const sh_pair pair = {.rank = 0, .peer = 1, .same_host = true, .lanes = 1};
    sh_err err, same;
    if (sh_offers_unpack(data, len, &theirs, &err) != SH_OK) return;
    sh_offers_pack(out, &theirs);
    same_as_input(out, data, len);
    mine = (sh_offers){.rank = theirs.rank + 1};
    for (int i = 0; sh_transports[i] != NULL; i++) {
        const sh_transport *t = sh_transports[i];
        const sh_offer *their = sh_offers_find(&theirs, t);
        sh_offer *offer = &mine.offer[mine.count++];
        void *state = NULL;
        snprintf(offer->transport, sizeof(offer->transport), "%s", t->name);
        if (their == NULL || t->offer(&pair, their, offer, &state, &err) != SH_OK) continue;
        offer->state = SH_OFFER_MADE;
        if (state != NULL) t->withdraw(state);
    }
    const sh_transport *a = NULL, *b = NULL;
    sh_status status = sh_transport_choose(sh_transports, &mine, &theirs, &a, &err);
    SH_ASSERT(sh_transport_choose(sh_transports, &theirs, &mine, &b, &same) == status && a == b);
    SH_ASSERT(status == SH_OK || strcmp(err.text, same.text) == 0);
}

static void try_beat(const uint8_t *data, size_t len, sh_buf *out)
{
    sh_heartbeat beat;
    sh_err err;
    if (sh_heartbeat_unpack(data, len, &beat, &err) != SH_OK) return;
    sh_heartbeat_pack(out, &beat);
    same_as_input(out, data, len);
}

static void try_heads(const uint8_t *data, size_t len)
{
    sh_frame_head frame;
    sh_op_head op;
    sh_err err;
    if (len >= SH_FRAME_HEAD_LEN && sh_frame_head_unpack(data, &frame, &err) == SH_OK)
        SH_ASSERT(frame.len <= SH_FRAME_LEN_MAX);
    if (len >= SH_OP_HEAD_LEN && sh_op_head_unpack(data, &op, &err) == SH_OK) {
        uint8_t again[SH_OP_HEAD_LEN];
        sh_op_head_pack(&op, again);
        SH_ASSERT(memcmp(again, data, 32) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    sh_buf out = {0};
    if (len == 0 || len > SH_FRAME_LEN_MAX) return 0;
    /* A copy of the exact length, so that a sanitizer sees a read past its end. */
    uint8_t *copy = malloc(len > 1 ? len - 1 : 1);
    memcpy(copy, data + 1, len - 1);
    switch (data[0] % 6) {
    case 0: try_hello(copy, len - 1, &out); break;
    case 1: try_notice(copy, len - 1, &out); break;
    case 2: try_table(copy, len - 1, &out); break;
    case 3: try_beat(copy, len - 1, &out); break;
    case 4: try_offers(copy, len - 1, &out); break;
    default: try_heads(copy, len - 1); break;
    }
    free(copy);
    sh_buf_reset(&out);
    return 0;
}
