#include "cmd/support/model_list.h"

#include "base/alloc.h"
#include "base/system.h"
#include "cmd/support/draft_model.h"
#include "cmd/support/model_find.h"
#include "model/family.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void fits_text(sh_model_row *r)
{
    double tokens = sh_model_facts_tokens(&r->facts, r->memory);
    if (tokens >= r->facts.config.context)
        snprintf(r->fits, sizeof(r->fits), "yes");
    else if (tokens > 0)
        snprintf(r->fits, sizeof(r->fits), "up to %.0f tokens", tokens);
    else
        snprintf(r->fits, sizeof(r->fits), "no: on %d machines like this",
                 sh_model_facts_machines(&r->facts, r->memory));
}

/* A draft model takes its weights, and KV for each token. */
static void draft_count(sh_model_row *r, const sh_model_facts *draft)
{
    r->memory = (double)sh_memory_total() - (double)draft->bytes;
    r->facts.kv_token_bytes += draft->kv_token_bytes;
}

/* A model that cannot be loaded is listed too, with the reason: it takes disk. */
static void row_fill(sh_model_row *r, const sh_model_facts *draft)
{
    sh_err err;
    strcpy(r->family, "-");
    strcpy(r->quant, "-");
    r->format = "-";
    if (!r->entry->complete) {
        snprintf(r->fits, sizeof(r->fits), "incomplete: `shoal pull` goes on");
    } else if (sh_model_facts_gather(r->entry->dir, &r->facts, &err) != SH_OK) {
        snprintf(r->fits, sizeof(r->fits), "cannot be loaded: %.170s", err.text);
    } else {
        r->loads = true;
        snprintf(r->family, sizeof(r->family), "%s", r->facts.config.family->model_type);
        r->format = r->facts.mlx ? "mlx" : "hub";
        sh_model_quant_text(&r->facts.config, r->quant, sizeof(r->quant));
        draft_count(r, draft);
        fits_text(r);
    }
}

/* Where a model was found: in a folder of models, or in a cache. */
static const char *source_of(const sh_settings *s, const sh_catalog_entry *entry)
{
    size_t len = s->models_dir == NULL ? 0 : strlen(s->models_dir);
    bool inside = len > 0 && entry->dir != NULL && strncmp(entry->dir, s->models_dir, len) == 0;
    return inside ? "models-dir" : strchr(entry->name, '/') == entry->name ? "folder" : "cache";
}

/* What --draft-model needs; all zero if there is none, or if it is a part of each model. */
static sh_status draft_gather(const sh_settings *s, sh_model_facts *out, sh_err *err)
{
    sh_settings named = *s;
    char *dir = NULL;
    named.model = s->draft_model;
    if (s->draft_model == NULL || sh_draft_model_is_mtp(s)) return SH_OK;
    sh_status status = sh_model_find(&named, &dir, err);
    if (status == SH_OK) status = sh_model_facts_gather(dir, out, err);
    if (status != SH_OK) sh_err_prefix(err, "--draft-model");
    free(dir);
    return status;
}

cJSON *sh_model_row_json(const sh_model_row *r)
{
    cJSON *item = cJSON_CreateObject();
    cJSON_AddStringToObject(item, "name", r->entry->name);
    if (r->entry->dir != NULL) cJSON_AddStringToObject(item, "path", r->entry->dir);
    cJSON_AddNumberToObject(item, "bytes", (double)r->entry->bytes);
    cJSON_AddStringToObject(item, "source", r->source);
    cJSON_AddBoolToObject(item, "complete", r->entry->complete);
    if (!r->loads) {
        cJSON_AddStringToObject(item, "error", r->fits);
        return item;
    }
    cJSON_AddStringToObject(item, "format", r->format);
    cJSON_AddStringToObject(item, "family", r->family);
    cJSON_AddStringToObject(item, "quantization", r->quant);
    cJSON_AddNumberToObject(item, "context", r->facts.config.context);
    cJSON_AddStringToObject(item, "fits", r->fits);
    cJSON_AddNumberToObject(item, "fits_tokens",
                            (double)(int64_t)sh_model_facts_tokens(&r->facts, r->memory));
    return item;
}

sh_status sh_model_list_make(const sh_settings *s, sh_model_list *out, sh_err *err)
{
    sh_store_places places = sh_model_places(s);
    sh_model_facts draft = {0};
    sh_status status = draft_gather(s, &draft, err);
    if (status == SH_OK) {
        sh_catalog_init(&places, &out->catalog);
        out->count = out->catalog.count;
        out->rows = sh_alloc_array(out->count, sizeof(*out->rows));
    }
    for (size_t i = 0; i < out->count; i++) {
        out->rows[i].entry = &out->catalog.entries[i];
        out->rows[i].source = source_of(s, out->rows[i].entry);
        row_fill(&out->rows[i], &draft);
    }
    sh_model_facts_reset(&draft);
    return status;
}

void sh_model_list_reset(sh_model_list *list)
{
    for (size_t i = 0; i < list->count; i++) sh_model_facts_reset(&list->rows[i].facts);
    free(list->rows);
    sh_catalog_reset(&list->catalog);
}
