/* shoal models: what is on this machine, and whether it fits; `models rm` removes one. */
#include "base/json.h"
#include "cmd/command.h"
#include "cmd/support/model_find.h"
#include "cmd/support/model_list.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void print_text(const sh_model_row *rows, size_t count)
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

static void print_json(const sh_model_list *list)
{
    cJSON *json = cJSON_CreateArray();
    for (size_t i = 0; i < list->count; i++)
        cJSON_AddItemToArray(json, sh_model_row_json(&list->rows[i]));
    char *text = cJSON_Print(json);
    puts(text);
    cJSON_free(text);
    cJSON_Delete(json);
}

static int list_models(const sh_settings *s)
{
    sh_model_list list = {0};
    sh_err err;
    sh_status status = sh_model_list_make(s, &list, &err);
    if (status == SH_OK && s->json)
        print_json(&list);
    else if (status == SH_OK)
        print_text(list.rows, list.count);
    sh_model_list_reset(&list);
    return status == SH_OK ? SH_EXIT_OK : sh_command_fail(&err);
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
