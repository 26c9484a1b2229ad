/* The fields of Anthropic's requests. The order of the rows is the order in the OpenAPI document;
 * `meaning` is the text there. Fields without a row, such as those of betas, are named in the
 * header X-Shoal-Ignored-Fields of the answer. */
#include "api/anthropic_fields.h"

#include "api/anthropic.h"
#include "api/field_rows.h"

#include <stddef.h>

#define AT(field) .offset = offsetof(anthropic_fields, field)
SH_STARTS_WITH_SPEC(anthropic_fields);

static const char messages_schema[] =
    "{\"type\":\"array\",\"minItems\":1,\"items\":{\"type\":\"object\",\"required\":[\"role\","
    "\"content\"],\"properties\":{\"role\":{\"type\":\"string\",\"enum\":[\"user\",\"assistant\","
    "\"system\"]},\"content\":{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"array\",\"items\":{"
    "\"type\":\"object\",\"required\":[\"type\"],\"properties\":{\"type\":{\"type\":\"string\","
    "\"enum\":[\"text\",\"tool_use\",\"tool_result\",\"thinking\",\"redacted_thinking\"]},"
    "\"text\":{\"type\":\"string\"},\"thinking\":{\"type\":\"string\"},\"signature\":{\"type\":"
    "\"string\"},\"id\":{\"type\":\"string\"},\"name\":{\"type\":\"string\"},\"input\":{\"type\":"
    "\"object\"},\"tool_use_id\":{\"type\":\"string\"},\"content\":{},\"is_error\":{\"type\":"
    "\"boolean\"}}}}]}}}}";

static const char tools_schema[] =
    "{\"type\":\"array\",\"items\":{\"type\":\"object\",\"required\":[\"name\",\"input_schema\"],"
    "\"properties\":{\"type\":{\"const\":\"custom\"},\"name\":{\"type\":\"string\"},"
    "\"description\":{\"type\":\"string\"},\"input_schema\":{\"type\":\"object\"},\"strict\":{"
    "\"type\":\"boolean\"}}}}";

static const char format_schema[] =
    "{\"type\":\"object\",\"required\":[\"type\",\"schema\"],\"properties\":{\"type\":{\"const\":"
    "\"json_schema\"},\"schema\":{\"type\":\"object\"}}}";

static const sh_field tool_choice_rows[] = {
    {.name = "type",
     .type = SH_FIELD_STRING,
     .required = true,
     .max = 16,
     .choices = "auto|any|tool|none",
     .meaning = "`auto`; `any` call; the `tool` with that name; `none`.",
     AT(tool_choice)},
    {.name = "name",
     .type = SH_FIELD_STRING,
     .max = 128,
     .meaning = "With `tool`: its name.",
     AT(tool_name)},
    {.name = "disable_parallel_tool_use",
     .type = SH_FIELD_BOOL,
     .fallback = "false",
     .meaning = "End the answer after its first call.",
     AT(one_call)},
};
static const sh_field_table tool_choice_fields = {tool_choice_rows, SH_COUNT_OF(tool_choice_rows),
                                                  NULL};

static const sh_field thinking_rows[] = {
    {.name = "type",
     .type = SH_FIELD_STRING,
     .required = true,
     .max = 16,
     .choices = "enabled|disabled|adaptive",
     .meaning = "Whether to reason, if the model's template can turn that on and off.",
     AT(thinking)},
    {.name = "budget_tokens",
     .type = SH_FIELD_INT,
     .min = 1,
     .max = SH_MAX_OF(SH_BOUNDS_MAX_TOKENS),
     .meaning = "Tokens of reasoning, after which the answer begins; below max_tokens.",
     AT(thinking_budget)},
    {.name = "display",
     .type = SH_FIELD_IGNORED,
     .meaning = "Reasoning is always part of the answer."},
};
static const sh_field_table thinking_fields = {thinking_rows, SH_COUNT_OF(thinking_rows), NULL};

static const sh_field output_rows[] = {
    {.name = "format",
     .type = SH_FIELD_JSON,
     .kinds = SH_KIND_OBJECT,
     .schema = format_schema,
     .meaning = "A JSON Schema that the answer must satisfy.",
     AT(output_config_format)},
    {.name = "effort",
     .type = SH_FIELD_STRING,
     .max = 64,
     .meaning = "A variable of some templates: how long to reason.",
     AT(effort)},
};
static const sh_field_table output_fields = {output_rows, SH_COUNT_OF(output_rows), NULL};

/* What decides the prompt: all of it counts for count_tokens. */
static const sh_field prompt_rows[] = {
    {.name = "model",
     .type = SH_FIELD_STRING,
     .max = 512,
     .meaning = "Name of the served model, or `default`. May be left out.",
     AT(spec.model)},
    {.name = "messages",
     .type = SH_FIELD_JSON,
     .required = true,
     .kinds = SH_KIND_ARRAY,
     .schema = messages_schema,
     .meaning =
         "The conversation so far. Images, documents and blocks of Anthropic's own tools are "
         "refused.",
     AT(messages)},
    {.name = "system",
     .type = SH_FIELD_JSON,
     .kinds = SH_KIND_STRING | SH_KIND_ARRAY,
     .schema = "{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"array\",\"items\":{\"type\":"
               "\"object\"}}]}",
     .meaning = "The system prompt: a text, or text blocks.",
     AT(system)},
    {.name = "tools",
     .type = SH_FIELD_JSON,
     .kinds = SH_KIND_ARRAY,
     .schema = tools_schema,
     .meaning = "Tools that the model may use. Anthropic's own tools are refused by name.",
     AT(tools)},
    {.name = "tool_choice",
     .type = SH_FIELD_OBJECT,
     .inner = &tool_choice_fields,
     .meaning = "Which tool to use."},
    {.name = "thinking",
     .type = SH_FIELD_OBJECT,
     .inner = &thinking_fields,
     .meaning = "Reasoning before the answer. Default: the model's own."},
    {.name = "output_config",
     .type = SH_FIELD_OBJECT,
     .inner = &output_fields,
     .meaning = "The form of the answer."},
    {.name = "output_format",
     .type = SH_FIELD_JSON,
     .kinds = SH_KIND_OBJECT,
     .schema = format_schema,
     .meaning = "The older place of output_config.format.",
     AT(output_format)},
    {.name = "cache_control",
     .type = SH_FIELD_IGNORED,
     .meaning = "Prefixes are always cached. Also accepted in blocks and tools."},
    {.name = "mcp_servers",
     .type = SH_FIELD_REFUSED,
     .neutral = "[]",
     .meaning = "Tools on other servers."},
    {.name = "container", .type = SH_FIELD_REFUSED, .meaning = "Anthropic's code execution."},
};
static const sh_field_table prompt_fields = {prompt_rows, SH_COUNT_OF(prompt_rows), NULL};

static const sh_field messages_rows[] = {
    {.name = "max_tokens",
     .type = SH_FIELD_INT,
     .required = true,
     SH_WITHIN(SH_BOUNDS_MAX_TOKENS),
     .meaning = "Longest answer in tokens; what the context leaves is the maximum.",
     AT(spec.max_tokens)},
    {.name = "stop_sequences",
     .type = SH_FIELD_JSON,
     .kinds = SH_KIND_ARRAY,
     .schema = "{\"type\":\"array\",\"items\":{\"type\":\"string\"}}",
     .meaning = "Strings that end the answer; they are not part of it.",
     AT(stop_sequences)},
    SH_ROW_STREAM,
    SH_ROW_TEMPERATURE,
    SH_ROW_TOP_P,
    SH_ROW_TOP_K,
    SH_ROW_SEED,
    {.name = "ignore_eos",
     .type = SH_FIELD_BOOL,
     .fallback = "false",
     .meaning = "This server's own: continue past the model's end of text, up to max_tokens.",
     AT(spec.ignore_eos)},
    {.name = "metadata", .type = SH_FIELD_IGNORED, .meaning = "Notes of the client."},
    {.name = "service_tier", .type = SH_FIELD_IGNORED, .meaning = "There is one tier."},
};
const sh_field_table sh_anthropic_messages_fields = {messages_rows, SH_COUNT_OF(messages_rows),
                                                     &prompt_fields};
const sh_field_table sh_anthropic_count_fields = {prompt_rows, SH_COUNT_OF(prompt_rows), NULL};
