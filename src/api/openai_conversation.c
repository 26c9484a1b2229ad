/* A turn is stored as a response (response_store.h) that continues the previous turn: its input are
 * the messages that were new, its output is the assistant's. So a long conversation is kept once,
 * not once for each turn.
 *
 * A conversation without an id gets the id of its first answer. That costs a copy of the messages,
 * so only short requests get one; who wants to go on in a longer one sends an id. */
#include "api/openai_conversation.h"

#include "api/json_writer.h"
#include "api/response_store.h"
#include "base/alloc.h"

#include <stdlib.h>
#include <string.h>

enum { UNNAMED_MAX = 64 << 10 };

static bool is_of(const cJSON *message, const char *role)
{
    const char *own = message == NULL ? NULL : sh_json_text(message, "role");
    return own != NULL && strcmp(own, role) == 0;
}

static bool has_answer(const cJSON *messages)
{
    const cJSON *message;
    cJSON_ArrayForEach(message, messages) if (is_of(message, "assistant")) return true;
    return false;
}

/* Keeps the text in the arena of the spec. */
static sh_str messages_print(sh_job_spec *spec, const cJSON *messages)
{
    char *text = cJSON_PrintUnformatted(messages);
    SH_ASSERT(text != NULL);
    sh_str kept = sh_arena_str(&spec->arena, sh_str_of(text));
    cJSON_free(text);
    return kept;
}

static void messages_move(cJSON *to, cJSON *from)
{
    for (cJSON *message; (message = cJSON_DetachItemFromArray(from, 0)) != NULL;) {
        bool added = cJSON_AddItemToArray(to, message);
        SH_ASSERT(added);
    }
}

/* A system message of the request takes the place of the kept one. */
static void history_prepend(cJSON *messages, cJSON *history)
{
    cJSON *own = cJSON_CreateArray();
    messages_move(own, messages);
    if (is_of(own->child, "system")) {
        cJSON_AddItemToArray(messages, cJSON_DetachItemFromArray(own, 0));
        if (is_of(history->child, "system")) cJSON_DeleteItemFromArray(history, 0);
    }
    messages_move(messages, history);
    messages_move(messages, own);
    cJSON_Delete(own);
}

static bool history_read(sh_job_spec *spec, cJSON *messages, sh_api_error *err)
{
    sh_buf text = {0};
    cJSON *history = NULL;
    sh_err why;
    bool fine = sh_response_store_history(spec->conversations, spec->owner, spec->previous, &text);
    if (!fine) { /* an earlier turn was dropped: better an error than half a conversation */
        sh_api_fail(err, 404, "conversation_not_found", "conversation_id",
                    "the beginning of the conversation '%s' is not kept any more; send all of its "
                    "messages",
                    spec->conversation_id);
    } else if (sh_json_parse(sh_buf_str(&text), "the conversation", &history, &why) != SH_OK) {
        *err = sh_api_error_of(&why, false);
        fine = false;
    } else {
        history_prepend(messages, history);
    }
    cJSON_Delete(history);
    sh_buf_reset(&text);
    return fine;
}

bool openai_conversation_read(openai_fields *fields, sh_api_error *err)
{
    sh_job_spec *spec = &fields->spec;
    cJSON *messages = (cJSON *)fields->messages;
    const char *id = spec->conversation_id;
    sh_buf latest = {0};
    if (spec->conversations == NULL || !cJSON_IsArray(messages)) return true;
    if (id != NULL && spec->retriable) /* the retry would find its own first answer there */
        return sh_api_fail(err, 400, "invalid_value", "conversation_id",
                           "'conversation_id' cannot be repeated under an Idempotency-Key, since "
                           "each request adds to the conversation");
    bool named = id != NULL && id[0] != '\0';
    if (!spec->keeps || spec->n > 1 || spec->retriable ||
        (!named && spec->body_len > UNNAMED_MAX)) {
        spec->keeps = false;
        return true;
    }
    if (!named) spec->conversation_id = NULL;
    spec->input = messages_print(spec, messages);
    if (!named || has_answer(messages) ||
        !sh_response_store_latest(spec->conversations, spec->owner, id, &latest))
        return true;
    spec->previous = sh_arena_str(&spec->arena, sh_buf_str(&latest)).ptr;
    sh_buf_reset(&latest);
    return history_read(spec, messages, err);
}

static bool is_kept(const sh_answer *answer)
{
    const sh_job_spec *spec = answer->spec;
    return spec->conversations != NULL && spec->keeps && spec->input.ptr != NULL;
}

const char *openai_conversation_id(const sh_answer *answer)
{
    if (answer->spec->conversation_id != NULL) return answer->spec->conversation_id;
    return is_kept(answer) ? answer->id : NULL;
}

void openai_conversation_part(const sh_answer *answer, const sh_choice *choice)
{
    openai_conversation *kept = answer->state;
    if (!is_kept(answer)) return;
    sh_buf_add_str(&kept->content, sh_buf_str(&choice->content));
    sh_buf_add_str(&kept->reasoning, sh_buf_str(&choice->reasoning));
    for (; kept->arg_count < choice->call_count; kept->arg_count++) {
        kept->args = sh_realloc_array(kept->args, (size_t)kept->arg_count + 1, sizeof(sh_buf));
        kept->args[kept->arg_count] = (sh_buf){0};
    }
    for (int i = 0; i < choice->call_count; i++)
        sh_buf_add_str(&kept->args[i], sh_buf_str(&choice->calls[i].args));
}

void openai_conversation_reset(void *state)
{
    openai_conversation *kept = state;
    sh_buf_reset(&kept->content);
    sh_buf_reset(&kept->reasoning);
    for (int i = 0; i < kept->arg_count; i++) sh_buf_reset(&kept->args[i]);
    free(kept->args);
}

static void calls_write(const openai_conversation *kept, const sh_choice *choice, sh_json_writer *w)
{
    bool any = false;
    for (int i = 0; i < choice->call_count && i < kept->arg_count; i++) {
        const sh_call *call = &choice->calls[i];
        if (call->name == NULL) continue;
        if (!any) sh_write_begin(w, "tool_calls", '[');
        any = true;
        sh_write_begin(w, NULL, '{');
        sh_write_text(w, "id", call->id);
        sh_write_text(w, "type", "function");
        sh_write_begin(w, "function", '{');
        sh_write_text(w, "name", call->name);
        sh_write_str(w, "arguments", sh_buf_str(&kept->args[i]));
        sh_write_end(w, '}');
        sh_write_end(w, '}');
    }
    if (any) sh_write_end(w, ']');
}

void openai_conversation_ended(const sh_answer *answer, const sh_api_error *error)
{
    const sh_job_spec *spec = answer->spec;
    const sh_choice *choice = &answer->choices[0];
    openai_conversation *kept = answer->state;
    sh_buf output = {0};
    if (error != NULL || !is_kept(answer)) return;
    if (!spec->stream) openai_conversation_part(answer, choice);
    sh_json_writer w = sh_json_writer_on(&output);
    sh_write_begin(&w, NULL, '[');
    sh_write_begin(&w, NULL, '{');
    sh_write_text(&w, "role", "assistant");
    sh_write_str(&w, "content", sh_buf_str(&kept->content));
    if (kept->reasoning.len > 0)
        sh_write_str(&w, "reasoning_content", sh_buf_str(&kept->reasoning));
    calls_write(kept, choice, &w);
    sh_write_end(&w, '}');
    sh_write_end(&w, ']');
    sh_response_store_put(spec->conversations, spec->owner,
                          &(sh_stored_response){
                              .id = answer->id,
                              .previous = spec->previous,
                              .conversation = openai_conversation_id(answer),
                              .input = spec->input,
                              .output = sh_buf_str(&output),
                          });
    sh_buf_reset(&output);
}
