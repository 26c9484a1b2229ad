/* shoal api: HTTP in front of the engine's Unix socket. Translates settings into sh_api_opts, and
 * gives up all rights that the API does not need before it handles the first request. */
#include "api/api.h"

#include "api/json_writer.h"
#include "base/file.h"
#include "base/log.h"
#include "base/sandbox.h"
#include "cmd/command.h"
#include "cmd/support/model_client.h"
#include "cmd/support/model_facts.h"
#include "cmd/support/model_find.h"
#include "cmd/support/progress.h"
#include "cmd/support/store_process.h"
#include "store/definition.h"
#include "store/model_dir.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

enum { OTHER_FILES = 64 }; /* descriptors for logs, the engine's sockets and the event loop */

static void on_serving(void *arg)
{
    sh_progress(arg, "ready");
    sh_progress_ready(arg);
}

/* Each connection needs a descriptor. Unless the user set a limit, the system's soft limit, which
 * is often low, is raised as far as its hard limit allows. Returns the number of connections that
 * fit. */
static int64_t connections_fit(const sh_command_args *args)
{
    const sh_settings *s = args->settings;
    struct rlimit limit;
    rlim_t wanted = (rlim_t)s->connections + OTHER_FILES;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return s->connections;
    rlim_t lifted = limit.rlim_max < wanted ? limit.rlim_max : wanted;
    if (s->files_soft == 0 && lifted > limit.rlim_cur) {
        limit.rlim_cur = lifted;
        if (setrlimit(RLIMIT_NOFILE, &limit) != 0) getrlimit(RLIMIT_NOFILE, &limit);
    }
    if (limit.rlim_cur >= wanted) return s->connections;
    int64_t files = (int64_t)limit.rlim_cur,
            fit = files > 2 * OTHER_FILES ? files - OTHER_FILES : (files + 1) / 2;
    sh_log(
        sh_options_given(args->options, "connections") ? SH_LOG_WARN : SH_LOG_INFO,
        "api: at most %lld connections, because %lld files may be open (--files-soft, ulimit -n)",
        (long long)fit, (long long)files);
    return fit;
}

/* The folder itself covers models that appear later. Links lead elsewhere: those that are there now
 * may be followed. */
static void link_allow(const char *path, sh_sandbox *box)
{
    char *real = box->read_count < SH_SANDBOX_PATHS_MAX / 2 ? realpath(path, NULL) : NULL;
    if (real != NULL) sh_sandbox_add_folder(box, real);
    free(real);
}

/* The model that a file describes may be anywhere. */
static void defined_allow(const sh_settings *s, const sh_definition *definition, sh_sandbox *box)
{
    sh_settings own = *s;
    char *dir = NULL;
    sh_err err;
    own.model = definition->model;
    if (sh_model_find(&own, &dir, &err) == SH_OK) link_allow(dir, box);
    free(dir);
}

/* --model beside --models-dir. */
static void standing_allow(const sh_settings *s, sh_sandbox *box)
{
    sh_definition definition;
    sh_err err;
    if (s->model == NULL || !sh_definition_is_file(s->model)) return;
    sh_sandbox_add_file(box, s->model);
    if (sh_definition_load(s->model, &definition, &err) == SH_OK)
        defined_allow(s, &definition, box);
    sh_definition_reset(&definition);
}

static void models_allow(const sh_settings *s, sh_sandbox *box)
{
    sh_model_dir found = {0};
    sh_definitions defined = {0};
    sh_err err;
    if (s->models_dir == NULL) return;
    sh_sandbox_add_folder(box, s->models_dir);
    standing_allow(s, box);
    bool listed = sh_model_dir_read(s->models_dir, &found, &err) == SH_OK &&
                  sh_definitions_load(s->models_dir, &defined, &err) == SH_OK;
    for (size_t i = 0; listed && i < found.count; i++) {
        char *path = sh_path_join(s->models_dir, found.names[i]);
        link_allow(path, box);
        free(path);
    }
    for (size_t i = 0; listed && i < defined.count; i++) defined_allow(s, &defined.list[i], box);
    sh_model_dir_reset(&found);
    sh_definitions_reset(&defined);
}

/* Allows exactly what the API opens later: the model's folder, the files that SIGHUP rereads, and
 * its logs. An API that runs apart from its engine learns the model's folder from the engine, and
 * the engine may be restarted with another model, so such an API may read all files. */
static void confine(const sh_settings *s, const char *model)
{
    sh_sandbox box = {.read_all = model == NULL && s->models_dir == NULL};
    if (!s->sandbox) return;
    sh_sandbox_add_folder(&box, model);
    models_allow(s, &box);
    sh_sandbox_add_file(&box, s->api_key_file);
    sh_sandbox_add_file(&box, s->tls_cert);
    sh_sandbox_add_file(&box, s->tls_key);
    sh_sandbox_add_log(&box, s->access_log);
    sh_sandbox_add_log(&box, s->request_log);
    sh_sandbox_enter(&box);
    sh_sandbox_reset(&box);
}

/* What was not given is left to the model: any value would also be a valid setting. */
static sh_api_sampling sampling_of(const sh_command_args *args)
{
    const sh_settings *s = args->settings;
    const sh_options *o = args->options;
    return (sh_api_sampling){
        .temperature = sh_options_given(o, "temperature") ? s->temperature : NAN,
        .top_p = sh_options_given(o, "top-p") ? s->top_p : NAN,
        .min_p = sh_options_given(o, "min-p") ? s->min_p : NAN,
        .repetition_penalty = sh_options_given(o, "repetition-penalty") ? s->repetition_penalty
                                                                        : NAN,
        .top_k = sh_options_given(o, "top-k") ? s->top_k : -1,
        .seed = sh_options_given(o, "seed") ? s->seed : -1,
    };
}

/* What a definition says for requests. Requests and flags come before it. */
static sh_status defaults_read(const char *file, sh_model_defaults *out, sh_err *err)
{
    sh_definition d;
    sh_status status = sh_definition_load(file, &d, err);
    if (status == SH_OK) {
        *out = (sh_model_defaults){.system = d.system_prompt,
                                   .temperature = d.temperature,
                                   .top_p = d.top_p,
                                   .min_p = d.min_p,
                                   .repetition_penalty = d.repeat_penalty,
                                   .top_k = d.top_k,
                                   .max_tokens = d.max_tokens,
                                   .seed = d.seed};
        d.system_prompt = NULL;
        if (d.stopwords.count > 0)
            out->stops = cJSON_CreateStringArray((const char *const *)d.stopwords.items,
                                                 (int)d.stopwords.count);
        out->added = (sh_job_defaults){
            .system = out->system,
            .stops = out->stops,
            .presence_penalty = isnan(d.presence_penalty) ? 0 : d.presence_penalty,
            .frequency_penalty = isnan(d.frequency_penalty) ? 0 : d.frequency_penalty};
    }
    sh_definition_reset(&d);
    return status;
}

static void facts_read(const char *dir, sh_buf *out)
{
    sh_model_facts facts = {0};
    char quant[160];
    sh_err err;
    if (sh_model_facts_gather(dir, &facts, &err) == SH_OK) {
        sh_json_writer w = sh_json_writer_on(out);
        sh_model_quant_text(&facts.config, quant, sizeof(quant));
        sh_write_begin(&w, NULL, '{');
        sh_write_int(&w, "parameters", facts.parameters);
        sh_write_int(&w, "active_parameters", facts.active);
        sh_write_int(&w, "bytes", (int64_t)facts.bytes);
        sh_write_text(&w, "quantization", quant);
        sh_write_text(&w, "format", facts.mlx ? "mlx" : "hub");
        sh_write_int(&w, "kv_token_bytes", facts.kv_token_bytes);
        sh_write_end(&w, '}');
    }
    sh_model_facts_reset(&facts);
}

/* The limit of open files is raised before the sandbox is entered. */
static int api_run(const sh_command_args *args)
{
    const sh_settings *s = args->settings;
    sh_err err;
    if (s->socket == NULL) {
        fprintf(stderr, "shoal: api needs --socket\n");
        return SH_EXIT_USAGE;
    }
    bool grpc = s->grpc_fds != NULL; /* LocalAI says what model is served, and has a token */
    const char *model = grpc ? NULL : s->model;
    cJSON *stops = NULL;
    if (s->stop != NULL && sh_stops_read(s->stop, &stops, &err) != SH_OK)
        return sh_command_fail(&err);
    sh_api_sampling sampling = sampling_of(args);
    sh_api_opts opts = {
        .host = s->host,
        .port = (int)s->port,
        .listen_fds = s->listen_fds,
        .socket_path = s->socket,
        .keeper_path = s->models_dir == NULL ? NULL : s->socket,
        .model_dir = s->models_dir == NULL ? model : NULL,
        .model_name = s->model_name,
        .reasoning_parser = s->reasoning_parser,
        .tool_parser = s->tool_parser,
        .api_keys = grpc ? NULL : s->api_key,
        .api_key_file = grpc ? NULL : s->api_key_file,
        .grpc_fds = s->grpc_fds,
        .grpc_token = grpc ? s->grpc_token : NULL,
        .model_fd = (int)s->model_fd,
        .control_fd = (int)s->control_fd,
        .tls_cert = s->tls_cert,
        .tls_key = s->tls_key,
        .cors = s->cors,
        .allowed_hosts = s->allowed_hosts,
        .access_log = s->access_log,
        .request_log = s->request_log,
        .log_prompts = s->log_prompts,
        .defaults = {.system = s->system,
                     .stops = stops,
                     .presence_penalty = s->presence_penalty,
                     .frequency_penalty = s->frequency_penalty},
        .defaults_read = defaults_read,
        .facts_read = facts_read,
        .sampling = &sampling,
        .max_tokens = s->max_tokens,
        .max_tokens_hard = s->hard_max_tokens,
        .grace_s = (double)s->grace,
        .timeout_s = (double)s->req_timeout,
        .replay_s = (double)s->replay_timeout,
        .connections_max = connections_fit(args),
        .peer_connections_max = s->peer_connections,
        .header_bytes_max = s->header_bytes,
        .body_bytes_max = s->body_bytes,
        .bodies_bytes_max = s->bodies_bytes,
        .idle_s = s->idle_timeout,
        .receive_s = s->receive_timeout,
        .send_s = s->send_timeout,
        .serving = on_serving,
        .arg = (void *)(uintptr_t)s,
    };
    if (s->manage_models && sh_store_process_start(s, &opts.store_fd, &err) != SH_OK)
        return sh_command_fail(&err);
    confine(s, model);
    int code = sh_api_run(&opts, &err) == SH_OK ? SH_EXIT_OK : sh_command_fail(&err);
    cJSON_Delete(stops);
    return code;
}

const sh_command sh_command_api = {
    SH_COMMAND_NAMED(api),
    .summary = "serve HTTP in front of an engine's Unix socket",
    .details = "The HTTP half of `shoal serve`. It may come and go while the engine keeps the "
               "model loaded, and waits for the engine while that is away.\n"
               "SIGTERM lets running answers finish; SIGHUP rereads certificate and keys.",
    .run = api_run,
};
