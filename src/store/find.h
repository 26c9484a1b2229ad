/* find.h - finds a model by name in the folders where the Hugging Face tools keep downloads, and in
 * a folder of models. Nothing is downloaded here.
 *
 * Threads: pure functions over the file system. */
#ifndef SH_STORE_FIND_H
#define SH_STORE_FIND_H

#include "base/status.h"
#include "store/repo_name.h"

#include <stdbool.h>

/* Folders to look in; each may be NULL. */
typedef struct {
    const char *models;     /* a folder that has NAME, ORG/NAME or models--ORG--NAME in it */
    const char *hub_cache;  /* a cache folder */
    const char *hf_home;    /* its folder `hub` is a cache */
    const char *user_cache; /* of the user (XDG_CACHE_HOME); huggingface/hub in it is a cache */
    const char *home;       /* of the user; .cache/huggingface/hub in it is a cache */
} sh_store_places;

/* The folder of `name`, owned by the caller: name itself when it is a folder or cannot be the name
 * of a model ("~/" is expanded), else the first match in `places`. The name may have a revision,
 * ORG/NAME@REVISION. The error, SH_ERR_NOT_FOUND, lists where it looked. */
SH_MUST_CHECK sh_status sh_store_find(const char *name, const sh_store_places *places, char **out,
                                      sh_err *err);

/* The caches among the places, in the order of the search; owned by the caller, each of them too.
 * The first is where downloads go. Returns how many. */
enum { SH_STORE_CACHES_MAX = 4 };
int sh_store_caches(const sh_store_places *places, char *out[SH_STORE_CACHES_MAX]);

/* "ORG/NAME" of a snapshot folder in a cache, owned by the caller; NULL for any other path. */
char *sh_store_name(const char *dir);

/* The same with the snapshot's commit as the revision; false for any other path. */
bool sh_store_origin(const char *dir, sh_repo_name *out);

#endif
