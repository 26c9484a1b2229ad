/* hub.h - finds a model by name in the folders where the tools of Hugging Face keep downloads.
 *
 * A cache folder has models--ORG--NAME/snapshots/REVISION, and refs/main says which revision. Files
 * inside are links; nothing is copied and nothing is downloaded here.
 *
 * Threads: pure functions over the file system. */
#ifndef SH_MODEL_HUB_H
#define SH_MODEL_HUB_H

#include "base/status.h"

#include <stdbool.h>

/* Folders to look in; each may be NULL. */
typedef struct {
    const char *models;    /* any folder of models: NAME, ORG/NAME or models--ORG--NAME below it */
    const char *hub_cache; /* a cache folder */
    const char *hf_home;   /* its folder `hub` is a cache */
    const char *home;      /* the user's: .cache/huggingface/hub below it */
} sh_hub_places;

/* The folder of `name`, owned by the caller: name itself when it is a folder ("~/" is put in), else
 * what the places have. The error says where it looked. */
SH_MUST_CHECK sh_status sh_hub_find(const char *name, const sh_hub_places *places, char **out,
                                    sh_err *err);

/* "ORG/NAME" of a folder inside a cache, owned by the caller; NULL when the path is none. */
char *sh_hub_name(const char *dir);

#endif
