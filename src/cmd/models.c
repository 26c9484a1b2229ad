/* shoal models: what is on this machine, and whether it fits; `models rm` removes one. */
#include "base/alloc.h"
#include "base/json.h"
#include "base/system.h"
#include "cmd/command.h"
#include "cmd/support/draft_model.h"
#include "cmd/support/model_facts.h"
#include "cmd/support/model_find.h"
#include "model/family.h"
#include "store/catalog.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* One model, in the words of the list. */
typedef struct {
    const sh_catalog_entry *entry;
    char family[40];
    const char *format;
    char quant[160];
    char fits[200]; /* "yes", "up to N tokens", "no: ..."; or why it cannot be loaded */
    bool loads;
    sh_model_facts facts;
    double memory; /* that is left for it */
    const char *source;
} row;

static void fits_text(row *r)
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
static void draft_count(row *r, const sh_model_facts *draft)
{
    r->memory = (double)sh_memory_total() - (double)draft->bytes;
    r->facts.kv_token_bytes += draft->kv_token_bytes;
}

/* A model that cannot be loaded is listed too, with the reason: it takes disk. */
static void row_fill(row *r, const sh_model_facts *draft)
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

static void print_text(const row *rows, size_t count)
{
    int widest = 4, family = 6, quant = 9;
    for (size_t i = 0; i < count; i++) {
        int name = (int)strlen(rows[i].entry->name), kind = (int)strlen(rows[i].family),
            how = (int)strlen(rows[i].quant);
        widest = name > widest ? name : widest;
        family = kind > family ? kind : family;
        quant = how > quant ? how : quant;
    }
    if (count == 0) {
        printf("no models here; `shoal pull ORG/NAME` downloads one\n");
        return;
    }
    printf("%-*s  %9s  %-10s  %-6s  %-*s  %-*s  %s\n", widest, "name", "size", "source", "format",
           family, "family", quant, "quantized", "fits");
    for (size_t i = 0; i < count; i++)
        printf("%-*s  %6.2f GB  %-10s  %-6s  %-*s  %-*s  %s\n", widest, rows[i].entry->name,
               (double)rows[i].entry->bytes / 1e9, rows[i].source, rows[i].format, family,
               rows[i].family, quant, rows[i].quant, rows[i].fits);
}

static void print_json(const row *rows, size_t count)
{
    cJSON *list = cJSON_CreateArray();
    for (size_t i = 0; i < count; i++) {
        const row *r = &rows[i];
        cJSON *item = cJSON_CreateObject();
        cJSON_AddStringToObject(item, "name", r->entry->name);
        if (r->entry->dir != NULL) cJSON_AddStringToObject(item, "path", r->entry->dir);
        cJSON_AddNumberToObject(item, "bytes", (double)r->entry->bytes);
        cJSON_AddStringToObject(item, "source", r->source);
        cJSON_AddBoolToObject(item, "complete", r->entry->complete);
        if (r->loads) {
            cJSON_AddStringToObject(item, "format", r->format);
            cJSON_AddStringToObject(item, "family", r->family);
            cJSON_AddStringToObject(item, "quantization", r->quant);
            cJSON_AddNumberToObject(item, "context", r->facts.config.context);
            cJSON_AddNumberToObject(item, "fits_tokens",
                                    (double)(int64_t)sh_model_facts_tokens(&r->facts, r->memory));
        } else {
            cJSON_AddStringToObject(item, "error", r->fits);
        }
        cJSON_AddItemToArray(list, item);
    }
    char *text = cJSON_Print(list);
    puts(text);
    cJSON_free(text);
    cJSON_Delete(list);
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

static int list_models(const sh_settings *s)
{
    sh_store_places places = sh_model_places(s);
    sh_catalog catalog;
    sh_model_facts draft = {0};
    sh_err err;
    if (draft_gather(s, &draft, &err) != SH_OK) {
        sh_model_facts_reset(&draft);
        return sh_command_fail(&err);
    }
    sh_catalog_init(&places, &catalog);
    row *rows = sh_alloc_array(catalog.count, sizeof(*rows));
    for (size_t i = 0; i < catalog.count; i++) {
        rows[i].entry = &catalog.entries[i];
        rows[i].source = source_of(s, rows[i].entry);
        row_fill(&rows[i], &draft);
    }
    if (s->json)
        print_json(rows, catalog.count);
    else
        print_text(rows, catalog.count);
    for (size_t i = 0; i < catalog.count; i++) sh_model_facts_reset(&rows[i].facts);
    free(rows);
    sh_model_facts_reset(&draft);
    sh_catalog_reset(&catalog);
    return SH_EXIT_OK;
}

static sh_status confirm(const sh_settings *s, const sh_removal *r, sh_err *err)
{
    char answer[16] = "";
    if (s->yes) return SH_OK;
    if (!isatty(STDIN_FILENO))
        return sh_err_set(err, SH_ERR_INPUT,
                          "nothing was removed: pass --yes to remove without "
                          "asking");
    fprintf(stderr, "Remove %s%s%s, %.2f GB, from %s? [y/N] ", r->id, r->commit == NULL ? "" : "@",
            r->commit == NULL ? "" : r->commit, (double)r->bytes / 1e9, r->cache);
    if (fgets(answer, sizeof(answer), stdin) == NULL || (answer[0] != 'y' && answer[0] != 'Y'))
        return sh_err_set(err, SH_ERR_CANCELLED, "nothing was removed");
    return SH_OK;
}

static int remove_model(const sh_settings *s, const char *name)
{
    sh_store_places places = sh_model_places(s);
    sh_removal removal = {0};
    sh_err err;
    sh_status status = sh_removal_plan(name, &places, &removal, &err);
    if (status == SH_OK) status = confirm(s, &removal, &err);
    if (status == SH_OK) status = sh_removal_run(&removal, &err);
    if (status == SH_OK)
        printf("removed %s from %s: %.2f GB\n", name, removal.cache, (double)removal.bytes / 1e9);
    sh_removal_reset(&removal);
    return status == SH_OK ? SH_EXIT_OK : sh_command_fail(&err);
}

static int models_run(const sh_command_args *args)
{
    if (args->argc == 0) return list_models(args->settings);
    if (args->argc == 2 && strcmp(args->argv[0], "rm") == 0)
        return remove_model(args->settings, args->argv[1]);
    fprintf(stderr, "shoal: usage: shoal models [rm ORG/NAME[@REVISION]]\n");
    return SH_EXIT_USAGE;
}

const sh_command sh_command_models = {
    SH_COMMAND_NAMED(models),
    .arguments = "[rm ORG/NAME[@REVISION]]",
    .args_max = 2,
    .summary = "list the models on this machine, or remove one",
    .details =
        "Lists what is in the Hugging Face caches and in --models-dir or --model-cache: size, "
        "source, format (mlx, or "
        "hub for files of the hub's own tools), family, quantization, and whether it fits "
        "into this machine's memory, next to --draft-model if one is given. `models rm` removes a "
        "model from its cache, or one "
        "revision and the files that no other revision uses.",
    .run = models_run,
};
