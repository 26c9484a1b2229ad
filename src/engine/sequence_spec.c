/* The engine checks requests itself: the API checks them too, but the engine's socket is a process
 * boundary and any client of the same user may connect. The comparisons are written so that NaN
 * fails them. */
#include "engine/engine_client.h"

static sh_status ids_check(const char *name, const int32_t *ids, size_t count, int vocab,
                           sh_err *err)
{
    for (size_t i = 0; i < count; i++)
        if (ids[i] < 0 || ids[i] >= vocab)
            return sh_err_set(err, SH_ERR_INPUT, "'%s' contains token id %d; valid ids are 0 to %d",
                              name, ids[i], vocab - 1);
    return SH_OK;
}

static sh_status biases_check(const sh_sampling *s, sh_err *err)
{
    for (int i = 0; i < s->logit_bias_count; i++)
        if (!((double)s->logit_bias[i] >= SH_MIN_OF(SH_BOUNDS_LOGIT_BIAS) &&
              (double)s->logit_bias[i] <= SH_MAX_OF(SH_BOUNDS_LOGIT_BIAS)))
            return sh_err_set(err, SH_ERR_INPUT, "'logit_bias' contains %g; it must be %d to %d",
                              (double)s->logit_bias[i], SH_MIN_OF(SH_BOUNDS_LOGIT_BIAS),
                              SH_MAX_OF(SH_BOUNDS_LOGIT_BIAS));
    return SH_OK;
}

static sh_status numbers_check(const sh_sequence_spec *q, sh_err *err)
{
    const sh_sampling *s = &q->sampling;
    const struct {
        const char *name;
        double value, least, most;
    } numbers[] = {
        {"max_tokens", q->max_tokens, SH_BOUNDS_MAX_TOKENS},
        {"min_tokens", q->min_tokens, SH_BOUNDS_MIN_TOKENS},
        {"temperature", s->temperature, SH_BOUNDS_TEMPERATURE},
        {"top_k", s->top_k, SH_BOUNDS_TOP_K},
        {"top_p", s->top_p, SH_BOUNDS_TOP_P},
        {"min_p", s->min_p, SH_BOUNDS_MIN_P},
        {"repetition_penalty", s->repetition_penalty, SH_BOUNDS_REPETITION_PENALTY},
        {"repetition_window", s->repetition_window, SH_BOUNDS_REPETITION_WINDOW},
        {"presence_penalty", s->presence_penalty, SH_BOUNDS_PRESENCE_PENALTY},
        {"frequency_penalty", s->frequency_penalty, SH_BOUNDS_FREQUENCY_PENALTY},
        {"logprobs", q->logprobs < 0 ? 0 : q->logprobs, SH_BOUNDS_LOGPROBS},
    };
    for (size_t i = 0; i < SH_COUNT_OF(numbers); i++)
        if (!(numbers[i].value >= numbers[i].least && numbers[i].value <= numbers[i].most))
            return sh_err_set(err, SH_ERR_INPUT, "'%s' is %g; it must be %g to %g", numbers[i].name,
                              numbers[i].value, numbers[i].least, numbers[i].most);
    return SH_OK;
}

/* An answer that must match a grammar ends by a stop id and in no other way. */
static sh_status grammar_check(const sh_sequence_spec *q, sh_err *err)
{
    if (q->grammar.len > SH_GRAMMAR_PACKED_MAX)
        return sh_err_set(err, SH_ERR_LIMIT, "the grammar takes %zu bytes; at most %d are allowed",
                          q->grammar.len, SH_GRAMMAR_PACKED_MAX);
    if (q->grammar.len > 0 && q->stop_id_count == 0)
        return sh_err_set(err, SH_ERR_INPUT, "an answer with a grammar needs stop ids to end");
    return SH_OK;
}

/* An answer begins when all of its prompt has been reported. */
static sh_status score_check(const sh_sequence_spec *q, sh_err *err)
{
    int64_t prompt = (int64_t)q->prompt_count - q->answered;
    if (q->score_from == 0) return SH_OK;
    if (q->score_from < 0 || q->score_from > prompt)
        return sh_err_set(err, SH_ERR_INPUT, "'score_from' is %d; the prompt has %lld tokens",
                          q->score_from, (long long)prompt);
    if (q->answered > 0 && q->score_from < prompt)
        return sh_err_set(err, SH_ERR_INPUT,
                          "there is an answer so far, but 'score_from' is %d of %lld",
                          q->score_from, (long long)prompt);
    if (q->logprobs < 0) return sh_err_set(err, SH_ERR_INPUT, "'score_from' without 'logprobs'");
    return SH_OK;
}

static sh_status reasoning_check(const sh_sequence_spec *q, int vocab, sh_err *err)
{
    const int32_t ids[] = {q->reasoning_begin, q->reasoning_end};
    if (q->reasoning_max == 0) return SH_OK;
    if (q->reasoning_max < 0)
        return sh_err_set(err, SH_ERR_INPUT, "the limit of reasoning is %d tokens",
                          q->reasoning_max);
    return ids_check("the tokens around reasoning", ids, SH_COUNT_OF(ids), vocab, err);
}

sh_status sh_sequence_spec_check(const sh_sequence_spec *q, int vocab, sh_err *err)
{
    const sh_sampling *s = &q->sampling;
    if (q->prompt_count == 0) return sh_err_set(err, SH_ERR_INPUT, "the prompt is empty");
    if (q->answered < 0 || (size_t)q->answered >= q->prompt_count)
        return sh_err_set(err, SH_ERR_INPUT, "%d of %zu tokens are said to be the answer so far",
                          q->answered, q->prompt_count);
    if (q->pooled && q->answered > 0)
        return sh_err_set(err, SH_ERR_INPUT, "a text for a vector cannot end in the answer so far");
    if (q->second < 0 || (size_t)q->second > q->prompt_count)
        return sh_err_set(err, SH_ERR_INPUT, "a text of %zu tokens has its second part at %d",
                          q->prompt_count, q->second);
    if (q->timeout_ms < 0) return sh_err_set(err, SH_ERR_INPUT, "'timeout' is negative");
    sh_status status = numbers_check(q, err);
    if (status == SH_OK) status = score_check(q, err);
    if (status == SH_OK) status = grammar_check(q, err);
    if (status == SH_OK) status = reasoning_check(q, vocab, err);
    if (status == SH_OK) status = biases_check(s, err);
    if (status == SH_OK) status = ids_check("prompt", q->prompt, q->prompt_count, vocab, err);
    if (status == SH_OK)
        status = ids_check("stop_token_ids", q->stop_ids, (size_t)q->stop_id_count, vocab, err);
    if (status == SH_OK)
        status = ids_check("logit_bias", s->logit_bias_ids, (size_t)s->logit_bias_count, vocab,
                           err);
    return status;
}
