/* The cost model of `shoal plan`. A token of one sequence is bound by memory
 * bandwidth, so time is bytes read divided by bandwidth, plus what the messages between ranks take.
 * It ignores arithmetic: prompts and large batches are not predicted. */
#include "model/predict.h"

#include "model/inventory.h"

/* Mean bytes of a number as it is stored, scales and biases included. */
static double number_bytes(const sh_config *config, const sh_item *item)
{
    const sh_quant *q = item->kind == SH_ITEM_VECTOR || !config->quant.on
                            ? NULL
                            : sh_config_quant(config, item->path);
    if (q == NULL) return 2;
    switch (q->format) {
    case SH_FORMAT_F32: return 4;
    case SH_FORMAT_F16:
    case SH_FORMAT_BF16: return 2;
    case SH_FORMAT_AFFINE: return q->bits / 8.0 + 4.0 / q->group;
    case SH_FORMAT_MXFP4: return 0.5 + 1.0 / q->group;
    case SH_FORMAT_MXFP8: return 1 + 1.0 / q->group;
    case SH_FORMAT_NVFP4: return 0.5 + 1.0 / q->group;
    }
    return 2;
}

static double part(sh_range own, double all)
{
    return all > 0 ? (double)own.count / all : 0;
}

/* The fraction of an item that the rank holds. */
static double item_part(const sh_config *config, const sh_shard *shard, const sh_item *item)
{
    bool own_layer = item->layer >= shard->layer_first &&
                     item->layer < shard->layer_first + shard->layer_count;
    if (item->layer >= 0 && !own_layer) return 0;
    switch (item->kind) {
    case SH_ITEM_EMBED: {
        bool tied = config->tied != SH_TIED_NO;
        bool here = sh_shard_embeds(shard) || (tied && sh_shard_predicts(shard));
        return here ? part(shard->vocab, config->vocab) : 0;
    }
    case SH_ITEM_HEAD: return sh_shard_predicts(shard) ? part(shard->vocab, config->vocab) : 0;
    case SH_ITEM_ATTENTION: return part(shard->heads, config->heads);
    case SH_ITEM_CONV: return part(shard->conv, config->conv.channels);
    case SH_ITEM_DELTA: return part(shard->delta, config->delta.k_heads);
    case SH_ITEM_FFN:
        return config->layer[item->layer].moe ? part(shard->shared_ffn, config->moe.shared_ffn)
                                              : part(shard->ffn, config->ffn);
    case SH_ITEM_EXPERT: return part(shard->expert_ffn, config->moe.ffn);
    case SH_ITEM_TABLE: return sh_shard_embeds(shard) ? 1 : 0;
    case SH_ITEM_ROUTER:
    case SH_ITEM_VECTOR: return 1;
    }
    return 0;
}

/* A token reads one row of the embedding, which is nothing, unless it is the head too. */
static bool read_by_token(const sh_config *config, const sh_shard *shard, const sh_item *item)
{
    if (item->kind == SH_ITEM_TABLE) return false;
    return item->kind != SH_ITEM_EMBED || (config->tied != SH_TIED_NO && sh_shard_predicts(shard));
}

/* What a token adds to the sequence state of a rank: KV in f16, and its share of the fixed-size
 * states, in f32, of which there is one for each block. */
static double state_token_bytes(const sh_config *config, const sh_shard *shard)
{
    double kv_part = config->mla.kv_rank > 0 ? 1 : part(shard->kv_heads, config->kv_heads);
    double fixed_part = config->delta.k_heads > 0 ? part(shard->delta, config->delta.k_heads)
                                                  : part(shard->conv, config->conv.channels);
    double bytes = 0;
    for (int i = shard->layer_first; i < shard->layer_first + shard->layer_count; i++) {
        bytes += 2 * kv_part * (double)sh_config_kv_width(config, i);
        bytes += 4 * fixed_part * (double)sh_config_state_width(config, i) / SH_KV_BLOCK;
    }
    return bytes;
}

void sh_predict_rank(const sh_config *config, const sh_shard *shard, sh_rank_cost *out)
{
    sh_inventory inv;
    *out = (sh_rank_cost){0};
    sh_inventory_init(config, &inv);
    for (size_t i = 0; i < inv.count; i++) {
        const sh_item *item = &inv.items[i];
        double bytes = item_part(config, shard, item) * number_bytes(config, item);
        out->weight_bytes += bytes * (double)sh_item_numbers(item);
        if (read_by_token(config, shard, item))
            out->token_bytes += bytes * (double)sh_item_active(config, item);
    }
    sh_inventory_reset(&inv);
    out->kv_token_bytes = state_token_bytes(config, shard);
}

/* Apart from reading weights, a layer spends as long as it takes to read this many bytes for each
 * number of a hidden state: norms, RoPE, attention, quantizing the inputs of products. Measured
 * with steps of four tokens on the shapes of 0.6 and 1 billion weights (2,200 and 1,800). */
enum { LAYER_BYTES = 2000 };

double sh_predict_head_layers(const sh_config *config)
{
    sh_inventory inv;
    double head = 0, layers = 0;
    sh_inventory_init(config, &inv);
    for (size_t i = 0; i < inv.count; i++) {
        const sh_item *item = &inv.items[i];
        double bytes = number_bytes(config, item) * (double)sh_item_numbers(item);
        bool tied = item->kind == SH_ITEM_EMBED && config->tied != SH_TIED_NO;
        if (item->kind == SH_ITEM_HEAD || tied) head += bytes;
        if (item->layer >= 0) layers += bytes;
    }
    sh_inventory_reset(&inv);
    double layer = layers / config->layers + (double)LAYER_BYTES * (double)config->hidden;
    return layers > 0 ? head / layer : 0;
}

/* Every message carries headers: ours, and those of TCP, IP and Ethernet. */
enum { MESSAGE_HEADS = 130, PLAN_BYTES = 960 };

static double message_s(const sh_predict_machine *m, double bytes)
{
    return (bytes + MESSAGE_HEADS) / m->link_bytes_per_s;
}

/* One stage: its slowest rank, and two sums a layer. */
static void stage_add(const sh_config *config, const sh_shard *shards, const double *speeds,
                      const sh_predict_machine *m, sh_prediction *p)
{
    int tensor = shards[0].tensor_size;
    double slowest = 0;
    for (int t = 0; t < tensor; t++) {
        sh_rank_cost cost;
        sh_predict_rank(config, &shards[t], &cost);
        double speed = m->read_bytes_per_s * (speeds == NULL ? 1 : speeds[t]);
        if (cost.token_bytes / speed > slowest) slowest = cost.token_bytes / speed;
    }
    p->compute_s += slowest;
    p->token_s += slowest;
    if (tensor == 1) return;
    /* One sum after attention, one after the feed-forward, one after the embedding. In a sum every
     * rank sends its numbers to all others of the stage. */
    double sums = 2.0 * shards[0].layer_count + (sh_shard_embeds(&shards[0]) ? 1 : 0);
    double bytes = (double)config->hidden * m->wire_bytes;
    p->token_s += sums * (m->latency_s + (tensor - 1) * message_s(m, bytes));
    p->traffic_bytes += sums * tensor * (tensor - 1) * bytes;
}

sh_prediction sh_predict(const sh_config *config, const sh_shard *shards, const double *speeds,
                         const sh_predict_machine *m)
{
    sh_prediction p = {0};
    int tensor = shards[0].tensor_size, stages = shards[0].stages;
    for (int s = 0; s < stages; s++)
        stage_add(config, shards + s * tensor, speeds == NULL ? NULL : speeds + s * tensor, m, &p);
    double hidden = (double)config->hidden * 4;
    p.token_s += (stages - 1) * (m->latency_s + message_s(m, hidden));
    p.traffic_bytes += (stages - 1) * tensor * hidden;
    /* The summaries of the logits go back to rank 0, one hop. The step plan uses bandwidth but adds
     * no hop of its own: it travels ahead of the first sum or hand-over. */
    if (tensor * stages > 1)
        p.token_s += m->latency_s + (tensor * stages - 1) * message_s(m, PLAN_BYTES);
    return p;
}
