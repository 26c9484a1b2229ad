/* What all of Ollama's endpoints share, and those that describe the model: /api/tags, /api/show,
 * /api/ps and /api/version. */
#include "api/ollama.h"

#include "api/api_internal.h"

#include <dirent.h>
#include <string.h>
#include <sys/stat.h>

/* Clients compare it with the version that introduced what they need; this is the one whose API is
 * served here. */
#define OLLAMA_VERSION "0.12.6"

static int error_status(const sh_api_error *error)
{
    return error->status;
}

static void error_write(const sh_api_error *error, sh_buf *out)
{
    sh_json_writer w = sh_json_writer_on(out);
    sh_write_begin(&w, NULL, '{');
    sh_write_text(&w, "error", error->message);
    sh_write_end(&w, '}');
}

const sh_dialect sh_ollama = {
    .error_status = error_status,
    .error = error_write,
    .error_schema = "{\"type\":\"object\",\"required\":[\"error\"],\"properties\":{\"error\":{"
                    "\"type\":\"string\"}}}",
};

void sh_ollama_time(time_t time, char out[SH_OLLAMA_TIME_MAX])
{
    struct tm parts;
    gmtime_r(&time, &parts);
    strftime(out, SH_OLLAMA_TIME_MAX, "%Y-%m-%dT%H:%M:%SZ", &parts);
}

static void reply(sh_http_request *req, sh_buf *json)
{
    sh_api_reply_json(req, 200, json);
    sh_buf_reset(json);
}

/* Of the files in the model's folder; links to blobs are followed. */
static int64_t model_bytes(const char *dir)
{
    int64_t bytes = 0;
    DIR *folder = opendir(dir);
    if (folder == NULL) return 0;
    const struct dirent *entry;
    while ((entry = readdir(folder)) != NULL) {
        struct stat st;
        if (fstatat(dirfd(folder), entry->d_name, &st, 0) == 0 && S_ISREG(st.st_mode))
            bytes += st.st_size;
    }
    closedir(folder);
    return bytes;
}

static const char *dir_of(const sh_api_model *m)
{
    return m->served == NULL ? m->dir : sh_served_model_dir(m->served);
}

static void details_write(const sh_api_model *m, sh_json_writer *w)
{
    const char *type = m->served == NULL ? "" : sh_served_model_type(m->served);
    sh_write_begin(w, "details", '{');
    sh_write_text(w, "parent_model", "");
    sh_write_text(w, "format", "safetensors");
    sh_write_text(w, "family", type);
    sh_write_begin(w, "families", '[');
    if (type[0] != '\0') sh_write_text(w, NULL, type);
    sh_write_end(w, ']');
    sh_write_text(w, "parameter_size", "");
    sh_write_text(w, "quantization_level", "");
    sh_write_end(w, '}');
}

/* When it may be unloaded, if nothing asks for it until then. */
static void expires_write(const sh_api_model *m, sh_json_writer *w)
{
    char text[SH_OLLAMA_TIME_MAX] = "9999-12-31T23:59:59Z";
    int64_t last_us = m->active > 0 || m->used_us == 0 ? sh_clock_unix_us() : m->used_us;
    if (m->keep_s >= 0 && !m->pinned) sh_ollama_time((time_t)(last_us / 1000000 + m->keep_s), text);
    sh_write_text(w, "expires_at", text);
}

/* The digest is the engine's fingerprint of the model, as wide as Ollama's. */
static void model_write(const sh_api_model *m, bool running, sh_json_writer *w)
{
    const sh_engine_info *info = sh_model_info(m);
    char digest[65], created[SH_OLLAMA_TIME_MAX];
    int64_t bytes = model_bytes(dir_of(m));
    snprintf(digest, sizeof(digest), "%064llx",
             info == NULL ? 0 : (unsigned long long)info->model_hash);
    sh_ollama_time((time_t)sh_model_created_s(m), created);
    sh_write_begin(w, NULL, '{');
    sh_write_text(w, "name", sh_model_name(m));
    sh_write_text(w, "model", sh_model_name(m));
    if (!running) sh_write_text(w, "modified_at", created);
    sh_write_int(w, "size", bytes);
    sh_write_text(w, "digest", digest);
    details_write(m, w);
    if (running) {
        expires_write(m, w);
        sh_write_int(w, "size_vram", bytes);
        sh_write_int(w, "context_length", sh_served_model_context(m->served));
    }
    sh_write_end(w, '}');
}

static void models_reply(sh_http_request *req, const sh_api *api, bool running)
{
    sh_buf json = {0};
    if (sh_api_lacks_model(req, api)) return;
    sh_json_writer w = sh_json_writer_on(&json);
    sh_write_begin(&w, NULL, '{');
    sh_write_begin(&w, "models", '[');
    for (const sh_api_model *m = sh_models_first(api); m != NULL; m = sh_models_next(m))
        if (!running || m->served != NULL) model_write(m, running, &w);
    sh_write_end(&w, ']');
    sh_write_end(&w, '}');
    reply(req, &json);
}

void sh_ollama_tags(sh_http_request *req, void *arg)
{
    models_reply(req, arg, false);
}

void sh_ollama_ps(sh_http_request *req, void *arg)
{
    models_reply(req, arg, true);
}

void sh_ollama_version(sh_http_request *req, void *arg)
{
    (void)arg;
    sh_http_reply(req, 200, "application/json", SH_STR("{\"version\":\"" OLLAMA_VERSION "\"}"));
}

bool sh_ollama_model_read(sh_api *api, sh_http_request *req, char name[SH_OLLAMA_NAME_MAX],
                          bool *stream, sh_api_error *err)
{
    sh_ollama_model_request fields = {0};
    cJSON *json = NULL;
    size_t values = 0;
    bool fine = sh_api_parse(api, sh_http_body(req), &json, &values, err) &&
                sh_fields_read(&sh_ollama_model_fields, json, &fields, err);
    const char *given = fields.model != NULL ? fields.model : fields.name;
    if (fine && given == NULL)
        fine = sh_api_fail(err, 400, "missing_field", "model", "the field 'model' is missing");
    if (fine) {
        sh_str plain = sh_ollama_untagged(given);
        snprintf(name, SH_OLLAMA_NAME_MAX, "%.*s", (int)plain.len, plain.ptr);
        *stream = fields.stream;
    }
    sh_api_parsed_free(api, json, values);
    return fine;
}

static void show_write(const sh_api_model *m, sh_json_writer *w)
{
    const sh_served_model *served = m->served;
    const sh_output_dialect *dialect = sh_model_text_dialect(sh_served_model_text(served));
    const char *type = sh_served_model_type(served);
    bool writes = sh_served_model_writes(served);
    bool vectors = sh_served_model_vector_len(served) > 0 && !sh_served_model_scores(served);
    char key[96];
    sh_write_begin(w, NULL, '{');
    sh_write_text(w, "modelfile", "");
    sh_write_text(w, "parameters", "");
    sh_write_text(w, "template", "");
    details_write(m, w);
    sh_write_begin(w, "model_info", '{');
    sh_write_text(w, "general.architecture", type);
    snprintf(key, sizeof(key), "%s.context_length", type);
    sh_write_int(w, key, sh_served_model_context(served));
    sh_write_end(w, '}');
    sh_write_begin(w, "capabilities", '[');
    if (writes) sh_write_text(w, NULL, "completion");
    if (vectors) sh_write_text(w, NULL, "embedding");
    if (writes && dialect->tools != NULL) sh_write_text(w, NULL, "tools");
    if (writes && dialect->reasoning != NULL && !dialect->reasoning_guessed)
        sh_write_text(w, NULL, "thinking");
    sh_write_end(w, ']');
    sh_write_end(w, '}');
}

/* A model that is not loaded: clients ask about all models of a list, which must not load them. */
static void show_brief_write(const sh_api_model *m, sh_json_writer *w)
{
    sh_write_begin(w, NULL, '{');
    sh_write_text(w, "modelfile", "");
    sh_write_text(w, "parameters", "");
    sh_write_text(w, "template", "");
    details_write(m, w);
    sh_write_begin(w, "model_info", '{');
    sh_write_end(w, '}');
    sh_write_begin(w, "capabilities", '[');
    sh_write_text(w, NULL, "completion");
    sh_write_end(w, ']');
    sh_write_end(w, '}');
}

void sh_ollama_show(sh_http_request *req, void *arg)
{
    sh_api *api = arg;
    sh_buf json = {0};
    char name[SH_OLLAMA_NAME_MAX];
    bool stream;
    sh_api_error error;
    const sh_api_model *m = NULL;
    if (sh_api_lacks_model(req, api)) return;
    if (sh_ollama_model_read(api, req, name, &stream, &error))
        m = sh_models_find(api, name, &error);
    if (m == NULL) {
        sh_api_reply_error(req, &error);
        return;
    }
    sh_json_writer w = sh_json_writer_on(&json);
    if (m->served != NULL)
        show_write(m, &w);
    else
        show_brief_write(m, &w);
    reply(req, &json);
}
