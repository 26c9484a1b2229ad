/* The core of the parser: plain text, reasoning, and what surrounds a call (where it opens, closes,
 * ends or breaks). The inside of a call is parsed by call.c and tags.c, harmony's messages by
 * harmony.c.
 *
 * Two properties hold for any input, and tests/fuzz/fuzz_output.c checks both: the events do not
 * depend on how the text was split, and text without calls or reasoning comes out unchanged. They
 * follow from a few rules:
 *  - start <= pos <= buf.len. Text before `start` has been reported and is dropped after each push;
 *    text from `start` to `pos` has been examined but can still turn into content.
 *  - A marker that is cut off at the end of the buffer is never a decision: the step returns false
 *    and looks again when more text has come, or treats it as text once `final` is set.
 *  - White space is held in `space` until the next text or marker shows whether it is part of the
 *    text or belongs to a marker, since models put line breaks around their markers that nobody
 *    wants to see in an answer.
 * Models are free to write anything, so malformed calls are normal input: they become content. */
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

/* A marker may be the beginning of another one, such as [ of [THINK]: if that one comes before it
 * in `marks`, it is waited for. */
int output_mark_at(sh_str text, const char *const *marks, int count)
{
    int found = OUTPUT_MARK_NONE;
    for (int i = 0; i < count; i++) {
        if (marks[i] == NULL || text.len == 0 || marks[i][0] != text.ptr[0]) continue;
        size_t len = strlen(marks[i]);
        size_t common = len < text.len ? len : text.len;
        if (memcmp(marks[i], text.ptr, common) != 0) continue;
        if (common == len) return found == OUTPUT_MARK_CUT ? found : i;
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

/* Reports text without its trailing white space, which is kept in o->space and goes out in front of
 * the next text, if any. Line breaks right after a marker are dropped. */
void output_text(sh_output *o, sh_output_kind kind, sh_str text)
{
    size_t first = 0, end = text.len;

    while (o->eat_lines && first < end && is_line(text.ptr[first])) first++;
    if (first < end) o->eat_lines = false;
    while (end > first && is_space(text.ptr[end - 1])) end--;
    o->kind = kind;
    if (first < end) {
        o->fresh = false;
        o->had_text[kind] = true;
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

/* Reports the next `len` bytes as text of the given kind. */
static bool pass(sh_output *o, sh_output_kind kind, size_t len)
{
    output_text(o, kind, sh_str_sub(output_rest(o), 0, len));
    o->pos += len;
    output_commit(o);
    return true;
}

static bool step_reasoning(sh_output *o);

/* Both markers are committed at once: reasoning needs no end to be valid, so it never fails. */
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
    o->begun = o->complete = o->has_args = o->scanning = false;
    o->first = true;
}

/* Does not commit: should the call fail, its opening marker is part of the content. marker_len is 0
 * for a call without a marker of its own. */
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

/* Plain text up to the next marker. Reasoning and calls without markers can only open before any
 * other text: a '<think>' in the middle of an answer is the model writing about the tag. */
static bool step_text(sh_output *o)
{
    const sh_output_tools *tools = o->dialect.tools;
    const char *marks[4] = {NULL};
    int which;

    if (o->fresh && o->dialect.reasoning != NULL) marks[0] = o->dialect.reasoning->open;
    if (tools != NULL) {
        marks[1] = tools->section;
        marks[2] = tools->open;
        if (o->fresh) marks[3] = tools->bare;
    }
    sh_str rest = output_rest(o);
    size_t at = output_mark_find(rest, marks, (int)SH_COUNT_OF(marks), &which);
    /* Passing text may clear `fresh`, which changes the set of markers: search again after it. */
    if (at > 0) return pass(o, SH_OUTPUT_CONTENT, at);
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

    if (o->fresh) marks[1] = reasoning->open; /* the prompt opened it and the model does so again */
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

/* Continues after a marker or a call: with plain text, or with the next message in harmony. */
bool output_to_text(sh_output *o)
{
    const sh_output_dialect *d = &o->dialect;
    bool channels = (d->reasoning != NULL && d->reasoning->channels) ||
                    (d->tools != NULL && d->tools->channels);
    o->step = channels ? output_step_harmony : step_text;
    return true;
}

/* Whatever is uncommitted after the last call is content. */
static bool leave_calls(sh_output *o)
{
    output_text(o, SH_OUTPUT_CONTENT, sh_str_sub(sh_buf_str(&o->buf), o->start, o->pos - o->start));
    output_commit(o);
    o->in_list = false;
    return output_to_text(o);
}

/* Handles list brackets, commas and separators between calls. Commas and separators are not
 * committed: they are content if no call follows. */
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

/* After a call, or at the start of a section: skips closing markers and finds the next call.
 * Anything else ends the calls. */
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

/* Everything since `start` becomes content: the opening marker and the call up to pos. */
bool output_call_fail(sh_output *o)
{
    if (o->begun)
        o->fn(o->arg,
              &(sh_output_event){.kind = SH_OUTPUT_CALL_BROKEN, .call = o->begun_count - 1});
    o->begun = false;
    return leave_calls(o);
}

/* At the end of the output nothing more comes: a call that was reported is a call, as far as it
 * got; what was held back of it may have been a marker and is dropped. Any other is content. */
bool output_call_wait(sh_output *o)
{
    if (!o->final) return false;
    if (!o->begun) return output_call_fail(o);
    o->pos = o->buf.len;
    output_commit(o);
    output_marker_passed(o);
    return false;
}

/* For a head that is too long or malformed: step back to the end of the opening marker, so that
 * markers inside the supposed head are still recognized. */
bool output_head_fail(sh_output *o)
{
    o->pos = o->head_pos;
    return output_call_fail(o);
}

/* Accepts what could plausibly be a function name; anything else shows that the text is not a call.
 */
static bool name_char(char c)
{
    return (unsigned char)c > ' ' && c != 0x7f && strchr(OUTPUT_NOT_IN_NAMES, c) == NULL;
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

/* Ids look like those of OpenAI ("call_" and 24 characters), or as the dialect's template requires.
 * */
static void make_id(sh_output *o)
{
    static const char letters[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    int len = o->dialect.tools->short_ids ? 9 : 24;

    if (len == 24) sh_buf_add_text(&o->id, "call_");
    for (int i = 0; i < len; i++)
        sh_buf_add_char(&o->id, letters[sh_mix64(o->opts.id_seed++) % (sizeof(letters) - 1)]);
}

/* Reports the call, and the arguments that came before its name. */
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
    o->complete = o->closable = true;
    o->complete_count++;
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

/* Runs steps until one needs more text, then drops what has been reported. */
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
    /* Trailing white space is kept for content only: at the end of reasoning it precedes the
     * closing marker, even if that one is missing. */
    if (o->kind == SH_OUTPUT_CONTENT) emit(o, SH_OUTPUT_CONTENT, sh_buf_str(&o->space));
    sh_buf_clear(&o->space);
}

int sh_output_calls(const sh_output *o)
{
    return o->complete_count;
}
