/* Reads the RoPE keys in both spellings. Old: rope_theta, partial_rotary_factor and
 * rope_scaling{type} at the top level. New: rope_parameters{rope_type, rope_theta, ...}, or one
 * such object for each kind of layer. */
#include "model/config_read.h"

#include <math.h>
#include <string.h>

static const struct {
    const char *name;
    sh_rope_kind kind;
} KINDS[] = {
    {"default", SH_ROPE_DEFAULT}, {"linear", SH_ROPE_LINEAR},      {"llama3", SH_ROPE_LLAMA3},
    {"yarn", SH_ROPE_YARN},       {"deepseek_yarn", SH_ROPE_YARN}, {"longrope", SH_ROPE_LONGROPE},
    {"su", SH_ROPE_LONGROPE},
};

static sh_status read_kind(const sh_config_reader *in, sh_rope_config *rope)
{
    const char *type = "default"; /* rope_type, the newer key, wins */
    sh_status status = sh_json_string(in->json, "type", in->where, &type, in->err);
    if (status == SH_OK) status = sh_json_string(in->json, "rope_type", in->where, &type, in->err);
    if (status != SH_OK) return status;
    for (size_t i = 0; i < SH_COUNT_OF(KINDS); i++) {
        if (strcmp(type, KINDS[i].name) != 0) continue;
        rope->kind = KINDS[i].kind;
        return SH_OK;
    }
    return sh_err_set(in->err, SH_ERR_UNSUPPORTED,
                      "%s: RoPE type '%s' is not supported; supported are default, linear, llama3, "
                      "yarn and longrope",
                      in->where, type);
}

static sh_status read_factors(const sh_config_reader *in, const char *key, int count,
                              sh_arena *arena, const double **out)
{
    const cJSON *list = sh_read_item(in, key);
    const cJSON *item = NULL;
    int i = 0;
    if (!cJSON_IsArray(list) || cJSON_GetArraySize(list) != count)
        return sh_err_set(in->err, SH_ERR_INPUT, "%s: '%s' must be an array of %d numbers",
                          in->where, key, count);
    double *factors = sh_arena_array(arena, (size_t)count, sizeof(*factors));
    cJSON_ArrayForEach(item, list)
    {
        if (!cJSON_IsNumber(item) || !(item->valuedouble >= 1e-6 && item->valuedouble <= 1e6))
            return sh_err_set(in->err, SH_ERR_INPUT, "%s: '%s' must hold numbers from 1e-6 to 1e6",
                              in->where, key);
        factors[i++] = item->valuedouble;
    }
    *out = factors;
    return SH_OK;
}

/* Keys that only some kinds use. All are read for every kind; sh_rope_init looks only at those of
 * its kind. */
static sh_status read_scaling(const sh_config_reader *in, sh_rope_config *rope)
{
    sh_status status;
    if ((status = sh_read_double(in, "factor", 1e-3, 1e6, &rope->factor)) != 0 ||
        (status = sh_read_double(in, "low_freq_factor", 1e-3, 1e6, &rope->low_freq_factor)) != 0 ||
        (status = sh_read_double(in, "high_freq_factor", 1e-3, 1e6, &rope->high_freq_factor)) !=
            0 ||
        (status = sh_read_double(in, "beta_fast", 1e-3, 1e6, &rope->beta_fast)) != 0 ||
        (status = sh_read_double(in, "beta_slow", 1e-3, 1e6, &rope->beta_slow)) != 0 ||
        (status = sh_read_bool(in, "truncate", &rope->truncate)) != 0 ||
        (status = sh_read_double(in, "mscale", 0, 1e3, &rope->mscale)) != 0 ||
        (status = sh_read_double(in, "mscale_all_dim", 0, 1e3, &rope->mscale_all_dim)) != 0 ||
        (status = sh_read_double(in, "attention_factor", 1e-3, 1e3, &rope->attention_factor)) != 0)
        return status;
    return SH_OK;
}

static sh_status check_scaling(const sh_config_reader *in, const sh_rope_config *rope)
{
    if (rope->kind == SH_ROPE_LLAMA3 && rope->low_freq_factor >= rope->high_freq_factor)
        return sh_err_set(in->err, SH_ERR_INPUT,
                          "%s: 'low_freq_factor' %g must be under 'high_freq_factor' %g", in->where,
                          rope->low_freq_factor, rope->high_freq_factor);
    if (rope->kind == SH_ROPE_LINEAR && rope->factor == 0)
        return sh_err_set(in->err, SH_ERR_INPUT, "%s: linear RoPE needs a 'factor'", in->where);
    return SH_OK;
}

/* On entry rope->dim is the family's default, 0 for the whole head. */
static sh_status read_dim(const sh_config_reader *top, const sh_config_reader *in,
                          const sh_config *config, sh_rope_config *rope)
{
    double partial = rope->dim == 0 ? 1 : (double)rope->dim / config->head_dim;
    sh_status status = sh_read_double(top, "partial_rotary_factor", 0, 1, &partial);
    if (status == SH_OK) status = sh_read_double(in, "partial_rotary_factor", 0, 1, &partial);
    if (status != SH_OK) return status;
    rope->dim = config->mla.kv_rank > 0 ? config->mla.rope_dim
                                        : (int)((double)config->head_dim * partial);
    if (rope->dim < 2 || rope->dim % 2 != 0)
        return sh_err_set(top->err, SH_ERR_INPUT,
                          "%s: RoPE would rotate %d dimensions of a head; the number must be even "
                          "and at least 2",
                          top->where, rope->dim);
    return SH_OK;
}

sh_status sh_read_rope_params(const sh_config_reader *top, const cJSON *params,
                              const sh_config *config, sh_arena *arena, sh_rope_config *out)
{
    if (params != NULL && !cJSON_IsObject(params))
        return sh_err_set(top->err, SH_ERR_INPUT,
                          "%s: the RoPE parameters must be an object, not %s", top->where,
                          sh_json_kind(params));
    sh_config_reader in = {.json = params, .where = top->where, .err = top->err};
    sh_rope_config rope = {.dim = out->dim,
                           .interleaved = out->interleaved,
                           .theta = out->theta,
                           .low_freq_factor = 1,
                           .high_freq_factor = 4,
                           .beta_fast = 32,
                           .beta_slow = 1,
                           .truncate = true,
                           .original_context = config->context};
    /* original_max_position_embeddings may be at either level; the top one wins. */
    sh_status status;
    if ((status = sh_read_double(&in, "rope_theta", 2, 1e12, &rope.theta)) != 0 ||
        (status = read_kind(&in, &rope)) != 0 || (status = read_scaling(&in, &rope)) != 0 ||
        (status = sh_read_int(&in, "original_max_position_embeddings", 2, 1 << 30,
                              &rope.original_context)) != 0 ||
        (status = sh_read_int(top, "original_max_position_embeddings", 2, 1 << 30,
                              &rope.original_context)) != 0 ||
        (status = read_dim(top, &in, config, &rope)) != 0 ||
        (status = check_scaling(&in, &rope)) != 0)
        return status;
    /* Without a factor it is the ratio of the two context lengths. check_scaling has refused linear
     * RoPE without one: that has only one length. */
    if (rope.factor == 0) rope.factor = (double)config->context / rope.original_context;
    if (rope.kind == SH_ROPE_LONGROPE &&
        ((status = read_factors(&in, "short_factor", rope.dim / 2, arena, &rope.short_factor)) !=
             0 ||
         (status = read_factors(&in, "long_factor", rope.dim / 2, arena, &rope.long_factor)) != 0))
        return status;
    *out = rope;
    return SH_OK;
}

sh_status sh_read_rope(const sh_config_reader *in, sh_config *config)
{
    sh_rope_config *rope = &config->rope[0];
    bool traditional = rope->interleaved;
    if (rope->theta == 0) rope->theta = 10000;
    sh_status status = sh_read_double(in, "rope_theta", 2, 1e12, &rope->theta);
    if (status == SH_OK) status = sh_read_bool(in, "rope_traditional", &traditional);
    if (status != SH_OK) return status;
    rope->interleaved = traditional;
    const cJSON *params = sh_read_item(in, "rope_parameters");
    if (params == NULL) params = sh_read_item(in, "rope_scaling");
    status = sh_read_rope_params(in, params, config, &config->arena, rope);
    if (status == SH_OK) config->rope_count = 1;
    return status;
}
