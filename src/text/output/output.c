/* The machine that turns output text into events: plain text and reasoning, and the frame around
 * calls (where they open, close, end and break). What stands inside a call is read by
 * call.c and tags.c, harmony's messages by harmony.c. */
#include "text/output/output.h"

#include "base/alloc.h"
#include "base/hash.h"
#include "text/output/output_internal.h"

#include <stdlib.h>
#include <string.h>

static bool is_line(char c)
{
    return c == '\n' || c == '\r';
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || is_line(c);
}

sh_str output_rest(const sh_output *o)
{
    return sh_str_sub(sh_buf_str(&o->buf), o->pos, o->buf.len);
}

void output_commit(sh_output *o)
{
    o->start = o->pos;
}

bool output_skip_space(sh_output *o)
{
    while (o->pos < o->buf.len && is_space(o->buf.ptr[o->pos])) o->pos++;
    return o->pos < o->buf.len;
}

int output_mark_at(sh_str text, const char *const *marks, int count)
{
    int found = OUTPUT_MARK_NONE;
    for (int i = 0; i < count; i++) {
        if (marks[i] == NULL || text.len == 0 || marks[i][0] != text.ptr[0]) continue;
        size_t len = strlen(marks[i]);
        size_t common = len < text.len ? len : text.len;
        if (memcmp(marks[i], text.ptr, common) != 0) continue;
        if (common == len) return i;
        found = OUTPUT_MARK_CUT;
    }
    return found;
}

size_t output_mark_find(sh_str text, const char *const *marks, int count, int *which)
{
    for (size_t at = 0; at < text.len; at++) {
        *which = output_mark_at(sh_str_sub(text, at, text.len), marks, count);
        if (*which != OUTPUT_MARK_NONE) return at;
    }
    *which = OUTPUT_MARK_NONE;
    return text.len;
}

static void emit(sh_output *o, sh_output_kind kind, sh_str text)
{
    if (text.len == 0) return;
    o->fn(o->arg, &(sh_output_event){.kind = kind, .call = o->begun_count - 1, .text = text});
}

void output_text(sh_output *o, sh_output_kind kind, sh_str text)
{
    size_t first = 0, end = text.len;

    while (o->eat_lines && first < end && is_line(text.ptr[first])) first++;
    if (first < end) o->eat_lines = false;
    while (end > first && is_space(text.ptr[end - 1])) end--;
    o->kind = kind;
    if (first < end) {
        o->fresh = false;
        o->spoke[kind] = true;
        sh_str solid = sh_str_sub(text, first, end - first);
        if (o->space.len > 0) {
            sh_buf_add_str(&o->space, solid);
            solid = sh_buf_str(&o->space);
        }
        emit(o, kind, solid);
        sh_buf_clear(&o->space);
    }
    sh_buf_add_str(&o->space, sh_str_sub(text, end, text.len));
}

void output_marker_passed(sh_output *o)
{
    sh_buf_clear(&o->space);
    o->eat_lines = o->fresh = true;
}

/* Takes `len` bytes of pending text as text. */
static bool pass(sh_output *o, sh_output_kind kind, size_t len)
{
    output_text(o, kind, sh_str_sub(output_rest(o), 0, len));
    o->pos += len;
    output_commit(o);
    return true;
}

static bool step_reasoning(sh_output *o);

static bool open_reasoning(sh_output *o)
{
    o->pos += strlen(o->dialect.reasoning->open);
    output_commit(o);
    output_marker_passed(o);
    o->step = step_reasoning;
    return true;
}

static bool close_reasoning(sh_output *o, size_t len)
{
    o->pos += len;
    output_commit(o);
    output_marker_passed(o);
    return output_to_text(o);
}

void output_call_reset(sh_output *o)
{
    sh_buf_clear(&o->name);
    sh_buf_clear(&o->id);
    sh_buf_clear(&o->args);
    o->begun = o->whole = o->has_args = o->scanning = false;
    o->first = true;
}

static bool open_call(sh_output *o, size_t marker_len)
{
    if (marker_len > 0) o->in_list = false;
    o->pos += marker_len;
    o->head_pos = o->pos;
    output_call_reset(o);
    o->step = o->dialect.tools->body;
    return true;
}

static bool open_section(sh_output *o)
{
    o->pos += strlen(o->dialect.tools->section);
    o->closable = false;
    o->step = output_step_after;
    return true;
}

/* Plain text up to the next marker. Reasoning and unmarked calls open only in front of all text: a
 * '<think>' in the middle of an answer is somebody writing about it. */
static bool step_text(sh_output *o)
{
    const sh_output_tools *tools = o->dialect.tools;
    const char *marks[4] = {NULL};
    int which;

    if (o->fresh && o->dialect.reasoning != NULL) marks[0] = o->dialect.reasoning->open;
    if (tools != NULL) {
        marks[1] = tools->section;
        marks[2] = tools->open;
        if (o->fresh && tools->separator != 0) marks[3] = "{";
    }
    sh_str rest = output_rest(o);
    size_t at = output_mark_find(rest, marks, (int)SH_COUNT_OF(marks), &which);
    if (at > 0) return pass(o, SH_OUTPUT_CONTENT, at); /* which may end `fresh`: look again */
    switch (which) {
    case 0: return open_reasoning(o);
    case 1: return open_section(o);
    case 2: return open_call(o, strlen(tools->open));
    case 3: return open_call(o, 0);
    case OUTPUT_MARK_CUT: return o->final && pass(o, SH_OUTPUT_CONTENT, rest.len);
    default: return false;
    }
}

static bool step_reasoning(sh_output *o)
{
    const sh_output_tools *tools = o->dialect.tools;
    const sh_output_reasoning *reasoning = o->dialect.reasoning;
    const char *marks[4] = {reasoning->close};
    int which;

    if (o->fresh) marks[1] = reasoning->open; /* opened by the prompt and once more by the model */
    if (tools != NULL && tools->ends_reasoning) {
        marks[2] = tools->section;
        marks[3] = tools->open;
    }
    sh_str rest = output_rest(o);
    size_t at = output_mark_find(rest, marks, (int)SH_COUNT_OF(marks), &which);
    if (at > 0) return pass(o, SH_OUTPUT_REASONING, at);
    switch (which) {
    case 0: return close_reasoning(o, strlen(reasoning->close));
    case 1: return open_reasoning(o);
    case 2:
    case 3: return close_reasoning(o, 0);
    case OUTPUT_MARK_CUT: return o->final && pass(o, SH_OUTPUT_REASONING, rest.len);
    default: return false;
    }
}

bool output_to_text(sh_output *o)
{
    const sh_output_dialect *d = &o->dialect;
    bool channels = (d->reasoning != NULL && d->reasoning->channels) ||
                    (d->tools != NULL && d->tools->channels);
    o->step = channels ? output_step_harmony : step_text;
    return true;
}

static bool leave_calls(sh_output *o)
{
    output_text(o, SH_OUTPUT_CONTENT, sh_str_sub(sh_buf_str(&o->buf), o->start, o->pos - o->start));
    output_commit(o);
    o->in_list = false;
    return output_to_text(o);
}

/* Commas of a list and separators stay uncommitted: they are content when no call follows. */
static bool after_item(sh_output *o, char c)
{
    if (c == '{') return open_call(o, 0);
    o->pos++;
    if (c == ']') {
        o->in_list = false;
        output_commit(o);
    }
    return true;
}

bool output_step_after(sh_output *o)
{
    const sh_output_tools *tools = o->dialect.tools;
    const char *marks[2 + OUTPUT_CLOSE_MAX] = {tools->section, tools->open};

    if (!output_skip_space(o)) return o->final && leave_calls(o);
    char c = o->buf.ptr[o->pos];
    if (o->in_list && (c == ',' || c == ']' || c == '{')) return after_item(o, c);
    if (tools->separator != 0 && (c == tools->separator || c == '{')) return after_item(o, c);
    if (o->closable) memcpy(marks + 2, tools->close, sizeof(tools->close));
    int which = output_mark_at(output_rest(o), marks, (int)SH_COUNT_OF(marks));
    switch (which) {
    case 0: return open_section(o);
    case 1: return open_call(o, strlen(tools->open));
    case OUTPUT_MARK_CUT: return o->final && leave_calls(o);
    case OUTPUT_MARK_NONE: return leave_calls(o);
    }
    o->pos += strlen(marks[which]);
    output_commit(o);
    return true;
}

bool output_call_fail(sh_output *o)
{
    if (o->begun)
        o->fn(o->arg,
              &(sh_output_event){.kind = SH_OUTPUT_CALL_BROKEN, .call = o->begun_count - 1});
    o->begun = false;
    return leave_calls(o);
}

bool output_head_fail(sh_output *o)
{
    o->pos = o->head_pos;
    return output_call_fail(o);
}

/* A name is what a program could take for one; anything else shows that the text is no call. */
static bool name_char(char c)
{
    return (unsigned char)c > ' ' && c != 0x7f && strchr("\"'`<>{}[](),;=\\|", c) == NULL;
}

bool output_name_set(sh_buf *to, sh_str name)
{
    if (name.len == 0 || name.len > OUTPUT_NAME_MAX) return false;
    for (size_t i = 0; i < name.len; i++)
        if (!name_char(name.ptr[i])) return false;
    sh_buf_clear(to);
    sh_buf_add_str(to, name);
    return true;
}

static void make_id(sh_output *o)
{
    static const char letters[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    int len = o->dialect.tools->short_ids ? 9 : 24;

    if (len == 24) sh_buf_add_text(&o->id, "call_");
    for (int i = 0; i < len; i++)
        sh_buf_add_char(&o->id, letters[sh_mix64(o->opts.id_seed++) % (sizeof(letters) - 1)]);
}

void output_call_begin(sh_output *o)
{
    if (o->id.len == 0) make_id(o);
    o->begun = true;
    o->begun_count++;
    o->fn(o->arg, &(sh_output_event){.kind = SH_OUTPUT_CALL_BEGIN,
                                     .call = o->begun_count - 1,
                                     .id = sh_buf_str(&o->id),
                                     .name = sh_buf_str(&o->name)});
    emit(o, SH_OUTPUT_CALL_ARGS, sh_buf_str(&o->args));
}

void output_call_args(sh_output *o, sh_str text)
{
    if (o->begun)
        emit(o, SH_OUTPUT_CALL_ARGS, text);
    else
        sh_buf_add_str(&o->args, text);
}

bool output_call_end(sh_output *o)
{
    o->fn(o->arg, &(sh_output_event){.kind = SH_OUTPUT_CALL_END, .call = o->begun_count - 1});
    o->begun = false;
    o->whole = o->closable = true;
    o->whole_count++;
    output_commit(o);
    output_marker_passed(o);
    o->step = output_step_after;
    return true;
}

sh_output *sh_output_create(const sh_output_dialect *dialect, const sh_output_opts *opts,
                            sh_output_fn fn, void *arg)
{
    sh_output *o = sh_alloc(sizeof(*o));
    o->dialect = *dialect;
    o->opts = *opts;
    o->fn = fn;
    o->arg = arg;
    o->fresh = true;
    output_to_text(o);
    if (opts->in_reasoning && dialect->reasoning != NULL && dialect->reasoning->open != NULL) {
        o->step = step_reasoning;
        o->eat_lines = true;
    }
    return o;
}

void sh_output_free(sh_output *o)
{
    if (o == NULL) return;
    sh_buf *all[] = {&o->buf, &o->space, &o->name, &o->id, &o->args, &o->token, &o->scratch};
    for (size_t i = 0; i < SH_COUNT_OF(all); i++) sh_buf_reset(all[i]);
    free(o);
}

static void run(sh_output *o)
{
    while (o->step(o)) continue;
    sh_buf_drop_front(&o->buf, o->start);
    o->pos -= o->start;
    o->head_pos -= o->start < o->head_pos ? o->start : o->head_pos;
    o->start = 0;
}

void sh_output_push(sh_output *o, sh_str text)
{
    SH_ASSERT(!o->final);
    sh_buf_add_str(&o->buf, text);
    run(o);
}

void sh_output_finish(sh_output *o)
{
    o->final = true;
    run(o);
    SH_ASSERT(o->buf.len == 0);
    if (o->kind == SH_OUTPUT_CONTENT) emit(o, SH_OUTPUT_CONTENT, sh_buf_str(&o->space));
    sh_buf_clear(&o->space);
}

int sh_output_calls(const sh_output *o)
{
    return o->whole_count;
}
