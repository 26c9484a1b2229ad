/* A thread that reads takes a hub, which keeps its connection from one read to the next, and
 * fetches one span after the other: neighbouring ranges with the gaps between them. What arrives
 * is copied to where it belongs at once, so a span needs no memory, and a request that fails goes
 * on at the byte where it stopped.
 *
 * As in fetch.c, a file is located once, which is when commit and ETag are compared, and again when
 * the host that has it refuses its address. */
#include "store/range_reader.h"

#include "base/alloc.h"

#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum {
    HUBS_MAX = 8,    /* that are kept; as many threads as there are may read */
    GAP = 128 << 10, /* bytes that take less time than a round trip, on any link */
    LOCATE_MAX = 5,  /* times in a row that a file's address may be refused */
    WAIT_MS = 100,
};

struct sh_range_reader {
    sh_hub_opts opts;
    sh_listing listing;
    int stop_fd;
    pthread_mutex_t lock; /* guards what follows */
    sh_hub *idle[HUBS_MAX];
    int idle_count;
    char **urls; /* [listing.count] where a file is; NULL: not known yet */
};

typedef struct {
    sh_range_reader *reader;
    sh_hub *hub;
    size_t file;
    const sh_file_range *range; /* the one that `at` is in, or before */
    int64_t at, end;            /* the next byte to arrive, and the end of the span */
    char *url;    /* where the running request looks for it; NULL: it finds that out */
    bool begun;   /* the reply's headers were checked */
    int failures; /* since the last byte, as the next two */
    int refused;  /* addresses */
    sh_deadline patience;
} span;

sh_range_reader *sh_range_reader_create(const sh_hub_opts *hub, const sh_listing *listing,
                                        int stop_fd)
{
    sh_range_reader *reader = sh_alloc(sizeof(*reader));
    *reader = (sh_range_reader){.opts = *hub, .listing = *listing, .stop_fd = stop_fd};
    reader->urls = sh_alloc_array(listing->count, sizeof(*reader->urls));
    pthread_mutex_init(&reader->lock, NULL);
    return reader;
}

void sh_range_reader_free(sh_range_reader *reader)
{
    if (reader == NULL) return;
    for (int i = 0; i < reader->idle_count; i++) sh_hub_close(reader->idle[i]);
    for (size_t i = 0; i < reader->listing.count; i++) free(reader->urls[i]);
    free(reader->urls);
    pthread_mutex_destroy(&reader->lock);
    free(reader);
}

static sh_status hub_take(sh_range_reader *reader, sh_hub **out, sh_err *err)
{
    *out = NULL;
    pthread_mutex_lock(&reader->lock);
    if (reader->idle_count > 0) *out = reader->idle[--reader->idle_count];
    pthread_mutex_unlock(&reader->lock);
    return *out != NULL ? SH_OK : sh_hub_open(&reader->opts, out, err);
}

static void hub_return(sh_range_reader *reader, sh_hub *hub)
{
    pthread_mutex_lock(&reader->lock);
    bool kept = reader->idle_count < HUBS_MAX;
    if (kept) reader->idle[reader->idle_count++] = hub;
    pthread_mutex_unlock(&reader->lock);
    if (!kept) sh_hub_close(hub);
}

/* A copy of the address of a file, or NULL. */
static char *url_get(sh_range_reader *reader, size_t file)
{
    pthread_mutex_lock(&reader->lock);
    char *url = reader->urls[file] == NULL ? NULL : sh_strdup(reader->urls[file]);
    pthread_mutex_unlock(&reader->lock);
    return url;
}

static void url_set(sh_range_reader *reader, size_t file, const char *url)
{
    pthread_mutex_lock(&reader->lock);
    free(reader->urls[file]);
    reader->urls[file] = sh_strdup(url);
    pthread_mutex_unlock(&reader->lock);
}

/* Unless another thread has found a newer one meanwhile. */
static void url_forget(sh_range_reader *reader, size_t file, const char *url)
{
    pthread_mutex_lock(&reader->lock);
    if (reader->urls[file] != NULL && strcmp(reader->urls[file], url) == 0) {
        free(reader->urls[file]);
        reader->urls[file] = NULL;
    }
    pthread_mutex_unlock(&reader->lock);
}

static bool is_stopped(const sh_range_reader *reader)
{
    struct pollfd p = {.fd = reader->stop_fd, .events = POLLIN};
    return reader->stop_fd >= 0 && poll(&p, 1, 0) > 0;
}

static sh_status stopped(sh_err *err)
{
    return sh_err_set(err, SH_ERR_CANCELLED, "stopped");
}

static void progressed(span *s)
{
    s->failures = s->refused = 0;
    s->patience = sh_deadline_in_ms(s->reader->opts.timeout_ms * SH_HUB_PATIENCE);
}

/* ---- replies ---- */

/* Whether the reply is the range that was asked for, of a file of the right size. */
static bool reply_check(span *s, sh_hub_request *r)
{
    int64_t size = s->reader->listing.files[s->file].size;
    s->begun = true;
    if (r->reply.code != 206)
        r->status = sh_err_set(&r->err, SH_ERR_UNSUPPORTED,
                               "the server sends whole files instead of ranges");
    else if (r->reply.range_total != size)
        r->status = sh_err_set(&r->err, SH_ERR_INPUT,
                               "the server has a file of %" PRId64 " bytes, not of %" PRId64,
                               r->reply.range_total, size);
    else if (r->reply.range_first != s->at) {
        sh_err_set(&r->err, SH_ERR_PEER, "the server sent another range than was asked for");
        r->status = SH_AGAIN;
    }
    return r->status == SH_OK;
}

/* Copies what belongs to ranges and drops what is between them. */
static void scatter(span *s, sh_str bytes)
{
    while (bytes.len > 0) {
        int64_t skip = s->at < s->range->at ? s->range->at - s->at : 0;
        int64_t into = s->at + skip - s->range->at, left = (int64_t)bytes.len - skip;
        int64_t take = left < s->range->len - into ? left : s->range->len - into;
        if (left <= 0) {
            s->at += (int64_t)bytes.len;
            return;
        }
        memcpy(s->range->to + into, bytes.ptr + skip, (size_t)take);
        s->at += skip + take;
        bytes = sh_str_sub(bytes, (size_t)(skip + take), bytes.len);
        if (into + take == s->range->len) s->range++;
    }
}

static bool on_data(sh_hub_request *r, sh_str bytes)
{
    span *s = r->ctx;
    if (!s->begun && !reply_check(s, r)) return false;
    if ((int64_t)bytes.len > s->end - s->at) {
        sh_err_set(&r->err, SH_ERR_PEER, "the server sent more than was asked for");
        r->status = SH_AGAIN;
        return false;
    }
    scatter(s, bytes);
    progressed(s);
    return true;
}

/* ---- requests ---- */

/* Only here the hub says which commit and which file it answers for. */
static sh_status located(span *s, const sh_hub_request *r, sh_err *err)
{
    const sh_listing *listing = &s->reader->listing;
    const sh_hub_reply *reply = &r->reply;
    const char *digest = listing->files[s->file].digest;
    if (reply->commit[0] != '\0' && strcmp(reply->commit, listing->commit) != 0)
        return sh_err_set(err, SH_ERR_INPUT, "the hub answers with commit %s, not %s",
                          reply->commit, listing->commit);
    if (strcmp(reply->etag, digest) != 0)
        return sh_err_set(err, SH_ERR_INPUT, "the hub answers with the ETag '%s', not %s",
                          reply->etag, digest);
    url_set(s->reader, s->file, r->url);
    return SH_OK;
}

/* The host that has the file does not know the address any more. */
static sh_status expired(span *s, const sh_hub_request *r, sh_err *err)
{
    url_forget(s->reader, s->file, s->url);
    if (++s->refused <= LOCATE_MAX) return SH_OK;
    *err = r->err;
    return err->status;
}

static sh_status retry(span *s, const sh_hub_request *r, sh_err *err)
{
    sh_deadline until;
    if (!sh_hub_retry(r, &s->failures, &s->patience, &until))
        return sh_err_set(err, SH_ERR_PEER, "given up after %d tries: %s", s->failures,
                          r->err.text);
    while (!sh_deadline_passed(until)) {
        if (is_stopped(s->reader)) return stopped(err);
        sh_sleep_ms(WAIT_MS);
    }
    return SH_OK;
}

/* SH_OK: go on, whether something has come or not. */
static sh_status ended(span *s, sh_hub_request *r, sh_err *err)
{
    if (r->locate && r->status == SH_OK) return located(s, r, err);
    if (!r->locate && s->at == s->end) return SH_OK;
    if (r->status == SH_OK) {
        sh_err_set(&r->err, SH_ERR_PEER, "the server ended its reply early");
        r->status = SH_AGAIN;
    }
    if (r->status == SH_AGAIN) return retry(s, r, err);
    if (r->denied && !r->locate) return expired(s, r, err);
    *err = r->err;
    return r->status;
}

/* One request: for the rest of the span, or for where the file is. */
static sh_status ask(span *s, sh_err *err)
{
    const sh_listing *listing = &s->reader->listing;
    sh_hub_request r = {.data = on_data, .ctx = s};
    sh_status status = SH_OK;
    s->url = url_get(s->reader, s->file);
    s->begun = false;
    if (s->url == NULL) {
        r.locate = true;
        r.url = sh_hub_file_url(s->hub, listing->commit, listing->files[s->file].path);
    } else {
        r.url = sh_strdup(s->url);
        r.first = s->at;
        r.end = s->end;
    }
    sh_hub_start(s->hub, &r);
    while (status == SH_OK && sh_hub_wait(s->hub, WAIT_MS) == NULL)
        if (is_stopped(s->reader)) status = stopped(err);
    if (status == SH_OK) status = ended(s, &r, err);
    sh_hub_request_reset(s->hub, &r);
    free(s->url);
    return status;
}

/* How many of the ranges one request gets. */
static size_t span_len(const sh_file_range *ranges, size_t count)
{
    size_t len = 1;
    while (len < count && ranges[len].at - (ranges[len - 1].at + ranges[len - 1].len) <= GAP) len++;
    return len;
}

sh_status sh_range_reader_read(sh_range_reader *reader, size_t file, const sh_file_range *ranges,
                               size_t count, sh_err *err)
{
    span s = {.reader = reader, .file = file};
    sh_status status = hub_take(reader, &s.hub, err);
    if (status != SH_OK) return status;
    for (size_t done = 0, len; status == SH_OK && done < count; done += len) {
        len = span_len(ranges + done, count - done);
        const sh_file_range *last = &ranges[done + len - 1];
        s.range = &ranges[done];
        s.at = s.range->at;
        s.end = last->at + last->len;
        progressed(&s);
        while (status == SH_OK && s.at < s.end) status = ask(&s, err);
    }
    hub_return(reader, s.hub);
    return status == SH_OK ? SH_OK : sh_err_prefix(err, "%s", reader->listing.files[file].path);
}
