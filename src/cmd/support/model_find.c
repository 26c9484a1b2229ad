/* Resolves --model: a path, or a name in one of the model caches (model/hub.h). */
#include "cmd/support/model_find.h"

#include "model/hub.h"

#include <stdlib.h>

/* HOME is read directly and is not a setting, because settings are sent to other hosts. */
sh_status sh_model_find(const sh_settings *s, char **out, sh_err *err)
{
    sh_hub_paths places = {
        .models = s->model_cache,
        .hub_cache = s->hf_hub_cache,
        .hf_home = s->hf_home,
        .home = getenv("HOME"),
    };
    return sh_hub_find(s->model, &places, out, err);
}
