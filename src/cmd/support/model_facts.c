#include "cmd/support/model_facts.h"

#include "model/inventory.h"
#include "model/predict.h"
#include "model/tensors.h"

#include <stdio.h>
#include <unistd.h>

/* The KV cache is assumed to be f16, two bytes per number. */
sh_status sh_model_facts_gather(const char *dir, sh_model_facts *f, sh_err *err)
{
    sh_tensors *set = NULL;
    sh_inventory inv;
    sh_status status = sh_config_load(dir, &f->config, err);
    if (status == SH_OK) status = sh_tensors_open(dir, &set, err);
    if (status != SH_OK) return status;
    /* If config.json does not say whether the head is tied to the embedding, the files do. */
    if (f->config.tied == SH_TIED_UNSPECIFIED)
        f->config.tied = sh_tensors_find(set, "lm_head.weight") == NULL ? SH_TIED_YES : SH_TIED_NO;
    sh_inventory_init(&f->config, &inv);
    for (size_t i = 0; i < inv.count; i++) {
        f->parameters += sh_item_numbers(&inv.items[i]);
        f->active += sh_item_active(&f->config, &inv.items[i]);
    }
    sh_inventory_reset(&inv);
    f->bytes = sh_tensors_bytes(set);
    f->mlx = sh_tensors_list(set)->mlx;
    sh_rank_cost whole;
    sh_shard shard = sh_shard_whole(&f->config);
    sh_predict_rank(&f->config, &shard, &whole);
    f->kv_token_bytes = (int64_t)whole.kv_token_bytes;
    f->available = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    sh_tensors_close(set);
    return SH_OK;
}

void sh_model_facts_reset(sh_model_facts *facts)
{
    sh_config_reset(&facts->config);
}

/* Leave a tenth for the system and 64 MiB for the buffers of a step. */
static double usable(double memory)
{
    return memory * 0.9 - 64.0 * 1024 * 1024;
}

/* Weights take a little more in memory than in the files. */
static double weights(const sh_model_facts *f)
{
    return (double)f->bytes * 1.02;
}

double sh_model_facts_tokens(const sh_model_facts *f, double memory)
{
    double left = usable(memory) - weights(f);
    double tokens = left / (double)f->kv_token_bytes;
    return left <= 0 ? 0 : tokens < f->config.context ? tokens : (double)f->config.context;
}

int sh_model_facts_machines(const sh_model_facts *f, double memory)
{
    int context = f->config.context < 8192 ? f->config.context : 8192;
    double kv = (double)f->kv_token_bytes * context;
    return (int)((weights(f) + kv) / usable(memory)) + 1;
}

static const char *mode_name(const sh_quant *quant)
{
    switch (quant->format) {
    case SH_FORMAT_MXFP4: return "mxfp4";
    case SH_FORMAT_MXFP8: return "mxfp8";
    case SH_FORMAT_NVFP4: return "nvfp4";
    default: return "affine";
    }
}

/* Modules may override the model's quantization; only their number is shown. */
void sh_model_quant_text(const sh_config *c, char *out, size_t cap)
{
    if (!c->quant.on) {
        snprintf(out, cap, "none");
        return;
    }
    int len = snprintf(out, cap, "%s, %d bits in groups of %d", mode_name(&c->quant.base),
                       c->quant.base.bits, c->quant.base.group);
    if (c->quant.override_count > 0)
        snprintf(out + len, cap - (size_t)len, ", %zu modules otherwise", c->quant.override_count);
}
