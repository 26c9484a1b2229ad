#include "cluster/model_link.h"

#include "base/pack.h"

#include <math.h>
#include <string.h>

enum { BEAT_MS = 2000, SILENCE_MS = 15000 };

void sh_model_message_pack(sh_buf *out, const sh_model_message *m)
{
    sh_buf body = {0};
    sh_put_uint(&body, (uint64_t)m->kind, 1);
    sh_put_uint(&body, m->load, 8);
    sh_put_double(&body, m->memory);
    sh_put_uint(&body, m->rank, 1);
    sh_put_uint(&body, m->ranks, 1);
    sh_put_uint(&body, m->port, 2);
    sh_put_uint(&body, m->kv_tokens, 8);
    sh_put_text(&body, sh_str_of(m->name));
    sh_put_text(&body, sh_str_of(m->dir));
    sh_put_text(&body, sh_str_of(m->text));
    sh_frame_pack_body(out, SH_FRAME_MODELS, sh_buf_str(&body));
    sh_buf_reset(&body);
}

/* A text that fits, without control characters. */
static void text_get(sh_reader *r, char *out, size_t cap)
{
    sh_str text = sh_get_text(r);
    bool fine = !r->failed && text.len < cap && sh_utf8_valid(text.ptr, text.len);
    for (size_t i = 0; fine && i < text.len; i++) fine = (unsigned char)text.ptr[i] >= ' ';
    if (!fine) r->failed = true;
    if (fine && text.len > 0) memcpy(out, text.ptr, text.len);
    out[fine ? text.len : 0] = '\0';
}

sh_status sh_model_message_unpack(const uint8_t *data, size_t len, sh_model_message *out,
                                  sh_err *err)
{
    sh_reader r = sh_reader_of((sh_str){(const char *)data, len});
    uint64_t kind = sh_get_uint(&r, 1);
    *out = (sh_model_message){.load = sh_get_uint(&r, 8), .memory = sh_get_double(&r)};
    out->rank = (uint32_t)sh_get_uint(&r, 1);
    out->ranks = (uint32_t)sh_get_uint(&r, 1);
    out->port = (uint16_t)sh_get_uint(&r, 2);
    out->kv_tokens = sh_get_uint(&r, 8);
    text_get(&r, out->name, sizeof(out->name));
    text_get(&r, out->dir, sizeof(out->dir));
    text_get(&r, out->text, sizeof(out->text));
    bool starts = kind == SH_MODEL_START;
    if (kind < SH_MODEL_HOST || kind >= SH_MODEL_KIND_END || !isfinite(out->memory) ||
        out->memory < 0 || out->kv_tokens > INT64_MAX || out->ranks > SH_RANKS_MAX ||
        (starts && (out->rank == 0 || out->rank >= out->ranks || out->port == 0)))
        r.failed = true;
    out->kind = (sh_model_message_kind)kind;
    return sh_get_end(&r, "a message about models", err);
}

void sh_model_link_open(sh_model_link *link, sh_peer_conn *conn)
{
    *link = (sh_model_link){.conn = conn, .silent_at = sh_deadline_in_ms(SILENCE_MS)};
}

void sh_model_link_close(sh_model_link *link)
{
    sh_peer_conn_close(link->conn);
    link->conn = NULL;
}

/* Sent by the next step. */
void sh_model_link_send(sh_model_link *link, const sh_model_message *message)
{
    if (link->conn != NULL) sh_model_message_pack(sh_peer_conn_out(link->conn), message);
}

sh_status sh_model_link_step(sh_model_link *link, sh_model_message *out, sh_err *err)
{
    sh_frame_head head;
    const uint8_t *payload;
    if (sh_deadline_passed(link->beat_at)) {
        link->beat_at = sh_deadline_in_ms(BEAT_MS);
        sh_model_link_send(link, &(sh_model_message){.kind = SH_MODEL_ALIVE});
    }
    sh_status status = sh_peer_conn_flush(link->conn, err);
    if (status < 0) return status;
    while ((status = sh_peer_conn_recv(link->conn, &head, &payload, err)) == SH_OK) {
        link->silent_at = sh_deadline_in_ms(SILENCE_MS);
        if (head.type != SH_FRAME_MODELS)
            return sh_err_set(err, SH_ERR_PEER, "%s sent a frame that has no place here",
                              sh_peer_conn_name(link->conn));
        status = sh_model_message_unpack(payload, head.len, out, err);
        if (status != SH_OK || out->kind != SH_MODEL_ALIVE) return status;
    }
    if (status == SH_AGAIN && sh_deadline_passed(link->silent_at))
        return sh_err_set(err, SH_ERR_TIMEOUT, "%s has been silent for %d s",
                          sh_peer_conn_name(link->conn), SILENCE_MS / 1000);
    return status;
}
