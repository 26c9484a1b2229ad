/* Failure detection. The thread that computes may be inside a kernel or waiting in an operation for
 * seconds, so heartbeats are sent and checked by a thread of their own. It is the only one that
 * touches the control connections.
 *
 * A rank is considered lost if its connection ends without a BYE or if nothing was heard from it
 * for as long as it asked its peers to tolerate. Each rank announces its own tolerance in its
 * heartbeats: a rank that loads a model knows that it will be slow, its peers do not.
 *
 * There is exactly one failure per group. The first to record a notice wins; the notice is sent to
 * everybody, and every later failure is ignored, because it is almost always a consequence: once
 * one rank dies, the others abort and their connections end too. All ranks therefore report the
 * same cause.
 *
 * `failed` is an atomic flag that operations poll, `fail` a pipe that wakes sleeping threads. Its
 * byte is never read, so that it stays readable for every later poll(). */
#include "coll/watch.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "net/sock.h"

#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    BEATS_PER_SILENCE = 8,
    BEAT_MS_MAX = 250,
    LEAVE_MS = 200,  /* how long a leaving rank waits for the others to leave too */
    KNOCK_MS = 3000, /* a rank that wants to come in asks at least so often */
    TWIN_MS = 2000,  /* on top of twice the silence after which a rank is lost */
};

typedef struct {
    int64_t heard_ns;
    uint32_t silence_ms; /* the tolerance it asked for */
    bool left;           /* it sent BYE or ABORT, or its connection has ended */
    _Atomic uint64_t progress;
    _Atomic int64_t left_ns;             /* when it sent BYE; 0: it has not */
    _Atomic int64_t leaving_ns;          /* when it asked to leave; 0: it has not, or was refused */
    bool kept;                           /* it is to be told so: guarded by the lock */
    int64_t twin_first_ns, twin_last_ns; /* when a process with its node id asked to come in */
} peer_state;

struct sh_watch {
    sh_mesh *mesh;
    pthread_t thread;
    int wake[2]; /* a byte makes the thread run its loop */
    int fail[2]; /* readable once the group has failed; never read */
    _Atomic bool failed;
    _Atomic bool stopping;
    _Atomic int silence_ms;
    _Atomic uint64_t progress;
    _Atomic bool leaving; /* this rank asks to leave */
    _Atomic bool must_stay;
    pthread_mutex_t lock; /* guards notice, has_notice, keep_text, knocks, visitor, load */
    sh_notice notice;
    bool has_notice;
    char keep_text[SH_STAY_TEXT_MAX]; /* why a rank cannot leave */
    sh_knock knock[SH_KNOCKS_MAX];
    int knock_count;
    sh_visitor_fn visitor;
    void *visitor_ctx;
    sh_load_state load; /* of this rank */
    sh_load_fn on_load;
    void *load_ctx;
    bool notified; /* used by the thread only: the notice was sent */
    int64_t beat_ns;
    int beat_silence_ms; /* the tolerance that the last heartbeats asked for */
    bool beat_leaving;   /* and whether they asked to leave */
    int64_t looked_ns;
    peer_state peer[SH_RANKS_MAX];
};

static void notify(int fd)
{
    char byte = 1;
    ssize_t put = write(fd, &byte, 1);
    (void)put; /* a full pipe wakes as well */
}

void sh_watch_fail(sh_watch *watch, int rank, const char *text)
{
    pthread_mutex_lock(&watch->lock);
    bool first = !watch->has_notice;
    if (first) sh_notice_set(&watch->notice, rank, text);
    watch->has_notice = true;
    pthread_mutex_unlock(&watch->lock);
    if (!first) return;
    atomic_store_explicit(&watch->failed, true, memory_order_release);
    notify(watch->fail[1]);
    notify(watch->wake[1]);
}

bool sh_watch_failed(const sh_watch *watch)
{
    return atomic_load_explicit(&watch->failed, memory_order_acquire);
}

void sh_watch_error(sh_watch *watch, sh_err *out)
{
    pthread_mutex_lock(&watch->lock);
    sh_err_set(out, SH_ERR_GROUP, "%s", watch->notice.text);
    pthread_mutex_unlock(&watch->lock);
}

int sh_watch_at_fault(sh_watch *watch)
{
    pthread_mutex_lock(&watch->lock);
    int rank = watch->has_notice ? watch->notice.rank : -1;
    pthread_mutex_unlock(&watch->lock);
    return rank;
}

int sh_watch_fd(const sh_watch *watch)
{
    return watch->fail[0];
}

void sh_watch_set_silence(sh_watch *watch, int silence_ms)
{
    SH_ASSERT(silence_ms >= SH_SILENCE_MS_MIN && silence_ms <= SH_SILENCE_MS_MAX);
    atomic_store_explicit(&watch->silence_ms, silence_ms, memory_order_relaxed);
    notify(watch->wake[1]);
}

void sh_watch_set_progress(sh_watch *watch, uint64_t progress)
{
    atomic_store_explicit(&watch->progress, progress, memory_order_relaxed);
}

uint64_t sh_watch_peer_progress(const sh_watch *watch, int rank)
{
    return atomic_load_explicit(&watch->peer[rank].progress, memory_order_relaxed);
}

void sh_watch_set_load(sh_watch *watch, const sh_load_state *load)
{
    pthread_mutex_lock(&watch->lock);
    watch->load = *load;
    pthread_mutex_unlock(&watch->lock);
}

void sh_watch_on_load(sh_watch *watch, sh_load_fn fn, void *ctx)
{
    pthread_mutex_lock(&watch->lock);
    watch->on_load = fn;
    watch->load_ctx = ctx;
    pthread_mutex_unlock(&watch->lock);
}

int64_t sh_watch_left_ns(const sh_watch *watch, int rank)
{
    return atomic_load_explicit(&watch->peer[rank].left_ns, memory_order_relaxed);
}

int sh_watch_knocks(sh_watch *watch, sh_knock out[SH_KNOCKS_MAX])
{
    int count = 0;
    int64_t since_ns = sh_clock_ns() - (int64_t)1000000 * KNOCK_MS;
    pthread_mutex_lock(&watch->lock);
    for (int i = 0; i < watch->knock_count; i++)
        if (watch->knock[i].last_ns >= since_ns) out[count++] = watch->knock[i];
    pthread_mutex_unlock(&watch->lock);
    return count;
}

void sh_watch_set_visitor(sh_watch *watch, sh_visitor_fn visitor, void *ctx)
{
    pthread_mutex_lock(&watch->lock);
    watch->visitor = visitor;
    watch->visitor_ctx = ctx;
    pthread_mutex_unlock(&watch->lock);
}

void sh_watch_ask_to_leave(sh_watch *watch)
{
    atomic_store_explicit(&watch->must_stay, false, memory_order_relaxed);
    atomic_store_explicit(&watch->leaving, true, memory_order_relaxed);
    notify(watch->wake[1]);
}

bool sh_watch_must_stay(sh_watch *watch, char why[SH_STAY_TEXT_MAX])
{
    if (!atomic_load_explicit(&watch->must_stay, memory_order_relaxed)) return false;
    pthread_mutex_lock(&watch->lock);
    if (why != NULL) memcpy(why, watch->keep_text, SH_STAY_TEXT_MAX);
    pthread_mutex_unlock(&watch->lock);
    return true;
}

int64_t sh_watch_leaving_ns(const sh_watch *watch, int rank)
{
    return atomic_load_explicit(&watch->peer[rank].leaving_ns, memory_order_relaxed);
}

void sh_watch_keep(sh_watch *watch, int rank, const char *text)
{
    pthread_mutex_lock(&watch->lock);
    snprintf(watch->keep_text, sizeof(watch->keep_text), "%s", text);
    watch->peer[rank].kept = true;
    pthread_mutex_unlock(&watch->lock);
    atomic_store_explicit(&watch->peer[rank].leaving_ns, 0, memory_order_relaxed);
    notify(watch->wake[1]);
}

static int beat_every_ms(const sh_watch *watch)
{
    int every = atomic_load_explicit(&watch->silence_ms, memory_order_relaxed) / BEATS_PER_SILENCE;
    return every < BEAT_MS_MAX ? every : BEAT_MS_MAX;
}

static bool is_here(const sh_watch *watch, int rank)
{
    return watch->mesh->peer[rank].control != NULL && !watch->peer[rank].left;
}

static void take_beat(sh_watch *watch, int rank, const uint8_t *payload, size_t len)
{
    sh_heartbeat beat;
    sh_err err;
    peer_state *peer = &watch->peer[rank];
    if (sh_heartbeat_unpack(payload, len, &beat, &err) != SH_OK) {
        sh_err_prefix(&err, "rank %d", rank);
        sh_watch_fail(watch, rank, err.text);
        return;
    }
    peer->silence_ms = beat.silence_ms < SH_SILENCE_MS_MAX ? beat.silence_ms
                                                           : (uint32_t)SH_SILENCE_MS_MAX;
    atomic_store_explicit(&peer->progress, beat.progress, memory_order_relaxed);
    pthread_mutex_lock(&watch->lock);
    if (watch->on_load != NULL) watch->on_load(watch->load_ctx, rank, &beat.load);
    pthread_mutex_unlock(&watch->lock);
    int64_t since = atomic_load_explicit(&peer->leaving_ns, memory_order_relaxed);
    if (beat.leaving != (since != 0))
        atomic_store_explicit(&peer->leaving_ns, beat.leaving ? sh_clock_ns() : 0,
                              memory_order_relaxed);
}

/* The group needs this rank. */
static void take_stay(sh_watch *watch, int rank, const uint8_t *payload, size_t len)
{
    sh_notice notice;
    sh_err err;
    if (sh_notice_unpack(payload, len, &notice, &err) != SH_OK) {
        sh_err_prefix(&err, "rank %d", rank);
        sh_watch_fail(watch, rank, err.text);
        return;
    }
    SH_LOGW("this rank has to stay: %s; a second signal ends it all the same", notice.text);
    pthread_mutex_lock(&watch->lock);
    snprintf(watch->keep_text, sizeof(watch->keep_text), "%s", notice.text);
    pthread_mutex_unlock(&watch->lock);
    atomic_store_explicit(&watch->leaving, false, memory_order_relaxed);
    atomic_store_explicit(&watch->must_stay, true, memory_order_relaxed);
}

static void take_abort(sh_watch *watch, int rank, const uint8_t *payload, size_t len)
{
    sh_notice notice;
    sh_err err;
    if (sh_notice_unpack(payload, len, &notice, &err) != SH_OK) {
        sh_err_prefix(&err, "rank %d", rank);
        sh_watch_fail(watch, rank, err.text);
        return;
    }
    watch->peer[rank].left = true;
    sh_watch_fail(watch, notice.rank, notice.text);
}

static void take_bye(peer_state *peer)
{
    peer->left = true;
    atomic_store_explicit(&peer->left_ns, sh_clock_ns(), memory_order_relaxed);
}

static void take_frame(sh_watch *watch, int rank, sh_frame_head head, const uint8_t *payload)
{
    char text[96];
    switch (head.type) {
    case SH_FRAME_HEARTBEAT: take_beat(watch, rank, payload, head.len); return;
    case SH_FRAME_ABORT: take_abort(watch, rank, payload, head.len); return;
    case SH_FRAME_BYE: take_bye(&watch->peer[rank]); return;
    case SH_FRAME_STAY: take_stay(watch, rank, payload, head.len); return;
    default:
        snprintf(text, sizeof(text), "rank %d sent an unexpected frame of type %d", rank,
                 head.type);
        sh_watch_fail(watch, rank, text);
    }
}

static void read_peer(sh_watch *watch, int rank)
{
    sh_mesh_peer *conn = &watch->mesh->peer[rank];
    sh_err err;
    while (is_here(watch, rank)) {
        sh_frame_head head;
        const uint8_t *payload;
        sh_status status = sh_peer_conn_recv(conn->control, &head, &payload, &err);
        if (status == SH_AGAIN) return;
        if (status != SH_OK) {
            watch->peer[rank].left = true;
            sh_err_prefix(&err, "rank %d at %s was lost", rank, conn->name);
            sh_watch_fail(watch, rank, err.text);
            return;
        }
        watch->peer[rank].heard_ns = sh_clock_ns();
        take_frame(watch, rank, head, payload);
    }
}

static void flush_peer(sh_watch *watch, int rank)
{
    sh_err err;
    if (sh_peer_conn_flush(watch->mesh->peer[rank].control, &err) < 0)
        read_peer(watch, rank); /* read its last words first; if there are none, it is lost */
}

/* No heartbeat is added for a peer whose socket is full: it would read it too late anyway. */
static void send_beats(sh_watch *watch, int64_t now_ns)
{
    sh_heartbeat beat = {
        .progress = atomic_load_explicit(&watch->progress, memory_order_relaxed),
        .silence_ms = (uint32_t)atomic_load_explicit(&watch->silence_ms, memory_order_relaxed),
        .leaving = atomic_load_explicit(&watch->leaving, memory_order_relaxed)};
    pthread_mutex_lock(&watch->lock);
    beat.load = watch->load;
    pthread_mutex_unlock(&watch->lock);
    watch->beat_ns = now_ns;
    watch->beat_silence_ms = (int)beat.silence_ms;
    watch->beat_leaving = beat.leaving;
    for (int r = 0; r < watch->mesh->size; r++) {
        if (!is_here(watch, r)) continue;
        sh_buf *out = sh_peer_conn_out(watch->mesh->peer[r].control);
        if (out->len == 0) sh_heartbeat_pack(out, &beat);
        flush_peer(watch, r);
    }
}

/* Tells the ranks that asked to leave that they cannot. */
static void send_stays(sh_watch *watch)
{
    for (int r = 0; r < watch->mesh->size; r++) {
        pthread_mutex_lock(&watch->lock);
        bool kept = watch->peer[r].kept;
        sh_notice notice;
        if (kept) sh_notice_set(&notice, r, watch->keep_text);
        watch->peer[r].kept = false;
        pthread_mutex_unlock(&watch->lock);
        if (!kept || !is_here(watch, r)) continue;
        sh_notice_pack(sh_peer_conn_out(watch->mesh->peer[r].control), SH_FRAME_STAY, &notice);
        flush_peer(watch, r);
    }
}

static void send_failure(sh_watch *watch)
{
    watch->notified = true;
    for (int r = 0; r < watch->mesh->size; r++) {
        if (!is_here(watch, r)) continue;
        sh_notice_pack(sh_peer_conn_out(watch->mesh->peer[r].control), SH_FRAME_ABORT,
                       &watch->notice);
        flush_peer(watch, r);
    }
}

/* When one rank has been silent for too long, names all that are silent by then: if this machine's
 * own cable is cut, that is everybody. */
static void check_silence(sh_watch *watch, int64_t now_ns)
{
    int worst = -1;
    int64_t worst_ms = 0;
    sh_buf others = {0};
    for (int r = 0; r < watch->mesh->size; r++) {
        int64_t silent_ms = (now_ns - watch->peer[r].heard_ns) / 1000000;
        if (!is_here(watch, r) || silent_ms < watch->peer[r].silence_ms) continue;
        if (silent_ms > worst_ms) worst = r;
        if (silent_ms > worst_ms) worst_ms = silent_ms;
    }
    if (worst < 0) return;
    for (int r = 0; r < watch->mesh->size; r++) {
        int64_t silent_ms = (now_ns - watch->peer[r].heard_ns) / 1000000;
        if (r != worst && is_here(watch, r) && silent_ms + 2 * beat_every_ms(watch) > worst_ms)
            sh_buf_addf(&others, "%s%d", others.len > 0 ? ", " : " (and so has rank ", r);
    }
    if (others.len > 0) sh_buf_add_char(&others, ')');
    sh_err text;
    sh_err_set(&text, SH_ERR_GROUP, "rank %d at %s has been silent for %.1f s%s", worst,
               watch->mesh->peer[worst].name, (double)worst_ms / 1000.0,
               others.len > 0 ? others.ptr : "");
    sh_buf_reset(&others);
    sh_watch_fail(watch, worst, text.text);
}

/* A process that was stopped and continues must not blame the others for the time that it slept:
 * their heartbeats are still waiting in its socket buffers. */
static void discount_own_sleep(sh_watch *watch, int64_t now_ns)
{
    int64_t slept_ns = now_ns - watch->looked_ns;
    watch->looked_ns = now_ns;
    if (slept_ns < (int64_t)2000000 * beat_every_ms(watch)) return;
    for (int r = 0; r < watch->mesh->size; r++) watch->peer[r].heard_ns += slept_ns;
}

/* The rank of the group that this one would be, -1 if there is none: one of the same number, or of
 * the same name for a rank without a number. */
static int double_of(const sh_watch *watch, const sh_hello *theirs)
{
    for (int r = 0; r < watch->mesh->size; r++) {
        bool same = (uint32_t)r == theirs->rank;
        if (r != 0 && is_here(watch, r) && theirs->rank == SH_RANK_ANY)
            same = memcmp(sh_peer_conn_peer(watch->mesh->peer[r].control)->node, theirs->node,
                          SH_NODE_ID_LEN) == 0;
        if (same && (r == 0 || is_here(watch, r))) return r;
    }
    return -1;
}

/* Whether another process has kept asking under the node id of this rank: a disk was cloned. Not
 * one that was just restarted, since the rank before it is noticed to be lost before that. */
static bool is_clone(sh_watch *watch, int twin, const sh_hello *theirs)
{
    const sh_hello *member = sh_peer_conn_peer(watch->mesh->peer[twin].control);
    peer_state *peer = &watch->peer[twin];
    int64_t sure_ms = TWIN_MS + 2 * (int64_t)atomic_load(&watch->silence_ms);
    int64_t now_ns = sh_clock_ns();
    if (memcmp(member->node, theirs->node, SH_NODE_ID_LEN) != 0 || member->life == theirs->life)
        return false;
    if (now_ns - peer->twin_last_ns > (int64_t)1000000 * KNOCK_MS) peer->twin_first_ns = now_ns;
    peer->twin_last_ns = now_ns;
    return now_ns - peer->twin_first_ns > 1000000 * sure_ms;
}

/* Whether a rank may come in at the next forming: it fits, and is not here already. */
static sh_status check_latecomer(sh_watch *watch, const sh_hello *theirs, sh_err *err)
{
    const sh_mesh *mesh = watch->mesh;
    if (sh_hello_compare(&mesh->hello, theirs, err) != SH_OK) return err->status;
    int twin = double_of(watch, theirs);
    if (twin > 0 && theirs->use == SH_USE_JOIN && is_clone(watch, twin, theirs))
        return sh_err_set(err, SH_ERR_CONFLICT, "rank %d has this node id", twin);
    if (twin >= 0 && theirs->use == SH_USE_JOIN)
        return sh_err_set(err, SH_ERR_GROUP, "the group has already formed, with another rank %d",
                          twin);
    if (!mesh->grows || theirs->use != SH_USE_JOIN)
        return sh_err_set(err, SH_ERR_GROUP, "the group has already formed");
    return SH_OK;
}

/* When all places are taken, it has to ask again. */
static void knock_keep(sh_watch *watch, const sh_peer_conn *conn)
{
    const sh_hello *theirs = sh_peer_conn_peer(conn);
    int64_t now_ns = sh_clock_ns(), stale_ns = now_ns - (int64_t)1000000 * KNOCK_MS;
    int at = 0;
    pthread_mutex_lock(&watch->lock);
    while (at < watch->knock_count &&
           (watch->knock[at].number != (int)theirs->rank ||
            memcmp(watch->knock[at].node, theirs->node, SH_NODE_ID_LEN) != 0))
        at++;
    for (int i = 0; at == SH_KNOCKS_MAX && i < SH_KNOCKS_MAX; i++)
        if (watch->knock[i].last_ns < stale_ns) at = i;
    if (at < SH_KNOCKS_MAX) {
        sh_knock *k = &watch->knock[at];
        if (at == watch->knock_count) watch->knock_count++;
        if (k->last_ns < stale_ns) k->first_ns = now_ns;
        k->last_ns = now_ns;
        k->number = (int)theirs->rank;
        memcpy(k->node, theirs->node, SH_NODE_ID_LEN);
        snprintf(k->name, sizeof(k->name), "%s", sh_peer_conn_name(conn));
    }
    pthread_mutex_unlock(&watch->lock);
}

/* Welcomes a rank of this group, or one that is to come in, that asks for weights, and hands its
 * connection over. The lock is
 * held meanwhile, so that sh_watch_set_visitor can promise that nothing is handed over after it.
 * SH_ERR_PEER: not yet. */
static sh_status admit_visitor(sh_watch *watch, sh_peer_conn *conn, sh_err *err)
{
    const sh_hello *theirs = sh_peer_conn_peer(conn);
    int rank = (int)theirs->rank;
    sh_hello mine = watch->mesh->hello;
    if (sh_hello_compare(&mine, theirs, err) != SH_OK) return err->status;
    bool guest = theirs->epoch == 0 && watch->mesh->grows;
    bool member = theirs->epoch == watch->mesh->epoch && rank < watch->mesh->size &&
                  is_here(watch, rank);
    if (watch->mesh->rank != 0 || (!guest && !member))
        return sh_err_set(err, SH_ERR_GROUP,
                          "rank %d of another group asks rank %d for weights; ask rank 0", rank,
                          watch->mesh->rank);
    mine.use = theirs->use;
    mine.given_rank = member ? theirs->rank : 0;
    mine.epoch = theirs->epoch;
    pthread_mutex_lock(&watch->lock);
    sh_status status = SH_ERR_PEER;
    if (watch->visitor != NULL) {
        sh_peer_conn_welcome(conn, &mine);
        status = sh_peer_conn_flush(conn, err);
    }
    if (status == SH_OK) {
        sh_stream stream = sh_peer_conn_release(conn);
        if (mine.plain_data) sh_stream_end_tls(&stream);
        watch->visitor(watch->visitor_ctx, rank, stream);
    }
    pthread_mutex_unlock(&watch->lock);
    if (status == SH_OK) return SH_OK;
    return sh_err_set(err, SH_ERR_PEER, "rank 0 cannot send weights yet");
}

/* Tells a connection to wait, or why it is not wanted, and closes it. */
static void turn_away(sh_watch *watch, sh_peer_conn *conn, sh_frame_type answer, const char *why)
{
    sh_notice notice;
    sh_notice_set(&notice, (int)sh_peer_conn_peer(conn)->rank, why);
    if (answer != SH_FRAME_WAIT && answer != SH_FRAME_PREPARE)
        sh_acceptor_note_refusal(watch->mesh->acceptor, conn, why);
    sh_peer_conn_refuse(conn, answer, &notice);
    sh_peer_conn_close(conn);
}

static void receive_visitor(sh_watch *watch, sh_peer_conn *conn)
{
    sh_err err;
    sh_status status = admit_visitor(watch, conn, &err);
    if (status != SH_OK)
        turn_away(watch, conn, status == SH_ERR_PEER ? SH_FRAME_WAIT : SH_FRAME_REFUSE, err.text);
}

static void receive_latecomer(sh_watch *watch, sh_peer_conn *conn)
{
    sh_err err;
    const sh_hello *theirs = sh_peer_conn_peer(conn);
    sh_status status = check_latecomer(watch, theirs, &err);
    bool prepared = theirs->prepared == 0 || theirs->prepared == watch->mesh->epoch;
    if (status == SH_OK && !prepared) {
        turn_away(watch, conn, SH_FRAME_PREPARE, "the group is running; load a share first");
    } else if (status == SH_OK) {
        knock_keep(watch, conn);
        turn_away(watch, conn, SH_FRAME_WAIT, "the group is running, and re-forms soon");
    } else {
        turn_away(watch, conn, status == SH_ERR_CONFLICT ? SH_FRAME_TAKEN : SH_FRAME_REFUSE,
                  err.text);
    }
}

/* Connections to a group that has formed. */
static void receive_connections(sh_watch *watch)
{
    sh_peer_conn *conn;
    sh_err err;
    while (sh_acceptor_step(watch->mesh->acceptor, &conn, &err) == SH_OK) {
        const sh_hello *theirs = sh_peer_conn_peer(conn);
        bool visits = theirs->protocol == SH_PEER_PROTOCOL && theirs->use == SH_USE_WEIGHTS;
        if (sh_peer_conn_turn_away(conn, watch->mesh->rank)) continue;
        if (visits)
            receive_visitor(watch, conn);
        else
            receive_latecomer(watch, conn);
    }
}

static void sleep_until(sh_watch *watch, int64_t wake_ns)
{
    struct pollfd fds[SH_RANKS_MAX + SH_ACCEPTOR_POLL_MAX + 1];
    int count = sh_acceptor_poll(watch->mesh->acceptor, fds);
    for (int r = 0; r < watch->mesh->size; r++)
        if (is_here(watch, r)) fds[count++] = sh_peer_conn_poll(watch->mesh->peer[r].control);
    fds[count++] = (struct pollfd){.fd = watch->wake[0], .events = POLLIN};
    poll(fds, (nfds_t)count, sh_deadline_left_ms(wake_ns)); /* the loop checks everything */
    char bytes[64];
    while (read(watch->wake[0], bytes, sizeof(bytes)) > 0) continue;
}

static bool all_left(const sh_watch *watch)
{
    for (int r = 0; r < watch->mesh->size; r++)
        if (is_here(watch, r)) return false;
    return true;
}

/* Sends BYE and waits briefly for that of the others: closing a socket with unread data (a peer's
 * last heartbeat) sends a reset, which would discard our last frame at the peer. After a failure
 * the notice has already been sent. */
static void leave(sh_watch *watch)
{
    bool failed = sh_watch_failed(watch);
    for (int r = 0; r < watch->mesh->size; r++) {
        if (!is_here(watch, r)) continue;
        if (!failed) sh_frame_pack(sh_peer_conn_out(watch->mesh->peer[r].control), SH_FRAME_BYE);
        flush_peer(watch, r);
        sh_peer_conn_shut(watch->mesh->peer[r].control);
    }
    sh_deadline deadline = sh_deadline_in_ms(LEAVE_MS);
    while (!failed && !all_left(watch) && !sh_deadline_passed(deadline)) {
        sleep_until(watch, deadline);
        for (int r = 0; r < watch->mesh->size; r++) read_peer(watch, r);
    }
}

/* A rank that has finished loading takes its long tolerance back at once, so that its peers notice
 * quickly if it dies next. That a rank wants to leave must be known before it ends the group:
 * nobody is to wait for its return. */
static void send_news(sh_watch *watch, bool beat_due)
{
    bool failed = sh_watch_failed(watch); /* before `leaving` is read */
    bool other = watch->beat_silence_ms !=
                     atomic_load_explicit(&watch->silence_ms, memory_order_relaxed) ||
                 watch->beat_leaving != atomic_load_explicit(&watch->leaving, memory_order_relaxed);
    if (!watch->notified && (other || beat_due)) send_beats(watch, sh_clock_ns());
    if (failed && !watch->notified) send_failure(watch);
}

static void *watch_run(void *arg)
{
    sh_watch *watch = arg;
    while (!atomic_load_explicit(&watch->stopping, memory_order_acquire)) {
        int64_t now_ns = sh_clock_ns();
        int64_t every_ns = (int64_t)1000000 * beat_every_ms(watch);
        discount_own_sleep(watch, now_ns);
        for (int r = 0; r < watch->mesh->size; r++) read_peer(watch, r);
        if (!sh_watch_failed(watch)) check_silence(watch, now_ns);
        send_stays(watch);
        send_news(watch, now_ns - watch->beat_ns >= every_ns);
        receive_connections(watch);
        sleep_until(watch, watch->beat_ns + every_ns > now_ns ? watch->beat_ns + every_ns
                                                              : now_ns + every_ns);
    }
    if (sh_watch_failed(watch)) send_news(watch, false);
    leave(watch);
    return NULL;
}

static void watch_free(sh_watch *watch)
{
    for (int i = 0; i < 2; i++) {
        sh_sock_close(watch->wake[i]);
        sh_sock_close(watch->fail[i]);
    }
    pthread_mutex_destroy(&watch->lock);
    free(watch);
}

sh_status sh_watch_start(sh_mesh *mesh, int silence_ms, sh_watch **out, sh_err *err)
{
    sh_watch *watch = sh_alloc(sizeof(*watch));
    watch->mesh = mesh;
    watch->wake[0] = watch->wake[1] = watch->fail[0] = watch->fail[1] = -1;
    watch->silence_ms = silence_ms;
    watch->looked_ns = sh_clock_ns();
    pthread_mutex_init(&watch->lock, NULL);
    for (int r = 0; r < mesh->size; r++) {
        watch->peer[r].heard_ns = watch->looked_ns;
        watch->peer[r].silence_ms = (uint32_t)silence_ms;
    }
    if (sh_sock_pipe(watch->wake, err) != SH_OK || sh_sock_pipe(watch->fail, err) != SH_OK)
        goto fail;
    int error = sh_thread_start(&watch->thread, watch_run, watch);
    if (error != 0) {
        sh_err_set(err, SH_ERR_SYSTEM, "cannot start the heartbeat thread: error %d", error);
        goto fail;
    }
    *out = watch;
    return SH_OK;

fail:
    watch_free(watch);
    return err->status;
}

void sh_watch_stop(sh_watch *watch)
{
    if (watch == NULL) return;
    atomic_store_explicit(&watch->stopping, true, memory_order_release);
    notify(watch->wake[1]);
    pthread_join(watch->thread, NULL);
    watch_free(watch);
}
