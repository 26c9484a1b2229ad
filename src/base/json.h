/* json.h - JSON from untrusted sources: cJSON, with bounds and errors that name the place.
 *
 * Getters take the object, the key and `where` (such as "config.json" or "request"), and write
 * errors like "config.json: 'hidden_size' must be a whole number from 1 to 1048576, not a string".
 * An absent (or null) key leaves *out unchanged, so set defaults before the call; for the _must
 * variants an absent key is an error.
 *
 * A number whose double loses part of its spelling (1.0, 1e3, more than 15 digits) keeps the
 * spelling in valuestring; for other numbers valuestring is NULL.
 *
 * Threads: pure functions. */
#ifndef SH_BASE_JSON_H
#define SH_BASE_JSON_H

#include "base/status.h"
#include "base/str.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The whole text must be one JSON value, valid UTF-8, of bounded depth. The error has line and
 * column. *out is owned by the caller: cJSON_Delete. */
SH_MUST_CHECK sh_status sh_json_parse(sh_str text, const char *where, cJSON **out, sh_err *err);

/* An upper bound on the number of values in the text, containers included: bounds the memory of the
 * tree before it is built. */
size_t sh_json_value_count(sh_str text);

/* Fails if a string in the text, which must be valid JSON, contains \u0000: cJSON would truncate
 * the string there. */
SH_MUST_CHECK sh_status sh_json_refuse_nul(sh_str text, const char *where, sh_err *err);

/* Fails if an object in the tree has two members of one name: which of them counts would depend on
 * who reads it. */
SH_MUST_CHECK sh_status sh_json_refuse_duplicates(const cJSON *json, const char *where,
                                                  sh_err *err);

/* Reads and parses a file of at most max_len bytes. */
SH_MUST_CHECK sh_status sh_json_load(const char *path, size_t max_len, cJSON **out, sh_err *err);

/* The string at a key, borrowed; NULL if there is none. */
const char *sh_json_text(const cJSON *obj, const char *key);

/* "a string", "a number", ... for error texts; NULL is "nothing". */
const char *sh_json_kind(const cJSON *item);

SH_MUST_CHECK sh_status sh_json_int(const cJSON *obj, const char *key, const char *where,
                                    int64_t min, int64_t max, int64_t *out, sh_err *err);
SH_MUST_CHECK sh_status sh_json_int_required(const cJSON *obj, const char *key, const char *where,
                                             int64_t min, int64_t max, int64_t *out, sh_err *err);
SH_MUST_CHECK sh_status sh_json_double(const cJSON *obj, const char *key, const char *where,
                                       double min, double max, double *out, sh_err *err);
SH_MUST_CHECK sh_status sh_json_bool(const cJSON *obj, const char *key, const char *where,
                                     bool *out, sh_err *err);

/* Borrowed from obj. */
SH_MUST_CHECK sh_status sh_json_string(const cJSON *obj, const char *key, const char *where,
                                       const char **out, sh_err *err);
SH_MUST_CHECK sh_status sh_json_string_required(const cJSON *obj, const char *key,
                                                const char *where, const char **out, sh_err *err);

#endif
