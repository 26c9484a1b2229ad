/* The fields of OpenAI's requests: those of OpenAI, those that other servers added and clients use,
 * and those that this server must refuse because ignoring them would change the answer. The order
 * of the rows is the order in the OpenAPI document; `meaning` is the text there. */
#include "api/openai_fields.h"

#include "api/field_rows.h"
#include "api/openai.h"
#include "base/status.h"

#include <stddef.h>

#define AT(field) .offset = offsetof(openai_fields, field)
SH_STARTS_WITH_SPEC(openai_fields);

#define MAX_TOKENS_MEANING                                                                         \
    "Longest answer in tokens. Default and maximum are what the context holds after the prompt, "  \
    "unless the server is configured otherwise."

static const sh_field stream_rows[] = {
    {.name = "include_usage",
     .type = SH_FIELD_BOOL,
     .fallback = "false",
     .meaning = "Send one more chunk with the usage before the end of the stream.",
     AT(spec.include_usage)},
    {.name = "include_obfuscation",
     .type = SH_FIELD_IGNORED,
     .meaning = "Padding that OpenAI adds to chunks."},
};

static const sh_field_table stream_fields = {stream_rows, SH_COUNT_OF(stream_rows), NULL};

static const char response_schema[] =
    "{\"type\":\"object\",\"required\":[\"type\"],\"properties\":{\"type\":{\"enum\":["
    "\"text\",\"json_object\",\"json_schema\"]}},\"allOf\":[{\"if\":{\"properties\":{\"type\":{"
    "\"const\":\"json_schema\"}}},\"then\":{\"required\":[\"json_schema\"],\"properties\":{"
    "\"json_schema\":{\"type\":\"object\",\"required\":[\"schema\"],\"properties\":{"
    "\"schema\":{\"type\":\"object\"}}}}}},{\"if\":{\"properties\":{\"type\":{\"const\":"
    "\"json_object\"}}},\"then\":{\"properties\":{\"schema\":{\"type\":\"object\"}}}}]}";

static const char choice_schema[] = "{\"type\":\"array\",\"minItems\":1,\"items\":{\"type\":"
                                    "\"string\"}}";

/* vLLM's newer name for guided_json and so on. */
static const sh_field structured_rows[] = {
    {.name = "json",
     .type = SH_FIELD_JSON,
     .kinds = SH_KIND_OBJECT | SH_KIND_STRING,
     .meaning = "A JSON Schema that the answer must satisfy.",
     AT(form_json)},
    {.name = "regex",
     .type = SH_FIELD_JSON,
     .kinds = SH_KIND_STRING,
     .meaning = "A regular expression that the whole answer must match.",
     AT(form_regex)},
    {.name = "choice",
     .type = SH_FIELD_JSON,
     .kinds = SH_KIND_ARRAY,
     .schema = choice_schema,
     .meaning = "The answer is one of these strings.",
     AT(form_choice)},
    {.name = "grammar",
     .type = SH_FIELD_JSON,
     .kinds = SH_KIND_STRING,
     .meaning = "A grammar in GBNF or EBNF that the answer must match.",
     AT(form_grammar)},
    {.name = "json_object",
     .type = SH_FIELD_JSON,
     .kinds = SH_KIND_BOOL,
     .meaning = "The answer is a JSON object.",
     AT(form_json_object)},
    {.name = "structural_tag",
     .type = SH_FIELD_REFUSED,
     .meaning = "Forms for parts of the answer."},
    {.name = "whitespace_pattern",
     .type = SH_FIELD_REFUSED,
     .meaning = "Other white space in JSON."},
    {.name = "disable_any_whitespace",
     .type = SH_FIELD_REFUSED,
     .neutral = "false",
     .meaning = "JSON without white space."},
};

static const sh_field_table structured_fields = {structured_rows, SH_COUNT_OF(structured_rows),
                                                 NULL};

/* Fields that both endpoints share. */
static const sh_field shared_rows[] = {
    {.name = "model",
     .type = SH_FIELD_STRING,
     .max = 512,
     .meaning = "Name of the served model, or `default`. May be left out.",
     AT(spec.model)},
    SH_ROW_TEMPERATURE,
    SH_ROW_TOP_P,
    {.name = "top_k",
     .type = SH_FIELD_INT,
     .min = -1,
     .max = SH_MAX_OF(SH_BOUNDS_TOP_K),
     .meaning = "Choose among this many of the likeliest tokens; 0 or -1: all. Default: the "
                "server's setting, else the model's own, else all.",
     AT(spec.top_k)},
    SH_ROW_MIN_P,
    {.name = "repetition_penalty",
     .type = SH_FIELD_NUMBER,
     .min = 0,
     .max = SH_MAX_OF(SH_BOUNDS_REPETITION_PENALTY),
     .meaning = "A value above 1 makes tokens among the last repetition_context_size less likely; "
                "0 or 1: off; otherwise at least 0.01. "
                "Default: the server's setting, else the model's own, else off.",
     AT(spec.repetition_penalty)},
    {.name = "repetition_context_size",
     .type = SH_FIELD_INT,
     SH_WITHIN(SH_BOUNDS_REPETITION_WINDOW),
     .fallback = "20",
     .meaning = "How many of the last tokens the repetition penalty covers.",
     AT(spec.repetition_window)},
    SH_ROW_PRESENCE_PENALTY,
    SH_ROW_FREQUENCY_PENALTY,
    {.name = "logit_bias",
     .type = SH_FIELD_JSON,
     .kinds = SH_KIND_OBJECT,
     .schema = "{\"type\":\"object\",\"maxProperties\":1024,\"propertyNames\":{\"pattern\":"
               "\"^[0-9]+$\"},\"additionalProperties\":{\"type\":\"number\",\"minimum\":-100,"
               "\"maximum\":100}}",
     .meaning = "Added to the logits of tokens, by token id.",
     AT(logit_bias)},
    SH_ROW_SEED,
    {.name = "n",
     .type = SH_FIELD_INT,
     .min = 1,
     .max = SH_CHOICES_MAX,
     .fallback = "1",
     .meaning = "Number of answers.",
     AT(spec.n)},
    {.name = "stop",
     .type = SH_FIELD_JSON,
     .kinds = SH_KIND_STRING | SH_KIND_ARRAY,
     .schema = "{\"anyOf\":[{\"type\":\"string\",\"minLength\":1,\"maxLength\":512},{\"type\":"
               "\"array\",\"maxItems\":32,\"items\":{\"type\":\"string\",\"minLength\":1,"
               "\"maxLength\":512}}]}",
     .meaning = "Strings that end the answer; they are not part of it.",
     AT(stop)},
    {.name = "stop_token_ids",
     .type = SH_FIELD_JSON,
     .kinds = SH_KIND_ARRAY,
     .schema = "{\"type\":\"array\",\"maxItems\":32,\"items\":{\"type\":\"integer\","
               "\"minimum\":0,\"maximum\":2147483647}}",
     .meaning = "Tokens that end the answer; they are not part of it.",
     AT(stop_token_ids)},
    {.name = "min_tokens",
     .type = SH_FIELD_INT,
     SH_WITHIN(SH_BOUNDS_MIN_TOKENS),
     .fallback = "0",
     .meaning = "The model cannot end the answer before this many tokens.",
     AT(spec.min_tokens)},
    {.name = "ignore_eos",
     .type = SH_FIELD_BOOL,
     .fallback = "false",
     .meaning = "Continue past the model's end of text, up to max_tokens.",
     AT(spec.ignore_eos)},
    SH_ROW_STREAM,
    {.name = "stream_options",
     .type = SH_FIELD_OBJECT,
     .inner = &stream_fields,
     .meaning = "Options of the stream."},
    {.name = "prompt_logprobs",
     .type = SH_FIELD_INT,
     SH_WITHIN(SH_BOUNDS_LOGPROBS),
     .meaning = "Report the log-probability of each token of the prompt but the first, and of this "
                "many of the likeliest.",
     AT(prompt_logprobs)},
    {.name = "return_token_ids",
     .type = SH_FIELD_BOOL,
     .fallback = "false",
     .meaning = "Report the token ids of the prompt and of the answer.",
     AT(spec.token_ids)},
    {.name = "timeout",
     .type = SH_FIELD_NUMBER,
     .min = 0,
     .max = 86400,
     .fallback = "0",
     .meaning = "Seconds after which the request fails with status 504; 0: the server's setting.",
     AT(spec.timeout_s)},
    {.name = "conversation_id",
     .type = SH_FIELD_STRING,
     .max = 256,
     .meaning = "Returned in the answer. A chat continues the conversation of this id: kept "
                "messages are put before its own, unless these contain one of the assistant.",
     AT(spec.conversation_id)},
    {.name = "store",
     .type = SH_FIELD_BOOL,
     .fallback = "true",
     .meaning = "Keep the conversation in memory, for `conversation_id`.",
     AT(spec.keeps)},

    {.name = "user", .type = SH_FIELD_IGNORED, .meaning = "An identifier of the end user."},
    {.name = "metadata", .type = SH_FIELD_IGNORED, .meaning = "Notes of the client."},
    {.name = "service_tier", .type = SH_FIELD_IGNORED, .meaning = "There is one tier."},
    {.name = "prediction", .type = SH_FIELD_IGNORED, .meaning = "Only for speed."},
    {.name = "draft_model", .type = SH_FIELD_IGNORED, .meaning = "Only for speed."},
    {.name = "num_draft_tokens", .type = SH_FIELD_IGNORED, .meaning = "Only for speed."},
    {.name = "prompt_cache_key", .type = SH_FIELD_IGNORED, .meaning = "Caching needs no key."},
    {.name = "safety_identifier",
     .type = SH_FIELD_IGNORED,
     .meaning = "An identifier of the end user."},

    {.name = "response_format",
     .type = SH_FIELD_JSON,
     .kinds = SH_KIND_OBJECT,
     .schema = response_schema,
     .meaning = "The form of the answer. A schema is enforced whether or not it is `strict`; what "
                "cannot be enforced is an error.",
     AT(response_format)},
    {.name = "guided_json",
     .type = SH_FIELD_JSON,
     .kinds = SH_KIND_OBJECT | SH_KIND_STRING,
     .meaning = "A JSON Schema that the answer must satisfy.",
     AT(guided_json)},
    {.name = "guided_regex",
     .type = SH_FIELD_JSON,
     .kinds = SH_KIND_STRING,
     .meaning = "A regular expression that the whole answer must match.",
     AT(guided_regex)},
    {.name = "guided_choice",
     .type = SH_FIELD_JSON,
     .kinds = SH_KIND_ARRAY,
     .schema = choice_schema,
     .meaning = "The answer is one of these strings.",
     AT(guided_choice)},
    {.name = "guided_grammar",
     .type = SH_FIELD_JSON,
     .kinds = SH_KIND_STRING,
     .meaning = "A grammar in GBNF or EBNF that the answer must match.",
     AT(guided_grammar)},
    {.name = "guided_json_object",
     .type = SH_FIELD_JSON,
     .kinds = SH_KIND_BOOL,
     .meaning = "The answer is a JSON object.",
     AT(guided_json_object)},
    {.name = "structured_outputs",
     .type = SH_FIELD_OBJECT,
     .inner = &structured_fields,
     .meaning = "The form of the answer; one of its fields may be given."},
    {.name = "grammar",
     .type = SH_FIELD_JSON,
     .kinds = SH_KIND_STRING,
     .meaning = "A grammar in GBNF that the answer must match.",
     AT(grammar)},
    {.name = "json_schema",
     .type = SH_FIELD_JSON,
     .kinds = SH_KIND_OBJECT,
     .meaning = "A JSON Schema that the answer must satisfy.",
     AT(json_schema)},
    {.name = "guided_decoding_backend", .type = SH_FIELD_IGNORED, .meaning = "There is one."},
    {.name = "guided_whitespace_pattern",
     .type = SH_FIELD_REFUSED,
     .meaning = "Other white space in JSON."},
    {.name = "best_of",
     .type = SH_FIELD_REFUSED,
     .neutral = "1",
     .meaning = "Return the best of several answers."},
    {.name = "use_beam_search",
     .type = SH_FIELD_REFUSED,
     .neutral = "false",
     .meaning = "Beam search."},
    {.name = "length_penalty",
     .type = SH_FIELD_REFUSED,
     .neutral = "1",
     .meaning = "A setting of beam search."},
    {.name = "typical_p",
     .type = SH_FIELD_REFUSED,
     .neutral = "1",
     .meaning = "Another sampling filter."},
    {.name = "tfs_z",
     .type = SH_FIELD_REFUSED,
     .neutral = "1",
     .meaning = "Another sampling filter."},
    {.name = "top_a",
     .type = SH_FIELD_REFUSED,
     .neutral = "0",
     .meaning = "Another sampling filter."},
    {.name = "xtc_probability",
     .type = SH_FIELD_REFUSED,
     .neutral = "0",
     .meaning = "Another sampling filter."},
    {.name = "dry_multiplier",
     .type = SH_FIELD_REFUSED,
     .neutral = "0",
     .meaning = "Another repetition penalty."},
    {.name = "mirostat", .type = SH_FIELD_REFUSED, .neutral = "0", .meaning = "Another sampler."},
    {.name = "bad_words", .type = SH_FIELD_REFUSED, .neutral = "[]", .meaning = "Words to avoid."},
    {.name = "allowed_token_ids", .type = SH_FIELD_REFUSED, .meaning = "The only tokens to use."},
    {.name = "repeat_penalty",
     .type = SH_FIELD_REFUSED,
     .neutral = "1",
     .meaning = "Use `repetition_penalty`."},
    {.name = "presence_context_size",
     .type = SH_FIELD_REFUSED,
     .meaning = "The presence penalty covers the whole answer."},
    {.name = "frequency_context_size",
     .type = SH_FIELD_REFUSED,
     .meaning = "The frequency penalty covers the whole answer."},
    {.name = "n_predict",
     .type = SH_FIELD_REFUSED,
     .neutral = "-1",
     .meaning = "Use `max_tokens`."},
    {.name = "include_stop_str_in_output",
     .type = SH_FIELD_REFUSED,
     .neutral = "false",
     .meaning = "Stop strings in the answer."},
    {.name = "skip_special_tokens",
     .type = SH_FIELD_REFUSED,
     .neutral = "true",
     .meaning = "Special tokens in the answer."},
    {.name = "truncate_prompt_tokens", .type = SH_FIELD_REFUSED, .meaning = "Truncated prompts."},
    {.name = "logits_processors", .type = SH_FIELD_REFUSED, .meaning = "Code in the sampler."},
    {.name = "adapters", .type = SH_FIELD_REFUSED, .meaning = "Adapters such as LoRA."},
};

static const sh_field_table shared_fields = {shared_rows, SH_COUNT_OF(shared_rows), NULL};

static const char message_schema[] =
    "{\"type\":\"array\",\"minItems\":1,\"maxItems\":10000,\"items\":{\"$ref\":"
    "\"#/components/schemas/Message\"}}";

static const char tools_schema[] = "{\"type\":\"array\",\"maxItems\":1024,\"items\":{\"$ref\":"
                                   "\"#/components/schemas/Tool\"}}";

static const sh_field chat_rows[] = {
    {.name = "messages",
     .type = SH_FIELD_JSON,
     .required = true,
     .kinds = SH_KIND_ARRAY,
     .schema = message_schema,
     .meaning = "The conversation so far. Text parts are joined; other parts are refused.",
     AT(messages)},
    {.name = "tools",
     .type = SH_FIELD_JSON,
     .kinds = SH_KIND_ARRAY,
     .schema = tools_schema,
     .meaning = "Functions that the model may call.",
     AT(tools)},
    {.name = "tool_choice",
     .type = SH_FIELD_JSON,
     .kinds = SH_KIND_STRING | SH_KIND_OBJECT,
     .schema = "{\"$ref\":\"#/components/schemas/ToolChoice\"}",
     .meaning = "`auto`, `none`, `required` or one function. With the last two the answer is a "
                "call with arguments that are valid under the function's `parameters`.",
     AT(tool_choice)},
    {.name = "parallel_tool_calls",
     .type = SH_FIELD_BOOL,
     .fallback = "true",
     .meaning = "False ends the answer after its first call.",
     AT(spec.parallel_calls)},
    {.name = "max_tokens",
     .type = SH_FIELD_INT,
     SH_WITHIN(SH_BOUNDS_MAX_TOKENS),
     .meaning = MAX_TOKENS_MEANING,
     AT(spec.max_tokens)},
    {.name = "max_completion_tokens",
     .type = SH_FIELD_INT,
     SH_WITHIN(SH_BOUNDS_MAX_TOKENS),
     .meaning = "The same as max_tokens, and overrides it.",
     AT(max_completion_tokens)},
    {.name = "logprobs",
     .type = SH_FIELD_BOOL,
     .fallback = "false",
     .meaning = "Report the log-probability of each token.",
     AT(spec.logprobs)},
    {.name = "top_logprobs",
     .type = SH_FIELD_INT,
     SH_WITHIN(SH_BOUNDS_LOGPROBS),
     .fallback = "0",
     .meaning = "With logprobs: also report this many of the likeliest tokens at each position.",
     AT(spec.top_logprobs)},
    {.name = "chat_template_kwargs",
     .type = SH_FIELD_JSON,
     .kinds = SH_KIND_OBJECT,
     .meaning = "Variables for the model's chat template.",
     AT(template_kwargs)},
    {.name = "enable_thinking",
     .type = SH_FIELD_JSON,
     .kinds = SH_KIND_BOOL,
     .meaning = "A variable of many templates: whether to reason before the answer.",
     AT(enable_thinking)},
    {.name = "reasoning_effort",
     .type = SH_FIELD_STRING,
     .max = 64,
     .meaning = "A variable of some templates: how long to reason.",
     AT(reasoning_effort)},
    {.name = "add_generation_prompt",
     .type = SH_FIELD_JSON,
     .kinds = SH_KIND_BOOL,
     .meaning = "Whether the prompt ends with the start of a new message. Default: true unless the "
                "last message is continued.",
     AT(generation_prompt)},
    {.name = "continue_final_message",
     .type = SH_FIELD_JSON,
     .kinds = SH_KIND_BOOL,
     .meaning = "Whether the answer goes on where the last message ends. Default: true if that is "
                "the assistant's and has text.",
     AT(continue_final)},
    {.name = "chat_template",
     .type = SH_FIELD_REFUSED,
     .meaning = "The model's own template is used."},
    {.name = "documents", .type = SH_FIELD_REFUSED, .meaning = "Texts besides the messages."},
    {.name = "role_mapping", .type = SH_FIELD_REFUSED, .meaning = "Other names for roles."},
    {.name = "functions", .type = SH_FIELD_REFUSED, .neutral = "[]", .meaning = "Use `tools`."},
    {.name = "function_call",
     .type = SH_FIELD_REFUSED,
     .neutral = "\"none\"",
     .meaning = "Use `tool_choice`."},
    {.name = "modalities",
     .type = SH_FIELD_REFUSED,
     .neutral = "[\"text\"]",
     .meaning = "Answers in another form than text."},
    {.name = "audio", .type = SH_FIELD_REFUSED, .meaning = "Spoken answers."},
    {.name = "web_search_options", .type = SH_FIELD_REFUSED, .meaning = "Web search."},
    {.name = "verbosity", .type = SH_FIELD_IGNORED, .meaning = "A setting of OpenAI's own models."},
    {.name = "thinking_token_budget",
     .type = SH_FIELD_INT,
     SH_WITHIN(SH_BOUNDS_MAX_TOKENS),
     .meaning = "Tokens of reasoning, after which the answer begins.",
     AT(spec.reasoning_max)},
};

/* Rules over several fields, for the document; openai_read.c enforces them. */
#define REPETITION_RULE                                                                            \
    "{\"not\":{\"required\":[\"repetition_penalty\"],\"properties\":{\"repetition_penalty\":{"     \
    "\"type\":\"number\",\"exclusiveMinimum\":0,\"exclusiveMaximum\":0.01}}}}"

const char sh_openai_chat_rules[] =
    "[" REPETITION_RULE ",{\"if\":{\"required\":[\"top_logprobs\"],\"properties\":{"
    "\"top_logprobs\":{\"type\":\"integer\",\"minimum\":1}}},\"then\":{\"required\":["
    "\"logprobs\"],\"properties\":{\"logprobs\":{\"const\":true}}}},{\"not\":{\"required\":["
    "\"continue_final_message\",\"add_generation_prompt\"],\"properties\":{"
    "\"continue_final_message\":{\"const\":true},\"add_generation_prompt\":{\"const\":true}}}},{"
    "\"if\":{\"required\":[\"tool_choice\"],\"properties\":{\"tool_choice\":{\"anyOf\":[{"
    "\"const\":\"required\"},{\"type\":\"object\"}]}}},\"then\":{\"required\":[\"tools\"],"
    "\"properties\":{\"tools\":{\"type\":\"array\",\"minItems\":1}}}}]";

const char sh_openai_completion_rules[] = "[" REPETITION_RULE "]";

const sh_field_table sh_openai_chat_fields = {chat_rows, SH_COUNT_OF(chat_rows), &shared_fields};

static const sh_field completion_rows[] = {
    {.name = "prompt",
     .type = SH_FIELD_JSON,
     .required = true,
     .kinds = SH_KIND_STRING | SH_KIND_ARRAY,
     .schema = "{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"array\",\"minItems\":1,\"items\":"
               "{\"type\":\"integer\",\"minimum\":0,\"maximum\":2147483647}},{\"type\":"
               "\"array\",\"minItems\":1,\"maxItems\":128,\"items\":{\"anyOf\":[{\"type\":"
               "\"string\"},{\"type\":\"array\",\"minItems\":1,\"items\":{\"type\":"
               "\"integer\",\"minimum\":0,\"maximum\":2147483647}}]}}]}",
     .meaning = "Text to continue, a list of texts, token ids, or a list of lists of token ids.",
     AT(prompt)},
    {.name = "max_tokens",
     .type = SH_FIELD_INT,
     .min = 0,
     .max = SH_MAX_OF(SH_BOUNDS_MAX_TOKENS),
     .meaning = MAX_TOKENS_MEANING " 0: no answer, for the log-probabilities of the prompt.",
     AT(answer_max)},
    {.name = "echo",
     .type = SH_FIELD_BOOL,
     .fallback = "false",
     .meaning = "Return the prompt before the answer; with `logprobs` those of its tokens, too.",
     AT(spec.echo)},
    {.name = "logprobs",
     .type = SH_FIELD_INT,
     SH_WITHIN(SH_BOUNDS_LOGPROBS),
     .meaning = "Report the log-probability of each token, and of this many of the likeliest.",
     AT(logprobs_count)},
    {.name = "suffix",
     .type = SH_FIELD_JSON,
     .kinds = SH_KIND_STRING,
     .meaning = "Text that follows the answer, for models that can fill in the middle of a text.",
     AT(suffix)},
};

const sh_field_table sh_openai_completion_fields = {completion_rows, SH_COUNT_OF(completion_rows),
                                                    &shared_fields};
