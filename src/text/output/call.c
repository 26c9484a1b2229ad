/* Calls whose arguments are JSON. They are streamed as they arrive; a validator checks every byte
 * first, because a client that has received part of the arguments expects the rest to be JSON.
 *
 * There are two forms: an object {"name": ..., "arguments": {...}} (or a list of them), whose
 * members may come in any order, and a head in the dialect's own form followed by the bare
 * arguments object. A call is reported as begun once its name is known and its arguments start;
 * arguments that precede the name are collected in o->args. It is complete when the arguments end,
 * so everything after them in the object is only checked, and is content if it is malformed. */
#include "text/output/output_internal.h"

#include <string.h>

static bool step_key(sh_output *o);
static bool step_value(sh_output *o);
static bool step_next(sh_output *o);

static void start_value(sh_output *o, bool streaming)
{
    sh_json_scan_init(&o->scan);
    sh_buf_clear(&o->token);
    o->scanning = true;
    o->streaming = streaming;
}

/* Consumes as much of the current value as there is. */
static sh_json_scan_result take_value(sh_output *o)
{
    sh_str rest = output_rest(o);
    sh_json_scan_result result = SH_JSON_SCAN_MORE;
    size_t len = 0;

    while (len < rest.len && result == SH_JSON_SCAN_MORE) {
        result = sh_json_scan_feed(&o->scan, rest.ptr[len]);
        if (result == SH_JSON_SCAN_MORE || result == SH_JSON_SCAN_DONE) len++;
    }
    rest.len = len;
    o->pos += len;
    if (o->streaming)
        output_call_args(o, rest);
    else
        sh_buf_add_str(&o->token, rest);
    if (result != SH_JSON_SCAN_MORE) o->scanning = false;
    return result;
}

/* Decodes the JSON string in o->token; false if it is not a string. */
static bool token_string(sh_output *o, sh_buf *out)
{
    cJSON *item = NULL;
    sh_err err;

    if (sh_json_parse(sh_buf_str(&o->token), "string", &item, &err) != SH_OK) return false;
    bool ok = cJSON_IsString(item);
    sh_buf_clear(out);
    if (ok) sh_buf_add_text(out, item->valuestring);
    cJSON_Delete(item);
    return ok;
}

bool output_step_object(sh_output *o)
{
    if (!output_skip_space(o)) return output_call_wait(o);
    char c = o->buf.ptr[o->pos];
    if (c == '[' && !o->in_list) {
        o->in_list = true;
        o->pos++;
        return true;
    }
    if (c != '{') return output_call_fail(o);
    o->pos++;
    o->step = step_key;
    return true;
}

/* An unknown member has no place in an event and would be lost, so it makes the text content. So
 * does a second name or a second set of arguments. */
static bool set_member(sh_output *o)
{
    static const struct {
        const char *key;
        output_member member;
    } keys[] = {{"name", MEMBER_NAME},
                {"arguments", MEMBER_ARGS},
                {"parameters", MEMBER_ARGS},
                {"id", MEMBER_ID},
                {"type", MEMBER_OTHER}};

    if (!token_string(o, &o->scratch)) return false;
    for (size_t i = 0; i < SH_COUNT_OF(keys); i++) {
        if (!sh_str_is(sh_buf_str(&o->scratch), keys[i].key)) continue;
        o->member = keys[i].member;
        if (o->member == MEMBER_NAME) return o->name.len == 0;
        return o->member != MEMBER_ARGS || !o->has_args;
    }
    return false;
}

static bool step_colon(sh_output *o)
{
    if (!output_skip_space(o)) return output_call_wait(o);
    if (o->buf.ptr[o->pos] != ':') return output_call_fail(o);
    o->pos++;
    o->step = step_value;
    return true;
}

/* The object is closed. A call with markers may omit its arguments; without markers an object that
 * has only a name is more likely an answer in JSON. */
static bool end_object(sh_output *o)
{
    o->pos++;
    if (o->complete) {
        output_commit(o);
        o->step = output_step_after;
        return true;
    }
    bool marked = o->dialect.tools->bare == NULL;
    if (!marked || o->name.len == 0 || o->has_args) return output_call_fail(o);
    output_call_args(o, SH_STR("{}"));
    output_call_begin(o);
    return output_call_end(o);
}

static bool step_key(sh_output *o)
{
    if (!o->scanning) {
        if (!output_skip_space(o)) return output_call_wait(o);
        char c = o->buf.ptr[o->pos];
        if (c == '}' && o->first) return end_object(o);
        if (c != '"') return output_call_fail(o);
        o->first = false;
        start_value(o, false);
    }
    switch (take_value(o)) {
    case SH_JSON_SCAN_MORE: return output_call_wait(o);
    case SH_JSON_SCAN_DONE:
        if (!set_member(o)) return output_call_fail(o);
        o->step = step_colon;
        return true;
    default: return output_call_fail(o);
    }
}

/* Both name and arguments are known: the call is complete, only the end of its object is left. */
static bool finish_call(sh_output *o)
{
    if (!o->begun) output_call_begin(o);
    output_call_end(o);
    o->step = step_next;
    return true;
}

/* Arguments that were not streamed: an object encoded as a string, or null for none. */
static bool token_args(sh_output *o)
{
    if (sh_str_is(sh_buf_str(&o->token), "null")) {
        output_call_args(o, SH_STR("{}"));
        return true;
    }
    if (!token_string(o, &o->scratch)) return false;
    sh_str args = sh_str_trim(sh_buf_str(&o->scratch));
    if (output_json_type(args) != OUTPUT_TYPE_OBJECT) return false;
    output_call_args(o, args);
    return true;
}

static bool name_known(sh_output *o)
{
    if (!token_string(o, &o->scratch) || !output_name_set(&o->name, sh_buf_str(&o->scratch)))
        return false;
    /* Without a marker, an object that does not name a known tool is an answer in JSON. */
    return o->dialect.tools->bare == NULL || o->opts.tools == NULL ||
           output_tool_find(o, sh_buf_str(&o->name)) != NULL;
}

static bool end_value(sh_output *o)
{
    o->step = step_next;
    switch (o->member) {
    case MEMBER_NAME:
        if (!name_known(o)) return output_call_fail(o);
        return o->has_args ? finish_call(o) : true;
    case MEMBER_ARGS:
        if (!o->streaming && !token_args(o)) return output_call_fail(o);
        o->has_args = true;
        return o->name.len > 0 ? finish_call(o) : true;
    case MEMBER_ID:
        /* For a call that has begun the id comes too late; it keeps the generated one. */
        if (token_string(o, &o->scratch)) (void)output_name_set(&o->id, sh_buf_str(&o->scratch));
        return true;
    default: return true;
    }
}

static bool step_value(sh_output *o)
{
    if (!o->scanning) {
        if (!output_skip_space(o)) return output_call_wait(o);
        bool object = o->member == MEMBER_ARGS && o->buf.ptr[o->pos] == '{';
        start_value(o, object);
        if (object && o->name.len > 0) output_call_begin(o);
    }
    switch (take_value(o)) {
    case SH_JSON_SCAN_MORE: return output_call_wait(o);
    case SH_JSON_SCAN_BAD: return output_call_fail(o);
    default: return end_value(o);
    }
}

static bool step_next(sh_output *o)
{
    if (!output_skip_space(o)) return output_call_wait(o);
    char c = o->buf.ptr[o->pos];
    if (c == '}') return end_object(o);
    if (c != ',') return output_call_fail(o);
    o->pos++;
    o->step = step_key;
    return true;
}

/* The head is everything up to the object. Its length is bounded, so that text without any '{' is
 * not held back indefinitely. */
bool output_step_head(sh_output *o)
{
    sh_str head = sh_str_sub(sh_buf_str(&o->buf), o->head_pos, OUTPUT_HEAD_MAX + 1);
    sh_str name = {0}, id = {0};
    size_t len = sh_str_find(head, SH_STR("{"), 0);

    if (len > OUTPUT_HEAD_MAX) return output_head_fail(o);
    if (len == head.len) return o->final && output_head_fail(o);
    head.len = len;
    if (!o->dialect.tools->head(head, &name, &id)) return output_head_fail(o);
    if (!output_name_set(&o->name, name)) return output_head_fail(o);
    if (id.len > 0) (void)output_name_set(&o->id, id);
    o->pos = o->head_pos + len;
    o->step = output_step_args;
    return true;
}

bool output_step_either(sh_output *o)
{
    if (!output_skip_space(o)) return output_call_wait(o);
    char c = o->buf.ptr[o->pos];
    o->step = c == '[' || c == '{' ? output_step_object : output_step_head;
    return true;
}

bool output_step_args(sh_output *o)
{
    if (!o->scanning) {
        if (!output_skip_space(o)) return output_call_wait(o);
        if (o->buf.ptr[o->pos] != '{') return output_call_fail(o);
        start_value(o, true);
        output_call_begin(o);
    }
    switch (take_value(o)) {
    case SH_JSON_SCAN_MORE: return output_call_wait(o);
    case SH_JSON_SCAN_DONE: return output_call_end(o);
    default: return output_call_fail(o);
    }
}
