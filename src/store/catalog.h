/* catalog.h - the models that are on this machine: listing them, and removing one.
 *
 * Threads: functions over the file system; other processes may change it at any time. */
#ifndef SH_STORE_CATALOG_H
#define SH_STORE_CATALOG_H

#include "store/find.h"
#include "store/repo_name.h"

#include <stddef.h>
#include <stdint.h>

typedef struct {
    char *name;    /* what --model takes: ORG/NAME, ORG/NAME@COMMIT, or a path */
    char *dir;     /* of config.json; NULL if nothing of it can be used yet */
    int64_t bytes; /* of its files */
    bool complete; /* all weights are there */
} sh_catalog_entry;

typedef struct {
    sh_catalog_entry *entries; /* owned, with their strings; sorted by name */
    size_t count;
} sh_catalog;

void sh_catalog_init(const sh_store_places *places, sh_catalog *out);
void sh_catalog_reset(sh_catalog *catalog);

/* The entry whose name is at most two typos away from this one, or NULL. */
const char *sh_catalog_similar(const sh_catalog *catalog, const char *name);

/* What removing a model would delete: the model's folder in a cache, or one snapshot of it and what
 * no other snapshot uses. */
typedef struct {
    char *cache, *repo;
    char *id;
    char *commit; /* NULL: all of it */
    int64_t bytes;
} sh_removal;

/* SH_ERR_NOT_FOUND if no cache has it. `text` may have a revision. */
SH_MUST_CHECK sh_status sh_removal_plan(const char *text, const sh_store_places *places,
                                        sh_removal *out, sh_err *err);

/* SH_ERR_CONFLICT if it is being downloaded. */
SH_MUST_CHECK sh_status sh_removal_run(const sh_removal *removal, sh_err *err);
void sh_removal_reset(sh_removal *removal);

#endif
