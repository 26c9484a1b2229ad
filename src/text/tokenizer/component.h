/* component.h - reads the components of tokenizer.json.
 *
 * Normalizers, pre-tokenizers, post-processors and decoders all have the same form: an object with
 * a "type", or a "Sequence" of such objects. A table lists the types; an unknown type is an error
 * that names it and never a guess, since a wrong guess would silently change the prompt.
 *
 * Threads: pure functions. */
#ifndef SH_TEXT_TOKENIZER_COMPONENT_H
#define SH_TEXT_TOKENIZER_COMPONENT_H

#include "base/json.h"
#include "base/status.h"

/* Reads one object and appends it to `to`. `arg` comes from the table, so that one function can
 * serve several types. */
typedef sh_status (*sh_component_fn)(void *to, const void *arg, const cJSON *json,
                                     const char *where, sh_err *err);

typedef struct {
    const char *type;
    sh_component_fn read;
    const void *arg;
} sh_component_kind;

typedef struct {
    const char *name; /* the key in the file, such as "pre_tokenizer" */
    const char *list; /* the key of a Sequence, such as "pretokenizers" */
    const sh_component_kind *kinds;
    size_t count;
} sh_component_family;

/* Flattens sequences: all parts are read in order. NULL and null read nothing. */
SH_MUST_CHECK sh_status sh_component_read(const cJSON *json, const sh_component_family *family,
                                          void *to, const char *where, sh_err *err);

/* A string of exactly one character; *out is unchanged if the key is absent. */
SH_MUST_CHECK sh_status sh_component_char(const cJSON *json, const char *key, const char *where,
                                          uint32_t *out, sh_err *err);

#endif
