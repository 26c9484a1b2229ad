#include "engine/scan.h"

#include "base/hash.h"

#include <math.h>
#include <string.h>

/* Four numbers in one register, on every machine that we know. */
typedef float four __attribute__((vector_size(16)));
typedef uint32_t four_bits __attribute__((vector_size(16)));

enum { BLOCK = 64, LANES = 4 };

static inline four four_load(const float *x)
{
    four v;
    memcpy(&v, x, sizeof(v));
    return v;
}

static inline four four_of(float x)
{
    return (four){x, x, x, x};
}

/* The larger of each pair; b where a is not larger, so that a NaN in a is passed over. */
static inline four four_max(four a, four b)
{
    four_bits larger = (four_bits)(a > b);
    return (four)(((four_bits)a & larger) | ((four_bits)b & ~larger));
}

static double noise_of(uint64_t bits)
{
    double v = ((double)(bits >> 12) + 0.5) * 0x1p-52; /* in (0, 1), exact */
    return -log(-log1p(-v));
}

static uint64_t noise_row(uint64_t seed, int64_t position)
{
    return sh_mix64(sh_mix64(seed) ^ (uint64_t)position);
}

double sh_noise(uint64_t seed, int64_t position, int32_t id)
{
    return noise_of(sh_mix64(noise_row(seed, position) ^ (uint32_t)id));
}

/* A heap whose root is the worst: what is better than the root takes its place. */
static void heap_down(sh_candidate *heap, int64_t count, int64_t at)
{
    sh_candidate moved = heap[at];
    for (int64_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && sh_candidate_better(heap[child], heap[child + 1])) child++;
        if (!sh_candidate_better(moved, heap[child])) break;
        heap[at] = heap[child];
    }
    heap[at] = moved;
}

static void heap_make(sh_candidate *heap, int64_t count)
{
    for (int64_t i = count / 2; i-- > 0;) heap_down(heap, count, i);
}

void sh_candidates_sort(sh_candidate *list, int64_t count)
{
    heap_make(list, count);
    while (count-- > 1) { /* the worst goes to the end */
        sh_candidate worst = list[0];
        list[0] = list[count];
        list[count] = worst;
        heap_down(list, count, 0);
    }
}

static float block_max(const float *x)
{
    four most[2] = {four_of(-INFINITY), four_of(-INFINITY)};
    for (int i = 0; i < BLOCK; i += 2 * LANES) {
        most[0] = four_max(four_load(x + i), most[0]);
        most[1] = four_max(four_load(x + i + LANES), most[1]);
    }
    most[0] = four_max(most[0], most[1]);
    float max = -INFINITY;
    for (int k = 0; k < LANES; k++) max = most[0][k] > max ? most[0][k] : max;
    return max;
}

static float span_max(const float *x, int32_t len)
{
    if (len == BLOCK) return block_max(x);
    float max = -INFINITY;
    for (int32_t i = 0; i < len; i++) max = x[i] > max ? x[i] : max;
    return max;
}

static int32_t block_len(int32_t len, int32_t at)
{
    return len - at < BLOCK ? len - at : BLOCK;
}

static sh_candidate scan_max(const float *logits, int32_t first, int32_t len)
{
    sh_candidate best = {first, -INFINITY};
    for (int32_t at = 0; at < len; at += BLOCK) {
        int32_t count = block_len(len, at);
        if (!(span_max(logits + at, count) > best.logit)) continue;
        for (int32_t i = at; i < at + count; i++)
            if (logits[i] > best.logit) best = (sh_candidate){first + i, logits[i]};
    }
    return best;
}

/* The `want` best, sorted; since ids rise, a later equal never displaces an earlier one. */
static int scan_top(const float *logits, int32_t first, int32_t len, int want, sh_candidate *out)
{
    int count = want < len ? want : len;
    for (int i = 0; i < count; i++) out[i] = (sh_candidate){first + i, logits[i]};
    heap_make(out, count);
    for (int32_t at = count; at < len; at += BLOCK) {
        int32_t size = block_len(len, at);
        if (!(span_max(logits + at, size) > out[0].logit)) continue;
        for (int32_t i = at; i < at + size; i++) {
            if (!(logits[i] > out[0].logit)) continue;
            out[0] = (sh_candidate){first + i, logits[i]};
            heap_down(out, count, 0);
        }
    }
    sh_candidates_sort(out, count);
    return count;
}

/* e^x of numbers that are at most 0, to 2e-7: 2^n times a polynomial for the rest. */
static inline four four_exp(four x)
{
    const four round = four_of(12582912.0f); /* 1.5 * 2^23: the sum has the whole number n below */
    four t = four_max(x * 1.44269504f, four_of(-126.0f)), shifted = t + round;
    four r = t - (shifted - round);
    four p = r * 1.5252734e-5f + 1.5403530e-4f;
    p = p * r + 1.3333558e-3f;
    p = p * r + 9.6181291e-3f;
    p = p * r + 5.5504109e-2f;
    p = p * r + 2.4022651e-1f;
    p = p * r + 6.9314718e-1f;
    p = p * r + 1.0f;
    return p * (four)(((four_bits)shifted << 23) + 0x3f800000u);
}

double sh_scan_sum(const float *logits, int32_t len, float max)
{
    double sum = 0;
    int32_t at = 0;
    for (; at + BLOCK <= len; at += BLOCK) {
        four part = four_of(0);
        for (int i = 0; i < BLOCK; i += LANES) part += four_exp(four_load(logits + at + i) - max);
        sum += (double)part[0] + (double)part[1] + (double)part[2] + (double)part[3];
    }
    for (; at < len; at++) sum += (double)expf(logits[at] - max);
    return sum;
}

/* The largest of logit / temperature + noise. The noise is at most (leading zeros + 1) ln 2, so
 * nearly all tokens of a block are turned away by one comparison of their bits. */
static sh_candidate scan_noise(const sh_draw *d, const float *logits, int32_t first, int32_t len,
                               sh_candidate best, double *score)
{
    static const double ln2 = 0.69314718055994531;
    double scale = 1 / d->temperature;
    uint64_t row = noise_row(d->seed, d->position);
    double top = (double)best.logit * scale + noise_of(sh_mix64(row ^ (uint32_t)best.id));
    for (int32_t at = 0; at < len; at += BLOCK) {
        int32_t end = at + block_len(len, at);
        double lack = (top - (double)span_max(logits + at, end - at) * scale) / ln2 - 1;
        if (!(lack < 64)) continue;
        uint64_t bound = lack < 1 ? UINT64_MAX : UINT64_MAX >> (int)lack;
        for (int32_t i = at; i < end; i++) {
            uint64_t bits = sh_mix64(row ^ (uint32_t)(first + i));
            if (bits > bound) continue;
            double s = (double)logits[i] * scale + noise_of(bits);
            if (!(s > top) && !(s == top && first + i < best.id)) continue;
            top = s;
            best = (sh_candidate){first + i, logits[i]};
        }
    }
    *score = top;
    return best;
}

static bool sum_needed(const sh_draw *d)
{
    return d->logprobs >= 0 || (d->temperature > 0 && d->top_p < 1);
}

void sh_scan_row(const sh_draw *d, const float *logits, int32_t first, int32_t len, sh_scan *out)
{
    sh_candidate best = scan_max(logits, first, len);
    out->total = len;
    out->max = best.logit;
    out->sum = sum_needed(d) ? sh_scan_sum(logits, len, best.logit) : 0;
    int want = sh_draw_top(d);
    out->top_count = want > 0 ? scan_top(logits, first, len, want, out->top) : 0;
    out->won = best;
    out->won_score = best.logit;
    if (len > 0 && d->temperature > 0 && !sh_draw_filters(d))
        out->won = scan_noise(d, logits, first, len, best, &out->won_score);
}
