/* An answer on the terminal. Every piece is flushed at once, because it streams; a failed flush is
 * how a closed pipe is noticed. */
#include "cmd/support/shown.h"

#include "base/alloc.h"

#include <stdlib.h>

#define DIM "\x1b[2m"
#define PLAIN "\x1b[0m"

enum { CALLS_MAX = 1024 };

static void print(sh_shown *s, FILE *to, sh_str text)
{
    if (to == NULL) return;
    fwrite(text.ptr, 1, text.len, to);
    if (fflush(to) != 0) s->lost = true;
}

static void call_close(sh_shown *s)
{
    if (!s->in_call) return;
    s->in_call = false;
    print(s, s->content_to, SH_STR("\n"));
}

/* Switches between reasoning and everything else. */
static void set_dim(sh_shown *s, bool dim)
{
    if (s->dim == dim) return;
    s->dim = dim;
    if (s->color) print(s, s->reasoning_to, sh_str_of(dim ? DIM : PLAIN));
    if (!dim) print(s, s->reasoning_to, SH_STR("\n\n"));
}

/* A call's index comes from the server; sh_shown_event has bounded it. */
static sh_shown_call *call_at(sh_shown *s, int index)
{
    while (s->call_count <= index) {
        s->calls = sh_realloc_array(s->calls, (size_t)s->call_count + 1, sizeof(*s->calls));
        s->calls[s->call_count++] = (sh_shown_call){0};
    }
    return &s->calls[index];
}

static void call_drop(sh_shown_call *call)
{
    free(call->id);
    free(call->name);
    sh_buf_reset(&call->args);
    *call = (sh_shown_call){0};
}

/* Some servers do not announce the end of a call: the next one, or text, ends it. */
static void call_begin(sh_shown *s, const sh_output_event *event)
{
    sh_shown_call *call = call_at(s, event->call);
    call_close(s);
    call_drop(call);
    call->id = sh_str_dup(event->id);
    call->name = sh_str_dup(event->name);
    s->in_call = true;
    print(s, s->content_to, event->name);
    print(s, s->content_to, SH_STR(" "));
}

void sh_shown_event(void *arg, const sh_output_event *event)
{
    sh_shown *s = arg;
    if (event->call >= CALLS_MAX) return;
    set_dim(s, event->kind == SH_OUTPUT_REASONING);
    switch (event->kind) {
    case SH_OUTPUT_REASONING:
        sh_buf_add_str(&s->reasoning, event->text);
        print(s, s->reasoning_to, event->text);
        break;
    case SH_OUTPUT_CONTENT:
        call_close(s);
        sh_buf_add_str(&s->content, event->text);
        print(s, s->content_to, event->text);
        break;
    case SH_OUTPUT_CALL_BEGIN: call_begin(s, event); break;
    case SH_OUTPUT_CALL_ARGS:
        sh_buf_add_str(&call_at(s, event->call)->args, event->text);
        print(s, s->content_to, event->text);
        break;
    case SH_OUTPUT_CALL_END: call_close(s); break;
    case SH_OUTPUT_CALL_BROKEN:
        call_close(s);
        call_drop(call_at(s, event->call));
        break;
    }
}

void sh_shown_end(sh_shown *s)
{
    set_dim(s, false);
    call_close(s);
}

void sh_shown_reset(sh_shown *s)
{
    for (int i = 0; i < s->call_count; i++) call_drop(&s->calls[i]);
    free(s->calls);
    sh_buf_reset(&s->content);
    sh_buf_reset(&s->reasoning);
    *s = (sh_shown){0};
}

static void text_add(cJSON *object, const char *name, const sh_buf *text)
{
    cJSON_AddStringToObject(object, name, text->len > 0 ? text->ptr : "");
}

/* Dropped calls leave a gap without a name, so that indexes stay valid; it is skipped here. */
cJSON *sh_shown_calls(const sh_shown *s)
{
    cJSON *list = NULL;
    for (int i = 0; i < s->call_count; i++) {
        const sh_shown_call *call = &s->calls[i];
        if (call->name == NULL) continue;
        if (list == NULL) list = cJSON_CreateArray();
        cJSON *item = cJSON_CreateObject();
        cJSON_AddStringToObject(item, "id", call->id);
        cJSON_AddStringToObject(item, "type", "function");
        cJSON *function = cJSON_AddObjectToObject(item, "function");
        cJSON_AddStringToObject(function, "name", call->name);
        text_add(function, "arguments", &call->args);
        cJSON_AddItemToArray(list, item);
    }
    return list;
}

/* Reasoning is kept apart from the content; a chat template decides whether the model sees it. */
cJSON *sh_shown_message(const sh_shown *s)
{
    cJSON *message = cJSON_CreateObject(), *calls = sh_shown_calls(s);
    cJSON_AddStringToObject(message, "role", "assistant");
    text_add(message, "content", &s->content);
    if (s->reasoning.len > 0) text_add(message, "reasoning_content", &s->reasoning);
    if (calls != NULL) cJSON_AddItemToObject(message, "tool_calls", calls);
    return message;
}
