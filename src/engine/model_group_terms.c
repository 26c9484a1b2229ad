/* What all ranks must have in common besides the model: the grid and the sizes of steps. Rank 0
 * decides, and says it to the others when they join, or before, when they prepare for it. */
#include "engine/model_group_internal.h"

#include "base/log.h"
#include "base/pack.h"

#include <string.h>

/* Ranks came or went, and the grid is one of the user's: as many stages as before if the ranks can
 * be shared out evenly, else as many ranks for each stage, else a pipeline, since its stages
 * exchange the least. */
static void grid_adapt(sh_model_group *mg)
{
    if (mg->size % mg->opts.stages == 0)
        mg->stages = mg->opts.stages;
    else if (mg->size % mg->opts.tensor == 0)
        mg->stages = mg->size / mg->opts.tensor;
    else
        mg->stages = mg->size;
    if (mg->stages > mg->config.layers) mg->stages = 1;
    mg->tensor = mg->size / mg->stages;
}

sh_status sh_model_group_choose_grid(sh_model_group *mg, sh_err *err)
{
    bool changed = mg->opts.ranks > 0 && mg->opts.ranks != mg->size;
    if (changed && mg->opts.tensor > 0 && mg->opts.stages > 0) {
        grid_adapt(mg);
        return SH_OK;
    }
    mg->tensor = mg->opts.tensor > 0   ? mg->opts.tensor
                 : mg->opts.stages > 0 ? mg->size / mg->opts.stages
                                       : mg->size;
    mg->stages = mg->opts.stages > 0 ? mg->opts.stages : mg->tensor > 0 ? mg->size / mg->tensor : 0;
    if (mg->tensor <= 0 || mg->tensor * mg->stages != mg->size)
        return sh_err_set(err, SH_ERR_INPUT,
                          "a grid of %d x %d ranks (tensor x pipeline) does not match a group of "
                          "%d",
                          mg->tensor, mg->stages, mg->size);
    if (!changed && mg->opts.split != NULL && mg->opts.split_count != mg->size)
        return sh_err_set(err, SH_ERR_INPUT, "%d shares were given for %d ranks; give one for each",
                          mg->opts.split_count, mg->size);
    return SH_OK;
}

bool sh_model_group_split_take(const sh_model_group *mg, double *shares)
{
    for (int i = 0; i < mg->size; i++) {
        int number = sh_model_group_number(mg, i);
        if (mg->opts.split == NULL || number >= mg->opts.split_count) return false;
        if (shares != NULL) shares[i] = mg->opts.split[number];
    }
    return true;
}

/* What all ranks must have in common, besides the model. Rank 0 decides: one that is added later
 * was not told how the others were started. */
typedef struct {
    uint64_t tensor, stages;
    uint64_t measured; /* the shares are by speed, not the user's */
    uint64_t wire, context, slots, chunk, draws, kv_tokens, kv_format;
    uint64_t outputs;
    uint64_t exact; /* f32 activations; what this rank's device was opened for cannot be changed */
} group_terms;

enum { TERM_COUNT = SH_TERMS_LEN / sizeof(uint64_t) };
_Static_assert(sizeof(group_terms) == SH_TERMS_LEN, "all terms travel");

static group_terms terms_of(const sh_model_group *mg)
{
    return (group_terms){(uint64_t)mg->tensor,
                         (uint64_t)mg->stages,
                         !sh_model_group_split_take(mg, NULL),
                         (uint64_t)mg->opts.wire,
                         (uint64_t)mg->opts.context,
                         (uint64_t)mg->opts.slots,
                         (uint64_t)mg->opts.chunk,
                         (uint64_t)mg->opts.draws,
                         (uint64_t)mg->opts.kv_tokens,
                         (uint64_t)mg->opts.kv_format,
                         mg->opts.outputs,
                         mg->opts.load.exact};
}

static bool terms_valid(const sh_model_group *mg, const group_terms *t)
{
    uint64_t most = INT32_MAX;
    return t->tensor <= SH_RANKS_MAX && t->stages <= SH_RANKS_MAX &&
           t->tensor * t->stages == (uint64_t)mg->size && t->wire <= SH_CODEC_INT8 &&
           t->context <= most && t->slots > 0 && t->slots <= most && t->chunk > 0 &&
           t->chunk <= most && t->draws > 0 && t->draws <= most &&
           t->kv_tokens <= INT64_MAX / SH_KV_BLOCK && t->kv_format <= SH_KV_INT8 &&
           t->outputs <= 1 && t->exact <= 1;
}

static void term_log(const char *name, uint64_t mine, uint64_t theirs)
{
    if (mine != theirs)
        SH_LOGI("--%s is %llu, as on rank 0, not %llu", name, (unsigned long long)theirs,
                (unsigned long long)mine);
}

/* The model has buffers for the steps: with others it is loaded again. */
static void terms_take(sh_model_group *mg, const group_terms *t)
{
    group_terms mine = terms_of(mg);
    if (mine.wire != t->wire) SH_LOGI("--wire is that of rank 0, not the one given here");
    term_log("context", mine.context, t->context);
    term_log("slots", mine.slots, t->slots);
    term_log("chunk", mine.chunk, t->chunk);
    term_log("kv-tokens", mine.kv_tokens, t->kv_tokens);
    if (mine.kv_format != t->kv_format) SH_LOGI("--kv-format is that of rank 0");
    if (mine.chunk != t->chunk || mine.draws != t->draws || mine.kv_format != t->kv_format) {
        sh_model_free(mg->model);
        mg->model = NULL;
        mg->kv_epoch = 0;
    }
    mg->tensor = (int)t->tensor;
    mg->stages = (int)t->stages;
    mg->measured = t->measured != 0;
    mg->opts.wire = (sh_codec)t->wire;
    mg->opts.context = (int)t->context;
    mg->opts.slots = (int)t->slots;
    mg->opts.chunk = (int)t->chunk;
    mg->opts.draws = (int)t->draws;
    mg->opts.kv_tokens = (int64_t)t->kv_tokens;
    mg->opts.kv_format = (sh_kv_format)t->kv_format;
    mg->opts.outputs = t->outputs != 0;
}

void sh_model_group_terms_pack(const sh_model_group *mg, uint8_t out[SH_TERMS_LEN])
{
    group_terms terms = terms_of(mg);
    uint64_t term[TERM_COUNT];
    memcpy(term, &terms, sizeof(terms));
    for (size_t i = 0; i < SH_TERMS_LEN; i++) out[i] = (uint8_t)(term[i / 8] >> (8 * (i % 8)));
}

sh_status sh_model_group_terms_take(sh_model_group *mg, const uint8_t bytes[SH_TERMS_LEN],
                                    sh_err *err)
{
    sh_reader r = sh_reader_of((sh_str){(const char *)bytes, SH_TERMS_LEN});
    uint64_t term[TERM_COUNT];
    group_terms terms;
    for (int i = 0; i < TERM_COUNT; i++) term[i] = sh_get_uint(&r, 8);
    memcpy(&terms, term, sizeof(terms));
    if (!terms_valid(mg, &terms))
        return sh_err_set(
            err, SH_ERR_GROUP,
            "rank 0 sent invalid terms: a grid of %llu x %llu for %d ranks, %llu slots, steps "
            "of %llu tokens",
            (unsigned long long)terms.tensor, (unsigned long long)terms.stages, mg->size,
            (unsigned long long)terms.slots, (unsigned long long)terms.chunk);
    if (terms.exact != mg->opts.load.exact)
        return sh_err_set(err, SH_ERR_GROUP, "rank %d has other --activations than rank 0",
                          sh_model_group_number(mg, mg->rank));
    terms_take(mg, &terms);
    return SH_OK;
}
