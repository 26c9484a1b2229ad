/* The OpenAPI document, written once at startup from the table of endpoints and the tables of
 * fields. */
#include "api/api_internal.h"
#include "api/assets.h"
#include "api/json_writer.h"
#include "base/version.h"

#include <stdio.h>
#include <string.h>

static const char *method_key(sh_http_method method)
{
    static const char *const names[] = {
        [SH_HTTP_GET] = "get",        [SH_HTTP_HEAD] = "head",   [SH_HTTP_POST] = "post",
        [SH_HTTP_PUT] = "put",        [SH_HTTP_PATCH] = "patch", [SH_HTTP_DELETE] = "delete",
        [SH_HTTP_OPTIONS] = "options"};
    return names[method];
}

/* "post_v1_chat_completions" */
static void operation_id(const sh_endpoint *endpoint, sh_json_writer *w)
{
    char id[128];
    snprintf(id, sizeof(id), "%s%s", method_key(endpoint->method),
             strcmp(endpoint->path, "/") == 0 ? "_root" : endpoint->path);
    for (char *c = id; *c != '\0'; c++)
        if (strchr("/{}.", *c) != NULL) *c = '_';
    sh_write_text(w, "operationId", id);
}

static void parameter_write(const char *place, sh_str name, sh_str meaning, const char *schema,
                            sh_json_writer *w)
{
    sh_write_begin(w, NULL, '{');
    sh_write_str(w, "name", name);
    sh_write_text(w, "in", place);
    sh_write_bool(w, "required", strcmp(place, "path") == 0);
    sh_write_str(w, "description", meaning);
    sh_write_raw(w, "schema", sh_str_of(schema));
    sh_write_end(w, '}');
}

static void parameters_write(const sh_endpoint *endpoint, sh_json_writer *w)
{
    const char *open = strchr(endpoint->path, '{');
    if (open == NULL && endpoint->query == NULL) return;
    sh_write_begin(w, "parameters", '[');
    if (open != NULL)
        parameter_write("path", (sh_str){open + 1, strcspn(open + 1, "}")},
                        SH_STR("The rest of the path, including slashes."), "{\"type\":\"string\"}",
                        w);
    if (endpoint->query != NULL) {
        sh_str rest = sh_str_of(endpoint->query), name;
        sh_str_cut(&rest, ':', &name);
        parameter_write("query", name, sh_str_trim(rest), endpoint->query_schema, w);
    }
    sh_write_end(w, ']');
}

static void content_begin(const char *type, sh_json_writer *w)
{
    sh_write_begin(w, "content", '{');
    sh_write_begin(w, type, '{');
}

static void content_end(sh_json_writer *w)
{
    sh_write_end(w, '}');
    sh_write_end(w, '}');
}

static void body_write(const sh_endpoint *endpoint, sh_json_writer *w)
{
    if (endpoint->fields == NULL) return;
    sh_write_begin(w, "requestBody", '{');
    sh_write_bool(w, "required", true);
    content_begin("application/json", w);
    sh_fields_schema(endpoint->fields, endpoint->rules, "schema", w);
    content_end(w);
    sh_write_end(w, '}');
}

static void error_write(const sh_dialect *dialect, sh_json_writer *w)
{
    if (dialect == sh_default_dialect) {
        sh_write_raw(w, "default", SH_STR("{\"$ref\":\"#/components/responses/Error\"}"));
        return;
    }
    sh_write_begin(w, "default", '{');
    sh_write_text(w, "description", "Why the request failed.");
    content_begin("application/json", w);
    sh_write_raw(w, "schema", sh_str_of(dialect->error_schema));
    content_end(w);
    sh_write_end(w, '}');
}

static void reference_write(const char *schema, sh_json_writer *w)
{
    char place[96];
    snprintf(place, sizeof(place), "#/components/schemas/%s", schema);
    sh_write_text(w, "$ref", place);
}

/* OpenAPI 3.1 has no word for a stream: it is a text whose events contain JSON. */
static void stream_write(const sh_endpoint *endpoint, sh_json_writer *w)
{
    sh_write_begin(w, "text/event-stream", '{');
    sh_write_begin(w, "schema", '{');
    sh_write_text(w, "type", "string");
    sh_write_text(w, "description", "With `stream`: events whose data is JSON, see contentSchema.");
    sh_write_text(w, "contentMediaType", "application/json");
    sh_write_begin(w, "contentSchema", '{');
    reference_write(endpoint->part_schema, w);
    sh_write_end(w, '}');
    sh_write_end(w, '}');
    sh_write_end(w, '}');
}

static void responses_write(const sh_endpoint *endpoint, sh_json_writer *w)
{
    const char *type = endpoint->answer_type == NULL ? "application/json" : endpoint->answer_type;
    bool json = strcmp(type, "application/json") == 0;
    sh_write_begin(w, "responses", '{');
    sh_write_begin(w, "200", '{');
    sh_write_text(w, "description", endpoint->answer);
    content_begin(type, w);
    sh_write_begin(w, "schema", '{');
    if (json && endpoint->answer_schema != NULL)
        reference_write(endpoint->answer_schema, w);
    else
        sh_write_text(w, "type", json ? "object" : "string");
    sh_write_end(w, '}');
    sh_write_end(w, '}');
    if (endpoint->part_schema != NULL) stream_write(endpoint, w);
    sh_write_end(w, '}');
    sh_write_end(w, '}');
    error_write(sh_endpoint_dialect(endpoint), w);
    sh_write_end(w, '}');
}

static void operation_write(const sh_endpoint *endpoint, sh_json_writer *w)
{
    sh_write_begin(w, method_key(endpoint->method), '{');
    operation_id(endpoint, w);
    sh_write_text(w, "summary", endpoint->summary);
    sh_write_begin(w, "tags", '[');
    sh_write_text(w, NULL, endpoint->tag);
    sh_write_end(w, ']');
    sh_write_raw(w, "security", endpoint->open ? SH_STR("[]") : SH_STR("[{},{\"key\":[]}]"));
    parameters_write(endpoint, w);
    body_write(endpoint, w);
    responses_write(endpoint, w);
    sh_write_end(w, '}');
}

/* OpenAPI groups operations by path, the table may have a path in several rows. */
static bool path_seen(const sh_endpoint *rows, size_t index)
{
    for (size_t i = 0; i < index; i++)
        if (strcmp(rows[i].path, rows[index].path) == 0) return true;
    return false;
}

static void paths_write(const sh_endpoint_table *table, sh_json_writer *w)
{
    const sh_endpoint *rows = table->rows;
    sh_write_begin(w, "paths", '{');
    for (size_t i = 0; i < table->count; i++) {
        if (path_seen(rows, i)) continue;
        sh_write_begin(w, rows[i].path, '{');
        for (size_t k = i; k < table->count; k++)
            if (strcmp(rows[k].path, rows[i].path) == 0) operation_write(&rows[k], w);
        sh_write_end(w, '}');
    }
    sh_write_end(w, '}');
}

static bool tag_seen(const sh_endpoint *rows, size_t index)
{
    for (size_t i = 0; i < index; i++)
        if (strcmp(rows[i].tag, rows[index].tag) == 0) return true;
    return false;
}

static void tags_write(const sh_endpoint_table *table, sh_json_writer *w)
{
    sh_write_begin(w, "tags", '[');
    for (size_t i = 0; i < table->count; i++) {
        if (tag_seen(table->rows, i)) continue;
        sh_write_begin(w, NULL, '{');
        sh_write_text(w, "name", table->rows[i].tag);
        sh_write_end(w, '}');
    }
    sh_write_end(w, ']');
}

static void components_write(sh_json_writer *w)
{
    sh_write_begin(w, "components", '{');
    sh_write_raw(
        w, "securitySchemes",
        SH_STR("{\"key\":{\"type\":\"http\",\"scheme\":\"bearer\",\"description\":\"An API "
               "key, if the server requires one.\"}}"));
    sh_write_raw(
        w, "responses",
        SH_STR("{\"Error\":{\"description\":\"Why the request failed. Both members have the "
               "same message, for clients of either kind.\",\"content\":{"
               "\"application/json\":{\"schema\":{\"$ref\":\"#/components/schemas/"
               "Error\"}}}}}"));
    const sh_asset *schemas = sh_asset_find(SH_STR("/docs/schemas.json"));
    sh_write_raw(w, "schemas", (sh_str){schemas->data, (size_t)(schemas->end - schemas->data)});
    sh_write_end(w, '}');
}

void sh_openapi_write(const sh_endpoint_table *endpoints, sh_buf *out)
{
    sh_json_writer w = sh_json_writer_on(out);
    sh_write_begin(&w, NULL, '{');
    sh_write_text(&w, "openapi", "3.1.0");
    sh_write_begin(&w, "info", '{');
    sh_write_text(&w, "title", "Shoal");
    sh_write_text(&w, "version", sh_version());
    sh_write_text(&w, "summary", "One large language model on several machines");
    sh_write_text(
        &w, "description",
        "The APIs of OpenAI, Anthropic and Ollama, and the status of this server. Fields "
        "that are not listed are ignored; those marked as refused would change the answer.");
    sh_write_raw(&w, "license", SH_STR("{\"name\":\"MIT\",\"identifier\":\"MIT\"}"));
    sh_write_end(&w, '}');
    sh_write_raw(&w, "servers", SH_STR("[{\"url\":\"/\"}]"));
    tags_write(endpoints, &w);
    paths_write(endpoints, &w);
    components_write(&w);
    sh_write_end(&w, '}');
}
