/* From a request to token ids: render the chat template, encode and check the result against
 * context and vocabulary. Everything that can be wrong with a request is found here and reported
 * with the name of its field; the engine only checks again. */
#include "api/served_model.h"

#include "api/form.h"
#include "api/messages.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "text/embed_text.h"
#include "text/fill_middle.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sh_served_model {
    int references;
    char *dir;
    char *name;
    int context;
    int vocab;
    int64_t created_s;
    sh_model_text *text;
    sh_embed_text *embed_text;
    sh_form_cache *forms;
    bool headless, scores, normalized;
    int vector_len;
    sh_model_defaults defaults;
    sh_buf facts;
};

sh_served_model *sh_served_model_take(sh_served_model *model)
{
    model->references++;
    return model;
}

void sh_served_model_close(sh_served_model *model)
{
    if (model == NULL || --model->references > 0) return;
    sh_model_text_close(model->text);
    sh_embed_text_close(model->embed_text);
    sh_form_cache_free(model->forms);
    free(model->defaults.system);
    cJSON_Delete(model->defaults.stops);
    sh_buf_reset(&model->facts);
    free(model->dir);
    free(model->name);
    free(model);
}

static const char *base_name(const char *dir)
{
    const char *slash = strrchr(dir, '/');
    return slash != NULL && slash[1] != '\0' ? slash + 1 : dir;
}

/* A model without a tokenizer cannot be served: requests are texts. */
static sh_status text_open(sh_served_model *model, const sh_served_model_opts *opts, sh_err *err)
{
    sh_model_text_opts with = {.reasoning_parser = opts->reasoning_parser,
                               .tool_parser = opts->tool_parser,
                               .vocab = model->vocab};
    sh_status status = sh_model_text_open(model->dir, &with, &model->text, err);
    if (status == SH_OK && sh_model_text_tokenizer(model->text) == NULL)
        status = sh_err_set(err, SH_ERR_NOT_FOUND,
                            "%s: neither tokenizer.json nor tiktoken.model was found", model->dir);
    return status;
}

static sh_status defaults_take(sh_served_model *model, const sh_served_model_opts *opts,
                               sh_err *err)
{
    sh_job_spec spec = {0}; /* only to check the stop strings */
    sh_api_error error;
    model->defaults = (sh_model_defaults){.temperature = NAN,
                                          .top_p = NAN,
                                          .min_p = NAN,
                                          .repetition_penalty = NAN,
                                          .top_k = -1,
                                          .max_tokens = -1,
                                          .seed = -1};
    if (opts->definition == NULL) return SH_OK;
    sh_status status = opts->defaults_read(opts->definition, &model->defaults, err);
    if (status != SH_OK) return status;
    bool fine = sh_job_spec_read_stops(&spec, model->defaults.stops, "stopwords", &error);
    sh_job_spec_reset(&spec);
    return fine ? SH_OK : sh_err_set(err, SH_ERR_INPUT, "%s: %s", opts->definition, error.message);
}

const sh_model_defaults *sh_served_model_defaults(const sh_served_model *model)
{
    return &model->defaults;
}

sh_status sh_served_model_open(const sh_engine_info *info, const sh_served_model_opts *opts,
                               sh_served_model **out, sh_err *err)
{
    sh_served_model *model = sh_alloc(sizeof(*model));
    model->references = 1;
    model->dir = sh_strdup(info->model_dir);
    while (strlen(model->dir) > 1 && model->dir[strlen(model->dir) - 1] == '/')
        model->dir[strlen(model->dir) - 1] = '\0';
    model->name = sh_strdup(opts->name == NULL ? base_name(model->dir) : opts->name);
    model->context = info->context;
    model->vocab = info->vocab;
    model->headless = info->headless;
    model->vector_len = info->vector_len;
    model->scores = info->scores;
    model->normalized = info->normalized;
    model->created_s = sh_clock_unix_us() / 1000000;
    if (defaults_take(model, opts, err) != SH_OK || text_open(model, opts, err) != SH_OK ||
        sh_embed_text_open(model->dir, &model->embed_text, err) != SH_OK ||
        sh_form_cache_create(&model->forms, err) != SH_OK) {
        sh_served_model_close(model);
        return err->status;
    }
    if (opts->facts_read != NULL) opts->facts_read(model->dir, &model->facts);
    *out = model;
    return SH_OK;
}

sh_str sh_served_model_facts(const sh_served_model *model)
{
    return model->facts.len == 0 ? SH_STR("null") : sh_buf_str(&model->facts);
}

const char *sh_served_model_name(const sh_served_model *model)
{
    return model->name;
}

const char *sh_served_model_dir(const sh_served_model *model)
{
    return model->dir;
}

int sh_served_model_context(const sh_served_model *model)
{
    return model->context;
}

int64_t sh_served_model_created_s(const sh_served_model *model)
{
    return model->created_s;
}

bool sh_served_model_check_name(const sh_served_model *model, const char *name, sh_api_error *err)
{
    const char *const names[] = {model->name, model->dir, base_name(model->dir), "default",
                                 "default_model"};
    if (name == NULL) return true;
    for (size_t i = 0; i < SH_COUNT_OF(names); i++)
        if (strcmp(name, names[i]) == 0) return true;
    return sh_api_fail(err, 404, "model_not_found", "model",
                       "the model '%s' is not served here; '%s' is", name, model->name);
}

bool sh_served_model_writes(const sh_served_model *model)
{
    return !model->headless;
}

int sh_served_model_vector_len(const sh_served_model *model)
{
    return model->vector_len;
}

bool sh_served_model_scores(const sh_served_model *model)
{
    return model->scores;
}

bool sh_served_model_normalizes(const sh_served_model *model)
{
    return model->normalized;
}

/* What a model that writes no text is there for. */
static const char *task_of(const sh_served_model *model)
{
    return model->scores ? "scores pairs of texts: use /v1/rerank"
                         : "makes embeddings: use /v1/embeddings";
}

bool sh_served_model_check_task(const sh_served_model *model, const sh_job_spec *spec,
                                sh_api_error *err)
{
    bool pairs = spec->query.ptr != NULL;
    if (!spec->pooled && model->headless)
        return sh_api_fail(err, 400, "unsupported_task", NULL,
                           "the model '%s' cannot write text; it %s", model->name, task_of(model));
    if (spec->pooled && pairs && !model->scores && !model->headless)
        return sh_api_fail(err, 400, "unsupported_task", NULL,
                           "the model '%s' writes text; it cannot score pairs of texts",
                           model->name);
    if (spec->pooled && model->vector_len == 0)
        return sh_api_fail(err, 400, "unsupported_task", NULL,
                           "the model '%s' writes text; its files name no pooling for embeddings, "
                           "but the server can be given one (--pooling)",
                           model->name);
    if (spec->pooled && pairs != model->scores)
        return sh_api_fail(err, 400, "unsupported_task", NULL, "the model '%s' %s", model->name,
                           task_of(model));
    return true;
}

const sh_model_text *sh_served_model_text(const sh_served_model *model)
{
    return model->text;
}

const char *sh_served_model_type(const sh_served_model *model)
{
    return sh_model_text_type(model->text);
}

const sh_tokenizer *sh_served_model_tokenizer(const sh_served_model *model)
{
    return sh_model_text_tokenizer(model->text);
}

sh_form_cache *sh_served_model_forms(const sh_served_model *model)
{
    return model->forms;
}

void sh_served_model_piece(const sh_served_model *model, int32_t id, sh_buf *out)
{
    sh_model_text_piece(model->text, id, out);
}

static const char *messages_field(const sh_job_spec *spec)
{
    return spec->messages_field == NULL ? "messages" : spec->messages_field;
}

bool sh_served_model_render(const sh_served_model *model, const sh_job_spec *spec, sh_buf *out,
                            sh_api_error *err)
{
    if (!sh_model_text_has_chat(model->text))
        return sh_api_fail(err, 400, "no_chat_template", messages_field(spec),
                           "the model '%s' has no chat template; it %s", model->name,
                           model->headless ? task_of(model)
                                           : "completes texts: use /v1/completions");
    cJSON *chat = cJSON_CreateObject();
    SH_ASSERT(chat != NULL);
    cJSON_AddItemReferenceToObject(chat, "messages", spec->messages);
    if (spec->tools != NULL) cJSON_AddItemReferenceToObject(chat, "tools", spec->tools);
    if (spec->variables != NULL)
        cJSON_AddItemReferenceToObject(chat, "chat_template_kwargs", spec->variables);
    if (spec->prompt_end == SH_PROMPT_CONTINUES)
        cJSON_AddTrueToObject(chat, "continue_final_message");
    else if (spec->prompt_end == SH_PROMPT_CLOSED)
        cJSON_AddFalseToObject(chat, "add_generation_prompt");
    sh_err why;
    sh_status status = sh_model_text_render(model->text, chat, NULL, out, &why);
    cJSON_Delete(chat);
    if (status == SH_OK) return true;
    return sh_api_fail(err, 400, "chat_template_failed", messages_field(spec),
                       "the model's chat template rejected these messages: %s%s", why.text,
                       spec->prompt_end == SH_PROMPT_CONTINUES
                           ? "; the last message is to be continued ('add_generation_prompt' true "
                             "starts a new one)"
                           : "");
}

/* Copies the ids into the request's arena. */
static void ids_keep(const sh_ids *ids, sh_arena *arena, sh_tokens *out)
{
    int32_t *copy = sh_arena_array(arena, ids->len, sizeof(*copy));
    if (ids->len > 0) memcpy(copy, ids->ptr, ids->len * sizeof(*copy));
    *out = (sh_tokens){.ids = copy, .count = ids->len};
}

/* `rendered`: the text comes from the chat template, which writes special tokens itself. */
static bool encode(const sh_served_model *model, sh_str text, bool rendered, sh_arena *arena,
                   sh_tokens *out, sh_api_error *err)
{
    sh_ids ids = {0};
    sh_err why;
    if (sh_model_text_encode(model->text, text, rendered, &ids, &why) != SH_OK) {
        sh_ids_reset(&ids);
        *err = sh_api_error_of(&why, false);
        return false;
    }
    ids_keep(&ids, arena, out);
    sh_ids_reset(&ids);
    return true;
}

static bool ids_in_vocabulary(const sh_served_model *model, const sh_tokens *tokens,
                              const char *param, sh_api_error *err)
{
    for (size_t i = 0; i < tokens->count; i++)
        if (tokens->ids[i] < 0 || tokens->ids[i] >= model->vocab)
            return sh_api_fail(err, 400, "invalid_value", param,
                               "'%s' contains token id %d; the vocabulary has 0 to %d", param,
                               tokens->ids[i], model->vocab - 1);
    return true;
}

/* The engine would refuse such a prompt as well, but without knowing the name of the field. */
static bool tokens_check(const sh_served_model *model, const sh_tokens *tokens, const char *param,
                         sh_api_error *err)
{
    if (tokens->count == 0)
        return sh_api_fail(err, 400, "invalid_value", param, "'%s' is empty", param);
    if (tokens->count >= (size_t)model->context)
        return sh_api_fail(err, 400, "context_length_exceeded", param,
                           "'%s' has %zu tokens; the context holds %d, including at least one for "
                           "the answer",
                           param, tokens->count, model->context);
    return ids_in_vocabulary(model, tokens, param, err);
}

static bool ids_check(const sh_served_model *model, const int32_t *ids, int count,
                      const char *param, sh_api_error *err)
{
    for (int i = 0; i < count; i++)
        if (ids[i] >= model->vocab)
            return sh_api_fail(err, 400, "invalid_value", param,
                               "'%s' contains token id %d; the vocabulary has 0 to %d", param,
                               ids[i], model->vocab - 1);
    return true;
}

/* The text that the answer goes on with, at the end of the rendered prompt; templates may trim it.
 */
static sh_str begun_text(const sh_job_spec *spec, sh_str prompt)
{
    const cJSON *last = cJSON_GetArrayItem(spec->messages, cJSON_GetArraySize(spec->messages) - 1);
    sh_str text = sh_str_of(
        cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(last, "content")));
    if (!sh_str_ends(prompt, text)) text = sh_str_trim(text);
    if (!sh_str_ends(prompt, text)) text.len = 0;
    return sh_str_sub(prompt, prompt.len - text.len, prompt.len);
}

/* What the form of an answer applies to begins where the message does, so its tokens must be known.
 * They are those after the tokens of everything before it. */
static bool begun_split(const sh_served_model *model, sh_job_spec *spec, sh_str prompt, sh_str text,
                        sh_tokens *out, sh_api_error *err)
{
    sh_tokens head;
    if (!encode(model, sh_str_sub(prompt, 0, prompt.len - text.len), true, &spec->arena, &head,
                err))
        return false;
    if (text.len == 0 || head.count >= out->count ||
        memcmp(head.ids, out->ids, head.count * sizeof(*head.ids)) != 0)
        return sh_api_fail(err, 400, "invalid_value", "messages",
                           "the last message cannot be continued in a prescribed form: its first "
                           "token would also hold what comes before it");
    out->begun = out->count - head.count;
    return true;
}

/* An answer that goes on with a message reasons only if the message does. */
static bool begun_prepare(const sh_served_model *model, sh_job_spec *spec, sh_str prompt,
                          sh_tokens *out, sh_api_error *err)
{
    sh_str text = begun_text(spec, prompt);
    out->in_reasoning = out->may_reason = sh_output_text_reasons(sh_model_text_dialect(model->text),
                                                                 text);
    if (sh_form_requires_call(spec) && !out->in_reasoning)
        return sh_api_fail(err, 400, "invalid_value", "tool_choice",
                           "'tool_choice' requires a call, but the last message, which is to be "
                           "continued, has begun otherwise; only reasoning can come before a call");
    return !sh_form_is_needed(model, spec) || begun_split(model, spec, prompt, text, out, err);
}

static bool chat_prepare(const sh_served_model *model, sh_job_spec *spec, sh_tokens *out,
                         sh_api_error *err)
{
    const sh_output_dialect *dialect = sh_model_text_dialect(model->text);
    sh_buf text = {0};
    bool fine = sh_served_model_render(model, spec, &text, err);
    bool in_reasoning = fine && sh_output_prompt_opens(dialect, sh_buf_str(&text));
    fine = fine && encode(model, sh_buf_str(&text), true, &spec->arena, out, err);
    out->in_reasoning = in_reasoning;
    out->may_reason = fine && sh_output_may_reason(dialect, sh_buf_str(&text));
    if (fine && spec->prompt_end == SH_PROMPT_CONTINUES)
        fine = begun_prepare(model, spec, sh_buf_str(&text), out, err);
    sh_buf_reset(&text);
    return fine && tokens_check(model, out, messages_field(spec), err);
}

/* The middle ends where the model says so, which may be a token that ends nothing else. */
static bool middle_check(const sh_served_model *model, sh_job_spec *spec, sh_api_error *err)
{
    int32_t end;
    if (!sh_fill_middle_known(sh_served_model_tokenizer(model), &end))
        return sh_api_fail(err, 400, "unsupported_field", "suffix",
                           "the model '%s' cannot fill in the middle of a text: its vocabulary has "
                           "no tokens for that; leave 'suffix' out",
                           model->name);
    if (end < 0) return true;
    if (spec->stop_id_count >= SH_STOP_IDS_MAX / 2)
        return sh_api_fail(err, 400, "invalid_value", "stop_token_ids",
                           "'stop_token_ids' has %d ids; %d are allowed with 'suffix', which adds "
                           "one",
                           spec->stop_id_count, SH_STOP_IDS_MAX / 2 - 1);
    int32_t *ids = sh_arena_array(&spec->arena, (size_t)spec->stop_id_count + 1, sizeof(*ids));
    if (spec->stop_id_count > 0)
        memcpy(ids, spec->stop_ids, (size_t)spec->stop_id_count * sizeof(*ids));
    ids[spec->stop_id_count++] = end;
    spec->stop_ids = ids;
    return true;
}

static bool middle_encode(const sh_served_model *model, sh_job_spec *spec, sh_str before,
                          sh_tokens *out, sh_api_error *err)
{
    sh_ids ids = {0};
    sh_err why;
    if (before.ptr == NULL)
        return sh_api_fail(err, 400, "invalid_value", "suffix",
                           "'suffix' needs a 'prompt' of text, not of token ids");
    bool fine = sh_fill_middle_encode(sh_served_model_tokenizer(model), before, spec->suffix, &ids,
                                      &why) == SH_OK;
    if (fine)
        ids_keep(&ids, &spec->arena, out);
    else
        *err = sh_api_error_of(&why, false);
    sh_ids_reset(&ids);
    return fine;
}

/* Each attempt leaves out twice as many messages as the one before, so that there are few. */
static bool chat_prepare_fitting(const sh_served_model *model, sh_job_spec *spec, sh_tokens *out,
                                 sh_api_error *err)
{
    for (int drop = 1; !chat_prepare(model, spec, out, err); drop *= 2) {
        bool too_long = strcmp(err->code, "context_length_exceeded") == 0;
        if (!spec->truncates || !too_long || !sh_messages_drop_oldest(spec->messages, drop))
            return false;
    }
    return true;
}

static bool prompt_prepare(const sh_served_model *model, sh_job_spec *spec, const sh_prompt *prompt,
                           sh_tokens *out, sh_api_error *err)
{
    *out = (sh_tokens){.ids = prompt->ids, .count = prompt->id_count};
    if (spec->suffix.len > 0) {
        if (!middle_encode(model, spec, prompt->text, out, err)) return false;
    } else if (prompt->text.ptr != NULL &&
               !encode(model, prompt->text, false, &spec->arena, out, err))
        return false;
    return tokens_check(model, out, "prompt", err);
}

/* What a request for vectors asks of the model besides. */
static bool pooled_check(const sh_served_model *model, const sh_job_spec *spec, sh_api_error *err)
{
    char list[256];
    if (spec->prompt_name != NULL &&
        sh_embed_text_prompt(model->embed_text, spec->prompt_name) == NULL)
        return sh_api_fail(err, 400, "invalid_value", "prompt_name",
                           "the model has no prompt '%s'; it has: %s", spec->prompt_name,
                           sh_embed_text_prompts(model->embed_text, list, sizeof(list)));
    if (spec->dimensions == 0 || spec->dimensions == model->vector_len) return true;
    if (spec->dimensions > model->vector_len)
        return sh_api_fail(err, 400, "invalid_value", "dimensions",
                           "'dimensions' is %lld; the vectors of this model have %d",
                           (long long)spec->dimensions, model->vector_len);
    if (sh_embed_text_shortens(model->embed_text, spec->dimensions)) return true;
    const char *allowed = sh_embed_text_dimensions(model->embed_text, list, sizeof(list));
    return sh_api_fail(err, 400, "invalid_value", "dimensions",
                       "'dimensions' %lld: the vectors of this model have %d numbers%s%s",
                       (long long)spec->dimensions, model->vector_len,
                       allowed[0] == '\0' ? ", and its config.json does not say that they can be "
                                            "shortened"
                                          : " and can be shortened to ",
                       allowed);
}

/* A text, or a pair of which it is the second, with the special tokens around it. */
static bool pooled_encode(const sh_served_model *model, sh_job_spec *spec, sh_str text,
                          sh_tokens *out, sh_api_error *err)
{
    const char *prompt = spec->prompt_name == NULL
                             ? ""
                             : sh_embed_text_prompt(model->embed_text, spec->prompt_name);
    const sh_tokenizer *tok = sh_model_text_tokenizer(model->text);
    sh_encode_opts opts = {.add_special = true, .parse_special = true};
    sh_buf whole = {0};
    sh_ids ids = {0};
    sh_err why;
    sh_embed_text_write(model->embed_text, prompt, text, &whole);
    sh_status status = spec->query.ptr != NULL
                           ? sh_tokenizer_encode_pair(tok, spec->query, sh_buf_str(&whole), &ids,
                                                      &out->second, &why)
                           : sh_tokenizer_encode(tok, sh_buf_str(&whole), opts, &ids, &why);
    int32_t *copy = sh_arena_array(&spec->arena, ids.len, sizeof(*copy));
    if (ids.len > 0) memcpy(copy, ids.ptr, ids.len * sizeof(*copy));
    out->ids = copy;
    out->count = ids.len;
    sh_buf_reset(&whole);
    sh_ids_reset(&ids);
    if (status == SH_OK) return true;
    *err = sh_api_error_of(&why, false);
    return false;
}

/* Cuts the longer text of a pair until both fit, as the libraries do that such models are trained
 * with: something remains of either. */
static bool pair_truncate(sh_added_counts added, size_t most, sh_tokens *tokens, sh_api_error *err)
{
    int32_t *ids = (int32_t *)tokens->ids;
    size_t first = tokens->second - added.before - added.between;
    size_t second = tokens->count - tokens->second - added.after;
    size_t specials = added.before + added.between + added.after;
    if (most < specials + 2)
        return sh_api_fail(err, 400, "invalid_value", "truncate_prompt_tokens",
                           "'truncate_prompt_tokens' leaves %zu tokens; a pair of texts needs %zu",
                           most, specials + 2);
    size_t *shorter = first < second ? &first : &second;
    size_t *longer = first < second ? &second : &first;
    size_t room = most - specials;
    if (*shorter > room / 2) *shorter = room / 2;
    *longer = room - *shorter;
    size_t start = added.before + first + added.between;
    memmove(ids + added.before + first, ids + tokens->second - added.between,
            (added.between + second) * sizeof(*ids));
    memmove(ids + start + second, ids + tokens->count - added.after, added.after * sizeof(*ids));
    tokens->second = start;
    tokens->count = most;
    return true;
}

/* Cuts a text that is too long at its end; the special tokens after it stay. */
static bool pooled_truncate(const sh_served_model *model, const sh_job_spec *spec,
                            const sh_prompt *prompt, sh_tokens *tokens, sh_api_error *err)
{
    bool pair = spec->query.ptr != NULL;
    sh_added_counts added = sh_tokenizer_added(sh_model_text_tokenizer(model->text), pair);
    size_t most = spec->truncate < 0 || spec->truncate > model->context ? (size_t)model->context
                                                                        : (size_t)spec->truncate;
    size_t after = prompt->text.ptr == NULL ? 0 : added.after;
    if (spec->truncate == 0 || tokens->count <= most) return true;
    if (pair) return pair_truncate(added, most, tokens, err);
    if (after > most) after = most;
    memmove((int32_t *)tokens->ids + most - after, tokens->ids + tokens->count - after,
            after * sizeof(*tokens->ids));
    tokens->count = most;
    return true;
}

/* Of a pair, the error names the longer text. */
static bool pooled_fits(const sh_served_model *model, const sh_job_spec *spec,
                        const sh_tokens *tokens, const char *param, sh_api_error *err)
{
    bool pair = spec->query.ptr != NULL, query = pair && tokens->second > tokens->count / 2;
    const char *with = !pair   ? ""
                       : query ? " together with the document"
                               : " together with the query";
    if (tokens->count <= (size_t)model->context) return true;
    if (query) param = "query";
    return sh_api_fail(err, 400, "context_length_exceeded", param,
                       "'%s' has %zu tokens%s; the model takes at most %d ('%s' cuts longer texts)",
                       param, tokens->count, with, model->context,
                       spec->truncate_field == NULL ? "truncate_prompt_tokens"
                                                    : spec->truncate_field);
}

static bool pooled_prepare(const sh_served_model *model, sh_job_spec *spec, size_t index,
                           sh_tokens *out, sh_api_error *err)
{
    const sh_prompt *prompt = &spec->prompts[index];
    char param[64];
    snprintf(param, sizeof(param), spec->listed ? "%s[%zu]" : "%s", spec->field, index);
    *out = (sh_tokens){.ids = prompt->ids, .count = prompt->id_count};
    if (prompt->text.ptr != NULL && !pooled_encode(model, spec, prompt->text, out, err)) {
        snprintf(err->param, sizeof(err->param), "%s", param);
        return false;
    }
    if (out->count == 0)
        return sh_api_fail(err, 400, "invalid_value", param, "'%s' is empty", param);
    return pooled_truncate(model, spec, prompt, out, err) &&
           pooled_fits(model, spec, out, param, err) && ids_in_vocabulary(model, out, param, err);
}

bool sh_served_model_prepare(const sh_served_model *model, sh_job_spec *spec, sh_tokens **out,
                             size_t *count, sh_api_error *err)
{
    *count = spec->chat ? 1 : spec->prompt_count;
    sh_tokens *tokens = sh_arena_array(&spec->arena, *count, sizeof(*tokens));
    if (!ids_check(model, spec->bias_ids, spec->bias_count, "logit_bias", err) ||
        !ids_check(model, spec->stop_ids, spec->stop_id_count, "stop_token_ids", err))
        return false;
    if (spec->suffix.len > 0 && !middle_check(model, spec, err)) return false;
    if (spec->chat) {
        if (!chat_prepare_fitting(model, spec, tokens, err)) return false;
    } else if (spec->pooled) {
        if (!pooled_check(model, spec, err)) return false;
        for (size_t i = 0; i < *count; i++)
            if (!pooled_prepare(model, spec, i, &tokens[i], err)) return false;
    } else {
        for (size_t i = 0; i < *count; i++)
            if (!prompt_prepare(model, spec, &spec->prompts[i], &tokens[i], err)) return false;
    }
    *out = tokens;
    return true;
}
