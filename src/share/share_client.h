/* share_client.h - asks rank 0 for parts of the model.
 *
 * Connections are opened when they are needed, and used by one thread at a time: as many threads as
 * there are connections are served at once, others wait.
 *
 * Threads: one owner; requests may come from many threads. */
#ifndef SH_SHARE_SHARE_CLIENT_H
#define SH_SHARE_SHARE_CLIENT_H

#include "base/buf.h"
#include "net/stream.h"
#include "share/share_messages.h"

/* How to reach rank 0. `index` counts the connections; stop_fd (-1: none) becomes readable when
 * there is no more sense in waiting. */
typedef struct {
    void *ctx;
    sh_status (*open)(void *ctx, int index, sh_stream *out, sh_err *err);
    int stop_fd;
} sh_share_link;

typedef struct sh_share_client sh_share_client;

sh_share_client *sh_share_client_create(const sh_share_link *link);
void sh_share_client_free(sh_share_client *client);

/* Gets the outline, packed. If that is what `known` is the digest of (NULL: of nothing), *same is
 * set and out stays empty. */
SH_MUST_CHECK sh_status sh_share_client_outline(sh_share_client *client, const uint8_t *known,
                                                sh_buf *out, bool *same, sh_err *err);

/* Says `body` to rank 0, and gets the plan for a rank that is to come in. */
SH_MUST_CHECK sh_status sh_share_client_plan(sh_share_client *client, sh_str body, sh_buf *out,
                                             sh_err *err);

/* A window of at most SH_SHARE_WINDOW_MAX bytes. */
typedef struct {
    sh_share_request request; /* set by the caller */
    void *data;               /* where the bytes go */
    bool same;                /* nothing came: the bytes are what request.digest says */
    uint8_t digest[SH_DIGEST_LEN];
} sh_share_part;

/* Gets several windows in one round trip. Their bytes have been checked against the digests. */
SH_MUST_CHECK sh_status sh_share_client_read(sh_share_client *client, sh_share_part *parts,
                                             int count, sh_err *err);
enum { SH_SHARE_PARTS_MAX = 16 };

/* Bytes of weights that came over the link so far. */
uint64_t sh_share_client_received(const sh_share_client *client);

#endif
