#include "cmd/talk.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"
#include "text/detokenizer.h"

#include <stdlib.h>
#include <string.h>

enum { CHUNK = 512, LEAD_IN = 8 };

static bool has_tokenizer(const char *dir)
{
    static const char *const names[] = {"tokenizer.json", "tiktoken.model", "qwen.tiktoken"};
    bool found = false;
    for (size_t i = 0; i < SH_COUNT_OF(names) && !found; i++) {
        char *path = sh_path_join(dir, names[i]);
        found = sh_file_exists(path);
        free(path);
    }
    return found;
}

/* A folder without tokenizer or template can still go on from ids. */
static sh_status load_text(const sh_settings *s, sh_talk *talk, sh_err *err)
{
    if (s->tokenizer == NULL && !has_tokenizer(s->model)) return SH_OK;
    sh_status status = sh_tokenizer_load(s->tokenizer != NULL ? s->tokenizer : s->model,
                                         &talk->tokenizer, err);
    if (status == SH_OK)
        status = sh_chat_template_load(s->model, s->template, &talk->template, err);
    return status == SH_ERR_NOT_FOUND ? SH_OK : status;
}

sh_status sh_talk_open(const sh_command_args *args, sh_talk *out, sh_err *err)
{
    const sh_settings *s = args->settings;
    sh_session_room room = {.chunk = CHUNK, .draws = 1};
    *out = (sh_talk){.settings = s, .seed = (uint64_t)s->seed};
    sh_status status = SH_OK;
    if (s->model == NULL) status = sh_err_set(err, SH_ERR_INPUT, "no model is given: --model DIR");
    if (status == SH_OK && !sh_options_given(args->options, "seed"))
        status = sh_random_bytes(&out->seed, sizeof(out->seed), err);
    if (status == SH_OK && s->rank == 0) status = load_text(s, out, err);
    if (status == SH_OK) status = sh_session_open(args, &room, &out->session, err);
    if (status != SH_OK) sh_talk_close(out);
    return status;
}

void sh_talk_close(sh_talk *talk)
{
    sh_session_close(&talk->session);
    sh_tokenizer_free(talk->tokenizer);
    sh_chat_template_free(talk->template);
    sh_ids_reset(&talk->held);
    talk->tokenizer = NULL;
    talk->template = NULL;
}

static sh_status need_tokenizer(const sh_talk *talk, sh_err *err)
{
    if (talk->tokenizer != NULL) return SH_OK;
    return sh_err_set(err, SH_ERR_NOT_FOUND, "%s has no tokenizer.json; --ids takes token ids",
                      talk->settings->model);
}

sh_status sh_talk_encode(const sh_talk *talk, const char *text, sh_ids *out, sh_err *err)
{
    sh_encode_opts opts = {.add_special = true, .parse_special = true};
    sh_status status = need_tokenizer(talk, err);
    if (status != SH_OK) return status;
    return sh_tokenizer_encode(talk->tokenizer, sh_str_of(text), opts, out, err);
}

sh_status sh_talk_encode_chat(const sh_talk *talk, const cJSON *request, sh_buf *prompt,
                              sh_ids *out, sh_err *err)
{
    sh_encode_opts opts = {.parse_special = true};
    sh_status status = need_tokenizer(talk, err);
    if (status != SH_OK) return status;
    if (talk->template == NULL)
        return sh_err_set(err, SH_ERR_NOT_FOUND, "%s has no chat template; --template names one",
                          talk->settings->model);
    status = sh_chat_template_render(talk->template, request, NULL, prompt, err);
    if (status != SH_OK) return status;
    return sh_tokenizer_encode(talk->tokenizer, sh_buf_str(prompt), opts, out, err);
}

static bool ends(const sh_talk *talk, int32_t id)
{
    const sh_config *config = sh_crew_config(talk->session.crew);
    for (int i = 0; i < config->eos_count; i++)
        if (config->eos[i] == id) return true;
    return config->eos_count == 0 && talk->tokenizer != NULL &&
           sh_tokenizer_named(talk->tokenizer, SH_TOKEN_EOS) == id;
}

/* Tokens at the start whose KV is there; the last is always computed, for its logits. */
static int held_prefix(const sh_talk *talk, const sh_ids *prompt)
{
    size_t same = 0, limit = talk->held.len < prompt->len ? talk->held.len : prompt->len - 1;
    while (same < limit && talk->held.ptr[same] == prompt->ptr[same]) same++;
    return (int)same;
}

/* The session holds exactly these from here on. */
static void hold(sh_talk *talk, const int32_t *ids, size_t count)
{
    talk->held.len = 0;
    sh_ids_add_all(&talk->held, ids, count);
}

static bool stopped(const sh_talk_sink *sink)
{
    return sink->stop != NULL && *sink->stop != 0;
}

/* Chunks of the prompt; the last one draws. Sets *done to how far it came when it was stopped. */
static sh_status run_prompt(sh_talk *talk, const sh_ids *all, int from, int len,
                            const sh_draw *draw, const sh_talk_sink *sink, int *done, sh_err *err)
{
    sh_status status = SH_OK;
    int count = (int)all->len;
    while (from < count && status == SH_OK && !stopped(sink)) {
        int now = count - from < CHUNK ? count - from : CHUNK;
        status = sh_session_run(&talk->session, all->ptr, from, now, len, from + now == count, draw,
                                err);
        from += now;
    }
    *done = from;
    return status;
}

typedef struct {
    sh_detokenizer *detok;
    const sh_talk_sink *sink;
} printer;

static void print_piece(const printer *p, sh_str piece)
{
    if (piece.len > 0 && p->sink->text != NULL) p->sink->text(p->sink->ctx, piece);
}

/* The prompt's last tokens go first, unseen, so that the first word keeps its space. */
static printer printer_start(const sh_talk *talk, const sh_ids *prompt, const sh_talk_sink *sink)
{
    printer p = {.sink = sink};
    if (talk->tokenizer == NULL) return p;
    p.detok = sh_detokenizer_create(talk->tokenizer, !sink->special);
    for (size_t i = prompt->len > LEAD_IN ? prompt->len - LEAD_IN : 0; i < prompt->len; i++)
        (void)sh_detokenizer_push(p.detok, prompt->ptr[i]);
    return p;
}

static void printer_push(const printer *p, int32_t id)
{
    if (p->detok != NULL) print_piece(p, sh_detokenizer_push(p->detok, id));
}

static void printer_finish(const printer *p)
{
    if (p->detok == NULL) return;
    print_piece(p, sh_detokenizer_finish(p->detok));
    sh_detokenizer_free(p->detok);
}

static sh_draw draw_of(const sh_talk *talk)
{
    const sh_settings *s = talk->settings;
    return (sh_draw){.temperature = s->temperature,
                     .top_k = (int)s->top_k,
                     .top_p = s->top_p,
                     .min_p = s->min_p,
                     .seed = talk->seed,
                     .logprobs = 0};
}

/* The longest answer to a prompt of that many tokens. */
static int answer_max(const sh_talk *talk, size_t prompt_len)
{
    int64_t left = (int64_t)sh_crew_context(talk->session.crew) - (int64_t)prompt_len;
    int64_t most = talk->settings->max_tokens;
    return (int)(most == 0 || most > left ? left : most);
}

/* Draws token after token. `all` holds the prompt and grows by the answer. */
static sh_status run_answer(sh_talk *talk, sh_ids *all, int len, const sh_talk_sink *sink,
                            const printer *print, sh_talk_answer *out, sh_err *err)
{
    sh_draw draw = draw_of(talk);
    int most = answer_max(talk, all->len), context = sh_crew_context(talk->session.crew);
    sh_status status = SH_OK;
    out->finish = SH_TALK_LENGTH;
    for (;;) {
        const sh_pick *pick = &talk->session.picks[0];
        if (ends(talk, pick->id)) {
            out->finish = SH_TALK_STOP;
            break;
        }
        sh_ids_add(&out->ids, pick->id);
        out->logprobs = sh_realloc_array(out->logprobs, out->ids.len, sizeof(*out->logprobs));
        out->logprobs[out->ids.len - 1] = pick->logprob;
        sh_ids_add(all, pick->id);
        printer_push(print, pick->id);
        if ((int)out->ids.len >= most || (int)all->len >= context) break;
        if (stopped(sink)) {
            out->finish = SH_TALK_INTERRUPTED;
            break;
        }
        status = sh_session_run(&talk->session, all->ptr, (int)all->len - 1, 1, len, 1, &draw, err);
        if (status != SH_OK) break;
        hold(talk, all->ptr, all->len);
    }
    return status;
}

sh_status sh_talk_run(sh_talk *talk, const sh_ids *prompt, const sh_talk_sink *sink,
                      sh_talk_answer *out, sh_err *err)
{
    sh_ids all = {0};
    sh_draw draw = draw_of(talk);
    sh_talk_answer answer = {.prompt_tokens = (int)prompt->len};
    int done = 0, len = (int)prompt->len + answer_max(talk, prompt->len);
    if (prompt->len == 0) return sh_err_set(err, SH_ERR_INPUT, "the prompt is empty");
    int64_t start = sh_clock_ns();
    sh_ids_add_all(&all, prompt->ptr, prompt->len);
    answer.held_tokens = held_prefix(talk, prompt);
    sh_status status = run_prompt(talk, &all, answer.held_tokens, len, &draw, sink, &done, err);
    hold(talk, all.ptr, status == SH_OK ? (size_t)done : 0);
    answer.prompt_s = (double)(sh_clock_ns() - start) * 1e-9;
    start = sh_clock_ns();
    answer.finish = SH_TALK_INTERRUPTED;
    if (status == SH_OK && done == (int)prompt->len) {
        printer print = printer_start(talk, prompt, sink);
        status = run_answer(talk, &all, len, sink, &print, &answer, err);
        printer_finish(&print);
    }
    answer.answer_s = (double)(sh_clock_ns() - start) * 1e-9;
    sh_ids_reset(&all);
    if (status == SH_OK)
        *out = answer;
    else
        sh_talk_answer_reset(&answer);
    return status;
}

void sh_talk_answer_reset(sh_talk_answer *answer)
{
    sh_ids_reset(&answer->ids);
    free(answer->logprobs);
    *answer = (sh_talk_answer){0};
}

const char *sh_talk_finish_name(sh_talk_finish finish)
{
    static const char *const names[] = {"stop", "length", "interrupted"};
    return names[finish];
}
