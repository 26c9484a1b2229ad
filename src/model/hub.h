/* hub.h - finds a model by name in the folders where the Hugging Face tools keep downloads.
 *
 * A cache folder has models--ORG--NAME/snapshots/REVISION, and refs/main names the revision. The
 * files in a snapshot are links; nothing is copied and nothing is downloaded here.
 *
 * Threads: pure functions over the file system. */
#ifndef SH_MODEL_HUB_H
#define SH_MODEL_HUB_H

#include "base/status.h"

#include <stdbool.h>

/* Folders to look in; each may be NULL. */
typedef struct {
    const char *models;    /* a folder that has NAME, ORG/NAME or models--ORG--NAME in it */
    const char *hub_cache; /* a cache folder */
    const char *hf_home;   /* its folder `hub` is a cache */
    const char *home;      /* of the user; .cache/huggingface/hub in it is a cache */
} sh_hub_paths;

/* The folder of `name`, owned by the caller: name itself when it is a folder or cannot be the name
 * of a model ("~/" is expanded), else the first match in `places`. The error lists where it looked.
 */
SH_MUST_CHECK sh_status sh_hub_find(const char *name, const sh_hub_paths *places, char **out,
                                    sh_err *err);

/* "ORG/NAME" of a snapshot folder in a cache, owned by the caller; NULL for any other path. */
char *sh_hub_name(const char *dir);

#endif
