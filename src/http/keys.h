/* keys.h - the API keys that the server accepts.
 *
 * Only SHA-256 digests are kept, and a key is compared with all of them in constant time: neither
 * memory nor timing reveals a key.
 *
 * Threads: filled before use; read-only afterwards. */
#ifndef SH_HTTP_KEYS_H
#define SH_HTTP_KEYS_H

#include "base/status.h"
#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct sh_http_keys sh_http_keys;

sh_http_keys *sh_http_keys_create(void);
void sh_http_keys_free(sh_http_keys *keys);

/* Adds the keys of a comma-separated text, or of a file with one key per line and '#' comments.
 * An empty key, one over 512 bytes, one that is easy to guess (base/secret.h) and more than 1024
 * keys are errors. */
SH_MUST_CHECK sh_status sh_http_keys_add_text(sh_http_keys *keys, const char *text, sh_err *err);
SH_MUST_CHECK sh_status sh_http_keys_add_file(sh_http_keys *keys, const char *path, sh_err *err);

size_t sh_http_keys_count(const sh_http_keys *keys);
bool sh_http_keys_has(const sh_http_keys *keys, sh_str key);

#endif
