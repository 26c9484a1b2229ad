/* The items of the Responses API, as input of a request or as output of an earlier one.
 *
 * What the model said in one turn is spread over several items: reasoning, a message, calls. They
 * become one message of the assistant, as templates expect it. */
#include "api/messages.h"
#include "api/response_store.h"
#include "api/responses_internal.h"

#include <stdio.h>
#include <string.h>

enum { PLACE_MAX = 96, ID_MAX = 256 };

typedef struct {
    sh_conversation *to;
    bool may_refer; /* items of the client may refer to stored ones, which do not refer further */
    sh_api_error *err;
} reader;

static bool lacks(const reader *r, const char *place, const char *what)
{
    return sh_api_fail(r->err, 400, "missing_field", place, "'%s' has no '%s'", place, what);
}

/* ---- text in parts ---- */

static bool part_read(const reader *r, const cJSON *part, const char *place)
{
    static const struct {
        const char *type, *member;
    } texts[] = {
        {"input_text", "text"}, {"output_text", "text"}, {"text", "text"}, {"refusal", "refusal"}};
    const char *type = sh_json_text(part, "type");
    if (type == NULL) return lacks(r, place, "type");
    for (size_t i = 0; i < SH_COUNT_OF(texts); i++) {
        if (strcmp(texts[i].type, type) != 0) continue;
        const char *text = sh_json_text(part, texts[i].member);
        if (text == NULL) return lacks(r, place, texts[i].member);
        sh_conversation_text(r->to, "", text);
        return true;
    }
    return sh_api_fail(r->err, 400, "unsupported_content", place,
                       "'%s' is a part of type '%s'; this model reads text only", place, type);
}

/* A string, or a list of parts; appended to the current message. */
static bool content_read(const reader *r, const cJSON *content, const char *place)
{
    char where[PLACE_MAX];
    int index = 0;
    if (cJSON_IsString(content)) {
        sh_conversation_text(r->to, "", content->valuestring);
        return true;
    }
    if (!cJSON_IsArray(content))
        return sh_api_fail(r->err, 400, "invalid_type", place,
                           "'%s' must be a string or a list of parts, not %s", place,
                           sh_json_kind(content));
    for (const cJSON *part = content->child; part != NULL; part = part->next) {
        snprintf(where, sizeof(where), "%s[%d]", place, index++);
        if (!part_read(r, part, where)) return false;
    }
    return true;
}

/* ---- items ---- */

static bool message_read(const reader *r, const cJSON *item, const char *place)
{
    static const struct {
        const char *given, *role;
    } roles[] = {{"user", "user"},
                 {"assistant", "assistant"},
                 {"system", "system"},
                 {"developer", "system"}};
    const char *given = sh_json_text(item, "role");
    char where[PLACE_MAX];
    for (size_t i = 0; given != NULL && i < SH_COUNT_OF(roles); i++) {
        if (strcmp(roles[i].given, given) != 0) continue;
        if (strcmp(given, "assistant") == 0)
            sh_conversation_turn(r->to, roles[i].role);
        else
            sh_conversation_message(r->to, roles[i].role);
        snprintf(where, sizeof(where), "%s.content", place);
        return content_read(r, cJSON_GetObjectItemCaseSensitive(item, "content"), where);
    }
    snprintf(where, sizeof(where), "%s.role", place);
    return sh_api_fail(r->err, 400, "invalid_value", where,
                       "'%s' must be one of user, assistant, system, developer, not %s", where,
                       given == NULL ? "nothing" : given);
}

static bool call_read(const reader *r, const cJSON *item, const char *place)
{
    const char *name = sh_json_text(item, "name"), *id = sh_json_text(item, "call_id");
    const char *text = sh_json_text(item, "arguments");
    if (name == NULL) return lacks(r, place, "name");
    if (id == NULL) return lacks(r, place, "call_id");
    if (text == NULL) return lacks(r, place, "arguments");
    cJSON *arguments = sh_call_arguments(text);
    sh_conversation_turn(r->to, "assistant");
    sh_conversation_call(r->to, id, name, arguments == NULL ? cJSON_CreateString(text) : arguments);
    return true;
}

static bool result_read(const reader *r, const cJSON *item, const char *place)
{
    const char *id = sh_json_text(item, "call_id");
    char where[PLACE_MAX];
    if (id == NULL) return lacks(r, place, "call_id");
    sh_conversation_result(r->to, id, NULL);
    snprintf(where, sizeof(where), "%s.output", place);
    return content_read(r, cJSON_GetObjectItemCaseSensitive(item, "output"), where);
}

static bool any_text(const cJSON *parts)
{
    return cJSON_IsArray(parts) && sh_json_text(parts->child, "text") != NULL;
}

/* Clients that were given a summary only send that back; encrypted content is not ours. */
static bool reasoning_read(const reader *r, const cJSON *item, const char *place)
{
    const cJSON *parts = cJSON_GetObjectItemCaseSensitive(item, "content");
    (void)place;
    if (!any_text(parts)) parts = cJSON_GetObjectItemCaseSensitive(item, "summary");
    if (!any_text(parts)) return true;
    sh_conversation_turn(r->to, "assistant");
    for (const cJSON *part = parts->child; part != NULL; part = part->next)
        if (sh_json_text(part, "text") != NULL)
            sh_conversation_reasoning(r->to, sh_json_text(part, "text"));
    return true;
}

/* ---- references ---- */

/* The id of an item contains that of its response: msg_X_0 is in resp_X. */
static bool response_of(const char *item_id, char out[ID_MAX])
{
    const char *begin = strchr(item_id, '_'), *end = strrchr(item_id, '_');
    if (begin == NULL || begin == end) return false;
    int len = snprintf(out, ID_MAX, "resp%.*s", (int)(end - begin), begin);
    return len < ID_MAX;
}

static bool item_read(const reader *r, const cJSON *item, const char *place);

/* Reads a stored item in the place of one that names its id. */
static bool reference_read(const reader *r, const cJSON *item, const char *place)
{
    const sh_job_spec *spec = r->to->spec;
    const char *id = sh_json_text(item, "id");
    char response[ID_MAX];
    sh_buf text = {0};
    sh_err ignored;
    cJSON *items = NULL;
    const cJSON *found = NULL;
    if (id == NULL) return lacks(r, place, "id");
    if (r->may_refer && spec->store != NULL && response_of(id, response) &&
        sh_response_store_get(spec->store, spec->owner, response, SH_STORED_OUTPUT, &text) &&
        sh_json_parse(sh_buf_str(&text), "item", &items, &ignored) == SH_OK) {
        cJSON_ArrayForEach(found, items)
        {
            if (sh_json_text(found, "id") != NULL && strcmp(sh_json_text(found, "id"), id) == 0)
                break;
        }
    }
    reader inner = {.to = r->to, .err = r->err};
    bool fine = found != NULL
                    ? item_read(&inner, found, place)
                    : sh_api_fail(r->err, 404, "not_found", place,
                                  "'%s' refers to the item '%s', which is not stored here (any "
                                  "more)",
                                  place, id);
    cJSON_Delete(items);
    sh_buf_reset(&text);
    return fine;
}

static const struct {
    const char *type;
    bool (*read)(const reader *r, const cJSON *item, const char *place);
} kinds[] = {
    {"message", message_read},
    {"function_call", call_read},
    {"function_call_output", result_read},
    {"reasoning", reasoning_read},
    {"item_reference", reference_read},
};

/* A message may come without its type. */
static bool item_read(const reader *r, const cJSON *item, const char *place)
{
    const char *type = sh_json_text(item, "type");
    if (!cJSON_IsObject(item))
        return sh_api_fail(r->err, 400, "invalid_type", place, "'%s' must be an object, not %s",
                           place, sh_json_kind(item));
    if (type == NULL && sh_json_text(item, "role") != NULL) type = "message";
    if (type == NULL) return lacks(r, place, "type");
    for (size_t i = 0; i < SH_COUNT_OF(kinds); i++)
        if (strcmp(kinds[i].type, type) == 0) return kinds[i].read(r, item, place);
    return sh_api_fail(r->err, 400, "unsupported_content", place,
                       "'%s' is an item of type '%s', which is not supported", place, type);
}

bool responses_items_read(const cJSON *items, const char *field, sh_conversation *to,
                          sh_api_error *err)
{
    reader r = {.to = to, .may_refer = true, .err = err};
    char place[PLACE_MAX];
    int index = 0;
    for (const cJSON *item = items->child; item != NULL; item = item->next) {
        snprintf(place, sizeof(place), "%s[%d]", field, index++);
        if (!item_read(&r, item, place)) return false;
    }
    return true;
}
