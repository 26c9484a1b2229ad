/* pull.h - downloads a model from the hub into a cache.
 *
 * A model appears in the cache only when it is complete: the snapshot gets its config.json, and the
 * revision its ref, after all files have arrived with the right digests.
 *
 * Threads: one thread; blocks until it is done. */
#ifndef SH_STORE_PULL_H
#define SH_STORE_PULL_H

#include "store/fetch.h"

typedef struct {
    const char *cache;    /* folder; made if it does not exist */
    const char *endpoint; /* of the hub */
    const char *token;    /* or NULL */
    int64_t timeout_ms;   /* to connect, and without receiving a byte */
    const volatile sig_atomic_t *cancel;
    void (*progress)(void *ctx, const sh_fetch_progress *progress);
    void *ctx;
} sh_pull_opts;

/* The snapshot's folder, owned by the caller. */
SH_MUST_CHECK sh_status sh_pull(const sh_repo_name *name, const sh_pull_opts *opts, char **dir,
                                sh_err *err);

#endif
