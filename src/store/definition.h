/* definition.h - a model as LocalAI's users describe it: a YAML file with its name, where it is,
 * and how it answers unless a request says otherwise.
 *
 * Keys that LocalAI knows and that have no meaning here are collected in `notes`, for the caller to
 * show; keys that nobody knows are errors, since a misspelt setting would be none. Templates in
 * Go's language are errors as well: prompts are made by the model's own template, and another one
 * would give other answers. Errors have the file, the line and the key.
 *
 * Threads: a definition has one owner. */
#ifndef SH_STORE_DEFINITION_H
#define SH_STORE_DEFINITION_H

#include "base/buf.h"
#include "base/status.h"

#include <stdint.h>

typedef struct {
    char **items;
    size_t count;
} sh_definition_list;

typedef struct {
    char *file; /* that it was loaded from, or NULL */
    char *name;
    char *backend; /* or NULL */
    char *model;   /* a folder, also relative to that of the file, or a name on the hub */
    char *draft_model;
    char *system_prompt;
    double temperature, top_p, min_p; /* NAN: not given, likewise the next */
    double repeat_penalty, frequency_penalty, presence_penalty;
    int64_t top_k, max_tokens, seed, context_size; /* -1: not given */
    int64_t use_tokenizer_template;                /* 0 or 1 */
    sh_definition_list options;                    /* "key:value" */
    sh_definition_list stopwords;
    sh_buf notes; /* a line for each key without effect */
} sh_definition;

/* `where` names the text in errors. Reset in any case. */
SH_MUST_CHECK sh_status sh_definition_parse(sh_str text, const char *where, sh_definition *out,
                                            sh_err *err);

/* A relative model that is a folder beside the file becomes its path. */
SH_MUST_CHECK sh_status sh_definition_load(const char *path, sh_definition *out, sh_err *err);
void sh_definition_reset(sh_definition *definition);

/* Whether a path is that of such a file, by its name. */
bool sh_definition_is_file(const char *path);

/* All definitions of a folder, by name. A file that is not one, or has the name of another, is left
 * out: one mistake does not take the other models away. */
typedef struct {
    sh_definition *list;
    size_t count;
    sh_buf problems; /* a line for each file that was left out: which, where, and why */
} sh_definitions;

SH_MUST_CHECK sh_status sh_definitions_load(const char *folder, sh_definitions *out, sh_err *err);
void sh_definitions_reset(sh_definitions *definitions);

#endif
