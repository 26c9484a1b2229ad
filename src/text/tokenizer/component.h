/* component.h - how the parts of tokenizer.json are read.
 *
 * Normalizers, pre-tokenizers, post-processors and decoders are written alike: an object with a
 * "type", or a "Sequence" of such objects. A table says which types there are; a type that is not
 * in it is an error that names it, never a guess.
 *
 * Threads: pure functions. */
#ifndef SH_TEXT_TOKENIZER_COMPONENT_H
#define SH_TEXT_TOKENIZER_COMPONENT_H

#include "base/json.h"
#include "base/status.h"

/* Reads one object into `to`, behind what is there. `arg` is the row's, so that one function can
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

/* Sequences are flattened: each part is read in order. NULL and null read nothing. */
SH_MUST_CHECK sh_status sh_component_read(const cJSON *json, const sh_component_family *family,
                                          void *to, const char *where, sh_err *err);

/* A string of exactly one character; *out stays as it is when the key is absent. */
SH_MUST_CHECK sh_status sh_component_char(const cJSON *json, const char *key, const char *where,
                                          uint32_t *out, sh_err *err);

#endif
