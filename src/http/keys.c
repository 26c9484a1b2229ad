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
    unsigned char digest[SHA256_DIGEST_LENGTH];
    sh_http_key_info info;
} entry;

struct sh_http_keys {
    entry *entries;
    size_t count;
};

sh_http_keys *sh_http_keys_create(void)
{
    return sh_alloc(sizeof(sh_http_keys));
}

void sh_http_keys_free(sh_http_keys *keys)
{
    if (keys == NULL) return;
    for (size_t i = 0; i < keys->count; i++) {
        const sh_http_key_info *info = &keys->entries[i].info;
        for (size_t k = 0; k < info->model_count; k++) free((void *)info->models[k]);
        free((void *)info->models);
    }
    free(keys->entries);
    free(keys);
}

static sh_status entry_add(sh_http_keys *keys, const sh_http_key_info *info,
                           const unsigned char *digest, sh_err *err)
{
    if (keys->count == KEYS_MAX)
        return sh_err_set(err, SH_ERR_LIMIT, "there are more than %d API keys", KEYS_MAX);
    if (sh_http_keys_named(keys, info->name) != NULL)
        return sh_err_set(err, SH_ERR_INPUT, "two API keys have the name '%s'", info->name);
    keys->entries = sh_realloc_array(keys->entries, keys->count + 1, sizeof(entry));
    entry *e = &keys->entries[keys->count++];
    memcpy(e->digest, digest, sizeof(e->digest));
    e->info = *info;
    return SH_OK;
}

sh_status sh_http_keys_add_key(sh_http_keys *keys, sh_str key, const sh_http_key_info *info,
                               sh_err *err)
{
    unsigned char digest[SHA256_DIGEST_LENGTH];
    if (key.len == 0) return sh_err_set(err, SH_ERR_INPUT, "an API key is empty");
    if (key.len > KEY_LEN_MAX)
        return sh_err_set(err, SH_ERR_INPUT, "an API key has %zu bytes; at most %d are allowed",
                          key.len, KEY_LEN_MAX);
    for (size_t i = 0; i < key.len; i++)
        if ((unsigned char)key.ptr[i] <= ' ' || (unsigned char)key.ptr[i] >= 127)
            return sh_err_set(err, SH_ERR_INPUT, "an API key may contain visible ASCII only");
    if (sh_secret_check("an API key", key, err) != SH_OK) return err->status;
    SHA256((const unsigned char *)key.ptr, key.len, digest);
    return entry_add(keys, info, digest, err);
}

static int hex_value(char c)
{
    static const char digits[] = "0123456789abcdef";
    const char *at = c == '\0' ? NULL : strchr(digits, c >= 'A' && c <= 'F' ? c + 32 : c);
    return at == NULL ? -1 : (int)(at - digits);
}

sh_status sh_http_keys_add_digest(sh_http_keys *keys, sh_str hex, const sh_http_key_info *info,
                                  sh_err *err)
{
    unsigned char digest[SHA256_DIGEST_LENGTH];
    bool fine = hex.len == 2 * sizeof(digest);
    for (size_t i = 0; fine && i < sizeof(digest); i++) {
        int high = hex_value(hex.ptr[2 * i]), low = hex_value(hex.ptr[2 * i + 1]);
        fine = high >= 0 && low >= 0;
        if (fine) digest[i] = (unsigned char)(high * 16 + low);
    }
    if (!fine)
        return sh_err_set(err, SH_ERR_INPUT, "'sha256' must be %zu hexadecimal digits",
                          2 * sizeof(digest));
    return entry_add(keys, info, digest, err);
}

/* Nothing can be said about a key without a name, so it may do everything. */
static const sh_http_key_info PLAIN = {.admin = true};

sh_status sh_http_keys_add_text(sh_http_keys *keys, const char *text, sh_err *err)
{
    sh_str rest = sh_str_of(text), part;
    while (sh_str_cut(&rest, ',', &part))
        if (sh_http_keys_add_key(keys, sh_str_trim(part), &PLAIN, err) != SH_OK) return err->status;
    return SH_OK;
}

/* cJSON's copy of the text is erased, like the text itself. */
static void json_forget(cJSON *json)
{
    for (cJSON *item = json == NULL ? NULL : json->child; item != NULL; item = item->next) {
        if (cJSON_IsString(item)) OPENSSL_cleanse(item->valuestring, strlen(item->valuestring));
        for (cJSON *inner = item->child; inner != NULL; inner = inner->next)
            if (cJSON_IsString(inner))
                OPENSSL_cleanse(inner->valuestring, strlen(inner->valuestring));
    }
    cJSON_Delete(json);
}

static sh_status line_add(sh_http_keys *keys, sh_str line, sh_err *err)
{
    cJSON *json = NULL;
    if (line.ptr[0] != '{') return sh_http_keys_add_key(keys, line, &PLAIN, err);
    if (sh_json_parse(line, "the key", &json, err) != SH_OK) return err->status;
    sh_status status = sh_http_keys_add_object(keys, json, err);
    json_forget(json);
    return status;
}

static sh_status lines_add(sh_http_keys *keys, sh_str text, const char *path, sh_err *err)
{
    sh_str line;
    for (int number = 1; sh_str_cut(&text, '\n', &line); number++) {
        line = sh_str_trim(line);
        if (line.len == 0 || line.ptr[0] == '#') continue;
        if (line_add(keys, line, err) == SH_OK) continue;
        sh_err_prefix(err, "%s, line %d", path, number);
        return err->status;
    }
    return SH_OK;
}

static sh_status list_add(sh_http_keys *keys, sh_str text, const char *path, sh_err *err)
{
    cJSON *json = NULL;
    int number = 1;
    sh_status status = sh_json_parse(text, path, &json, err);
    for (const cJSON *item = json == NULL ? NULL : json->child; status == SH_OK && item != NULL;
         item = item->next, number++) {
        status = sh_http_keys_add_object(keys, item, err);
        if (status != SH_OK) sh_err_prefix(err, "%s, key %d", path, number);
    }
    json_forget(json);
    return status;
}

sh_status sh_http_keys_parse(sh_http_keys *keys, sh_str text, const char *where, sh_err *err)
{
    sh_str all = sh_str_trim(text);
    if (all.len > 0 && all.ptr[0] == '[') return list_add(keys, all, where, err);
    return lines_add(keys, text, where, err);
}

sh_status sh_http_keys_add_file(sh_http_keys *keys, const char *path, sh_err *err)
{
    sh_buf text = {0};
    size_t before = keys->count;
    sh_status status = sh_file_read(path, FILE_LEN_MAX, &text, err);
    if (status == SH_OK) status = sh_http_keys_parse(keys, sh_buf_str(&text), path, err);
    /* It may be about to be written: a server must not be open for that moment. */
    if (status == SH_OK && keys->count == before)
        status = sh_err_set(err, SH_ERR_INPUT,
                            "%s has no key in it; without the file, no key is required", path);
    if (text.ptr != NULL) OPENSSL_cleanse(text.ptr, text.len);
    sh_buf_reset(&text);
    return status;
}

size_t sh_http_keys_count(const sh_http_keys *keys)
{
    return keys->count;
}

/* No early exit: the time must not depend on which key matches. */
const sh_http_key_info *sh_http_keys_find(const sh_http_keys *keys, sh_str key)
{
    unsigned char asked[SHA256_DIGEST_LENGTH];
    size_t found = SIZE_MAX;
    SHA256((const unsigned char *)key.ptr, key.len, asked);
    for (size_t i = 0; i < keys->count; i++) {
        size_t same = CRYPTO_memcmp(asked, keys->entries[i].digest, sizeof(asked)) == 0;
        found = (found & (same - 1)) | (i & (0 - same)); /* i if it is the same, else as before */
    }
    return found == SIZE_MAX ? NULL : &keys->entries[found].info;
}

const sh_http_key_info *sh_http_keys_named(const sh_http_keys *keys, const char *name)
{
    for (size_t i = 0; name[0] != '\0' && i < keys->count; i++)
        if (strcmp(keys->entries[i].info.name, name) == 0) return &keys->entries[i].info;
    return NULL;
}
