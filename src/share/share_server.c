/* Answers requests for parts of a model (share_messages.h).
 *
 * A thread for each connection keeps this simple: it blocks in reads of cold files, in hashing and
 * in sends to a slow peer without anybody noticing. Their number is bounded by rank, and so is the
 * memory of each, by the largest window.
 *
 * The outline is made when the first rank asks: where all have a copy of the model it is never
 * needed. Descriptors stay open from then on, so what is sent fits the outline even if the folder
 * changes meanwhile. */
#include "share/share_server.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "model/safetensors.h"
#include "net/peer_messages.h"
#include "net/sock.h"
#include "share/share_messages.h"
#include "store/find.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    VISITS_MAX = SH_RANKS_MAX * SH_SHARE_CONNS_MAX,
    IDLE_MS = 3600000, /* until the next request; a rank may be busy with what it has */
    SEND_MS = 60000,   /* without a byte taken */
    PLAN_MS = 10000,   /* for the owner to make a plan: it does so between steps */
    PLAN_LOOK_MS = 5,
    DESCRIPTION_MAX = 256 << 20,
};

typedef struct {
    sh_share_server *server;
    int rank;
    sh_stream stream;
    pthread_t thread;
    bool used; /* the thread was started and not joined yet: guarded by the lock */
    atomic_bool done;
} visit;

/* One plan at a time is asked for and answered. */
typedef enum { PLAN_NONE, PLAN_ASKED, PLAN_TAKEN, PLAN_MADE } plan_state;

struct sh_share_server {
    char *dir;
    int stop[2];          /* readable while visits end */
    pthread_mutex_t lock; /* guards what follows, up to `plan`; never held for long */
    visit visits[VISITS_MAX];
    bool stopping;
    plan_state plan_state;
    const visit *plan_asker; /* NULL: it has gone */
    sh_buf plan_said;
    sh_err plan_why; /* status SH_OK: there is a plan */
    sh_buf plan;
    pthread_mutex_t outline_lock; /* held while the outline is made, from slow disks too */
    bool outlined;                /* what follows is there, and does not change any more */
    sh_arena arena;
    sh_share_outline outline;
    int *fds; /* [outline.count] */
    sh_buf packed;
    uint8_t digest[SH_DIGEST_LEN];
    atomic_uint_least64_t sent;
};

static int by_name(const void *a, const void *b)
{
    return strcmp(((const sh_share_file *)a)->name, ((const sh_share_file *)b)->name);
}

/* Names of the files that an outline has, sorted: those that identity.h covers, and the index. */
static sh_status files_list(sh_share_server *server, sh_err *err)
{
    sh_share_file *files = sh_arena_array(&server->arena, SH_SHARE_FILES_MAX, sizeof(*files));
    int count = 0;
    DIR *d = opendir(server->dir);
    if (d == NULL) return sh_err_sys(err, "%s", server->dir);
    for (struct dirent *entry; (entry = readdir(d)) != NULL && count < SH_SHARE_FILES_MAX;) {
        sh_str name = sh_str_of(entry->d_name);
        if (sh_str_is(name, "config.json") || sh_str_is(name, "model.safetensors.index.json") ||
            (sh_str_ends(name, SH_STR(".safetensors")) && name.ptr[0] != '.'))
            files[count++].name = sh_arena_str(&server->arena, name).ptr;
    }
    closedir(d);
    if (count == SH_SHARE_FILES_MAX)
        return sh_err_set(err, SH_ERR_LIMIT, "%s: more than %d files", server->dir, count - 1);
    qsort(files, (size_t)count, sizeof(*files), by_name);
    server->outline = (sh_share_outline){.files = files, .count = count};
    if (!sh_store_origin(server->dir, &server->outline.origin))
        server->outline.origin = (sh_repo_name){0};
    return SH_OK;
}

/* How much of a file the outline has. */
static sh_status start_len(int fd, const char *path, uint64_t size, uint64_t *out, sh_err *err)
{
    uint8_t prefix[SH_SAFETENSORS_PREFIX];
    size_t len = 0;
    *out = size;
    if (!sh_str_ends(sh_str_of(path), SH_STR(".safetensors")))
        return size <= DESCRIPTION_MAX
                   ? SH_OK
                   : sh_err_set(err, SH_ERR_LIMIT, "%s has %" PRIu64 " bytes, more than %d", path,
                                size, DESCRIPTION_MAX);
    sh_status status = sh_fd_read_at(fd, path, 0, prefix, sizeof(prefix), err);
    if (status == SH_OK) status = sh_safetensors_header_len(prefix, size, path, &len, err);
    *out = sizeof(prefix) + len;
    return status;
}

static sh_status file_open(sh_share_server *server, int index, sh_err *err)
{
    sh_share_file *file = &server->outline.files[index];
    char *path = sh_path_join(server->dir, file->name);
    struct stat st;
    uint64_t len = 0;
    sh_status status = SH_OK;
    int fd = server->fds[index] = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0) {
        status = sh_err_sys(err, "%s", path);
    } else {
        file->size = (uint64_t)st.st_size;
        file->written_ns = (uint64_t)sh_stat_written_ns(&st);
        if (!sh_cache_digest(path, file->etag)) file->etag[0] = '\0';
        status = start_len(fd, path, file->size, &len, err);
    }
    if (status == SH_OK) {
        char *start = sh_arena_alloc(&server->arena, (size_t)len + 1);
        file->start = (sh_str){start, (size_t)len};
        status = sh_fd_read_at(fd, path, 0, start, (size_t)len, err);
    }
    free(path);
    return status;
}

static void files_close(sh_share_server *server)
{
    for (int i = 0; server->fds != NULL && i < server->outline.count; i++)
        if (server->fds[i] >= 0) close(server->fds[i]);
    free(server->fds);
    server->fds = NULL;
    sh_arena_reset(&server->arena);
    sh_buf_reset(&server->packed);
    server->outline = (sh_share_outline){0};
}

static sh_status files_open(sh_share_server *server, sh_err *err)
{
    sh_status status = files_list(server, err);
    int count = server->outline.count;
    server->fds = sh_alloc_array((size_t)count + 1, sizeof(*server->fds));
    for (int i = 0; i < count; i++) server->fds[i] = -1;
    for (int i = 0; status == SH_OK && i < count; i++) {
        status = file_open(server, i, err);
        if (status == SH_OK && server->arena.used > SH_SHARE_OUTLINE_MAX / 2)
            status = sh_err_set(err, SH_ERR_LIMIT, "%s: its headers are too large to be sent",
                                server->dir);
    }
    return status;
}

/* Packs the outline. What was read for it is then in memory twice, so it is replaced by what a
 * peer would make of the packed bytes; that also shows whether a peer will accept them. */
static sh_status outline_make(sh_share_server *server, sh_err *err)
{
    sh_status status = files_open(server, err);
    if (status == SH_OK) {
        sh_share_outline_pack(&server->outline, &server->packed);
        sh_arena_reset(&server->arena);
        status = sh_share_outline_unpack(sh_buf_str(&server->packed), &server->arena,
                                         &server->outline, err);
    }
    if (status != SH_OK) {
        files_close(server);
        return status;
    }
    sh_digest(server->packed.ptr, server->packed.len, server->digest);
    server->outlined = true;
    return SH_OK;
}

static sh_status outline_need(sh_share_server *server, sh_err *err)
{
    pthread_mutex_lock(&server->outline_lock);
    sh_status status = server->outlined ? SH_OK : outline_make(server, err);
    pthread_mutex_unlock(&server->outline_lock);
    return status;
}

static sh_status reply_send(visit *v, sh_share_reply *reply, const void *data, sh_err *err)
{
    uint8_t head[SH_SHARE_REPLY_LEN];
    sh_share_reply_pack(reply, head);
    struct iovec parts[2] = {{head, sizeof(head)}, {(void *)data, (size_t)reply->len}};
    return sh_stream_send(&v->stream, parts, reply->len > 0 ? 2 : 1, v->server->stop[0], SEND_MS,
                          err);
}

/* A request that cannot be met is answered with the reason, and ends the connection. */
static sh_status refuse(visit *v, const sh_err *why, sh_err *err)
{
    sh_share_reply reply = {.answer = SH_SHARE_REFUSED, .len = strlen(why->text)};
    SH_LOGW("rank %d asks for a part of the model: %s", v->rank, why->text);
    sh_status status = reply_send(v, &reply, why->text, err);
    if (status == SH_OK) *err = *why;
    return err->status;
}

static bool is_known(const sh_share_request *request, const uint8_t digest[SH_DIGEST_LEN])
{
    return request->known && memcmp(request->digest, digest, SH_DIGEST_LEN) == 0;
}

/* Sends bytes with the digest `digest`, unless that is what the peer has. */
static sh_status answer(visit *v, const sh_share_request *request, const void *data, size_t len,
                        const uint8_t digest[SH_DIGEST_LEN], sh_err *err)
{
    sh_share_reply reply = {.answer = SH_SHARE_DATA, .len = len};
    memcpy(reply.digest, digest, SH_DIGEST_LEN);
    if (is_known(request, digest)) {
        reply.answer = SH_SHARE_SAME;
        reply.len = 0;
    }
    return reply_send(v, &reply, data, err);
}

static sh_status answer_outline(visit *v, const sh_share_request *request, sh_err *err)
{
    const sh_share_server *server = v->server;
    if (!is_known(request, server->digest))
        SH_LOGI("rank %d has no copy of the model: it gets its share from here", v->rank);
    return answer(v, request, server->packed.ptr, server->packed.len, server->digest, err);
}

static sh_status window_check(const sh_share_server *server, const sh_share_request *request,
                              sh_err *err)
{
    const sh_window *w = &request->window;
    if (request->file >= (uint32_t)server->outline.count)
        return sh_err_set(err, SH_ERR_PEER, "there is no file number %" PRIu32 " of %d",
                          request->file, server->outline.count);
    const sh_share_file *file = &server->outline.files[request->file];
    if (!sh_window_fits(w, file->size) || sh_window_bytes(w) > SH_SHARE_WINDOW_MAX)
        return sh_err_set(err, SH_ERR_PEER,
                          "%" PRIu64 " x %" PRIu64 " bytes at %" PRIu64 ", every %" PRIu64
                          ", of a file of %" PRIu64 "; at most %d within it are allowed",
                          w->rows, w->len, w->offset, w->stride, file->size, SH_SHARE_WINDOW_MAX);
    return SH_OK;
}

static sh_status answer_window(visit *v, const sh_share_request *request, sh_buf *buf, sh_err *err)
{
    sh_share_server *server = v->server;
    uint8_t digest[SH_DIGEST_LEN];
    sh_err why;
    if (window_check(server, request, &why) != SH_OK) return refuse(v, &why, err);
    size_t len = (size_t)sh_window_bytes(&request->window);
    sh_buf_clear(buf);
    char *data = sh_buf_reserve(buf, len);
    if (sh_window_read(server->fds[request->file], server->outline.files[request->file].name,
                       &request->window, data, &why) != SH_OK)
        return refuse(v, &why, err);
    sh_digest(data, len, digest);
    if (!is_known(request, digest))
        atomic_fetch_add_explicit(&server->sent, len, memory_order_relaxed);
    return answer(v, request, data, len, digest, err);
}

/* What has happened to the plan of a visit since it asked, which it has not if said is not NULL:
 * then this does so, as soon as no other plan is asked for. */
static bool plan_step(visit *v, sh_buf *said, sh_buf *plan, sh_err *why)
{
    sh_share_server *server = v->server;
    bool done = false;
    pthread_mutex_lock(&server->lock);
    if (said->len > 0 && server->plan_state == PLAN_NONE) {
        server->plan_state = PLAN_ASKED;
        server->plan_asker = v;
        server->plan_said = *said;
        *said = (sh_buf){0};
    } else if (server->plan_state == PLAN_MADE && server->plan_asker == v) {
        done = true;
        *plan = server->plan;
        *why = server->plan_why;
        server->plan = (sh_buf){0};
        server->plan_state = PLAN_NONE;
    }
    pthread_mutex_unlock(&server->lock);
    return done;
}

/* The visit does not wait any more. A plan that is being made is then for nobody. */
static void plan_leave(visit *v)
{
    sh_share_server *server = v->server;
    pthread_mutex_lock(&server->lock);
    if (server->plan_asker == v) {
        server->plan_asker = NULL;
        if (server->plan_state != PLAN_TAKEN) server->plan_state = PLAN_NONE;
        sh_buf_reset(&server->plan_said);
    }
    pthread_mutex_unlock(&server->lock);
}

static bool is_stopping(sh_share_server *server)
{
    pthread_mutex_lock(&server->lock);
    bool stopping = server->stopping;
    pthread_mutex_unlock(&server->lock);
    return stopping;
}

/* The plan is the owner's to make, so this thread waits for it. */
static sh_status answer_plan(visit *v, const sh_share_request *request, sh_err *err)
{
    sh_deadline end = sh_deadline_in_ms(PLAN_MS);
    sh_buf said = {0}, plan = {0};
    sh_err why;
    bool done = false;
    size_t len = (size_t)request->window.len;
    if (len == 0 || len > SH_SHARE_PLAN_MAX) {
        sh_err_set(&why, SH_ERR_PEER, "a plan cannot be made from %zu bytes", len);
        return refuse(v, &why, err);
    }
    sh_status status = sh_stream_recv(&v->stream, sh_buf_reserve(&said, len), len,
                                      v->server->stop[0], SEND_MS, err);
    said.len = status == SH_OK ? len : 0;
    sh_err_set(&why, SH_ERR_TIMEOUT, "the server was too busy to make a plan");
    while (status == SH_OK && !done && !sh_deadline_passed(end) && !is_stopping(v->server)) {
        done = plan_step(v, &said, &plan, &why);
        if (!done) sh_sleep_ms(PLAN_LOOK_MS);
    }
    plan_leave(v);
    if (status == SH_OK && done && why.status == SH_OK) {
        uint8_t digest[SH_DIGEST_LEN];
        sh_digest(plan.ptr, plan.len, digest);
        status = answer(v, request, plan.ptr, plan.len, digest, err);
    } else if (status == SH_OK) {
        status = refuse(v, &why, err);
    }
    sh_buf_reset(&said);
    sh_buf_reset(&plan);
    return status;
}

bool sh_share_server_plan_asked(sh_share_server *server, sh_buf *said)
{
    pthread_mutex_lock(&server->lock);
    bool asked = server->plan_state == PLAN_ASKED;
    if (asked) {
        server->plan_state = PLAN_TAKEN;
        sh_buf_add(said, server->plan_said.ptr, server->plan_said.len);
        sh_buf_reset(&server->plan_said);
    }
    pthread_mutex_unlock(&server->lock);
    return asked;
}

void sh_share_server_plan_answer(sh_share_server *server, sh_str plan, const sh_err *why)
{
    pthread_mutex_lock(&server->lock);
    SH_ASSERT(server->plan_state == PLAN_TAKEN);
    server->plan_state = server->plan_asker == NULL ? PLAN_NONE : PLAN_MADE;
    server->plan_why = why != NULL ? *why : (sh_err){.status = SH_OK};
    sh_buf_reset(&server->plan);
    if (why == NULL) sh_buf_add(&server->plan, plan.ptr, plan.len);
    pthread_mutex_unlock(&server->lock);
}

static sh_status visit_step(visit *v, sh_buf *buf, sh_err *err)
{
    uint8_t bytes[SH_SHARE_REQUEST_LEN];
    sh_share_request request;
    sh_err why;
    sh_status status = sh_stream_recv(&v->stream, bytes, sizeof(bytes), v->server->stop[0], IDLE_MS,
                                      err);
    if (status == SH_OK) status = sh_share_request_unpack(bytes, &request, err);
    if (status != SH_OK) return status;
    if (request.kind == SH_SHARE_PLAN) return answer_plan(v, &request, err);
    if (outline_need(v->server, &why) != SH_OK) return refuse(v, &why, err);
    return request.kind == SH_SHARE_OUTLINE ? answer_outline(v, &request, err)
                                            : answer_window(v, &request, buf, err);
}

/* Ends when the peer closes the connection, which is how it says that it has all. */
static void *visit_run(void *arg)
{
    visit *v = arg;
    sh_buf buf = {0};
    sh_err err;
    while (visit_step(v, &buf, &err) == SH_OK) continue;
    SH_LOGD("rank %d: %s", v->rank, err.text);
    sh_stream_close(&v->stream);
    sh_buf_reset(&buf);
    atomic_store(&v->done, true);
    return NULL;
}

static void visit_reap(visit *v)
{
    if (!v->used || !atomic_load(&v->done)) return;
    pthread_join(v->thread, NULL);
    v->used = false;
}

/* A place for a connection of this rank; NULL: it has enough. */
static visit *visit_place(sh_share_server *server, int rank)
{
    visit *found = NULL;
    int count = 0;
    for (int i = 0; i < VISITS_MAX; i++) {
        visit *v = &server->visits[i];
        visit_reap(v);
        if (v->used)
            count += v->rank == rank;
        else
            found = v;
    }
    return count < SH_SHARE_CONNS_MAX ? found : NULL;
}

void sh_share_server_take(void *ctx, int rank, sh_stream stream)
{
    sh_share_server *server = ctx;
    pthread_mutex_lock(&server->lock);
    visit *v = server->stopping ? NULL : visit_place(server, rank);
    if (v != NULL) {
        v->server = server;
        v->rank = rank;
        v->stream = stream;
        atomic_store(&v->done, false);
        v->used = pthread_create(&v->thread, NULL, visit_run, v) == 0;
    }
    bool taken = v != NULL && v->used;
    pthread_mutex_unlock(&server->lock);
    if (taken) return;
    SH_LOGW("rank %d has more than %d connections for weights, or there is no thread for another",
            rank, SH_SHARE_CONNS_MAX);
    sh_stream_close(&stream);
}

sh_status sh_share_server_create(const char *model_dir, sh_share_server **out, sh_err *err)
{
    sh_share_server *server = sh_alloc(sizeof(*server));
    sh_status status = sh_sock_pipe(server->stop, err);
    if (status != SH_OK) {
        free(server);
        return status;
    }
    server->dir = sh_strdup(model_dir);
    pthread_mutex_init(&server->lock, NULL);
    pthread_mutex_init(&server->outline_lock, NULL);
    *out = server;
    return SH_OK;
}

/* The byte in the pipe makes every wait of a visit end; it is taken out when all have. No lock is
 * held for the joins, as nobody else touches the visits while `stopping` is set. */
void sh_share_server_end_visits(sh_share_server *server)
{
    char byte = 1;
    pthread_mutex_lock(&server->lock);
    server->stopping = true;
    pthread_mutex_unlock(&server->lock);
    SH_ASSERT(write(server->stop[1], &byte, 1) == 1);
    for (int i = 0; i < VISITS_MAX; i++) {
        visit *v = &server->visits[i];
        if (v->used) pthread_join(v->thread, NULL);
        v->used = false;
    }
    SH_ASSERT(read(server->stop[0], &byte, 1) == 1);
    pthread_mutex_lock(&server->lock);
    server->stopping = false;
    pthread_mutex_unlock(&server->lock);
}

void sh_share_server_free(sh_share_server *server)
{
    if (server == NULL) return;
    sh_share_server_end_visits(server);
    files_close(server);
    sh_buf_reset(&server->plan_said);
    sh_buf_reset(&server->plan);
    sh_sock_close(server->stop[0]);
    sh_sock_close(server->stop[1]);
    pthread_mutex_destroy(&server->outline_lock);
    pthread_mutex_destroy(&server->lock);
    free(server->dir);
    free(server);
}

uint64_t sh_share_server_sent(const sh_share_server *server)
{
    return atomic_load_explicit(&server->sent, memory_order_relaxed);
}
