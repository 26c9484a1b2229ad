/* The harmony format of gpt-oss: the output is a sequence of messages, each with a head that names
 * channel and recipient:
 *   <|channel|>analysis<|message|>...<|end|><|start|>assistant<|channel|>final<|message|>...
 *   <|start|>assistant<|channel|>commentary to=functions.NAME
 *       <|constrain|>json<|message|>{...}<|call|>
 * The prompt ends with "<|start|>assistant". The analysis channel is reasoning, a message with a
 * recipient is a call, everything else is content, including text without a head. */
#include "text/output/output_internal.h"

#include <string.h>

static bool step_body(sh_output *o)
{
    static const char *const marks[] = {"<|end|>", "<|return|>", "<|call|>", "<|start|>",
                                        "<|channel|>"};
    enum { ENDS = 3 }; /* the others begin the next head */
    sh_str rest = output_rest(o);
    int which;
    size_t at = output_mark_find(rest, marks, (int)SH_COUNT_OF(marks), &which);

    if (which == OUTPUT_MARK_CUT && o->final) at = rest.len;
    output_text(o, o->kind, sh_str_sub(rest, 0, at));
    o->pos += at;
    if (which >= 0) {
        if (which < ENDS) o->pos += strlen(marks[which]);
        output_marker_passed(o);
        output_to_text(o);
    }
    output_commit(o);
    return which >= 0;
}

/* The word after `key`, up to white space or the next marker. */
static sh_str head_word(sh_str head, sh_str key)
{
    size_t first = sh_str_find(head, key, 0);
    if (first == head.len) return (sh_str){0};
    sh_str word = sh_str_trim(sh_str_sub(head, first + key.len, head.len));
    size_t len = 0;
    while (len < word.len && (unsigned char)word.ptr[len] > ' ' && word.ptr[len] != '<') len++;
    return sh_str_sub(word, 0, len);
}

/* A line break separates messages of the same kind, which would run together otherwise. */
static bool begin_message(sh_output *o, sh_output_kind kind)
{
    output_commit(o);
    output_marker_passed(o);
    if (o->had_text[kind]) sh_buf_add_char(&o->space, '\n');
    o->kind = kind;
    o->step = step_body;
    return true;
}

/* If the recipient cannot be a function name, or the request has no tools, the message is content.
 * */
static bool begin_call(sh_output *o, sh_str name)
{
    sh_str functions = SH_STR("functions.");

    output_call_reset(o);
    if (sh_str_starts(name, functions)) name = sh_str_sub(name, functions.len, name.len);
    if (o->dialect.tools == NULL || !output_name_set(&o->name, name)) return output_call_fail(o);
    o->step = output_step_args;
    return true;
}

/* Reads a head up to <|message|>. The length is bounded so that text which only looks like a head
 * is not held back indefinitely. */
static bool step_head(sh_output *o)
{
    sh_str message = SH_STR("<|message|>");
    sh_str head = sh_str_sub(sh_buf_str(&o->buf), o->head_pos, OUTPUT_HEAD_MAX + message.len);
    size_t len = sh_str_find(head, message, 0);

    if (len == head.len && head.len == OUTPUT_HEAD_MAX + message.len) return output_head_fail(o);
    if (len == head.len) return o->final && output_head_fail(o);
    o->pos = o->head_pos + len + message.len;
    head = sh_str_sub(sh_buf_str(&o->buf), o->start, o->pos - o->start);
    sh_str recipient = head_word(head, SH_STR("to="));
    if (recipient.len > 0) return begin_call(o, recipient);
    bool analysis = sh_str_is(head_word(head, SH_STR("<|channel|>")), "analysis");
    return begin_message(o, analysis ? SH_OUTPUT_REASONING : SH_OUTPUT_CONTENT);
}

/* Between messages: a head, or text without one. Since the prompt already has "<|start|>assistant",
 * the first head may begin with its channel or its recipient. */
bool output_step_harmony(sh_output *o)
{
    static const char *const marks[] = {"<|start|>", "<|channel|>", "to="};
    int which = OUTPUT_MARK_CUT;

    if (output_skip_space(o))
        which = output_mark_at(output_rest(o), marks, (int)SH_COUNT_OF(marks));
    if (which == OUTPUT_MARK_CUT && !o->final) return false;
    if (which >= 0) {
        o->head_pos = o->pos + strlen(marks[which]);
        o->step = step_head;
        return true;
    }
    if (o->start == o->buf.len) return false;
    o->pos = o->start;
    o->kind = SH_OUTPUT_CONTENT;
    o->step = step_body;
    return true;
}

/* Text between two markers of the format. */
static sh_expr message_text(output_form *f)
{
    static const char *const all[] = {"<|end|>", "<|return|>", "<|call|>", "<|start|>",
                                      "<|channel|>"};
    sh_str none[SH_COUNT_OF(all)];
    for (size_t i = 0; i < SH_COUNT_OF(all); i++) none[i] = sh_str_of(all[i]);
    return sh_expr_text_without(f->b, none, SH_COUNT_OF(none));
}

/* Any number of messages of the analysis channel, then one on the final channel, or calls. A call
 * ends the output, unless the message ends and another begins. */
sh_expr output_harmony_form(output_form *f)
{
    const sh_output_form *form = f->form;
    sh_grammar_builder *b = f->b;
    sh_expr analysis[] = {output_form_marks(f, "<|channel|>analysis<|message|>"), message_text(f),
                          output_form_marks(f, "<|end|><|start|>assistant")};
    sh_expr reasoning = sh_expr_repeat(b, sh_expr_seq(b, analysis, 3), 0, SH_EXPR_UNLIMITED);
    sh_expr forms[2];
    size_t count = 0;
    if (form->calls != SH_OUTPUT_CALLS_MUST) {
        sh_expr final[] = {output_form_marks(f, "<|channel|>final<|message|>"),
                           form->content != NULL ? *form->content : message_text(f)};
        forms[count++] = sh_expr_seq(b, final, 2);
    }
    if (form->calls != SH_OUTPUT_CALLS_NONE) {
        const output_writing *w = &f->tools->writings[0];
        sh_expr calls[] = {output_form_list(f, output_form_call(f, w), w->between),
                           sh_expr_optional(b, output_form_marks(f, "<|call|>"))};
        forms[count++] = sh_expr_seq(b, calls, 2);
    }
    return sh_expr_seq(b, (sh_expr[]){reasoning, sh_expr_any_of(b, forms, count)}, 2);
}
