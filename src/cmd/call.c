/* shoal call: asks the API and prints what it says. */
#include "base/alloc.h"
#include "base/file.h"
#include "cluster/launch.h"
#include "cmd/cluster.h"
#include "http/client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WAIT_MS = 120000, KEYS_MAX = 1 << 20 };

/* The first key of --api-key or of the file; NULL when there is none. Owned by the caller. */
static sh_status key_find(const sh_settings *s, char **out, sh_err *err)
{
    sh_buf text = {0};
    sh_status status = SH_OK;
    if (s->api_key != NULL)
        sh_buf_add_text(&text, s->api_key);
    else if (s->api_key_file != NULL)
        status = sh_file_read(s->api_key_file, KEYS_MAX, &text, err);
    sh_str rest = sh_buf_str(&text), line, key;
    while (status == SH_OK && *out == NULL && sh_str_cut(&rest, '\n', &line)) {
        line = sh_str_trim(line);
        if (line.len > 0 && line.ptr[0] != '#' && sh_str_cut(&line, ',', &key))
            *out = sh_str_dup(sh_str_trim(key));
    }
    sh_buf_reset(&text);
    return status;
}

/* Where a server that listens on all addresses can be asked. */
static const char *askable(const char *host)
{
    if (strcmp(host, "0.0.0.0") == 0) return "127.0.0.1";
    return strcmp(host, "::") == 0 ? "::1" : host;
}

static sh_status ask_directly(const sh_settings *s, const char *path, const char *body, sh_buf *out,
                              sh_err *err)
{
    int code = 0;
    char *key = NULL;
    char *url = sh_http_url(s->tls_cert != NULL, askable(s->host), (int)s->port, path);
    sh_status status = key_find(s, &key, err);
    sh_http_get_opts opts = {
        .key = key, .trust = s->tls_cert, .pinned = true, .body = body, .wait_ms = WAIT_MS};
    if (status == SH_OK) status = sh_http_get(url, &opts, &code, out, err);
    if (status == SH_OK && code >= 400)
        status = sh_err_set(err, SH_ERR_INPUT, "%s: HTTP status %d", path, code);
    free(key);
    free(url);
    return status;
}

static sh_status ask(const sh_command_args *args, const char *path, const char *body, sh_buf *out,
                     sh_err *err)
{
    const sh_settings *s = args->settings;
    char *state = sh_state_path(s->state_dir);
    cJSON *record = NULL;
    sh_err ignored;
    bool direct = sh_options_source(args->options, "port") == SH_FROM_FLAG ||
                  sh_options_source(args->options, "host") == SH_FROM_FLAG;
    if (!direct && sh_launch_read(state, &record, &ignored) == SH_OK) {
        sh_process launcher = sh_launch_process(record);
        direct = !sh_process_alive(&launcher);
    }
    sh_status status = direct || record == NULL ? ask_directly(s, path, body, out, err)
                                                : sh_cluster_call(record, s, path, body, out, err);
    cJSON_Delete(record);
    free(state);
    return status;
}

int sh_cmd_call(const sh_command_args *args)
{
    sh_buf out = {0};
    sh_err err;
    if (args->argc < 1 || args->argv[0][0] != '/') {
        fprintf(stderr, "shoal: call needs a path, such as /health\n");
        return SH_EXIT_USAGE;
    }
    sh_status status = ask(args, args->argv[0], args->argc > 1 ? args->argv[1] : NULL, &out, &err);
    fwrite(out.ptr, 1, out.len, stdout);
    if (out.len > 0 && out.ptr[out.len - 1] != '\n') putchar('\n');
    sh_buf_reset(&out);
    return status == SH_OK ? SH_EXIT_OK : sh_command_fail(&err);
}
