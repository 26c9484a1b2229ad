/* Resolves --model: a path, a name in one of the model caches (store/find.h), or a name on the hub.
 */
#include "cmd/support/model_find.h"

#include "base/file.h"
#include "cmd/support/model_pull.h"
#include "store/cache.h"
#include "store/catalog.h"

#include <stdlib.h>
#include <string.h>

/* HOME is read directly and is not a setting, because settings are sent to other hosts. */
sh_store_places sh_model_places(const sh_settings *s)
{
    return (sh_store_places){
        .models = s->models_dir != NULL ? s->models_dir : s->model_cache,
        .hub_cache = s->hf_hub_cache,
        .hf_home = s->hf_home,
        .user_cache = getenv("XDG_CACHE_HOME"),
        .home = getenv("HOME"),
    };
}

sh_status sh_model_find(const sh_settings *s, char **out, sh_err *err)
{
    sh_store_places places = sh_model_places(s);
    return sh_store_find(s->model, &places, out, err);
}

/* Whether the folder is a snapshot of which a part is missing: another program was stopped while it
 * downloaded it. */
static bool is_partial(const char *dir)
{
    char *name = sh_store_name(dir);
    bool partial = name != NULL && !sh_cache_snapshot_is_complete(dir);
    free(name);
    return partial;
}

/* Names what is here and looks like it: a typo should not need the network to be found. */
static void suggest(const sh_settings *s, sh_err *err)
{
    sh_store_places places = sh_model_places(s);
    sh_catalog catalog;
    sh_catalog_init(&places, &catalog);
    const char *near = sh_catalog_similar(&catalog, s->model);
    if (near != NULL) sh_err_prefix(err, "did you mean %s? It is here", near);
    sh_catalog_reset(&catalog);
}

sh_status sh_model_obtain(const sh_settings *s, char **out, sh_err *err)
{
    sh_repo_name name;
    sh_status status = sh_model_find(s, out, err);
    if (status == SH_OK && !is_partial(*out)) return SH_OK;
    bool partial = status == SH_OK;
    if (partial) {
        free(*out);
        *out = NULL;
        status = sh_err_set(err, SH_ERR_NOT_FOUND, "model '%s' is in the cache, but not all of it",
                            s->model);
    }
    if (status != SH_ERR_NOT_FOUND || !sh_repo_name_parse(s->model, &name)) return status;
    if (sh_repo_name_is_full(&name) && !s->offline) status = sh_model_pull(s, &name, out, err);
    if (status == SH_ERR_NOT_FOUND || status == SH_ERR_TIMEOUT) suggest(s, err);
    if (status != SH_OK && s->offline) sh_err_prefix(err, "offline");
    return status;
}

bool sh_model_is_here(const sh_settings *s)
{
    char *dir = NULL;
    sh_err ignored;
    if (sh_model_find(s, &dir, &ignored) != SH_OK) return false;
    char *config = sh_path_join(dir, "config.json");
    bool here = sh_file_exists(config);
    free(config);
    free(dir);
    return here;
}
