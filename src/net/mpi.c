/* Loading an MPI plugin, and a channel over it.
 *
 * The plugin must belong to the MPI library whose mpirun started us: another one does not find the
 * other ranks. The launcher is recognized by the variables it exports.
 *
 * MPI errors and hangs are contained as far as the standard allows: every wait goes through test()
 * with a deadline of ours, and finalize, which has none, is called only after a barrier has shown
 * that all ranks are there. */
#include "net/mpi.h"

#include "base/alloc.h"
#include "base/log.h"
#include "net/mpi_plugin.h"
#include "net/plugin.h"
#include "net/transport.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sh_mpi {
    const sh_mpi_plugin *plugin;
    int rank;
    int size;
};

/* How to recognize the library: by a variable that its launcher sets, or, for a library that the
 * user named, by a symbol that only this family has. */
static const struct {
    const char *family;
    const char *variable;
    const char *symbol;
} FAMILIES[] = {
    {"openmpi", "OMPI_COMM_WORLD_SIZE", "ompi_mpi_comm_world"},
    {"mpich", "PMI_SIZE", "MPIR_Err_create_code"},
};

static sh_status plugin_load(const char *path, const sh_mpi_plugin **out, sh_err *err)
{
    /* RTLD_GLOBAL: the library loads its own components later, and they need its symbols. */
    void *handle = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (handle == NULL) return sh_err_set(err, SH_ERR_UNSUPPORTED, "%s", dlerror());
    const sh_mpi_plugin *plugin = dlsym(handle, SH_MPI_PLUGIN_SYMBOL);
    if (plugin == NULL || plugin->version != SH_MPI_PLUGIN_VERSION) {
        dlclose(handle);
        return sh_err_set(err, SH_ERR_UNSUPPORTED, "%s: not a plugin of this version", path);
    }
    *out = plugin; /* stays loaded: MPI libraries cannot be unloaded */
    return SH_OK;
}

static sh_status family_of_library(const char *library, const char **family, sh_err *err)
{
    void *handle = dlopen(library, RTLD_NOW | RTLD_GLOBAL);
    if (handle == NULL)
        return sh_err_set(err, SH_ERR_UNSUPPORTED, "MPI library '%s': %s", library, dlerror());
    for (size_t i = 0; i < SH_COUNT_OF(FAMILIES); i++) {
        if (dlsym(handle, FAMILIES[i].symbol) == NULL) continue;
        *family = FAMILIES[i].family;
        return SH_OK;
    }
    return sh_err_set(err, SH_ERR_UNSUPPORTED, "MPI library '%s': neither Open MPI nor MPICH",
                      library);
}

/* Without a launcher's variable (mpirun of one process, or none) any plugin that loads will do. The
 * error is prepared in advance and replaced by that of the last plugin that failed to load. */
static sh_status plugin_choose(const char *library, const char *dir, const sh_mpi_plugin **out,
                               sh_err *err)
{
    const char *only = NULL;
    if (library != NULL) {
        sh_status status = family_of_library(library, &only, err);
        if (status != SH_OK) return status;
    }
    for (size_t i = 0; i < SH_COUNT_OF(FAMILIES) && only == NULL; i++)
        if (getenv(FAMILIES[i].variable) != NULL) only = FAMILIES[i].family;
    sh_err_set(err, SH_ERR_UNSUPPORTED,
               "MPI is not available: no plugin%s%s was built (make needs mpicc)",
               only == NULL ? "" : " for ", only == NULL ? "" : only);
    for (size_t i = 0; i < SH_COUNT_OF(FAMILIES); i++) {
        if (only != NULL && strcmp(only, FAMILIES[i].family) != 0) continue;
        char file[64];
        snprintf(file, sizeof(file), "shoal-mpi-%s.so", FAMILIES[i].family);
        char *path = sh_plugin_find(dir, file);
        if (path == NULL) continue;
        sh_status status = plugin_load(path, out, err);
        free(path);
        if (status == SH_OK) return SH_OK;
    }
    return err->status;
}

static sh_status failed(const sh_mpi_plugin *plugin, int code, const char *what, sh_err *err)
{
    char text[200];
    plugin->error_text(code, text, sizeof(text));
    return sh_err_set(err, SH_ERR_PEER, "MPI: %s: %s", what, text);
}

sh_status sh_mpi_open(const char *library, const char *dir, sh_mpi **out, sh_err *err)
{
    const sh_mpi_plugin *plugin = NULL;
    sh_status status = plugin_choose(library, dir, &plugin, err);
    if (status != SH_OK) return status;
    sh_mpi *mpi = sh_alloc(sizeof(*mpi));
    mpi->plugin = plugin;
    int code = plugin->init(&mpi->rank, &mpi->size);
    if (code != 0) {
        free(mpi);
        return failed(plugin, code, "starting", err);
    }
    *out = mpi;
    return SH_OK;
}

/* Sleeps between tests: this is only used while starting and leaving, where a millisecond is fine.
 */
static sh_status await(sh_mpi *mpi, sh_mpi_request *request, sh_deadline deadline, sh_err *err)
{
    for (;;) {
        bool done = false;
        int code = mpi->plugin->test(request, &done);
        if (code != 0) return failed(mpi->plugin, code, "waiting", err);
        if (done) return SH_OK;
        if (sh_deadline_passed(deadline)) {
            mpi->plugin->cancel(request);
            return sh_err_set(err, SH_ERR_TIMEOUT, "did not answer in time");
        }
        sh_sleep_ms(1);
    }
}

void sh_mpi_close(sh_mpi *mpi, int wait_ms)
{
    sh_mpi_request request;
    sh_err err;
    if (mpi == NULL) return;
    if (wait_ms > 0) {
        /* MPI_Finalize has no timeout, so call it only once all ranks have reached this point. */
        int code = mpi->plugin->barrier(&request);
        sh_status status = code != 0 ? failed(mpi->plugin, code, "leaving", &err)
                                     : await(mpi, &request, sh_deadline_in_ms(wait_ms), &err);
        if (status == SH_OK)
            mpi->plugin->finalize();
        else
            SH_LOGW("leaving MPI without the other ranks: %s", err.text);
    }
    free(mpi);
}

int sh_mpi_rank(const sh_mpi *mpi)
{
    return mpi->rank;
}

int sh_mpi_size(const sh_mpi *mpi)
{
    return mpi->size;
}

const char *sh_mpi_family(const sh_mpi *mpi)
{
    return mpi->plugin->family;
}

sh_status sh_mpi_send(sh_mpi *mpi, int to, const void *data, size_t len, sh_deadline deadline,
                      sh_err *err)
{
    sh_mpi_request request;
    int code = mpi->plugin->send(data, (int)len, to, 0, &request);
    sh_status status = code != 0 ? failed(mpi->plugin, code, "sending", err)
                                 : await(mpi, &request, deadline, err);
    return status == SH_OK ? SH_OK : sh_err_prefix(err, "rank %d", to);
}

sh_status sh_mpi_recv(sh_mpi *mpi, int from, void *data, size_t len, sh_deadline deadline,
                      sh_err *err)
{
    sh_mpi_request request;
    int code = mpi->plugin->recv(data, (int)len, from, 0, &request);
    sh_status status = code != 0 ? failed(mpi->plugin, code, "receiving", err)
                                 : await(mpi, &request, deadline, err);
    return status == SH_OK ? SH_OK : sh_err_prefix(err, "rank %d", from);
}

/* ---- the channel ----
 *
 * MPI transfers contiguous buffers of at most INT_MAX bytes. A message is cut into MPI messages in
 * a way that both ends derive from its lengths: a short one is copied together into a buffer and
 * sent as one; otherwise the header goes first, then the body in pieces. */

enum {
    SHORT_MAX = 64 * 1024 + SH_OP_HEAD_LEN,
    PIECE_MAX = 1 << 30,
};

/* One direction. */
typedef struct {
    bool in_flight;
    sh_mpi_request request;
    size_t len; /* of the request in flight */
    uint8_t *buf;
    bool in_buf;
} half;

typedef struct {
    sh_channel base;
    sh_mpi *mpi;
    int peer;
    int tag;
    half out;
    half in;
} mpi_channel;

/* The next part of a message, as contiguous bytes. */
static struct iovec next_piece(const sh_msg *msg, half *h)
{
    struct iovec parts[2];
    int count = sh_msg_parts(msg, msg->done, msg->len, parts);
    h->in_buf = count == 2 && msg->len <= SHORT_MAX;
    if (h->in_buf) return (struct iovec){h->buf, msg->len};
    if (parts[0].iov_len > PIECE_MAX) parts[0].iov_len = PIECE_MAX;
    return parts[0];
}

static void buf_copy(const sh_msg *msg, half *h, bool to_buf)
{
    uint8_t *at = h->buf;
    for (int i = 0; i < 2; at += msg->part[i].iov_len, i++) {
        if (msg->part[i].iov_len == 0) continue;
        memcpy(to_buf ? (void *)at : msg->part[i].iov_base,
               to_buf ? msg->part[i].iov_base : (void *)at, msg->part[i].iov_len);
    }
}

static int start(mpi_channel *channel, half *h, sh_msg *msg, bool sending)
{
    const sh_mpi_plugin *plugin = channel->mpi->plugin;
    struct iovec piece = next_piece(msg, h);
    h->len = piece.iov_len;
    if (sending && h->in_buf) buf_copy(msg, h, true);
    int code = sending ? plugin->send(piece.iov_base, (int)piece.iov_len, channel->peer,
                                      channel->tag, &h->request)
                       : plugin->recv(piece.iov_base, (int)piece.iov_len, channel->peer,
                                      channel->tag, &h->request);
    h->in_flight = code == 0;
    return code;
}

/* One MPI request is in flight per direction; the next piece starts when the previous one is done.
 * A received short message is in the buffer until then, and copied out once complete. */
static sh_status move_msg(mpi_channel *channel, half *h, sh_msg *msg, bool sending, sh_err *err)
{
    const sh_mpi_plugin *plugin = channel->mpi->plugin;
    while (msg->done < msg->len) {
        bool done = false;
        int code = h->in_flight ? 0 : start(channel, h, msg, sending);
        if (code == 0) code = plugin->test(&h->request, &done);
        h->in_flight = code == 0 && !done;
        if (code != 0) return failed(plugin, code, sending ? "sending" : "receiving", err);
        if (!done) return SH_AGAIN;
        msg->done += h->len;
        if (!sending && h->in_buf) buf_copy(msg, h, false);
    }
    return SH_OK;
}

static sh_status mpi_send(sh_channel *base, sh_msg *msg, sh_err *err)
{
    mpi_channel *channel = (mpi_channel *)base;
    return move_msg(channel, &channel->out, msg, true, err);
}

static sh_status mpi_recv(sh_channel *base, sh_msg *msg, sh_err *err)
{
    mpi_channel *channel = (mpi_channel *)base;
    return move_msg(channel, &channel->in, msg, false, err);
}

static void mpi_close(sh_channel *base)
{
    mpi_channel *channel = (mpi_channel *)base;
    half *halves[2] = {&channel->out, &channel->in};
    for (int i = 0; i < 2; i++) {
        if (halves[i]->in_flight) channel->mpi->plugin->cancel(&halves[i]->request);
        free(halves[i]->buf);
    }
    free(channel);
}

/* Without arm: MPI has nothing that poll() could wait for. */
static const sh_channel_ops MPI_OPS = {
    .name = "mpi", .send = mpi_send, .recv = mpi_recv, .close = mpi_close};

/* The offer is the family of the library: two families cannot exchange messages. */
static sh_status mpi_offer(const sh_pair *pair, const sh_offer *theirs, sh_offer *mine,
                           void **state, sh_err *err)
{
    (void)state;
    const sh_mpi *mpi = pair->library;
    if (mpi == NULL)
        return sh_err_set(err, SH_ERR_UNSUPPORTED, "rank %d was started without --backend mpi",
                          pair->rank);
    const char *family = sh_mpi_family(mpi);
    mine->body_len = (uint32_t)strlen(family);
    memcpy(mine->body, family, mine->body_len);
    if (theirs != NULL && (theirs->body_len != mine->body_len ||
                           memcmp(theirs->body, mine->body, mine->body_len) != 0))
        return sh_err_set(err, SH_ERR_UNSUPPORTED, "rank %d uses %s and rank %d another library",
                          pair->rank, family, pair->peer);
    return SH_OK;
}

/* Tag 0 is for sh_mpi_send and sh_mpi_recv; the others separate successive groups. */
static sh_status mpi_connect(const sh_pair *pair, void *state, const sh_offer *theirs,
                             sh_channel **out, sh_err *err)
{
    (void)state, (void)theirs, (void)err;
    mpi_channel *channel = sh_alloc(sizeof(*channel));
    channel->base.ops = &MPI_OPS;
    channel->mpi = pair->library;
    channel->peer = pair->peer;
    channel->tag = 1 + (int)(pair->epoch % SH_MPI_TAG_MAX);
    channel->out.buf = sh_alloc(SHORT_MAX);
    channel->in.buf = sh_alloc(SHORT_MAX);
    *out = &channel->base;
    return SH_OK;
}

const sh_transport sh_transport_mpi = {
    .name = "mpi",
    .title = "MPI",
    .backend = "mpi",
    .clear_text = true,
    .one_life = true,
    .offer = mpi_offer,
    .connect = mpi_connect,
};
