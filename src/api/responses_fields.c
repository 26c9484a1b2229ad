/* The fields of /v1/responses. The order of the rows is the order in the OpenAPI document;
 * `meaning` is the text there. */
#include "api/responses_internal.h"

#include "api/responses.h"
#include "api/field_rows.h"

#include <stddef.h>

#define AT(field) .offset = offsetof(responses_fields, field)
SH_STARTS_WITH_SPEC(responses_fields);

static const char input_schema[] =
    "{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"array\",\"items\":{\"type\":\"object\","
    "\"properties\":{\"type\":{\"type\":\"string\",\"enum\":[\"message\",\"function_call\","
    "\"function_call_output\",\"reasoning\",\"item_reference\"]},\"role\":{\"type\":\"string\","
    "\"enum\":[\"user\",\"assistant\",\"system\",\"developer\"]},\"content\":{},\"id\":{\"type\":"
    "[\"string\",\"null\"]},\"call_id\":{\"type\":\"string\"},\"name\":{\"type\":\"string\"},"
    "\"arguments\":{\"type\":\"string\"},\"output\":{}}}}]}";

static const char tools_schema[] =
    "{\"type\":\"array\",\"items\":{\"type\":\"object\",\"required\":[\"type\",\"name\"],"
    "\"properties\":{\"type\":{\"const\":\"function\"},\"name\":{\"type\":\"string\"},"
    "\"description\":{\"type\":[\"string\",\"null\"]},\"parameters\":{\"type\":[\"object\","
    "\"null\"]},\"strict\":{\"type\":[\"boolean\",\"null\"]}}}}";

static const char format_schema[] =
    "{\"type\":\"object\",\"required\":[\"type\"],\"properties\":{\"type\":{\"type\":\"string\","
    "\"enum\":[\"text\",\"json_object\",\"json_schema\"]},\"name\":{\"type\":\"string\"},"
    "\"schema\":{\"type\":\"object\"},\"strict\":{\"type\":[\"boolean\",\"null\"]}}}";

static const sh_field text_rows[] = {
    {.name = "format",
     .type = SH_FIELD_JSON,
     .kinds = SH_KIND_OBJECT,
     .schema = format_schema,
     .meaning = "The form of the answer. A schema is enforced whether or not it is `strict`.",
     AT(format)},
    {.name = "verbosity",
     .type = SH_FIELD_REFUSED,
     .neutral = "\"medium\"",
     .meaning = "A setting of OpenAI's own models."},
};
static const sh_field_table text_fields = {text_rows, SH_COUNT_OF(text_rows), NULL};

static const sh_field reasoning_rows[] = {
    {.name = "effort",
     .type = SH_FIELD_STRING,
     .max = 64,
     .meaning = "A variable of some templates: how long to reason; `none` also turns it off.",
     AT(effort)},
    {.name = "summary",
     .type = SH_FIELD_IGNORED,
     .meaning = "Reasoning is part of the answer, so it is not summarized."},
    {.name = "generate_summary", .type = SH_FIELD_IGNORED, .meaning = "The older name."},
};
static const sh_field_table reasoning_fields = {reasoning_rows, SH_COUNT_OF(reasoning_rows), NULL};

static const sh_field stream_rows[] = {
    {.name = "include_obfuscation",
     .type = SH_FIELD_IGNORED,
     .meaning = "Padding that OpenAI adds to events."},
};
static const sh_field_table stream_fields = {stream_rows, SH_COUNT_OF(stream_rows), NULL};

static const sh_field rows[] = {
    {.name = "model",
     .type = SH_FIELD_STRING,
     .max = 512,
     .meaning = "Name of the served model, or `default`. May be left out.",
     AT(spec.model)},
    {.name = "input",
     .type = SH_FIELD_JSON,
     .required = true,
     .kinds = SH_KIND_STRING | SH_KIND_ARRAY,
     .schema = input_schema,
     .meaning = "A text of the user, or items. Images, files and items of hosted tools are "
                "refused.",
     AT(input)},
    {.name = "instructions",
     .type = SH_FIELD_STRING,
     .max = 1 << 30,
     .meaning = "The system prompt. That of the previous response does not count.",
     AT(instructions)},
    {.name = "tools",
     .type = SH_FIELD_JSON,
     .kinds = SH_KIND_ARRAY,
     .schema = tools_schema,
     .meaning = "Functions that the model may call. Hosted tools are refused by name.",
     AT(tools)},
    {.name = "tool_choice",
     .type = SH_FIELD_JSON,
     .kinds = SH_KIND_STRING | SH_KIND_OBJECT,
     .schema = "{\"anyOf\":[{\"type\":\"string\",\"enum\":[\"auto\",\"none\",\"required\"]},{"
               "\"type\":\"object\",\"required\":[\"type\",\"name\"],\"properties\":{\"type\":{"
               "\"const\":\"function\"},\"name\":{\"type\":\"string\"}}}]}",
     .meaning = "`auto`, `none`, `required` or one function.",
     AT(tool_choice)},
    {.name = "parallel_tool_calls",
     .type = SH_FIELD_BOOL,
     .fallback = "true",
     .meaning = "False ends the answer after its first call.",
     AT(spec.parallel_calls)},
    {.name = "text",
     .type = SH_FIELD_OBJECT,
     .inner = &text_fields,
     .meaning = "Settings of the text."},
    {.name = "reasoning",
     .type = SH_FIELD_OBJECT,
     .inner = &reasoning_fields,
     .meaning = "Settings of the reasoning."},
    {.name = "max_output_tokens",
     .type = SH_FIELD_INT,
     SH_WITHIN(SH_BOUNDS_MAX_TOKENS),
     .meaning = "Longest answer in tokens, reasoning included.",
     AT(spec.max_tokens)},
    SH_ROW_TEMPERATURE,
    SH_ROW_TOP_P,
    {.name = "top_logprobs",
     .type = SH_FIELD_INT,
     SH_WITHIN(SH_BOUNDS_LOGPROBS),
     .fallback = "0",
     .meaning = "Report this many of the likeliest tokens at each position; see `include`.",
     AT(spec.top_logprobs)},
    {.name = "include",
     .type = SH_FIELD_JSON,
     .kinds = SH_KIND_ARRAY,
     .schema = "{\"type\":\"array\",\"items\":{\"type\":\"string\"}}",
     .meaning = "`message.output_text.logprobs` adds log-probabilities. Others have no effect: "
                "reasoning is always included, in clear.",
     AT(include)},
    SH_ROW_SEED,
    {.name = "ignore_eos",
     .type = SH_FIELD_BOOL,
     .fallback = "false",
     .meaning = "This server's own: continue past the model's end of text, up to the limit.",
     AT(spec.ignore_eos)},
    SH_ROW_STREAM,
    {.name = "stream_options",
     .type = SH_FIELD_OBJECT,
     .inner = &stream_fields,
     .meaning = "Options of the stream."},
    {.name = "store",
     .type = SH_FIELD_BOOL,
     .fallback = "true",
     .meaning = "Keep the response, so that it can be fetched and continued. A number of them is "
                "kept in memory for each API key.",
     AT(store)},
    {.name = "previous_response_id",
     .type = SH_FIELD_STRING,
     .max = 256,
     .meaning = "Continue this stored response: its items come before the input.",
     AT(previous)},
    {.name = "conversation",
     .type = SH_FIELD_JSON,
     .kinds = SH_KIND_STRING | SH_KIND_OBJECT,
     .schema = "{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"object\",\"required\":[\"id\"],"
               "\"properties\":{\"id\":{\"type\":\"string\"}}}]}",
     .meaning = "Continue the newest stored response with this conversation id, which the client "
                "chooses; the first one starts the conversation.",
     AT(conversation)},
    {.name = "metadata",
     .type = SH_FIELD_JSON,
     .kinds = SH_KIND_OBJECT,
     .meaning = "Notes of the client; returned in the response.",
     AT(metadata)},
    {.name = "background",
     .type = SH_FIELD_BOOL,
     .fallback = "false",
     .meaning = "Not supported, refused: an answer is computed while its client waits.",
     AT(background)},
    {.name = "truncation",
     .type = SH_FIELD_STRING,
     .max = 16,
     .choices = "auto|disabled",
     .meaning = "With `auto`, the oldest items are left out of a conversation that is too long for "
                "the context; by default it is an error.",
     AT(truncation)},
    {.name = "prompt", .type = SH_FIELD_REFUSED, .meaning = "Prompts that OpenAI stores."},
    {.name = "max_tool_calls",
     .type = SH_FIELD_IGNORED,
     .meaning = "A limit on calls of hosted tools, of which there are none."},
    {.name = "user", .type = SH_FIELD_IGNORED, .meaning = "An identifier of the end user."},
    {.name = "safety_identifier",
     .type = SH_FIELD_IGNORED,
     .meaning = "An identifier of the end user."},
    {.name = "prompt_cache_key", .type = SH_FIELD_IGNORED, .meaning = "Caching needs no key."},
    {.name = "prompt_cache_retention",
     .type = SH_FIELD_IGNORED,
     .meaning = "Prefixes stay cached until space is needed."},
    {.name = "service_tier", .type = SH_FIELD_IGNORED, .meaning = "There is one tier."},
};

const sh_field_table sh_responses_fields = {rows, SH_COUNT_OF(rows), NULL};
