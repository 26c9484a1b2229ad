/* Requests to an API with the settings of a server: the same --host, --port, --api-key-file and
 * --tls-cert that start a server also reach it. Its own certificate is trusted as is (pinned),
 * whatever names it contains. */
#include "cmd/support/api_call.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "http/http_client.h"

#include <stdlib.h>
#include <string.h>

enum { KEYS_MAX = 1 << 20 };

/* The first key in a list of JSON objects, or in one. Keys of which the file has only the digest
 * cannot be used. */
static char *json_key_find(sh_str text)
{
    cJSON *json = NULL;
    char *key = NULL;
    sh_err ignored; /* the server reports what is wrong with its file */
    if (sh_json_parse(text, "the key file", &json, &ignored) != SH_OK) return NULL;
    for (const cJSON *item = cJSON_IsArray(json) ? json->child : json; item != NULL && key == NULL;
         item = item->next) {
        const char *text_of = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(item, "key"));
        if (text_of != NULL) key = sh_strdup(text_of);
    }
    cJSON_Delete(json);
    return key;
}

/* The first key of --api-key or of the key file; NULL when there is none. Owned by the caller. */
static sh_status key_find(const sh_settings *s, char **out, sh_err *err)
{
    sh_buf text = {0};
    sh_status status = SH_OK;
    if (s->api_key != NULL)
        sh_buf_add_text(&text, s->api_key);
    else if (s->api_key_file != NULL)
        status = sh_file_read(s->api_key_file, KEYS_MAX, &text, err);
    sh_str rest = sh_buf_str(&text), line, key, all = sh_str_trim(rest);
    if (all.len > 0 && all.ptr[0] == '[') {
        *out = json_key_find(all);
        rest.len = 0;
    }
    while (status == SH_OK && *out == NULL && sh_str_cut(&rest, '\n', &line)) {
        line = sh_str_trim(line);
        if (line.len > 0 && line.ptr[0] == '{')
            *out = json_key_find(line);
        else if (line.len > 0 && line.ptr[0] != '#' && sh_str_cut(&line, ',', &key))
            *out = sh_str_dup(sh_str_trim(key));
    }
    sh_buf_reset(&text);
    return status;
}

/* A server may listen on the wildcard address, but a client cannot connect to it. */
static const char *connectable(const char *host)
{
    if (strcmp(host, "0.0.0.0") == 0) return "127.0.0.1";
    return strcmp(host, "::") == 0 ? "::1" : host;
}

char *sh_api_url(const sh_settings *s, const char *base, const char *path)
{
    if (base == NULL)
        return sh_http_url(s->tls_cert != NULL, connectable(s->host), (int)s->port, path);
    size_t len = strlen(base);
    while (len > 0 && base[len - 1] == '/') len--;
    return sh_asprintf("%.*s%s", (int)len, base, path);
}

sh_status sh_api_call_with(const sh_settings *s, const char *base, const char *path,
                           sh_http_get_opts opts, int *code, sh_buf *out, sh_err *err)
{
    char *key = NULL, *url = sh_api_url(s, base, path);
    sh_status status = key_find(s, &key, err);
    opts.key = key;
    opts.trust = s->tls_cert;
    opts.pinned = base == NULL;
    if (status == SH_OK) status = sh_http_get(url, &opts, code, out, err);
    free(key);
    free(url);
    return status;
}

sh_status sh_api_call(const sh_settings *s, const char *base, const char *path, const char *body,
                      int64_t wait_ms, int *code, sh_buf *out, sh_err *err)
{
    sh_http_get_opts opts = {.body = body, .wait_ms = wait_ms};
    return sh_api_call_with(s, base, path, opts, code, out, err);
}
