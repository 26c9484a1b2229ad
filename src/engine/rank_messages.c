/* Both ends of a message must agree on every byte, so pack and unpack functions come in pairs with
 * the fields in the same order. A reader that has failed returns zeros from then on; callers check
 * it once, at the end. */
#include "engine/rank_messages.h"

#include <math.h>
#include <string.h>

/* A field of fixed length, as it is in memory. */
static void put_field(sh_buf *out, const void *data, size_t len)
{
    sh_buf_add(out, data, len);
}

static void get_field(sh_reader *r, void *out, size_t len)
{
    const void *data = sh_get_array(r, len, 1);
    if (data == NULL)
        memset(out, 0, len);
    else
        memcpy(out, data, len);
}

/* Text from another rank goes into logs and JSON: make sure it is terminated and printable. */
static void get_text(sh_reader *r, char *out, size_t len)
{
    get_field(r, out, len);
    out[len - 1] = '\0';
    for (char *c = out; *c != '\0'; c++)
        if (*c <= ' ' || *c >= 127 || *c == '"' || *c == '\\') *c = '?';
}

/* A number that shares are computed from must be finite and not negative. */
static double get_resource(sh_reader *r)
{
    double value = sh_get_double(r);
    if (!(value >= 0) || isinf(value)) r->failed = true;
    return r->failed ? 0 : value;
}

/* A measurement that is only displayed: infinities and NaN become 0 instead of an error. */
static double get_measure(sh_reader *r)
{
    double value = sh_get_double(r);
    return isfinite(value) ? value : 0;
}

/* A sensor: NAN where the rank has none. JSON has no infinity. */
static double get_sensor(sh_reader *r)
{
    double value = sh_get_double(r);
    return isfinite(value) ? value : NAN;
}

void sh_rank_offer_pack(const sh_rank_offer *offer, sh_buf *out)
{
    sh_put_double(out, offer->resources.memory);
    sh_put_double(out, offer->resources.speed);
    sh_put_uint(out, (uint32_t)offer->member, 4);
    put_field(out, offer->machine, sizeof(offer->machine));
    put_field(out, offer->host, sizeof(offer->host));
}

void sh_rank_offer_unpack(sh_reader *r, sh_rank_offer *out)
{
    out->resources.memory = get_resource(r);
    out->resources.speed = get_resource(r);
    out->member = sh_get_int(r);
    if (out->member < 0) r->failed = true;
    get_field(r, out->machine, sizeof(out->machine));
    get_text(r, out->host, sizeof(out->host));
}

void sh_rank_report_pack(const sh_rank_report *p, sh_buf *out)
{
    put_field(out, p->host, sizeof(p->host));
    const int64_t whole[] = {p->pid,      p->weights, p->kv,        p->scratch,
                             p->resident, p->peak,    p->available, p->total};
    for (size_t i = 0; i < SH_COUNT_OF(whole); i++) sh_put_uint(out, (uint64_t)whole[i], 8);
    sh_put_double(out, p->cpu_s);
    sh_put_double(out, p->compute_s);
    sh_put_double(out, p->own_s);
    for (int i = 0; i < SH_TRAFFICS; i++) {
        sh_put_uint(out, p->traffic[i].calls, 8);
        sh_put_uint(out, p->traffic[i].bytes, 8);
        sh_put_double(out, p->traffic[i].seconds);
    }
    sh_put_uint(out, p->steps, 8);
    sh_put_uint(out, p->tokens, 8);
    sh_put_double(out, p->temperature_c);
    sh_put_double(out, p->power_w);
}

void sh_rank_report_unpack(sh_reader *r, sh_rank_report *p)
{
    get_text(r, p->host, sizeof(p->host));
    int64_t *const whole[] = {&p->pid,      &p->weights, &p->kv,        &p->scratch,
                              &p->resident, &p->peak,    &p->available, &p->total};
    for (size_t i = 0; i < SH_COUNT_OF(whole); i++) *whole[i] = (int64_t)sh_get_uint(r, 8);
    p->cpu_s = get_measure(r);
    p->compute_s = get_measure(r);
    p->own_s = get_measure(r);
    for (int i = 0; i < SH_TRAFFICS; i++) {
        p->traffic[i].calls = sh_get_uint(r, 8);
        p->traffic[i].bytes = sh_get_uint(r, 8);
        p->traffic[i].seconds = get_measure(r);
    }
    p->steps = sh_get_uint(r, 8);
    p->tokens = sh_get_uint(r, 8);
    p->temperature_c = get_sensor(r);
    p->power_w = get_sensor(r);
}

void sh_link_report_pack(const sh_link_report *link, sh_buf *out)
{
    sh_put_double(out, link->latency_s);
    sh_put_double(out, link->bytes_per_s);
    put_field(out, link->kind, sizeof(link->kind));
    put_field(out, link->device, sizeof(link->device));
}

void sh_link_report_unpack(sh_reader *r, sh_link_report *out)
{
    out->latency_s = get_measure(r);
    out->bytes_per_s = get_measure(r);
    get_text(r, out->kind, sizeof(out->kind));
    get_text(r, out->device, sizeof(out->device));
}

size_t sh_logits_summary_bytes(const sh_draw *draw)
{
    return SH_SUMMARY_HEAD_BYTES + (size_t)sh_draw_top(draw) * 8;
}

static void put_candidate(sh_buf *out, sh_candidate c)
{
    sh_put_ints(out, &c.id, 1);
    sh_put_floats(out, &c.logit, 1);
}

static sh_candidate get_candidate(sh_reader *r, sh_range part)
{
    sh_candidate c = {.id = sh_get_int(r)};
    const void *logit = sh_get_array(r, 1, sizeof(float));
    if (logit != NULL) memcpy(&c.logit, logit, sizeof(float));
    if (c.id < part.first || c.id >= part.first + part.count) r->failed = true;
    return c;
}

void sh_logits_summary_pack(const sh_logits_summary *summary, const sh_draw *draw, sh_buf *out)
{
    int most = sh_draw_top(draw);
    sh_put_uint(out, (uint64_t)summary->total, 8);
    sh_put_floats(out, &summary->max, 1);
    sh_put_double(out, summary->sum);
    put_candidate(out, summary->won);
    sh_put_double(out, summary->won_score);
    sh_put_uint(out, (uint32_t)summary->top_count, 4);
    for (int i = 0; i < summary->top_count; i++) put_candidate(out, summary->top[i]);
    for (int i = summary->top_count; i < most; i++) sh_put_uint(out, 0, 8);
}

/* A rank without a part of the vocabulary sends total 0, and a winner with id 0 that does not
 * count. Ids must lie in the sender's part: rank 0 would otherwise pick a token that does not
 * exist. */
void sh_logits_summary_unpack(sh_reader *r, const sh_draw *draw, sh_range part,
                              sh_logits_summary *out)
{
    int most = sh_draw_top(draw);
    out->total = (int64_t)sh_get_uint(r, 8);
    const void *max = sh_get_array(r, 1, sizeof(float));
    if (max != NULL) memcpy(&out->max, max, sizeof(float));
    out->sum = sh_get_double(r);
    out->won = get_candidate(r, part.count > 0 ? part : (sh_range){0, 1});
    out->won_score = sh_get_double(r);
    out->top_count = sh_get_int(r);
    if (out->total != part.count || out->top_count < 0 || out->top_count > most ||
        out->top_count > out->total)
        r->failed = true;
    if (r->failed) out->total = out->top_count = 0;
    for (int i = 0; i < out->top_count; i++) out->top[i] = get_candidate(r, part);
    sh_get_array(r, (size_t)(most - out->top_count), 8);
}

static void put_range(sh_buf *out, sh_range range)
{
    sh_put_uint(out, (uint64_t)range.first, 8);
    sh_put_uint(out, (uint64_t)range.count, 8);
}

void sh_shard_pack(const sh_shard *s, sh_buf *out)
{
    const int numbers[] = {s->rank,   s->tensor_rank, s->tensor_size, s->stage,
                           s->stages, s->layer_first, s->layer_count};
    for (size_t i = 0; i < SH_COUNT_OF(numbers); i++) sh_put_uint(out, (uint32_t)numbers[i], 4);
    const sh_range ranges[] = {s->heads, s->kv_heads,   s->conv,       s->delta,
                               s->ffn,   s->expert_ffn, s->shared_ffn, s->vocab};
    for (size_t i = 0; i < SH_COUNT_OF(ranges); i++) put_range(out, ranges[i]);
}
