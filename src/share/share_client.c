/* The asking side. A connection that fails is closed, and the load that needed it fails: the group
 * has lost rank 0 then, or is about to. */
#include "share/share_client.h"

#include "base/alloc.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { REPLY_MS = 60000 }; /* without a byte; rank 0 may read from a slow disk */

struct sh_share_client {
    sh_share_link link;
    pthread_mutex_t lock; /* guards what follows, up to `received` */
    pthread_cond_t returned;
    sh_stream idle[SH_SHARE_CONNS_MAX];
    int idle_count;
    int open_count; /* idle ones and those in use */
    int opened;     /* ever */
    atomic_uint_least64_t received;
};

sh_share_client *sh_share_client_create(const sh_share_link *link)
{
    sh_share_client *client = sh_alloc(sizeof(*client));
    client->link = *link;
    pthread_mutex_init(&client->lock, NULL);
    pthread_cond_init(&client->returned, NULL);
    return client;
}

void sh_share_client_free(sh_share_client *client)
{
    if (client == NULL) return;
    for (int i = 0; i < client->idle_count; i++) sh_stream_close(&client->idle[i]);
    pthread_cond_destroy(&client->returned);
    pthread_mutex_destroy(&client->lock);
    free(client);
}

/* Waits for a connection if all are in use. That ends: every use has a deadline. */
static sh_status conn_take(sh_share_client *client, sh_stream *out, sh_err *err)
{
    pthread_mutex_lock(&client->lock);
    while (client->idle_count == 0 && client->open_count == SH_SHARE_CONNS_MAX)
        pthread_cond_wait(&client->returned, &client->lock);
    bool idle = client->idle_count > 0;
    int index = client->opened;
    if (idle)
        *out = client->idle[--client->idle_count];
    else
        client->open_count++, client->opened++;
    pthread_mutex_unlock(&client->lock);
    if (idle) return SH_OK;
    sh_status status = client->link.open(client->link.ctx, index, out, err);
    if (status == SH_OK) return SH_OK;
    pthread_mutex_lock(&client->lock);
    client->open_count--;
    pthread_cond_signal(&client->returned);
    pthread_mutex_unlock(&client->lock);
    return status;
}

static void conn_return(sh_share_client *client, sh_stream *stream, bool good)
{
    if (!good) sh_stream_close(stream);
    pthread_mutex_lock(&client->lock);
    if (good)
        client->idle[client->idle_count++] = *stream;
    else
        client->open_count--;
    pthread_cond_signal(&client->returned);
    pthread_mutex_unlock(&client->lock);
}

static sh_status receive(const sh_share_client *client, sh_stream *stream, void *data, size_t len,
                         sh_err *err)
{
    return sh_stream_recv(stream, data, len, client->link.stop_fd, REPLY_MS, err);
}

static sh_status requests_send(const sh_share_client *client, sh_stream *stream,
                               const sh_share_request *first, size_t step, int count, sh_err *err)
{
    uint8_t bytes[SH_SHARE_PARTS_MAX * SH_SHARE_REQUEST_LEN];
    SH_ASSERT(count <= SH_SHARE_PARTS_MAX);
    for (int i = 0; i < count; i++) {
        const void *request = (const char *)first + (size_t)i * step;
        sh_share_request_pack(request, bytes + (size_t)i * SH_SHARE_REQUEST_LEN);
    }
    struct iovec part = {bytes, (size_t)count * SH_SHARE_REQUEST_LEN};
    return sh_stream_send(stream, &part, 1, client->link.stop_fd, REPLY_MS, err);
}

static sh_status refusal_read(const sh_share_client *client, sh_stream *stream,
                              const sh_share_reply *reply, sh_err *err)
{
    char text[SH_SHARE_REFUSAL_MAX + 1];
    sh_status status = receive(client, stream, text, (size_t)reply->len, err);
    if (status != SH_OK) return status;
    size_t len = sh_utf8_valid_prefix(text, (size_t)reply->len);
    return sh_err_set(err, SH_ERR_GROUP, "rank 0 refuses: %.*s", (int)len, text);
}

static sh_status reply_read(const sh_share_client *client, sh_stream *stream, sh_share_reply *reply,
                            sh_err *err)
{
    uint8_t head[SH_SHARE_REPLY_LEN];
    sh_status status = receive(client, stream, head, sizeof(head), err);
    if (status == SH_OK) status = sh_share_reply_unpack(head, reply, err);
    if (status == SH_OK && reply->answer == SH_SHARE_REFUSED)
        status = refusal_read(client, stream, reply, err);
    return status;
}

static sh_status digest_check(const void *data, size_t len, const sh_share_reply *reply,
                              sh_err *err)
{
    uint8_t digest[SH_DIGEST_LEN];
    sh_digest(data, len, digest);
    if (memcmp(digest, reply->digest, SH_DIGEST_LEN) == 0) return SH_OK;
    return sh_err_set(err, SH_ERR_PEER, "%zu bytes were damaged on their way from rank 0", len);
}

static sh_status part_read(sh_share_client *client, sh_stream *stream, sh_share_part *part,
                           sh_err *err)
{
    sh_share_reply reply;
    size_t len = (size_t)sh_window_bytes(&part->request.window);
    sh_status status = reply_read(client, stream, &reply, err);
    if (status != SH_OK) return status;
    part->same = reply.answer == SH_SHARE_SAME && part->request.known;
    memcpy(part->digest, reply.digest, SH_DIGEST_LEN);
    if (part->same) return SH_OK;
    if (reply.answer != SH_SHARE_DATA || reply.len != len)
        return sh_err_set(err, SH_ERR_PEER, "rank 0 answers %" PRIu64 " bytes, not %zu", reply.len,
                          len);
    status = receive(client, stream, part->data, len, err);
    atomic_fetch_add_explicit(&client->received, len, memory_order_relaxed);
    return status == SH_OK ? digest_check(part->data, len, &reply, err) : status;
}

sh_status sh_share_client_read(sh_share_client *client, sh_share_part *parts, int count,
                               sh_err *err)
{
    sh_stream stream;
    sh_status status = conn_take(client, &stream, err);
    if (status != SH_OK) return status;
    status = requests_send(client, &stream, &parts->request, sizeof(*parts), count, err);
    for (int i = 0; status == SH_OK && i < count; i++)
        status = part_read(client, &stream, &parts[i], err);
    conn_return(client, &stream, status == SH_OK);
    return status;
}

/* An outline or a plan. */
static sh_status whole_read(const sh_share_client *client, sh_stream *stream, bool known,
                            sh_buf *out, bool *same, sh_err *err)
{
    sh_share_reply reply;
    sh_status status = reply_read(client, stream, &reply, err);
    if (status != SH_OK) return status;
    *same = reply.answer == SH_SHARE_SAME && known;
    if (*same) return SH_OK;
    if (reply.answer != SH_SHARE_DATA)
        return sh_err_set(err, SH_ERR_PEER, "rank 0 sent nothing about the model");
    sh_buf_clear(out);
    char *to = sh_buf_reserve(out, (size_t)reply.len);
    status = receive(client, stream, to, (size_t)reply.len, err);
    if (status == SH_OK) status = digest_check(to, (size_t)reply.len, &reply, err);
    if (status == SH_OK) out->len = (size_t)reply.len;
    return status;
}

sh_status sh_share_client_outline(sh_share_client *client, const uint8_t *known, sh_buf *out,
                                  bool *same, sh_err *err)
{
    sh_share_request request = {.kind = SH_SHARE_OUTLINE, .known = known != NULL};
    sh_stream stream;
    if (known != NULL) memcpy(request.digest, known, SH_DIGEST_LEN);
    sh_status status = conn_take(client, &stream, err);
    if (status != SH_OK) return status;
    status = requests_send(client, &stream, &request, sizeof(request), 1, err);
    if (status == SH_OK) status = whole_read(client, &stream, known != NULL, out, same, err);
    conn_return(client, &stream, status == SH_OK);
    return status;
}

sh_status sh_share_client_plan(sh_share_client *client, sh_str body, sh_buf *out, sh_err *err)
{
    sh_share_request request = {.kind = SH_SHARE_PLAN, .window = {.len = body.len}};
    struct iovec part = {(void *)body.ptr, body.len};
    sh_stream stream;
    bool same;
    sh_status status = conn_take(client, &stream, err);
    if (status != SH_OK) return status;
    status = requests_send(client, &stream, &request, sizeof(request), 1, err);
    if (status == SH_OK)
        status = sh_stream_send(&stream, &part, 1, client->link.stop_fd, REPLY_MS, err);
    if (status == SH_OK) status = whole_read(client, &stream, false, out, &same, err);
    conn_return(client, &stream, status == SH_OK);
    return status;
}

uint64_t sh_share_client_received(const sh_share_client *client)
{
    return atomic_load_explicit(&client->received, memory_order_relaxed);
}
