/* Sealing is ChaCha20-Poly1305 with a random iv of 96 bits. A machine sends a few packets a second
 * at most, so that two with the same iv are not to be expected within the life of a token. The head
 * is authenticated along with the body: a query cannot be passed off as an answer. */
#include "discover/packet.h"

#include "base/pack.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <string.h>

enum {
    MAGIC_LEN = 4,
    VERSION = 1,
    KIND_QUERY = 1,
    KIND_ANSWER = 2,
    KIND_AT = MAGIC_LEN + 1,
    NETWORK_AT = 8,
    IV_AT = NETWORK_AT + SH_PACKET_NETWORK_LEN,
    IV_LEN = 12,
    BODY_AT = IV_AT + IV_LEN,
    SEAL_LEN = 16,
    SEAL_AT = SH_PACKET_LEN - SEAL_LEN,
    V4_LEN = 4,
    V6_LEN = 16,
};
_Static_assert(BODY_AT + SH_PACKET_BODY_LEN == SEAL_AT, "the parts fill the packet");

static const uint8_t MAGIC[MAGIC_LEN] = {'S', 'H', 'D', 0x1a};

void sh_packet_key_init(sh_packet_key *key, const char *token)
{
    uint8_t id[SH_CLUSTER_TOKEN_KEY_LEN];
    sh_cluster_token_key(token, SH_TOKEN_KEY_DISCOVERY, key->seal);
    sh_cluster_token_key(token, SH_TOKEN_KEY_DISCOVERY_ID, id);
    memcpy(key->network, id, sizeof(key->network));
}

static void put_addr(sh_buf *out, const sh_addr *addr)
{
    bool v6 = addr->sa.any.sa_family == AF_INET6;
    sh_put_uint(out, v6 ? V6_LEN : V4_LEN, 1);
    if (v6)
        sh_buf_add(out, &addr->sa.v6.sin6_addr, V6_LEN);
    else
        sh_buf_add(out, &addr->sa.v4.sin_addr, V4_LEN);
}

static void answer_write(const sh_answer_packet *a, sh_buf *out)
{
    sh_buf_add(out, a->node, sizeof(a->node));
    sh_put_uint(out, a->rank, 4);
    sh_put_uint(out, a->world, 4);
    sh_put_uint(out, a->port, 2);
    sh_put_text(out, sh_str_of(a->host));
    sh_put_text(out, sh_str_of(a->model));
    sh_put_uint(out, (uint64_t)a->addr_count, 1);
    for (int i = 0; i < a->addr_count; i++) put_addr(out, &a->addr[i]);
}

void sh_packet_body_write(const sh_packet *packet, uint8_t body[SH_PACKET_BODY_LEN])
{
    sh_buf out = {0};
    if (packet->is_query) {
        sh_buf_add(&out, packet->as.query.nonce, SH_PACKET_NONCE_LEN);
        sh_put_uint(&out, packet->as.query.seek, 1);
    } else {
        sh_buf_add(&out, packet->as.answer.nonce, SH_PACKET_NONCE_LEN);
        answer_write(&packet->as.answer, &out);
    }
    SH_ASSERT(out.len <= SH_PACKET_BODY_LEN); /* the sum of all bounds is less */
    memset(body, 0, SH_PACKET_BODY_LEN);
    memcpy(body, out.ptr, out.len);
    sh_buf_reset(&out);
}

static void get_bytes(sh_reader *r, void *out, size_t len)
{
    const void *data = sh_get_array(r, len, 1);
    if (data != NULL) memcpy(out, data, len);
}

static void get_text(sh_reader *r, char *out, size_t cap)
{
    sh_str text = sh_get_text(r);
    if (text.len >= cap || !sh_utf8_valid(text.ptr, text.len) ||
        (text.len > 0 && memchr(text.ptr, '\0', text.len) != NULL))
        r->failed = true;
    if (r->failed) return;
    memcpy(out, text.ptr, text.len);
    out[text.len] = '\0';
}

static void get_addr(sh_reader *r, uint16_t port, sh_addr *out)
{
    uint64_t len = sh_get_uint(r, 1);
    memset(out, 0, sizeof(*out));
    if (len == V4_LEN) {
        out->sa.v4.sin_family = AF_INET;
        out->len = sizeof(out->sa.v4);
        get_bytes(r, &out->sa.v4.sin_addr, V4_LEN);
    } else if (len == V6_LEN) {
        out->sa.v6.sin6_family = AF_INET6;
        out->len = sizeof(out->sa.v6);
        get_bytes(r, &out->sa.v6.sin6_addr, V6_LEN);
        if (IN6_IS_ADDR_LINKLOCAL(&out->sa.v6.sin6_addr)) r->failed = true;
    } else {
        r->failed = true;
        return;
    }
    sh_addr_set_port(out, port);
}

static void answer_read(sh_reader *r, sh_answer_packet *out)
{
    get_bytes(r, out->node, sizeof(out->node));
    out->rank = (uint32_t)sh_get_uint(r, 4);
    out->world = (uint32_t)sh_get_uint(r, 4);
    out->port = (uint16_t)sh_get_uint(r, 2);
    get_text(r, out->host, sizeof(out->host));
    get_text(r, out->model, sizeof(out->model));
    uint64_t count = sh_get_uint(r, 1);
    if (count > SH_LANES_MAX || out->rank > SH_RANK_ANY || out->world > SH_RANKS_MAX ||
        out->port == 0)
        r->failed = true;
    out->addr_count = r->failed ? 0 : (int)count;
    for (int i = 0; i < out->addr_count && !r->failed; i++) get_addr(r, out->port, &out->addr[i]);
}

static bool is_padding(const sh_reader *r)
{
    for (size_t i = 0; i < r->left; i++)
        if (r->ptr[i] != 0) return false;
    return true;
}

sh_status sh_packet_body_read(bool is_query, const uint8_t body[SH_PACKET_BODY_LEN], sh_packet *out,
                              sh_err *err)
{
    sh_reader r = sh_reader_of((sh_str){(const char *)body, SH_PACKET_BODY_LEN});
    sh_packet packet = {.is_query = is_query};
    if (is_query) {
        get_bytes(&r, packet.as.query.nonce, SH_PACKET_NONCE_LEN);
        uint64_t seek = sh_get_uint(&r, 1);
        if (seek < SH_SEEK_SERVER || seek >= SH_SEEK_END) r.failed = true;
        packet.as.query.seek = r.failed ? SH_SEEK_SERVER : (sh_seek)seek;
    } else {
        get_bytes(&r, packet.as.answer.nonce, SH_PACKET_NONCE_LEN);
        answer_read(&r, &packet.as.answer);
    }
    if (r.failed || !is_padding(&r))
        return sh_err_set(err, SH_ERR_PEER, "a malformed %s of this network",
                          is_query ? "query" : "answer");
    *out = packet;
    return SH_OK;
}

static void head_write(const sh_packet_key *key, int kind, uint8_t out[SH_PACKET_LEN])
{
    memset(out, 0, BODY_AT);
    memcpy(out, MAGIC, sizeof(MAGIC));
    out[MAGIC_LEN] = VERSION;
    out[KIND_AT] = (uint8_t)kind;
    memcpy(out + NETWORK_AT, key->network, SH_PACKET_NETWORK_LEN);
    sh_random(out + IV_AT, IV_LEN);
}

static void seal(const sh_packet_key *key, const sh_packet *packet, uint8_t out[SH_PACKET_LEN])
{
    uint8_t body[SH_PACKET_BODY_LEN];
    int len = 0;
    head_write(key, packet->is_query ? KIND_QUERY : KIND_ANSWER, out);
    sh_packet_body_write(packet, body);
    EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
    bool ok = ctx != NULL &&
              EVP_EncryptInit_ex(ctx, EVP_chacha20_poly1305(), NULL, key->seal, out + IV_AT) == 1 &&
              EVP_EncryptUpdate(ctx, NULL, &len, out, BODY_AT) == 1 &&
              EVP_EncryptUpdate(ctx, out + BODY_AT, &len, body, sizeof(body)) == 1 &&
              EVP_EncryptFinal_ex(ctx, out + SEAL_AT, &len) == 1 &&
              EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_GET_TAG, SEAL_LEN, out + SEAL_AT) == 1;
    EVP_CIPHER_CTX_free(ctx);
    SH_ASSERT(ok); /* no input decides about it */
}

void sh_query_seal(const sh_packet_key *key, const sh_query *query, uint8_t out[SH_PACKET_LEN])
{
    sh_packet packet = {.is_query = true, .as.query = *query};
    seal(key, &packet, out);
}

void sh_answer_seal(const sh_packet_key *key, const sh_answer_packet *answer,
                    uint8_t out[SH_PACKET_LEN])
{
    sh_packet packet = {.as.answer = *answer};
    seal(key, &packet, out);
}

bool sh_packet_is_ours(const sh_packet_key *key, const uint8_t *data, size_t len)
{
    static const uint8_t zeros[NETWORK_AT - KIND_AT - 1];
    return len == SH_PACKET_LEN && memcmp(data, MAGIC, MAGIC_LEN) == 0 &&
           data[MAGIC_LEN] == VERSION &&
           (data[KIND_AT] == KIND_QUERY || data[KIND_AT] == KIND_ANSWER) &&
           memcmp(data + KIND_AT + 1, zeros, sizeof(zeros)) == 0 &&
           memcmp(data + NETWORK_AT, key->network, SH_PACKET_NETWORK_LEN) == 0;
}

sh_status sh_packet_open(const sh_packet_key *key, const uint8_t data[SH_PACKET_LEN],
                         sh_packet *out, sh_err *err)
{
    uint8_t body[SH_PACKET_BODY_LEN], sealed[SEAL_LEN];
    int len = 0;
    memcpy(sealed, data + SEAL_AT, SEAL_LEN); /* OpenSSL takes it without const */
    EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
    bool ok = ctx != NULL &&
              EVP_DecryptInit_ex(ctx, EVP_chacha20_poly1305(), NULL, key->seal, data + IV_AT) ==
                  1 &&
              EVP_DecryptUpdate(ctx, NULL, &len, data, BODY_AT) == 1 &&
              EVP_DecryptUpdate(ctx, body, &len, data + BODY_AT, sizeof(body)) == 1 &&
              EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_SET_TAG, SEAL_LEN, sealed) == 1 &&
              EVP_DecryptFinal_ex(ctx, body + sizeof(body), &len) == 1;
    EVP_CIPHER_CTX_free(ctx);
    if (!ok) return sh_err_set(err, SH_ERR_AUTH, "a packet that was not sealed with this token");
    return sh_packet_body_read(data[KIND_AT] == KIND_QUERY, body, out, err);
}
