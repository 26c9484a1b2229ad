/* shoal api: HTTP in front of the engine's Unix socket. */
#include "api/api.h"

#include "base/sandbox.h"
#include "cmd/command.h"
#include "cmd/progress.h"

#include <stdio.h>

static void on_serving(void *arg)
{
    sh_progress(arg, "ready");
}

/* Everything that the API ever opens: the model, what SIGHUP reads again, its logs. An API that was
 * started without an engine beside it learns from that which model is served, and then another one:
 * it may read all files. */
static void confine(const sh_settings *s)
{
    sh_sandbox box = {.read_all = s->model == NULL};
    if (!s->sandbox) return;
    sh_sandbox_add_folder(&box, s->model);
    sh_sandbox_add_file(&box, s->api_key_file);
    sh_sandbox_add_file(&box, s->tls_cert);
    sh_sandbox_add_file(&box, s->tls_key);
    sh_sandbox_add_log(&box, s->access_log);
    sh_sandbox_add_log(&box, s->request_log);
    sh_sandbox_enter(&box);
    sh_sandbox_reset(&box);
}

int sh_cmd_api(const sh_command_args *args)
{
    const sh_settings *s = args->settings;
    sh_err err;
    if (s->socket == NULL) {
        fprintf(stderr, "shoal: api needs --socket\n");
        return SH_EXIT_USAGE;
    }
    sh_api_opts opts = {
        .host = s->host,
        .port = (int)s->port,
        .socket_path = s->socket,
        .model_dir = s->model,
        .model_name = s->model_name,
        .reasoning_parser = s->reasoning_parser,
        .tool_parser = s->tool_parser,
        .api_keys = s->api_key,
        .api_key_file = s->api_key_file,
        .tls_cert = s->tls_cert,
        .tls_key = s->tls_key,
        .cors = s->cors,
        .access_log = s->access_log,
        .request_log = s->request_log,
        .log_prompts = s->log_prompts,
        .max_tokens = s->max_tokens,
        .max_tokens_hard = s->hard_max_tokens,
        .grace_s = (double)s->grace,
        .connections_max = s->connections,
        .header_bytes_max = s->header_bytes,
        .body_bytes_max = s->body_bytes,
        .idle_s = s->idle_timeout,
        .receive_s = s->receive_timeout,
        .send_s = s->send_timeout,
        .serving = on_serving,
        .arg = (void *)(uintptr_t)s,
    };
    confine(s);
    return sh_api_run(&opts, &err) == SH_OK ? SH_EXIT_OK : sh_command_fail(&err);
}
