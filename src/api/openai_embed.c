/* POST /v1/embeddings and /v1/rerank.
 *
 * Both read a list of inputs, which become the prompts of a job without answers; what comes back
 * for each is a vector, or a score. Vectors are written as they arrive: a request may have two
 * thousand of them, and the numbers of one take as long to write as many tokens. Field names are
 * OpenAI's, and vLLM's where OpenAI has none. */
#include "api/api_internal.h"
#include "api/field_rows.h"
#include "api/openai.h"
#include "api/vectors.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    sh_job_spec spec;
    const cJSON *input;
    const char *encoding;
    const char *query;
    const cJSON *documents;
} embed_fields;
SH_STARTS_WITH_SPEC(embed_fields);

#define AT(field) .offset = offsetof(embed_fields, field)

#define MODEL_FIELD                                                                                \
    {                                                                                              \
        .name = "model", .type = SH_FIELD_STRING, .max = 4096,                                     \
        .meaning = "Name of the model; optional if there is only one, or a default.",              \
        AT(spec.model)                                                                             \
    }
#define TRUNCATE_FIELD                                                                             \
    {                                                                                              \
        .name = "truncate_prompt_tokens", .type = SH_FIELD_INT, .min = -1, .max = 1 << 24,         \
        .fallback = "0",                                                                           \
        .meaning =                                                                                 \
            "Cut longer inputs after so many tokens; -1: after as many as the model takes. "       \
            "0 refuses inputs that are too long.",                                                 \
        AT(spec.truncate)                                                                          \
    }
#define TIMEOUT_FIELD                                                                              \
    {                                                                                              \
        .name = "timeout", .type = SH_FIELD_NUMBER, .min = 0, .max = 1e6,                          \
        .meaning = "Longest time of the request in seconds; 0: the server's limit.",               \
        AT(spec.timeout_s)                                                                         \
    }

static const sh_field embeddings_rows[] = {
    MODEL_FIELD,
    {.name = "input",
     .type = SH_FIELD_JSON,
     .required = true,
     .kinds = SH_KIND_STRING | SH_KIND_ARRAY,
     .schema = "{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"array\",\"items\":{\"type\":"
               "\"string\"}},{\"type\":\"array\",\"items\":{\"type\":\"integer\"}},{\"type\":"
               "\"array\",\"items\":{\"type\":\"array\",\"items\":{\"type\":\"integer\"}}}]}",
     .meaning = "A text, a list of up to 2048 texts, token ids, or a list of lists of token ids.",
     AT(input)},
    {.name = "encoding_format",
     .type = SH_FIELD_STRING,
     .max = 16,
     .choices = "float|base64",
     .meaning = "Write vectors as lists of numbers (the default), or as base64 of 32-bit floats.",
     AT(encoding)},
    SH_ROW_DIMENSIONS,
    {.name = "prompt_name",
     .type = SH_FIELD_STRING,
     .max = 256,
     .meaning = "Put this prompt of the model before each text, such as `query`.",
     AT(spec.prompt_name)},
    TRUNCATE_FIELD,
    TIMEOUT_FIELD,
    {.name = "user", .type = SH_FIELD_IGNORED, .meaning = "The end user, for OpenAI's statistics."},
};
const sh_field_table sh_openai_embeddings_fields = {embeddings_rows, SH_COUNT_OF(embeddings_rows),
                                                    NULL};

static const sh_field rerank_rows[] = {
    MODEL_FIELD,
    {.name = "query",
     .type = SH_FIELD_STRING,
     .required = true,
     .max = SH_ENCODE_TEXT_MAX,
     .meaning = "What the documents are compared with.",
     AT(query)},
    {.name = "documents",
     .type = SH_FIELD_JSON,
     .required = true,
     .kinds = SH_KIND_ARRAY,
     .schema = "{\"type\":\"array\",\"minItems\":1,\"maxItems\":2048,\"items\":{\"anyOf\":[{"
               "\"type\":\"string\"},{\"type\":\"object\",\"required\":[\"text\"],\"properties\":{"
               "\"text\":{\"type\":\"string\"}}}]}}",
     .meaning = "Up to 2048 texts, or objects with a `text`.",
     AT(documents)},
    {.name = "top_n",
     .type = SH_FIELD_INT,
     .min = 0,
     .max = 1 << 20,
     .fallback = "0",
     .meaning = "Report only so many of the best; 0: all.",
     AT(spec.top_n)},
    {.name = "return_documents",
     .type = SH_FIELD_BOOL,
     .fallback = "true",
     .meaning = "Report the texts of the documents, too.",
     AT(spec.return_documents)},
    TRUNCATE_FIELD,
    TIMEOUT_FIELD,
};
const sh_field_table sh_openai_rerank_fields = {rerank_rows, SH_COUNT_OF(rerank_rows), NULL};

/* The spec is copied back even on failure, because its arena has grown. */
bool sh_openai_embeddings_read(sh_job_spec *spec, sh_api_error *err)
{
    embed_fields fields = {.spec = *spec};
    bool fine = sh_fields_read(&sh_openai_embeddings_fields, spec->json, &fields, err);
    if (fine) {
        const cJSON *input = fields.input;
        bool single = cJSON_IsString(input) || cJSON_IsNumber(input->child);
        fields.spec.base64 = fields.encoding != NULL && strcmp(fields.encoding, "base64") == 0;
        fine = sh_inputs_read(input, "input", single, &fields.spec, err);
    }
    *spec = fields.spec;
    return fine;
}

bool sh_openai_rerank_read(sh_job_spec *spec, sh_api_error *err)
{
    embed_fields fields = {.spec = *spec};
    bool fine = sh_fields_read(&sh_openai_rerank_fields, spec->json, &fields, err);
    if (fine) fields.spec.query = sh_str_of(fields.query);
    fine = fine && sh_inputs_read(fields.documents, "documents", false, &fields.spec, err);
    *spec = fields.spec;
    return fine;
}

/* One element of "data". */
static void embedding_part(const sh_answer *answer, const sh_choice *choice, sh_buf *out)
{
    sh_buf value = {0};
    sh_vector_write(answer, choice, &value);
    sh_json_writer w = sh_json_writer_on(out);
    sh_write_begin(&w, NULL, '{');
    sh_write_text(&w, "object", "embedding");
    sh_write_int(&w, "index", choice->index);
    sh_write_raw(&w, "embedding", sh_buf_str(&value));
    sh_write_end(&w, '}');
    sh_buf_reset(&value);
}

static void usage_write(const sh_answer *answer, sh_json_writer *w)
{
    sh_usage usage = sh_answer_usage(answer);
    sh_write_begin(w, "usage", '{');
    sh_write_int(w, "prompt_tokens", usage.prompt_tokens);
    sh_write_int(w, "total_tokens", usage.prompt_tokens);
    sh_write_end(w, '}');
}

static void embeddings_whole(const sh_answer *answer, sh_buf *out)
{
    sh_json_writer w = sh_json_writer_on(out);
    sh_write_begin(&w, NULL, '{');
    sh_write_text(&w, "object", "list");
    sh_write_text(&w, "id", answer->id);
    sh_write_int(&w, "created", answer->created_s);
    sh_write_text(&w, "model", answer->model);
    sh_vectors_write(answer, "data", &w);
    usage_write(answer, &w);
    sh_write_end(&w, '}');
}

typedef struct {
    int index;
    float score;
} ranked;

/* Best first; of equal ones the earlier. A NaN comes last. */
static int rank_compare(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    float p = isnan(x->score) ? -INFINITY : x->score, q = isnan(y->score) ? -INFINITY : y->score;
    return p != q ? (p < q) - (p > q) : x->index - y->index;
}

static void result_write(const sh_answer *answer, const ranked *r, sh_json_writer *w)
{
    sh_write_begin(w, NULL, '{');
    sh_write_int(w, "index", r->index);
    if (answer->spec->return_documents) {
        sh_str text = answer->spec->prompts[r->index].text;
        sh_write_begin(w, "document", '{');
        if (text.ptr != NULL) sh_write_str(w, "text", text);
        sh_write_end(w, '}');
    }
    sh_write_num(w, "relevance_score", (double)r->score);
    sh_write_end(w, '}');
}

static void rerank_whole(const sh_answer *answer, sh_buf *out)
{
    ranked order[SH_INPUTS_MAX] = {{0}};
    int64_t most = answer->spec->top_n;
    for (int i = 0; i < answer->count; i++)
        order[i] = (ranked){i,
                            answer->choices[i].vector_len > 0 ? answer->choices[i].vector[0] : NAN};
    qsort(order, (size_t)answer->count, sizeof(*order), rank_compare);
    if (most == 0 || most > answer->count) most = answer->count;
    sh_json_writer w = sh_json_writer_on(out);
    sh_write_begin(&w, NULL, '{');
    sh_write_text(&w, "id", answer->id);
    sh_write_text(&w, "model", answer->model);
    sh_write_begin(&w, "results", '[');
    for (int i = 0; i < most; i++) result_write(answer, &order[i], &w);
    sh_write_end(&w, ']');
    usage_write(answer, &w);
    sh_write_end(&w, '}');
}

const sh_job_format sh_openai_embeddings = {
    .kind = "embedding",
    .id_prefix = "embd-",
    .read = sh_openai_embeddings_read,
    .part = embedding_part,
    .whole = embeddings_whole,
};

const sh_job_format sh_openai_rerank = {
    .kind = "rerank",
    .id_prefix = "rerank-",
    .read = sh_openai_rerank_read,
    .whole = rerank_whole,
};
