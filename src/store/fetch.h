/* fetch.h - brings files of a model from the hub into the cache, several ranges at once.
 *
 * Threads: one thread; sh_fetch blocks. */
#ifndef SH_STORE_FETCH_H
#define SH_STORE_FETCH_H

#include "store/hub.h"
#include "store/listing.h"

#include <signal.h>

typedef struct {
    int64_t total;        /* bytes of all files */
    int64_t done;         /* of those, the ones that are here */
    int64_t received;     /* from the network, by this process */
    const char *checking; /* a file of which an earlier part is being hashed, or NULL */
    const char *waiting;  /* why nothing may arrive for a while, or NULL */
} sh_fetch_progress;

typedef struct {
    sh_hub *hub;
    const char *cache, *repo; /* the cache folder, and the model's in it */
    const sh_repo_name *name;
    const sh_listing *listing;
    int64_t timeout_ms;                                             /* as in sh_hub_opts */
    const volatile sig_atomic_t *cancel;                            /* not 0: stop */
    void (*progress)(void *ctx, const sh_fetch_progress *progress); /* several times a second */
    void *ctx;
} sh_fetch_opts;

/* Returns when all files of the listing are in the cache's blobs, each with its digest checked.
 * What had arrived before an error stays, and the next call goes on from there. Files that another
 * process is downloading are left to it, and waited for. SH_ERR_CANCELLED if it was stopped. */
SH_MUST_CHECK sh_status sh_fetch(const sh_fetch_opts *opts, sh_err *err);

#endif
