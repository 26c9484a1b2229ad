/* The frequencies of every RoPE variant. They are computed in double and rounded to float once, at
 * the end: an error here would grow with the position. */
#include "model/rope.h"

#include <math.h>

static const double TWO_PI = 6.283185307179586476925;

double sh_rope_mscale(double factor, double mscale)
{
    return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1;
}

/* The pair of dimensions (as a fraction) that completes this many rotations over the original
 * context. */
static double yarn_pair(const sh_rope_config *c, double rotations)
{
    return c->dim * log(c->original_context / (rotations * TWO_PI)) / (2 * log(c->theta));
}

/* 1 where a frequency stays as it was (fast pairs), 0 where it is divided by the full factor; a
 * linear ramp in between. */
static double yarn_keep(const sh_rope_config *c, int i)
{
    double low = yarn_pair(c, c->beta_fast), high = yarn_pair(c, c->beta_slow);
    if (c->truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0);
    high = fmin(high, c->dim - 1);
    if (low == high) high += 0.001; /* as the reference does: the ramp must not divide by zero */
    return 1 - fmin(fmax((i - low) / (high - low), 0), 1);
}

/* Short waves keep their frequency, long ones are divided by the factor, those between the two
 * limits are blended. */
static double llama3_freq(const sh_rope_config *c, double freq)
{
    double wave = TWO_PI / freq;
    if (wave < c->original_context / c->high_freq_factor) return freq;
    if (wave > c->original_context / c->low_freq_factor) return freq / c->factor;
    double smooth = (c->original_context / wave - c->low_freq_factor) /
                    (c->high_freq_factor - c->low_freq_factor);
    return (1 - smooth) * freq / c->factor + smooth * freq;
}

static double scaled_freq(const sh_rope_config *c, bool stretched, int i, double freq)
{
    switch (c->kind) {
    case SH_ROPE_DEFAULT: return freq;
    case SH_ROPE_LINEAR: return freq / c->factor;
    case SH_ROPE_LLAMA3: return llama3_freq(c, freq);
    case SH_ROPE_LONGROPE: return freq / (stretched ? c->long_factor : c->short_factor)[i];
    case SH_ROPE_YARN: {
        double keep = yarn_keep(c, i);
        return freq / c->factor * (1 - keep) + freq * keep;
    }
    }
    return freq;
}

static double attention_factor(const sh_rope_config *c)
{
    bool grows = c->kind == SH_ROPE_YARN || c->kind == SH_ROPE_LONGROPE;
    if (!grows) return 1;
    if (c->attention_factor != 0) return c->attention_factor;
    if (c->kind == SH_ROPE_LONGROPE)
        return c->factor <= 1 ? 1 : sqrt(1 + log(c->factor) / log((double)c->original_context));
    if (c->mscale != 0 && c->mscale_all_dim != 0)
        return sh_rope_mscale(c->factor, c->mscale) / sh_rope_mscale(c->factor, c->mscale_all_dim);
    return sh_rope_mscale(c->factor, 1);
}

void sh_rope_init(const sh_rope_config *config, bool stretched, float *inv_freq, sh_rope *out)
{
    for (int i = 0; i < config->dim / 2; i++) {
        double freq = pow(config->theta, -2.0 * i / config->dim);
        inv_freq[i] = (float)scaled_freq(config, stretched, i, freq);
    }
    *out = (sh_rope){.rotary_dim = config->dim,
                     .interleaved = config->interleaved,
                     .scale = (float)attention_factor(config),
                     .inv_freq = inv_freq};
}
