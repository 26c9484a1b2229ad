/* The fields of Ollama's requests. The order of the rows is the order in the OpenAPI document;
 * `meaning` is the text there. Options without a row, such as num_ctx or num_gpu, set up a model
 * when Ollama loads it; here they are named in the header X-Shoal-Ignored-Fields of the answer. */
#include "api/ollama_fields.h"

#include "api/ollama.h"
#include "api/field_rows.h"

#include <stddef.h>

#define AT(field) .offset = offsetof(ollama_fields, field)
SH_STARTS_WITH_SPEC(ollama_fields);

static const sh_field option_rows[] = {
    SH_ROW_TEMPERATURE,
    SH_ROW_TOP_K,
    SH_ROW_TOP_P,
    SH_ROW_MIN_P,
    SH_ROW_SEED,
    {.name = "num_predict",
     .type = SH_FIELD_INT,
     .min = -2,
     .max = SH_MAX_OF(SH_BOUNDS_MAX_TOKENS),
     .meaning = "Longest answer in tokens; -1 or -2: what the context holds.",
     AT(num_predict)},
    {.name = "stop",
     .type = SH_FIELD_JSON,
     .kinds = SH_KIND_STRING | SH_KIND_ARRAY,
     .schema = "{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"array\",\"items\":{\"type\":"
               "\"string\"}}]}",
     .meaning = "Strings that end the answer; they are not part of it.",
     AT(stop)},
    {.name = "repeat_penalty",
     .type = SH_FIELD_NUMBER,
     SH_WITHIN(SH_BOUNDS_REPETITION_PENALTY),
     .meaning = "A value above 1 makes tokens among the last repeat_last_n less likely.",
     AT(spec.repetition_penalty)},
    {.name = "repeat_last_n",
     .type = SH_FIELD_INT,
     .min = -1,
     .max = SH_MAX_OF(SH_BOUNDS_REPETITION_WINDOW),
     .meaning = "How many of the last tokens the penalty covers; 0: off; -1: as many as possible.",
     AT(repeat_last_n)},
    SH_ROW_PRESENCE_PENALTY,
    SH_ROW_FREQUENCY_PENALTY,
    {.name = "ignore_eos",
     .type = SH_FIELD_BOOL,
     .fallback = "false",
     .meaning = "This server's own: continue past the model's end of text, up to num_predict.",
     AT(spec.ignore_eos)},
    {.name = "typical_p",
     .type = SH_FIELD_REFUSED,
     .neutral = "1",
     .meaning = "Another sampling filter."},
    {.name = "tfs_z",
     .type = SH_FIELD_REFUSED,
     .neutral = "1",
     .meaning = "Another sampling filter."},
    {.name = "mirostat", .type = SH_FIELD_REFUSED, .neutral = "0", .meaning = "Another sampler."},
};
static const sh_field_table option_fields = {option_rows, SH_COUNT_OF(option_rows), NULL};

static const sh_field shared_rows[] = {
    {.name = "model",
     .type = SH_FIELD_STRING,
     .max = 512,
     .meaning = "Name of the served model, or `default`; the tag `:latest` may follow.",
     AT(spec.model)},
    {.name = "stream",
     .type = SH_FIELD_BOOL,
     .fallback = "true",
     .meaning = "Send the answer as lines of JSON while it is generated.",
     AT(spec.stream)},
    {.name = "format",
     .type = SH_FIELD_JSON,
     .kinds = SH_KIND_STRING | SH_KIND_OBJECT,
     .schema = "{\"anyOf\":[{\"type\":\"string\",\"enum\":[\"json\",\"\"]},{\"type\":\"object\"}]}",
     .meaning = "The form of the answer: `json` for an object, or a JSON Schema.",
     AT(format)},
    {.name = "think",
     .type = SH_FIELD_JSON,
     .kinds = SH_KIND_BOOL | SH_KIND_STRING,
     .meaning = "Whether to reason before the answer, or how long (`low`, `medium`, `high`), if "
                "the model's template knows about it. Default: the model's own.",
     AT(think)},
    {.name = "options",
     .type = SH_FIELD_OBJECT,
     .inner = &option_fields,
     .meaning = "Sampling, and limits of the answer."},
    {.name = "keep_alive",
     .type = SH_FIELD_JSON,
     .kinds = SH_KIND_NUMBER | SH_KIND_STRING,
     .meaning = "How long the model stays loaded after this request: seconds, or a duration such "
                "as `5m`; 0 unloads it, below 0 is forever. Without effect on a server with one "
                "model.",
     AT(keep_alive)},
};
static const sh_field_table shared_fields = {shared_rows, SH_COUNT_OF(shared_rows), NULL};

static const char messages_schema[] =
    "{\"type\":\"array\",\"items\":{\"type\":\"object\",\"required\":[\"role\"],\"properties\":{"
    "\"role\":{\"type\":\"string\",\"enum\":[\"system\",\"user\",\"assistant\",\"tool\"]},"
    "\"content\":{\"type\":[\"string\",\"null\"]},\"thinking\":{\"type\":[\"string\",\"null\"]},"
    "\"tool_calls\":{\"type\":\"array\",\"items\":{\"type\":\"object\"}},\"tool_name\":{\"type\":"
    "\"string\"},\"tool_call_id\":{\"type\":\"string\"}}}}";

static const char tools_schema[] =
    "{\"type\":\"array\",\"items\":{\"type\":\"object\",\"required\":[\"type\",\"function\"],"
    "\"properties\":{\"type\":{\"const\":\"function\"},\"function\":{\"type\":\"object\","
    "\"required\":[\"name\"],\"properties\":{\"name\":{\"type\":\"string\"},\"description\":{"
    "\"type\":\"string\"},\"parameters\":{\"type\":\"object\"}}}}}}";

static const sh_field chat_rows[] = {
    {.name = "messages",
     .type = SH_FIELD_JSON,
     .kinds = SH_KIND_ARRAY,
     .schema = messages_schema,
     .meaning = "The conversation so far; images are refused. None: only check that the model is "
                "loaded.",
     AT(messages)},
    {.name = "tools",
     .type = SH_FIELD_JSON,
     .kinds = SH_KIND_ARRAY,
     .schema = tools_schema,
     .meaning = "Functions that the model may call.",
     AT(tools)},
};
const sh_field_table sh_ollama_chat_fields = {chat_rows, SH_COUNT_OF(chat_rows), &shared_fields};

static const sh_field generate_rows[] = {
    {.name = "prompt",
     .type = SH_FIELD_STRING,
     .max = 1 << 30,
     .meaning = "The text to answer. None: only check that the model is loaded.",
     AT(prompt)},
    {.name = "system",
     .type = SH_FIELD_STRING,
     .max = 1 << 30,
     .meaning = "The system prompt.",
     AT(system)},
    {.name = "raw",
     .type = SH_FIELD_BOOL,
     .fallback = "false",
     .meaning = "Continue the prompt as it is, without the chat template.",
     AT(raw)},
    {.name = "context",
     .type = SH_FIELD_JSON,
     .kinds = SH_KIND_ARRAY,
     .meaning = "Accepted without effect, as answers have no `context`: use /api/chat.",
     AT(context)},
    {.name = "suffix",
     .type = SH_FIELD_STRING,
     .max = 1 << 30,
     .meaning = "Text that follows the answer, for models that can fill in the middle of a text.",
     AT(suffix)},
    {.name = "template",
     .type = SH_FIELD_REFUSED,
     .neutral = "\"\"",
     .meaning = "The model's own template is used."},
    {.name = "images", .type = SH_FIELD_REFUSED, .neutral = "[]", .meaning = "Images."},
};
const sh_field_table sh_ollama_generate_fields = {generate_rows, SH_COUNT_OF(generate_rows),
                                                  &shared_fields};

#define MODEL_AT(field) .offset = offsetof(sh_ollama_model_request, field)

static const sh_field model_rows[] = {
    {.name = "model",
     .type = SH_FIELD_STRING,
     .max = 512,
     .meaning = "Name of the model.",
     MODEL_AT(model)},
    {.name = "name",
     .type = SH_FIELD_STRING,
     .max = 512,
     .meaning = "The older name of `model`.",
     MODEL_AT(name)},
    {.name = "stream",
     .type = SH_FIELD_BOOL,
     .fallback = "true",
     .meaning = "Of /api/pull: report the progress as lines of JSON.",
     MODEL_AT(stream)},
    {.name = "verbose", .type = SH_FIELD_IGNORED, .meaning = "There is nothing more to tell."},
    {.name = "insecure",
     .type = SH_FIELD_REFUSED,
     .neutral = "false",
     .meaning = "Downloads without TLS."},
};
const sh_field_table sh_ollama_model_fields = {model_rows, SH_COUNT_OF(model_rows), NULL};
