#include "text/chat_template.h"

#include "base/alloc.h"
#include "base/file.h"

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
    sh_template_free(s->tmpl); /* of two with one name the later counts */
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

static sh_status files_find(sh_chat_template *chat, const char *dir, sh_err *err)
{
    sh_status status = slot_find(&chat->plain, dir, "chat_template.jinja", err);
    if (status == SH_OK && chat->plain.tmpl == NULL)
        status = slot_find(&chat->plain, dir, "chat_templates/default.jinja", err);
    if (status == SH_OK)
        status = slot_find(&chat->tools, dir, "chat_templates/tool_use.jinja", err);
    return status;
}

static sh_status named_take(sh_chat_template *chat, const cJSON *row, const char *where,
                            sh_err *err)
{
    const char *name = NULL, *text = NULL;
    if (!cJSON_IsObject(row))
        return sh_err_set(err, SH_ERR_INPUT, "%s: a template in 'chat_template' must be an object",
                          where);
    sh_status status = sh_json_string_must(row, "name", where, &name, err);
    if (status == SH_OK) status = sh_json_string_must(row, "template", where, &text, err);
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

/* Tokens from both files: special_tokens_map.json counts for folders of the older kind, whose
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
        status = config_take(chat, config, "tokenizer_config.json", err);
    if (status == SH_OK && !has_template(chat))
        status = json_find(dir, "chat_template.json", &legacy, err);
    if (status == SH_OK && legacy != NULL)
        status = config_take(chat, legacy, "chat_template.json", err);
    if (status == SH_OK && !has_template(chat))
        status = sh_err_set(err, SH_ERR_NOT_FOUND,
                            "%s: no chat template: neither chat_template.jinja nor "
                            "'chat_template' in tokenizer_config.json with a default",
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

static const cJSON *reasoning_of(const cJSON *message)
{
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    const cJSON *item = NULL;
    for (size_t i = 0; i < SH_COUNT_OF(names) && item == NULL; i++)
        item = member(message, names[i]);
    return item;
}

/* The message with its reasoning under the names that templates read, as transformers does it. */
static cJSON *message_alias(const cJSON *message, const cJSON *reasoning)
{
    cJSON *copy = cJSON_Duplicate(message, true);
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

/* An object with the messages as they are to be shown, or NULL when the request's will do. */
static cJSON *messages_alias(const cJSON *messages)
{
    bool any = false;
    for (const cJSON *m = messages->child; m != NULL; m = m->next) any |= reasoning_of(m) != NULL;
    if (!any) return NULL;
    cJSON *object = cJSON_CreateObject(), *list = cJSON_AddArrayToObject(object, "messages");
    for (cJSON *m = messages->child; m != NULL; m = m->next) {
        const cJSON *reasoning = reasoning_of(m);
        if (reasoning == NULL)
            cJSON_AddItemReferenceToArray(list, m);
        else
            cJSON_AddItemToArray(list, message_alias(m, reasoning));
    }
    return object;
}

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
    const cJSON *tools = member(request, "tools");
    if (tools != NULL && !cJSON_IsArray(tools))
        return sh_err_set(err, SH_ERR_INPUT, "'tools' must be a list, not %s", sh_json_kind(tools));
    return SH_OK;
}

sh_status sh_chat_template_render(const sh_chat_template *chat, const cJSON *request,
                                  const sh_template_opts *opts, sh_buf *out, sh_err *err)
{
    sh_template_opts with = opts == NULL ? (sh_template_opts){0} : *opts;
    bool raised = false;
    if (with.raised == NULL) with.raised = &raised;
    *with.raised = false;
    if (request_check(request, err) != SH_OK) return err->status;
    cJSON *shown = messages_alias(cJSON_GetObjectItemCaseSensitive(request, "messages"));
    const cJSON *vars[] = {chat->defaults, request, shown};
    const slot *s = slot_pick(chat, member(request, "tools") != NULL);
    sh_status status = sh_template_render(s->tmpl, vars, shown == NULL ? 2 : 3, &with, out, err);
    if (status != SH_OK && !*with.raised) sh_err_prefix(err, "chat template");
    cJSON_Delete(shown);
    return status;
}
