/* keys.h - the API keys that the server accepts.
 *
 * Only SHA-256 digests are kept, and a key is compared with all of them in constant time: neither
 * memory nor timing reveals a key. A key may have a name, and with it limits, which are enforced by
 * whoever knows what requests cost, and a day after which it is refused.
 *
 * Threads: filled before use; read-only afterwards. */
#ifndef SH_HTTP_KEYS_H
#define SH_HTTP_KEYS_H

#include "base/json.h"
#include "base/status.h"
#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SH_KEY_NAME_MAX = 64 };

typedef struct {
    char name[SH_KEY_NAME_MAX + 1]; /* for metrics and logs; "": it has none */
    int64_t requests_per_minute;    /* 0: no limit */
    int64_t tokens_per_minute;      /* the same */
    const char *const *models;      /* that it may use */
    size_t model_count;             /* 0: all */
    int64_t expires_s;              /* Unix time from which it is refused; 0: never */
    bool admin;                     /* may change the server: see change.h */
} sh_http_key_info;

typedef struct sh_http_keys sh_http_keys;

sh_http_keys *sh_http_keys_create(void);
void sh_http_keys_free(sh_http_keys *keys);

/* Adds the keys of a comma-separated text, or of a file. A file has one key per line, or one JSON
 * object per line, or is a JSON list of such objects; lines that begin with '#' are comments. See
 * docs/api.md for the members of an object. A file without a key, an empty key, one over 512 bytes,
 * one that is easy to guess (base/secret.h), a name that occurs twice and more than 1024 keys are
 * errors. */
SH_MUST_CHECK sh_status sh_http_keys_add_text(sh_http_keys *keys, const char *text, sh_err *err);
SH_MUST_CHECK sh_status sh_http_keys_add_file(sh_http_keys *keys, const char *path, sh_err *err);

/* The contents of such a file; `where` names it in errors. */
SH_MUST_CHECK sh_status sh_http_keys_parse(sh_http_keys *keys, sh_str text, const char *where,
                                           sh_err *err);

/* Adds one object of such a file. */
SH_MUST_CHECK sh_status sh_http_keys_add_object(sh_http_keys *keys, const cJSON *object,
                                                sh_err *err);

size_t sh_http_keys_count(const sh_http_keys *keys);

/* The key that was presented; NULL if it is not one of these. */
const sh_http_key_info *sh_http_keys_find(const sh_http_keys *keys, sh_str key);

/* The key of this name; NULL if there is none, and for "". */
const sh_http_key_info *sh_http_keys_named(const sh_http_keys *keys, const char *name);

/* ---- for key_object.c ---- */

/* Adds a key by its text or by its digest, 64 hexadecimal digits. `info` is copied, its models are
 * taken over with SH_OK. */
SH_MUST_CHECK sh_status sh_http_keys_add_key(sh_http_keys *keys, sh_str key,
                                             const sh_http_key_info *info, sh_err *err);
SH_MUST_CHECK sh_status sh_http_keys_add_digest(sh_http_keys *keys, sh_str hex,
                                                const sh_http_key_info *info, sh_err *err);

#endif
