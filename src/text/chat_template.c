/* Finds a model's chat templates and renders requests with them.
 *
 * The reference is apply_chat_template() of transformers: makers test their templates against it,
 * so where a folder is ambiguous (two files, two names, tokens in two places) we resolve it the
 * same way, even where another rule looks more sensible. A prompt that differs in one space from
 * the one the model was trained on costs quality, and nothing reports it.
 *
 * A request is never modified. The template sees four layers of variables, later ones hiding
 * earlier ones: defaults of the folder, members of the request, chat_template_kwargs, and the
 * reserved ones that we compute. Messages are passed by reference and copied only when they change.
 */
#include "text/chat_template.h"

#include "base/alloc.h"
#include "base/file.h"
#include "text/jinja/unicode.h"

#include <stdlib.h>
#include <string.h>

enum { TEMPLATE_MAX = 4 << 20, CONFIG_MAX = 64 << 20 };

typedef struct {
    sh_template *tmpl; /* NULL: there is none */
    char *source;
} slot;

struct sh_chat_template {
    slot plain, tools;
    cJSON *defaults; /* variables that a request may override */
};

static sh_status slot_fill(slot *s, const char *where, sh_str source, sh_err *err)
{
    sh_template *tmpl = NULL;
    if (sh_template_parse(source, &tmpl, err) != SH_OK) return sh_err_prefix(err, "%s", where);
    sh_template_free(s->tmpl); /* the later of two templates with one name wins */
    free(s->source);
    *s = (slot){tmpl, sh_str_dup(source)};
    return SH_OK;
}

static sh_status slot_load(slot *s, const char *path, sh_err *err)
{
    sh_buf text = {0};
    sh_status status = sh_file_read(path, TEMPLATE_MAX, &text, err);
    if (status == SH_OK) status = slot_fill(s, path, sh_buf_str(&text), err);
    sh_buf_reset(&text);
    return status;
}

/* Fills the slot if the folder has the file. */
static sh_status slot_find(slot *s, const char *dir, const char *name, sh_err *err)
{
    char *path = sh_path_join(dir, name);
    sh_status status = sh_file_exists(path) ? slot_load(s, path, err) : SH_OK;
    free(path);
    return status;
}

/* Fills the slot from the first folder that has the file; the second folder is the name that older
 * versions of transformers used. */
static sh_status named_find(slot *s, const char *dir, const char *name, sh_err *err)
{
    static const char *const folders[] = {"additional_chat_templates", "chat_templates"};
    sh_status status = SH_OK;
    for (size_t i = 0; i < SH_COUNT_OF(folders) && status == SH_OK && s->tmpl == NULL; i++) {
        char *path = sh_asprintf("%s/%s.jinja", folders[i], name);
        status = slot_find(s, dir, path, err);
        free(path);
    }
    return status;
}

/* A "default" in the sub-folder is only used without a chat_template.jinja. */
static sh_status files_find(sh_chat_template *chat, const char *dir, sh_err *err)
{
    sh_status status = slot_find(&chat->plain, dir, "chat_template.jinja", err);
    if (status == SH_OK) status = named_find(&chat->plain, dir, "default", err);
    if (status == SH_OK) status = named_find(&chat->tools, dir, "tool_use", err);
    return status;
}

/* Templates with other names ("rag" and the like) are ignored: no request can ask for them. */
static sh_status named_take(sh_chat_template *chat, const cJSON *row, const char *where,
                            sh_err *err)
{
    const char *name = NULL, *text = NULL;
    if (!cJSON_IsObject(row))
        return sh_err_set(err, SH_ERR_INPUT, "%s: a template in 'chat_template' must be an object",
                          where);
    sh_status status = sh_json_string_required(row, "name", where, &name, err);
    if (status == SH_OK) status = sh_json_string_required(row, "template", where, &text, err);
    if (status != SH_OK) return status;
    if (strcmp(name, "default") == 0) return slot_fill(&chat->plain, where, sh_str_of(text), err);
    if (strcmp(name, "tool_use") == 0) return slot_fill(&chat->tools, where, sh_str_of(text), err);
    return SH_OK;
}

/* `chat_template` of a JSON file: a string or a list. */
static sh_status config_take(sh_chat_template *chat, const cJSON *config, const char *where,
                             sh_err *err)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(config, "chat_template");
    if (item == NULL || cJSON_IsNull(item)) return SH_OK;
    if (cJSON_IsString(item))
        return slot_fill(&chat->plain, where, sh_str_of(item->valuestring), err);
    if (!cJSON_IsArray(item))
        return sh_err_set(err, SH_ERR_INPUT,
                          "%s: 'chat_template' must be a string or a list, not %s", where,
                          sh_json_kind(item));
    sh_status status = SH_OK;
    for (const cJSON *row = item->child; row != NULL && status == SH_OK; row = row->next)
        status = named_take(chat, row, where, err);
    return status;
}

/* A token is a string or an object with `content`. */
static void tokens_take(cJSON *defaults, const cJSON *config)
{
    static const char *const names[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                        "pad_token", "cls_token", "mask_token"};
    for (size_t i = 0; i < SH_COUNT_OF(names); i++) {
        const cJSON *item = cJSON_GetObjectItemCaseSensitive(config, names[i]);
        if (cJSON_IsObject(item)) item = cJSON_GetObjectItemCaseSensitive(item, "content");
        if (!cJSON_IsString(item)) continue;
        cJSON_DeleteItemFromObjectCaseSensitive(defaults, names[i]);
        cJSON_AddStringToObject(defaults, names[i], item->valuestring);
    }
}

/* Parses dir/name into *out if it is there; else *out stays NULL. */
static sh_status json_find(const char *dir, const char *name, cJSON **out, sh_err *err)
{
    char *path = sh_path_join(dir, name);
    sh_status status = sh_file_exists(path) ? sh_json_load(path, CONFIG_MAX, out, err) : SH_OK;
    free(path);
    return status;
}

static bool has_template(const sh_chat_template *chat)
{
    return chat->plain.tmpl != NULL || chat->tools.tmpl != NULL;
}

/* Special tokens come from two files: special_tokens_map.json is used only for older folders, whose
 * tokenizer_config.json has no table of added tokens. */
static sh_status folder_take(sh_chat_template *chat, const char *dir, sh_err *err)
{
    cJSON *config = NULL, *map = NULL, *legacy = NULL;
    sh_status status = json_find(dir, "tokenizer_config.json", &config, err);
    if (status == SH_OK) status = json_find(dir, "special_tokens_map.json", &map, err);
    if (status == SH_OK) {
        tokens_take(chat->defaults, config);
        if (cJSON_GetObjectItemCaseSensitive(config, "added_tokens_decoder") == NULL)
            tokens_take(chat->defaults, map);
    }
    if (status == SH_OK && !has_template(chat)) status = files_find(chat, dir, err);
    if (status == SH_OK && !has_template(chat))
        status = json_find(dir, "chat_template.json", &legacy, err);
    if (status == SH_OK && legacy != NULL)
        status = config_take(chat, legacy, "chat_template.json", err);
    if (status == SH_OK && !has_template(chat))
        status = config_take(chat, config, "tokenizer_config.json", err);
    if (status == SH_OK && !has_template(chat))
        status = sh_err_set(err, SH_ERR_NOT_FOUND,
                            "%s: no chat template: found neither chat_template.jinja nor a default "
                            "'chat_template' in tokenizer_config.json",
                            dir);
    cJSON_Delete(config);
    cJSON_Delete(map);
    cJSON_Delete(legacy);
    return status;
}

sh_status sh_chat_template_load(const char *dir, const char *template_path, sh_chat_template **out,
                                sh_err *err)
{
    SH_ASSERT(dir != NULL || template_path != NULL);
    sh_chat_template *chat = sh_alloc(sizeof(*chat));
    chat->defaults = cJSON_CreateObject();
    cJSON_AddNullToObject(chat->defaults, "tools");
    cJSON_AddNullToObject(chat->defaults, "documents");
    cJSON_AddTrueToObject(chat->defaults, "add_generation_prompt");
    sh_status status = SH_OK;
    if (template_path != NULL) status = slot_load(&chat->plain, template_path, err);
    if (status == SH_OK && dir != NULL) status = folder_take(chat, dir, err);
    if (status != SH_OK) {
        sh_chat_template_free(chat);
        return status;
    }
    *out = chat;
    return SH_OK;
}

void sh_chat_template_free(sh_chat_template *chat)
{
    if (chat == NULL) return;
    sh_template_free(chat->plain.tmpl);
    sh_template_free(chat->tools.tmpl);
    free(chat->plain.source);
    free(chat->tools.source);
    cJSON_Delete(chat->defaults);
    free(chat);
}

/* A folder may have only one of the two; it then serves both kinds of requests. */
static const slot *slot_pick(const sh_chat_template *chat, bool with_tools)
{
    return (with_tools && chat->tools.tmpl != NULL) || chat->plain.tmpl == NULL ? &chat->tools
                                                                                : &chat->plain;
}

sh_str sh_chat_template_source(const sh_chat_template *chat, bool with_tools)
{
    return sh_str_of(slot_pick(chat, with_tools)->source);
}

static const cJSON *member(const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    return cJSON_IsNull(item) ? NULL : item;
}

/* Names under which clients send, and templates read, a message's reasoning; most templates read
 * the first. */
static const char *const REASONING[] = {"reasoning_content", "thinking", "reasoning"};

static const cJSON *reasoning_of(const cJSON *message)
{
    const cJSON *item = NULL;
    for (size_t i = 0; i < SH_COUNT_OF(REASONING) && item == NULL; i++)
        item = member(message, REASONING[i]);
    return item;
}

/* A copy of the message with its reasoning also under the names that templates read, as in
 * transformers. */
static cJSON *message_alias(const cJSON *message, const cJSON *reasoning)
{
    cJSON *copy = cJSON_Duplicate(message, true);
    if (reasoning == NULL) return copy;
    cJSON *first = cJSON_Duplicate(reasoning, true), *last = cJSON_Duplicate(reasoning, true);
    if (cJSON_HasObjectItem(copy, "reasoning_content"))
        cJSON_ReplaceItemInObjectCaseSensitive(copy, "reasoning_content", last);
    else
        cJSON_AddItemToObject(copy, "reasoning_content", last);
    if (cJSON_GetObjectItemCaseSensitive(copy, "thinking") != NULL)
        cJSON_Delete(first);
    else
        cJSON_AddItemToObject(copy, "thinking", first);
    return copy;
}

/* The messages as the template sees them. `copy_last`: the caller is going to change the last one.
 */
static cJSON *messages_prepare(const cJSON *messages, bool copy_last)
{
    cJSON *list = cJSON_CreateArray();
    for (cJSON *m = messages->child; m != NULL; m = m->next) {
        const cJSON *reasoning = reasoning_of(m);
        if (reasoning == NULL && !(copy_last && m->next == NULL))
            cJSON_AddItemReferenceToArray(list, m);
        else
            cJSON_AddItemToArray(list, message_alias(m, reasoning));
    }
    return list;
}

/* To continue the last message, append a mark to its text, render, and cut the prompt where the
 * mark appears. This works with any template, because nothing needs to be known about what the
 * template writes after a message. The mark and the rules are those of transformers. */
static const char MARK[] = "CONTINUE_FINAL_MESSAGE_TAG ";

static void text_mark(cJSON *item)
{
    char *marked = sh_asprintf("%s%s", item->valuestring, MARK);
    cJSON_SetValuestring(item, marked);
    free(marked);
}

/* The text to continue: a string, or the last text part of a list; NULL if there is none. */
static cJSON *text_of(cJSON *value)
{
    cJSON *found = cJSON_IsString(value) ? value : NULL;
    for (cJSON *part = cJSON_IsArray(value) ? value->child : NULL; part != NULL;
         part = part->next) {
        cJSON *text = cJSON_GetObjectItemCaseSensitive(part, "text");
        if (cJSON_IsString(text)) found = text;
    }
    return found;
}

static bool is_reasoning(const char *field)
{
    for (size_t i = 0; i < SH_COUNT_OF(REASONING); i++)
        if (strcmp(field, REASONING[i]) == 0) return true;
    return false;
}

/* Reasoning has several names and we cannot know which one the template reads: mark all of them. */
static void aliases_mark(cJSON *message, const cJSON *marked, const char *before)
{
    for (size_t i = 0; i < SH_COUNT_OF(REASONING); i++) {
        cJSON *item = cJSON_GetObjectItemCaseSensitive(message, REASONING[i]);
        if (item != marked && cJSON_IsString(item) && strcmp(item->valuestring, before) == 0)
            text_mark(item);
    }
}

/* Marks the last message. *text receives its text without the mark; the caller frees it. */
static sh_status last_mark(cJSON *messages, const cJSON *how, char **text, sh_err *err)
{
    cJSON *last = cJSON_GetArrayItem(messages, cJSON_GetArraySize(messages) - 1);
    const char *field = cJSON_IsString(how) ? how->valuestring : "content";
    cJSON *item = text_of(cJSON_GetObjectItemCaseSensitive(last, field));
    if (item == NULL)
        return sh_err_set(err, SH_ERR_INPUT,
                          "'continue_final_message' is set, but the last message has no text in "
                          "'%s'",
                          field);
    *text = sh_strdup(item->valuestring);
    text_mark(item);
    if (is_reasoning(field)) aliases_mark(last, item, *text);
    return SH_OK;
}

/* Cuts the prompt, which starts at `start`, where the marked text ends.
 *
 * The mark ends in a space for one reason: a template that trims messages removes that space. If it
 * is missing, the template would have trimmed the text too had the mark not been in the way, so the
 * prompt is trimmed as well. The last occurrence of the mark counts. */
static sh_status mark_cut(sh_buf *out, size_t start, const char *text, sh_err *err)
{
    sh_str prompt = sh_str_sub(sh_buf_str(out), start, out->len), wanted = sh_str_of(text);
    sh_str mark = {MARK, sizeof(MARK) - 2};
    size_t at = prompt.len, next = 0;
    while ((next = sh_str_find(prompt, mark, next)) < prompt.len) at = next++;
    wanted = sh_str_sub(wanted, sh_uni_space_prefix(wanted), wanted.len);
    wanted.len -= sh_uni_space_suffix(wanted);
    if (at == prompt.len || (wanted.len > 0 && sh_str_find(prompt, wanted, 0) >= prompt.len)) {
        out->len = start;
        if (out->ptr != NULL) out->ptr[start] = '\0';
        return sh_err_set(err, SH_ERR_INPUT,
                          "'continue_final_message' is set, but the chat template does not render "
                          "the last message unchanged");
    }
    bool untrimmed = at + mark.len < prompt.len && prompt.ptr[at + mark.len] == ' ';
    prompt.len = at;
    if (!untrimmed) prompt.len -= sh_uni_space_suffix(prompt);
    out->len = start + prompt.len;
    out->ptr[out->len] = '\0';
    return SH_OK;
}

static sh_status list_check(const cJSON *request, const char *name, sh_err *err)
{
    const cJSON *item = member(request, name);
    if (item == NULL || cJSON_IsArray(item)) return SH_OK;
    return sh_err_set(err, SH_ERR_INPUT, "'%s' must be a list, not %s", name, sh_json_kind(item));
}

/* Checked in advance, so that the error names the field and not an operation inside the template.
 * */
static sh_status request_check(const cJSON *request, sh_err *err)
{
    if (!cJSON_IsObject(request))
        return sh_err_set(err, SH_ERR_INPUT, "a chat request must be an object, not %s",
                          sh_json_kind(request));
    const cJSON *messages = cJSON_GetObjectItemCaseSensitive(request, "messages");
    if (!cJSON_IsArray(messages))
        return sh_err_set(err, SH_ERR_INPUT, "'messages' must be a list, not %s",
                          sh_json_kind(messages));
    if (messages->child == NULL)
        return sh_err_set(err, SH_ERR_INPUT, "'messages' must have at least one message");
    for (const cJSON *m = messages->child; m != NULL; m = m->next)
        if (!cJSON_IsObject(m))
            return sh_err_set(err, SH_ERR_INPUT, "a message must be an object, not %s",
                              sh_json_kind(m));
    const cJSON *kwargs = member(request, "chat_template_kwargs");
    if (kwargs != NULL && !cJSON_IsObject(kwargs))
        return sh_err_set(err, SH_ERR_INPUT, "'chat_template_kwargs' must be an object, not %s",
                          sh_json_kind(kwargs));
    sh_status status = list_check(request, "tools", err);
    return status == SH_OK ? list_check(request, "documents", err) : status;
}

static void reference_add(cJSON *reserved, const char *name, const cJSON *item)
{
    if (item == NULL)
        cJSON_AddNullToObject(reserved, name);
    else
        cJSON_AddItemReferenceToObject(reserved, name, (cJSON *)item);
}

/* Sets the variables that chat_template_kwargs must not override. *text receives the text that the
 * answer continues, and stays NULL if it continues none. */
static sh_status reserved_fill(cJSON *reserved, const cJSON *request, char **text, sh_err *err)
{
    const cJSON *how = cJSON_GetObjectItemCaseSensitive(request, "continue_final_message");
    const cJSON *kwargs = member(request, "chat_template_kwargs");
    bool continuing = cJSON_IsTrue(how) || cJSON_IsString(how);
    cJSON *messages = messages_prepare(cJSON_GetObjectItemCaseSensitive(request, "messages"),
                                       continuing);
    cJSON_AddItemToObject(reserved, "messages", messages);
    reference_add(reserved, "tools", member(request, "tools"));
    reference_add(reserved, "documents", member(request, "documents"));
    if (!continuing) return SH_OK;
    if (cJSON_IsTrue(member(request, "add_generation_prompt")) ||
        cJSON_IsTrue(member(kwargs, "add_generation_prompt")))
        return sh_err_set(
            err, SH_ERR_INPUT,
            "'continue_final_message' and 'add_generation_prompt' cannot both be set");
    cJSON_AddFalseToObject(reserved, "add_generation_prompt");
    return last_mark(messages, how, text, err);
}

sh_status sh_chat_template_render(const sh_chat_template *chat, const cJSON *request,
                                  const sh_template_opts *opts, sh_buf *out, sh_err *err)
{
    sh_template_opts with = opts == NULL ? (sh_template_opts){0} : *opts;
    bool raised = false;
    if (with.raised == NULL) with.raised = &raised;
    *with.raised = false;
    if (request_check(request, err) != SH_OK) return err->status;
    size_t start = out->len;
    char *text = NULL;
    cJSON *reserved = cJSON_CreateObject();
    sh_status status = reserved_fill(reserved, request, &text, err);
    const cJSON *kwargs = member(request, "chat_template_kwargs");
    const cJSON *vars[] = {chat->defaults, request, kwargs == NULL ? request : kwargs, reserved};
    const slot *s = slot_pick(chat, member(request, "tools") != NULL);
    if (status == SH_OK) {
        status = sh_template_render(s->tmpl, vars, SH_COUNT_OF(vars), &with, out, err);
        /* raise_exception() carries the template author's message to the user: leave it bare. */
        if (status != SH_OK && !*with.raised) sh_err_prefix(err, "chat template");
    }
    if (status == SH_OK && text != NULL) status = mark_cut(out, start, text, err);
    free(text);
    cJSON_Delete(reserved);
    return status;
}
