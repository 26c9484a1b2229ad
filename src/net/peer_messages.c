/* Every byte here may come from a program that only claims to be a rank: another version, a port
 * scanner, or an attacker where no token is set. So unpacking never trusts a length. A reader that
 * runs out of bytes is marked as failed and yields zeros, bad values mark it as well, and get_end
 * checks the mark once; a struct is handed out only if all of it was good.
 *
 * Frames start with a magic byte so that bytes of another protocol are recognized at once instead
 * of being taken for a huge length; the hello has a longer magic of its own. */
#include "net/peer_messages.h"

#include "base/pack.h"
#include "base/str.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const uint8_t HELLO_MAGIC[8] = {'S', 'H', 'O', 'A', 'L', 0x0d, 0x0a, 0x1a};
enum { FRAME_MAGIC = 0x5f, OP_MAGIC = 0x314f4853 };

static void put_text(sh_buf *out, const char *text)
{
    size_t len = strlen(text);
    sh_put_uint(out, len, 2);
    sh_buf_add(out, text, len);
}

static void put_addrs(sh_buf *out, const sh_addr_list *list)
{
    sh_put_uint(out, (uint64_t)list->count, 1);
    sh_put_uint(out, list->alternatives, 1);
    for (int i = 0; i < list->count; i++) put_text(out, list->text[i]);
}

/* Appends a header whose length is filled in by frame_close; returns its offset. */
static size_t frame_open(sh_buf *out, sh_frame_type type)
{
    size_t at = out->len;
    sh_put_uint(out, FRAME_MAGIC, 1);
    sh_put_uint(out, (uint64_t)type, 1);
    sh_put_uint(out, 0, 2 + 4); /* reserved, length */
    return at;
}

static void frame_close(sh_buf *out, size_t at)
{
    size_t len = out->len - at - SH_FRAME_HEAD_LEN;
    SH_ASSERT(len <= SH_FRAME_LEN_MAX);
    for (int i = 0; i < 4; i++) out->ptr[at + 4 + (size_t)i] = (char)(len >> (8 * i));
}

void sh_frame_pack(sh_buf *out, sh_frame_type type)
{
    frame_close(out, frame_open(out, type));
}

void sh_frame_pack_body(sh_buf *out, sh_frame_type type, sh_str body)
{
    size_t at = frame_open(out, type);
    sh_buf_add_str(out, body);
    frame_close(out, at);
}

void sh_hello_pack(sh_buf *out, sh_frame_type type, const sh_hello *hello)
{
    size_t at = frame_open(out, type);
    sh_buf_add(out, HELLO_MAGIC, sizeof(HELLO_MAGIC));
    sh_put_uint(out, hello->protocol, 4);
    sh_put_uint(out, hello->rank, 4);
    sh_put_uint(out, hello->world, 4);
    put_text(out, hello->version);
    put_text(out, hello->group);
    sh_buf_add(out, hello->model, sizeof(hello->model));
    sh_buf_add(out, hello->host, sizeof(hello->host));
    sh_buf_add(out, hello->node, sizeof(hello->node));
    sh_put_uint(out, hello->life, 8);
    sh_put_uint(out, hello->epoch, 8);
    sh_put_uint(out, hello->left, 8);
    sh_put_uint(out, hello->prepared, 8);
    sh_put_uint(out, hello->to, 4);
    sh_put_uint(out, hello->given_rank, 4);
    sh_put_uint(out, (uint64_t)hello->use, 1);
    sh_put_uint(out, hello->socket, 1);
    sh_put_uint(out, hello->lanes, 1);
    sh_put_uint(out, hello->plain_data, 1);
    put_addrs(out, &hello->listen);
    frame_close(out, at);
}

static void cut_text(char *out, size_t cap, const char *text)
{
    snprintf(out, cap, "%s", text);
    out[sh_utf8_valid_prefix(out, strlen(out))] = '\0';
}

void sh_notice_set(sh_notice *notice, int rank, const char *text)
{
    notice->rank = rank >= 0 && rank < SH_RANKS_MAX ? rank : -1;
    cut_text(notice->text, sizeof(notice->text), text);
}

void sh_offer_refuse(sh_offer *offer, sh_offer_state state, const char *why)
{
    offer->state = state;
    cut_text(offer->why, sizeof(offer->why), why);
}

void sh_notice_pack(sh_buf *out, sh_frame_type type, const sh_notice *notice)
{
    size_t at = frame_open(out, type);
    sh_put_uint(out, (uint32_t)notice->rank, 4);
    put_text(out, notice->text);
    frame_close(out, at);
}

void sh_rank_table_pack(sh_buf *out, const sh_rank_table *table)
{
    size_t at = frame_open(out, SH_FRAME_TABLE);
    sh_put_uint(out, table->epoch, 8);
    sh_put_uint(out, table->left, 8);
    sh_put_uint(out, table->count, 4);
    for (uint32_t i = 0; i < table->count; i++) {
        sh_buf_add(out, table->row[i].host, SH_HOST_ID_LEN);
        put_addrs(out, &table->row[i].addrs);
    }
    frame_close(out, at);
}

void sh_offers_pack(sh_buf *out, const sh_offers *offers)
{
    size_t at = frame_open(out, SH_FRAME_OFFERS);
    sh_put_uint(out, offers->rank, 4);
    put_text(out, offers->wanted);
    sh_put_uint(out, (uint64_t)offers->count, 1);
    for (int i = 0; i < offers->count; i++) {
        const sh_offer *offer = &offers->offer[i];
        put_text(out, offer->transport);
        sh_put_uint(out, (uint64_t)offer->state, 1);
        put_text(out, offer->why);
        sh_put_uint(out, offer->body_len, 2);
        sh_buf_add(out, offer->body, offer->body_len);
    }
    frame_close(out, at);
}

void sh_heartbeat_pack(sh_buf *out, const sh_heartbeat *beat)
{
    size_t at = frame_open(out, SH_FRAME_HEARTBEAT);
    sh_put_uint(out, beat->progress, 8);
    sh_put_uint(out, beat->silence_ms, 4);
    sh_put_uint(out, beat->leaving, 1);
    sh_put_uint(out, beat->load.done, 8);
    sh_put_uint(out, beat->load.total, 8);
    sh_put_uint(out, beat->load.link, 8);
    frame_close(out, at);
}

static sh_reader reader_of(const uint8_t *data, size_t len)
{
    return sh_reader_of((sh_str){(const char *)data, len});
}

static void get_bytes(sh_reader *r, void *out, size_t len)
{
    const void *data = sh_get_array(r, len, 1);
    if (data == NULL)
        memset(out, 0, len);
    else
        memcpy(out, data, len);
}

/* cap includes the terminating zero. A zero byte inside the text is an error: it would make what is
 * compared differ from what is shown. */
static void get_text(sh_reader *r, char *out, size_t cap)
{
    size_t len = sh_get_uint(r, 2);
    if (len >= cap) r->failed = true;
    if (r->failed) len = 0;
    get_bytes(r, out, len);
    out[r->failed ? 0 : len] = '\0';
    if (strlen(out) != len || !sh_utf8_valid(out, len)) r->failed = true;
}

static void get_addrs(sh_reader *r, sh_addr_list *out)
{
    size_t count = sh_get_uint(r, 1);
    uint64_t alternatives = sh_get_uint(r, 1);
    if (count > SH_LANES_MAX || alternatives > 1) r->failed = true;
    out->alternatives = alternatives == 1;
    out->count = r->failed ? 0 : (int)count;
    for (int i = 0; i < out->count; i++) get_text(r, out->text[i], SH_ADDR_TEXT_MAX);
}

static sh_status get_end(const sh_reader *r, const char *what, sh_err *err)
{
    if (r->failed || r->left != 0)
        return sh_err_set(err, SH_ERR_PEER, "received a malformed %s frame", what);
    return SH_OK;
}

sh_status sh_frame_head_unpack(const uint8_t data[SH_FRAME_HEAD_LEN], sh_frame_head *out,
                               sh_err *err)
{
    sh_reader r = reader_of(data, SH_FRAME_HEAD_LEN);
    uint64_t magic = sh_get_uint(&r, 1);
    uint64_t type = sh_get_uint(&r, 1);
    uint64_t zero = sh_get_uint(&r, 2);
    uint64_t len = sh_get_uint(&r, 4);
    if (magic != FRAME_MAGIC || zero != 0 || type < SH_FRAME_HELLO || type >= SH_FRAME_TYPE_END ||
        len > SH_FRAME_LEN_MAX)
        return sh_err_set(err, SH_ERR_PEER, "received bytes that are not a Shoal frame");
    *out = (sh_frame_head){(sh_frame_type)type, (uint32_t)len};
    return SH_OK;
}

/* Everything after the version: may change between protocols. Numbers that are used as an index or
 * shifted by later (use, socket, lanes, rank) are checked against their bounds here. */
static void get_hello_rest(sh_reader *r, sh_hello *out)
{
    get_text(r, out->group, sizeof(out->group));
    get_bytes(r, out->model, sizeof(out->model));
    get_bytes(r, out->host, sizeof(out->host));
    get_bytes(r, out->node, sizeof(out->node));
    out->life = sh_get_uint(r, 8);
    out->epoch = sh_get_uint(r, 8);
    out->left = sh_get_uint(r, 8);
    out->prepared = sh_get_uint(r, 8);
    out->to = (uint32_t)sh_get_uint(r, 4);
    out->given_rank = (uint32_t)sh_get_uint(r, 4);
    uint64_t use = sh_get_uint(r, 1);
    out->socket = (uint8_t)sh_get_uint(r, 1);
    out->lanes = (uint8_t)sh_get_uint(r, 1);
    uint64_t plain = sh_get_uint(r, 1);
    get_addrs(r, &out->listen);
    int sockets = use == SH_USE_DATA ? 2 * out->lanes : 1;
    bool any = use == SH_USE_JOIN || use == SH_USE_MODELS || use == SH_USE_WEIGHTS;
    uint32_t ranks = any ? SH_RANK_ANY + 1 : SH_RANKS_MAX;
    if (use < SH_USE_JOIN || use >= SH_USE_END || plain > 1 || out->lanes > SH_LANES_MAX ||
        out->socket >= sockets || out->rank >= ranks || out->given_rank >= SH_RANKS_MAX ||
        out->to >= SH_RANKS_MAX || out->world > SH_RANKS_MAX)
        r->failed = true;
    out->use = r->failed ? SH_USE_JOIN : (sh_peer_conn_use)use;
    out->plain_data = plain == 1;
}

sh_status sh_hello_unpack(const uint8_t *data, size_t len, sh_hello *out, sh_err *err)
{
    sh_reader r = reader_of(data, len);
    sh_hello hello = {0};
    uint8_t magic[sizeof(HELLO_MAGIC)];
    get_bytes(&r, magic, sizeof(magic));
    if (memcmp(magic, HELLO_MAGIC, sizeof(magic)) != 0) r.failed = true;
    hello.protocol = (uint32_t)sh_get_uint(&r, 4);
    hello.rank = (uint32_t)sh_get_uint(&r, 4);
    hello.world = (uint32_t)sh_get_uint(&r, 4);
    get_text(&r, hello.version, sizeof(hello.version));
    if (hello.protocol == SH_PEER_PROTOCOL)
        get_hello_rest(&r, &hello);
    else
        r.left = 0; /* the rest has a layout that we do not know */
    sh_status status = get_end(&r, "hello", err);
    if (status == SH_OK) *out = hello;
    return status;
}

sh_status sh_notice_unpack(const uint8_t *data, size_t len, sh_notice *out, sh_err *err)
{
    sh_reader r = reader_of(data, len);
    sh_notice notice;
    notice.rank = (int32_t)sh_get_uint(&r, 4);
    get_text(&r, notice.text, sizeof(notice.text));
    if (notice.rank < -1 || notice.rank >= SH_RANKS_MAX) r.failed = true;
    sh_status status = get_end(&r, "notice", err);
    if (status == SH_OK) *out = notice;
    return status;
}

sh_status sh_rank_table_unpack(const uint8_t *data, size_t len, sh_rank_table *out, sh_err *err)
{
    sh_reader r = reader_of(data, len);
    out->epoch = sh_get_uint(&r, 8);
    out->left = sh_get_uint(&r, 8);
    out->count = (uint32_t)sh_get_uint(&r, 4);
    if (out->count > SH_RANKS_MAX) {
        r.failed = true;
        out->count = 0;
    }
    for (uint32_t i = 0; i < out->count; i++) {
        get_bytes(&r, out->row[i].host, SH_HOST_ID_LEN);
        get_addrs(&r, &out->row[i].addrs);
    }
    return get_end(&r, "table", err);
}

static void get_offer(sh_reader *r, sh_offer *out)
{
    get_text(r, out->transport, sizeof(out->transport));
    uint64_t state = sh_get_uint(r, 1);
    get_text(r, out->why, sizeof(out->why));
    out->body_len = (uint32_t)sh_get_uint(r, 2);
    if (state >= SH_OFFER_END || out->body_len > SH_OFFER_BODY_MAX) r->failed = true;
    if (r->failed) out->body_len = 0;
    out->state = r->failed ? SH_OFFER_NONE : (sh_offer_state)state;
    get_bytes(r, out->body, out->body_len);
}

sh_status sh_offers_unpack(const uint8_t *data, size_t len, sh_offers *out, sh_err *err)
{
    sh_reader r = reader_of(data, len);
    *out = (sh_offers){0};
    out->rank = (uint32_t)sh_get_uint(&r, 4);
    get_text(&r, out->wanted, sizeof(out->wanted));
    size_t count = sh_get_uint(&r, 1);
    if (count > SH_TRANSPORTS_MAX || out->rank >= SH_RANKS_MAX) r.failed = true;
    out->count = r.failed ? 0 : (int)count;
    for (int i = 0; i < out->count; i++) get_offer(&r, &out->offer[i]);
    return get_end(&r, "offers", err);
}

sh_status sh_heartbeat_unpack(const uint8_t *data, size_t len, sh_heartbeat *out, sh_err *err)
{
    sh_reader r = reader_of(data, len);
    sh_heartbeat beat;
    beat.progress = sh_get_uint(&r, 8);
    beat.silence_ms = (uint32_t)sh_get_uint(&r, 4);
    uint64_t leaving = sh_get_uint(&r, 1);
    if (leaving > 1) r.failed = true;
    beat.leaving = leaving == 1;
    beat.load.done = sh_get_uint(&r, 8);
    beat.load.total = sh_get_uint(&r, 8);
    beat.load.link = sh_get_uint(&r, 8);
    if (beat.load.done > beat.load.total || beat.load.link > INT64_MAX) r.failed = true;
    sh_status status = get_end(&r, "heartbeat", err);
    if (status == SH_OK) *out = beat;
    return status;
}

void sh_model_id_set_any(uint8_t model[SH_MODEL_ID_LEN])
{
    memset(model, 0xff, SH_MODEL_ID_LEN);
}

bool sh_model_id_is_any(const uint8_t model[SH_MODEL_ID_LEN])
{
    uint8_t any[SH_MODEL_ID_LEN];
    sh_model_id_set_any(any);
    return memcmp(model, any, SH_MODEL_ID_LEN) == 0;
}

/* An id of zeros stands for no model at all, which is not any model. */
static bool models_match(const uint8_t a[SH_MODEL_ID_LEN], const uint8_t b[SH_MODEL_ID_LEN])
{
    static const uint8_t none[SH_MODEL_ID_LEN];
    if (memcmp(a, b, SH_MODEL_ID_LEN) == 0) return true;
    return (sh_model_id_is_any(a) && memcmp(b, none, SH_MODEL_ID_LEN) != 0) ||
           (sh_model_id_is_any(b) && memcmp(a, none, SH_MODEL_ID_LEN) != 0);
}

static void hex(const uint8_t *data, size_t count, char *out)
{
    for (size_t i = 0; i < count; i++) snprintf(out + 2 * i, 3, "%02x", data[i]);
}

static sh_status differ(const sh_hello *mine, const sh_hello *theirs, const char *what,
                        const char *my_value, const char *their_value, sh_err *err)
{
    if (theirs->rank == SH_RANK_ANY)
        return sh_err_set(err, SH_ERR_GROUP, "a new rank has %s %s, but rank %" PRIu32 " has %s",
                          what, their_value, mine->rank, my_value);
    return sh_err_set(err, SH_ERR_GROUP, "rank %" PRIu32 " has %s %s, but rank %" PRIu32 " has %s",
                      theirs->rank, what, their_value, mine->rank, my_value);
}

static sh_status differ_number(const sh_hello *mine, const sh_hello *theirs, const char *what,
                               uint64_t my_value, uint64_t their_value, sh_err *err)
{
    char m[24];
    char t[24];
    snprintf(m, sizeof(m), "%" PRIu64, my_value);
    snprintf(t, sizeof(t), "%" PRIu64, their_value);
    return differ(mine, theirs, what, m, t, err);
}

/* The order matters: fields after the protocol are only set if the protocol is ours, and the
 * version is what a user can act on, so it is reported first. */
sh_status sh_hello_compare(const sh_hello *mine, const sh_hello *theirs, sh_err *err)
{
    if (strcmp(mine->version, theirs->version) != 0)
        return differ(mine, theirs, "version", mine->version, theirs->version, err);
    if (mine->protocol != theirs->protocol)
        return differ_number(mine, theirs, "link protocol", mine->protocol, theirs->protocol, err);
    if (strcmp(mine->group, theirs->group) != 0)
        return differ(mine, theirs, "group name", mine->group, theirs->group, err);
    /* A rank that was added later does not know how many there were at the start. */
    if (mine->world != theirs->world && mine->world != 0 && theirs->world != 0)
        return differ_number(mine, theirs, "world size", mine->world, theirs->world, err);
    if (theirs->rank >= theirs->world && theirs->world != 0)
        return sh_err_set(err, SH_ERR_GROUP, "rank %" PRIu32 " is outside a group of %" PRIu32,
                          theirs->rank, theirs->world);
    if (!models_match(mine->model, theirs->model)) {
        char m[17];
        char t[17];
        hex(mine->model, 8, m);
        hex(theirs->model, 8, t);
        return differ(mine, theirs, "model", m, t, err);
    }
    if (mine->plain_data != theirs->plain_data)
        return differ_number(mine, theirs, "plain data", mine->plain_data, theirs->plain_data, err);
    if (mine->lanes != theirs->lanes)
        return differ_number(mine, theirs, "pairs of sockets", mine->lanes, theirs->lanes, err);
    return SH_OK;
}

/* Operation headers are on the fast path: fixed offsets, no sh_buf, no allocation. */

static void store_u64(uint8_t *out, uint64_t value)
{
    for (int i = 0; i < 8; i++) out[i] = (uint8_t)(value >> (8 * i));
}

static uint64_t load_u64(const uint8_t *data)
{
    uint64_t value = 0;
    for (int i = 0; i < 8; i++) value |= (uint64_t)data[i] << (8 * i);
    return value;
}

void sh_op_head_pack(const sh_op_head *head, uint8_t out[SH_OP_HEAD_LEN])
{
    memset(out, 0, SH_OP_HEAD_LEN);
    store_u64(out, OP_MAGIC | (uint64_t)head->kind << 32);
    store_u64(out + 8, head->group);
    store_u64(out + 16, head->seq);
    store_u64(out + 24, head->size);
}

sh_status sh_op_head_unpack(const uint8_t data[SH_OP_HEAD_LEN], sh_op_head *out, sh_err *err)
{
    uint64_t start = load_u64(data);
    if ((uint32_t)start != OP_MAGIC)
        return sh_err_set(err, SH_ERR_GROUP,
                          "received bytes on a data connection that are not an operation header");
    *out = (sh_op_head){.kind = (uint32_t)(start >> 32),
                        .group = load_u64(data + 8),
                        .seq = load_u64(data + 16),
                        .size = load_u64(data + 24)};
    return SH_OK;
}
