/* model_list.h - the models on this machine, and whether they fit: for `shoal models` and the API.
 *
 * Threads: pure functions over the file system. */
#ifndef SH_CMD_SUPPORT_MODEL_LIST_H
#define SH_CMD_SUPPORT_MODEL_LIST_H

#include "base/json.h"
#include "cmd/support/model_facts.h"
#include "cmd/support/settings.h"
#include "store/catalog.h"

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
} sh_model_row;

typedef struct {
    sh_catalog catalog;
    sh_model_row *rows;
    size_t count;
} sh_model_list;

/* *out must be zero; reset it in any case. Fails if --draft-model cannot be read. */
SH_MUST_CHECK sh_status sh_model_list_make(const sh_settings *s, sh_model_list *out, sh_err *err);
void sh_model_list_reset(sh_model_list *list);

/* Owned by the caller. */
cJSON *sh_model_row_json(const sh_model_row *row);

#endif
