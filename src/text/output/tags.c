/* Calls whose arguments are written between tags, such as
 *   <function=get_weather><parameter=city>Paris</parameter></function>
 * They are converted to one JSON object while they stream.
 *
 * A value between tags has no type: 5 may be a number or a string. The type comes from the tool's
 * schema in the request. A parameter that can only be a string is escaped and streamed as it
 * arrives; for any other the value is collected to its end, because only then can we tell whether
 * it is valid JSON of an allowed type or must be sent as a string. */
#include "text/output/output_internal.h"

#include <stdlib.h>
#include <string.h>

enum { SCHEMA_DEPTH_MAX = 8 }; /* the schema comes from the client: bound the recursion */

/* OpenAI nests the definition in "function"; a bare definition is accepted as well. */
const cJSON *output_tool_find(const sh_output *o, sh_str name)
{
    const cJSON *tool;
    cJSON_ArrayForEach(tool, o->opts.tools)
    {
        const cJSON *function = cJSON_GetObjectItemCaseSensitive(tool, "function");
        if (function == NULL) function = tool;
        const cJSON *item = cJSON_GetObjectItemCaseSensitive(function, "name");
        if (cJSON_IsString(item) && sh_str_is(name, item->valuestring)) return function;
    }
    return NULL;
}

static unsigned schema_types(const cJSON *schema, int depth);

static unsigned type_of_name(const cJSON *item, int depth)
{
    static const struct {
        const char *name;
        unsigned type;
    } types[] = {{"string", OUTPUT_TYPE_STRING},  {"number", OUTPUT_TYPE_NUMBER},
                 {"integer", OUTPUT_TYPE_NUMBER}, {"boolean", OUTPUT_TYPE_BOOLEAN},
                 {"null", OUTPUT_TYPE_NULL},      {"object", OUTPUT_TYPE_OBJECT},
                 {"array", OUTPUT_TYPE_ARRAY}};

    (void)depth;
    for (size_t i = 0; cJSON_IsString(item) && i < SH_COUNT_OF(types); i++)
        if (strcmp(item->valuestring, types[i].name) == 0) return types[i].type;
    return OUTPUT_TYPE_ANY;
}

static unsigned type_of_value(const cJSON *item, int depth)
{
    (void)depth;
    switch (item->type & 0xff) {
    case cJSON_String: return OUTPUT_TYPE_STRING;
    case cJSON_Number: return OUTPUT_TYPE_NUMBER;
    case cJSON_NULL: return OUTPUT_TYPE_NULL;
    case cJSON_Object: return OUTPUT_TYPE_OBJECT;
    case cJSON_Array: return OUTPUT_TYPE_ARRAY;
    default: return OUTPUT_TYPE_BOOLEAN;
    }
}

/* The keywords of a schema that determine types, and how to get the types of one of their items. */
static const struct {
    const char *key;
    unsigned (*types)(const cJSON *item, int depth);
} schema_words[] = {{"type", type_of_name},
                    {"enum", type_of_value},
                    {"anyOf", schema_types},
                    {"oneOf", schema_types}};

/* The OUTPUT_TYPE_* that a schema allows; the first keyword found decides. ANY if it says nothing
 * or nests too deep, which is safe: the value itself then decides. */
static unsigned schema_types(const cJSON *schema, int depth)
{
    bool nullable = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(schema, "nullable"));
    unsigned types = 0;

    if (depth > SCHEMA_DEPTH_MAX) return OUTPUT_TYPE_ANY;
    for (size_t i = 0; i < SH_COUNT_OF(schema_words) && types == 0; i++) {
        const cJSON *word = cJSON_GetObjectItemCaseSensitive(schema, schema_words[i].key), *item;
        if (cJSON_IsString(word))
            types = type_of_name(word, depth);
        else
            cJSON_ArrayForEach(item, word) types |= schema_words[i].types(item, depth + 1);
    }
    if (types == 0) return OUTPUT_TYPE_ANY;
    return types | (nullable ? OUTPUT_TYPE_NULL : 0);
}

unsigned output_parameter_types(const cJSON *function, const char *name)
{
    const cJSON *schema = cJSON_GetObjectItemCaseSensitive(function, "parameters");
    const cJSON *properties = cJSON_GetObjectItemCaseSensitive(schema, "properties");
    return schema_types(cJSON_GetObjectItemCaseSensitive(properties, name), 0);
}

/* Appends the text as the inside of a JSON string. */
static void add_escaped(sh_buf *out, sh_str text)
{
    static const char plain[] = "\"\\\n\t\r\b\f", letter[] = "\"\\ntrbf";
    size_t done = 0;

    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.ptr[i];
        if (c >= 0x20 && c != '"' && c != '\\') continue;
        sh_buf_add(out, text.ptr + done, i - done);
        done = i + 1;
        const char *known = c == '\0' ? NULL : strchr(plain, c);
        if (known != NULL)
            sh_buf_addf(out, "\\%c", letter[known - plain]);
        else
            sh_buf_addf(out, "\\u%04x", c);
    }
    sh_buf_add(out, text.ptr + done, text.len - done);
}

/* Reports front, the escaped text and back as one delta. */
static void send_escaped(sh_output *o, const char *front, sh_str text, const char *back)
{
    sh_buf_clear(&o->scratch);
    sh_buf_add_text(&o->scratch, front);
    add_escaped(&o->scratch, text);
    sh_buf_add_text(&o->scratch, back);
    output_call_args(o, sh_buf_str(&o->scratch));
}

unsigned output_json_type(sh_str text)
{
    sh_json_scan scan;
    sh_json_scan_result result = SH_JSON_SCAN_MORE;
    size_t i = 0;

    if (text.len == 0) return 0;
    sh_json_scan_init(&scan);
    for (; i < text.len && result == SH_JSON_SCAN_MORE; i++)
        result = sh_json_scan_feed(&scan, text.ptr[i]);
    /* A number ends only with the byte after it, so feed one. */
    if (result == SH_JSON_SCAN_MORE && sh_json_scan_feed(&scan, ' ') == SH_JSON_SCAN_OVER)
        return OUTPUT_TYPE_NUMBER;
    if (result != SH_JSON_SCAN_DONE || i != text.len) return 0;
    switch (text.ptr[0]) {
    case '{': return OUTPUT_TYPE_OBJECT;
    case '[': return OUTPUT_TYPE_ARRAY;
    case '"': return OUTPUT_TYPE_STRING;
    case 'n': return OUTPUT_TYPE_NULL;
    default: return OUTPUT_TYPE_BOOLEAN;
    }
}

/* Models trained on Python write its constants instead of JSON's. */
static sh_str python_constant(sh_str text)
{
    if (sh_str_is(text, "True")) return SH_STR("true");
    if (sh_str_is(text, "False")) return SH_STR("false");
    if (sh_str_is(text, "None")) return SH_STR("null");
    return text;
}

static void send_value(sh_output *o)
{
    sh_str text = sh_buf_str(&o->token), value = sh_str_trim(text);
    unsigned types = o->types;

    if ((types & OUTPUT_TYPE_STRING) == 0) value = python_constant(value);
    /* Quoted text where the schema allows a string is that string, including the quotes. */
    if (types != OUTPUT_TYPE_ANY) types &= ~(unsigned)OUTPUT_TYPE_STRING;
    if ((output_json_type(value) & types) != 0)
        output_call_args(o, value);
    else
        send_escaped(o, "\"", text, "\"");
}

static bool step_next(sh_output *o);

/* The end tag may be preceded by a line break that belongs to it, hence two forms of it; the longer
 * one starts earlier and so is found first. */
static bool step_value(sh_output *o)
{
    const output_tags *tags = o->dialect.tools->tags;
    sh_str rest = output_rest(o);
    int which;
    size_t at = output_mark_find(rest, tags->value_end, 2, &which);

    rest.len = at;
    if (o->types != OUTPUT_TYPE_STRING)
        sh_buf_add_str(&o->token, rest);
    else if (at > 0)
        send_escaped(o, "", rest, "");
    o->pos += at;
    if (which < 0) return output_call_wait(o);
    if (o->types != OUTPUT_TYPE_STRING)
        send_value(o);
    else
        output_call_args(o, SH_STR("\""));
    o->pos += strlen(tags->value_end[which]);
    o->step = step_next;
    return true;
}

/* Without a tag of its own the value starts right after the key, and a line break there belongs to
 * the tag. */
static bool step_value_open(sh_output *o)
{
    const output_tags *tags = o->dialect.tools->tags;

    if (tags->value != NULL) {
        if (!output_skip_space(o)) return output_call_wait(o);
        int which = output_mark_at(output_rest(o), &tags->value, 1);
        if (which == OUTPUT_MARK_CUT) return output_call_wait(o);
        if (which == OUTPUT_MARK_NONE) return output_call_fail(o);
        o->pos += strlen(tags->value);
    } else {
        if (o->pos == o->buf.len) return output_call_wait(o);
        if (o->buf.ptr[o->pos] == '\n') o->pos++;
    }
    sh_buf_clear(&o->token);
    if (o->types == OUTPUT_TYPE_STRING) output_call_args(o, SH_STR("\""));
    o->step = step_value;
    return true;
}

/* The schema decides here whether the value will be streamed: see output_parameter_types(). */
static bool step_key(sh_output *o)
{
    const output_tags *tags = o->dialect.tools->tags;
    sh_str key = output_rest(o);
    int which;
    size_t len = output_mark_find(key, &tags->key_end, 1, &which);

    if (len > OUTPUT_NAME_MAX) return output_call_fail(o);
    if (which < 0) return output_call_wait(o);
    key.len = len;
    o->pos += len + strlen(tags->key_end);
    char *name = sh_str_dup(key);
    o->types = output_parameter_types(output_tool_find(o, sh_buf_str(&o->name)), name);
    free(name);
    send_escaped(o, o->first ? "\"" : ", \"", key, "\": ");
    o->first = false;
    o->step = step_value_open;
    return true;
}

static void begin_object(sh_output *o)
{
    if (o->begun) return;
    output_call_begin(o);
    output_call_args(o, SH_STR("{"));
}

static bool end_object(sh_output *o)
{
    begin_object(o);
    output_call_args(o, SH_STR("}"));
    return output_call_end(o);
}

/* After the name or a value: another key, or the end, whose markers output_step_after() consumes. A
 * call cut off by the end of the output here is complete, since only closing markers are missing.
 */
static bool step_next(sh_output *o)
{
    const sh_output_tools *tools = o->dialect.tools;
    const char *marks[1 + OUTPUT_CLOSE_MAX] = {tools->tags->key};

    if (!output_skip_space(o)) return o->final && end_object(o);
    memcpy(marks + 1, tools->close, sizeof(tools->close));
    int which = output_mark_at(output_rest(o), marks, (int)SH_COUNT_OF(marks));
    if (which == OUTPUT_MARK_CUT) return output_call_wait(o);
    if (which == OUTPUT_MARK_NONE) return output_call_fail(o);
    if (which > 0) return end_object(o);
    begin_object(o);
    o->pos += strlen(tools->tags->key);
    o->step = step_key;
    return true;
}

static bool step_name_end(sh_output *o)
{
    char end = o->dialect.tools->tags->name_end;

    if (!output_skip_space(o)) return output_call_wait(o);
    if (o->buf.ptr[o->pos] != end) return output_call_fail(o);
    if (end == '>') o->pos++;
    o->step = step_next;
    return true;
}

/* The name ends at white space or at the next tag. As long as it may still grow, wait. */
bool output_step_tags(sh_output *o)
{
    if (!output_skip_space(o)) return output_call_wait(o);
    sh_str name = output_rest(o);
    size_t len = 0;
    while (len < name.len && strchr(" \t\r\n<>", name.ptr[len]) == NULL) len++;
    if (len > OUTPUT_NAME_MAX) return output_call_fail(o);
    if (len == name.len) return output_call_wait(o);
    name.len = len;
    if (!output_name_set(&o->name, name)) return output_call_fail(o);
    o->pos += len;
    o->step = step_name_end;
    return true;
}
