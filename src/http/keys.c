/* Plain SHA-256 is enough for keys: unlike passwords they are checked to be long and varied, so the
 * digests cannot be reversed by trying words. */
#include "http/keys.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/secret.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <stdlib.h>
#include <string.h>

enum { KEYS_MAX = 1024, KEY_LEN_MAX = 512, FILE_LEN_MAX = 1 << 20 };

typedef struct {
    unsigned char bytes[SHA256_DIGEST_LENGTH];
} digest;

struct sh_http_keys {
    digest *digests;
    size_t count;
};

sh_http_keys *sh_http_keys_create(void)
{
    return sh_alloc(sizeof(sh_http_keys));
}

void sh_http_keys_free(sh_http_keys *keys)
{
    if (keys == NULL) return;
    free(keys->digests);
    free(keys);
}

static sh_status add(sh_http_keys *keys, sh_str key, sh_err *err)
{
    if (key.len == 0) return sh_err_set(err, SH_ERR_INPUT, "an API key is empty");
    if (key.len > KEY_LEN_MAX)
        return sh_err_set(err, SH_ERR_INPUT, "an API key has %zu bytes; at most %d are allowed",
                          key.len, KEY_LEN_MAX);
    for (size_t i = 0; i < key.len; i++)
        if ((unsigned char)key.ptr[i] <= ' ' || (unsigned char)key.ptr[i] >= 127)
            return sh_err_set(err, SH_ERR_INPUT, "an API key may contain visible ASCII only");
    if (sh_secret_check("an API key", key, err) != SH_OK) return err->status;
    if (keys->count == KEYS_MAX)
        return sh_err_set(err, SH_ERR_LIMIT, "there are more than %d API keys", KEYS_MAX);
    keys->digests = sh_realloc_array(keys->digests, keys->count + 1, sizeof(digest));
    SHA256((const unsigned char *)key.ptr, key.len, keys->digests[keys->count].bytes);
    keys->count++;
    return SH_OK;
}

sh_status sh_http_keys_add_text(sh_http_keys *keys, const char *text, sh_err *err)
{
    sh_str rest = sh_str_of(text), part;
    while (sh_str_cut(&rest, ',', &part))
        if (add(keys, sh_str_trim(part), err) != SH_OK) return err->status;
    return SH_OK;
}

sh_status sh_http_keys_add_file(sh_http_keys *keys, const char *path, sh_err *err)
{
    sh_buf text = {0};
    sh_status status = sh_file_read(path, FILE_LEN_MAX, &text, err);
    sh_str rest = sh_buf_str(&text), line;
    for (int number = 1; status == SH_OK && sh_str_cut(&rest, '\n', &line); number++) {
        line = sh_str_trim(line);
        if (line.len == 0 || line.ptr[0] == '#') continue;
        status = add(keys, line, err);
        if (status != SH_OK) sh_err_prefix(err, "%s, line %d", path, number);
    }
    if (text.ptr != NULL) OPENSSL_cleanse(text.ptr, text.len);
    sh_buf_reset(&text);
    return status;
}

size_t sh_http_keys_count(const sh_http_keys *keys)
{
    return keys->count;
}

bool sh_http_keys_has(const sh_http_keys *keys, sh_str key)
{
    digest asked;
    int found = 0; /* no early exit: the time must not depend on which key matches */
    SHA256((const unsigned char *)key.ptr, key.len, asked.bytes);
    for (size_t i = 0; i < keys->count; i++)
        found |= CRYPTO_memcmp(asked.bytes, keys->digests[i].bytes, sizeof(asked.bytes)) == 0;
    return found != 0;
}
