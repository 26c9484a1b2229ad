/* POST /api/embed, and /api/embeddings as older clients ask: vectors of texts.
 *
 * Inputs that are too long are cut unless the client says otherwise, as Ollama does. */
#include "api/field_rows.h"
#include "api/json_writer.h"
#include "api/ollama.h"
#include "api/vectors.h"

typedef struct {
    sh_job_spec spec;
    const cJSON *input, *keep_alive, *options;
    bool truncate;
} embed_fields;
SH_STARTS_WITH_SPEC(embed_fields);

#define AT(field) .offset = offsetof(embed_fields, field)

static const sh_field shared_rows[] = {
    {.name = "model",
     .type = SH_FIELD_STRING,
     .max = 4096,
     .meaning = "Name of the model; optional if there is only one, or a default.",
     AT(spec.model)},
    {.name = "options",
     .type = SH_FIELD_JSON,
     .kinds = SH_KIND_OBJECT,
     .meaning = "Accepted without effect: there is nothing to draw.",
     AT(options)},
    {.name = "keep_alive",
     .type = SH_FIELD_JSON,
     .kinds = SH_KIND_STRING | SH_KIND_NUMBER,
     .meaning = "How long the model stays loaded after this request: seconds, or a duration such "
                "as `5m`; 0 unloads it, below 0 is forever. Without effect on a server with one "
                "model.",
     AT(keep_alive)},
};
static const sh_field_table shared_fields = {shared_rows, SH_COUNT_OF(shared_rows), NULL};

static const sh_field embed_rows[] = {
    {.name = "input",
     .type = SH_FIELD_JSON,
     .required = true,
     .kinds = SH_KIND_STRING | SH_KIND_ARRAY,
     .schema = "{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"array\",\"items\":{\"type\":"
               "\"string\"}}]}",
     .meaning = "A text, or a list of up to 2048 texts.",
     AT(input)},
    {.name = "truncate",
     .type = SH_FIELD_BOOL,
     .fallback = "true",
     .meaning = "Cut inputs that are too long; false refuses them.",
     AT(truncate)},
    SH_ROW_DIMENSIONS,
};
const sh_field_table sh_ollama_embed_fields = {embed_rows, SH_COUNT_OF(embed_rows), &shared_fields};

static const sh_field embedding_rows[] = {
    {.name = "prompt",
     .type = SH_FIELD_JSON,
     .required = true,
     .kinds = SH_KIND_STRING,
     .meaning = "The text.",
     AT(input)},
};
const sh_field_table sh_ollama_embedding_fields = {embedding_rows, SH_COUNT_OF(embedding_rows),
                                                   &shared_fields};

/* The spec is copied back even on failure, because its arena has grown. */
static bool fields_read(const sh_field_table *table, const char *name, sh_job_spec *spec,
                        sh_api_error *err)
{
    embed_fields fields = {.spec = *spec, .truncate = true};
    sh_job_spec *out = &fields.spec;
    bool fine = sh_fields_read(table, spec->json, &fields, err);
    if (fine && out->model != NULL)
        out->model = sh_arena_str(&out->arena, sh_ollama_untagged(out->model)).ptr;
    if (fields.options != NULL) sh_fields_note(&out->ignored, NULL, "options");
    fine = fine && sh_ollama_keep_read(fields.keep_alive, out, err);
    out->truncate = fields.truncate ? -1 : 0;
    out->truncate_field = "truncate";
    fine = fine && sh_inputs_read(fields.input, name, cJSON_IsString(fields.input), out, err);
    *spec = *out;
    return fine;
}

static bool embed_read(sh_job_spec *spec, sh_api_error *err)
{
    return fields_read(&sh_ollama_embed_fields, "input", spec, err);
}

static bool embedding_read(sh_job_spec *spec, sh_api_error *err)
{
    return fields_read(&sh_ollama_embedding_fields, "prompt", spec, err);
}

static void vector_part(const sh_answer *answer, const sh_choice *choice, sh_buf *out)
{
    sh_vector_write(answer, choice, out);
}

static void embed_whole(const sh_answer *answer, sh_buf *out)
{
    sh_json_writer w = sh_json_writer_on(out);
    sh_write_begin(&w, NULL, '{');
    sh_write_text(&w, "model", answer->model);
    sh_vectors_write(answer, "embeddings", &w);
    sh_write_int(&w, "total_duration", (int64_t)(answer->seconds * 1e9));
    sh_write_int(&w, "load_duration", 0);
    sh_write_int(&w, "prompt_eval_count", sh_answer_usage(answer).prompt_tokens);
    sh_write_end(&w, '}');
}

static void embedding_whole(const sh_answer *answer, sh_buf *out)
{
    sh_json_writer w = sh_json_writer_on(out);
    sh_write_begin(&w, NULL, '{');
    sh_write_raw(&w, "embedding", sh_buf_str(&answer->choices[0].content));
    sh_write_end(&w, '}');
}

const sh_job_format sh_ollama_embed = {
    .kind = "ollama_embed",
    .id_prefix = "ollama-",
    .read = embed_read,
    .part = vector_part,
    .whole = embed_whole,
};

const sh_job_format sh_ollama_embedding = {
    .kind = "ollama_embed",
    .id_prefix = "ollama-",
    .read = embedding_read,
    .part = vector_part,
    .whole = embedding_whole,
};
