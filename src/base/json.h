/* json.h - JSON from untrusted places: cJSON, with bounds and with errors that name the place.
 *
 * Getters take the object, the key and `where` (such as "config.json" or "request"), and write
 * errors like "config.json: 'hidden_size' must be a whole number from 1 to 1048576, not a string".
 * A key that is absent (or null) leaves *out as it is, so defaults are set before the call;
 * the _must forms refuse that.
 *
 * A number whose double does not say all of it (1.0, 1e3, a whole number of more than 15 digits)
 * keeps its spelling in valuestring; for other numbers that is NULL.
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

/* At least as many values as a parsed text of these bytes has, its containers counted too: what
 * bounds the memory of the tree before there is one. */
size_t sh_json_value_count(sh_str text);

/* Refuses a text, valid JSON, that has \u0000 in a string: cJSON would cut the string there. */
SH_MUST_CHECK sh_status sh_json_refuse_nul(sh_str text, const char *where, sh_err *err);

/* Reads and parses a file of at most max_len bytes. */
SH_MUST_CHECK sh_status sh_json_load(const char *path, size_t max_len, cJSON **out, sh_err *err);

/* "a string", "a number", ... for error texts; NULL is "nothing". */
const char *sh_json_kind(const cJSON *item);

SH_MUST_CHECK sh_status sh_json_int(const cJSON *obj, const char *key, const char *where,
                                    int64_t min, int64_t max, int64_t *out, sh_err *err);
SH_MUST_CHECK sh_status sh_json_int_must(const cJSON *obj, const char *key, const char *where,
                                         int64_t min, int64_t max, int64_t *out, sh_err *err);
SH_MUST_CHECK sh_status sh_json_double(const cJSON *obj, const char *key, const char *where,
                                       double min, double max, double *out, sh_err *err);
SH_MUST_CHECK sh_status sh_json_bool(const cJSON *obj, const char *key, const char *where,
                                     bool *out, sh_err *err);

/* Borrowed from obj. */
SH_MUST_CHECK sh_status sh_json_string(const cJSON *obj, const char *key, const char *where,
                                       const char **out, sh_err *err);
SH_MUST_CHECK sh_status sh_json_string_must(const cJSON *obj, const char *key, const char *where,
                                            const char **out, sh_err *err);

#endif
