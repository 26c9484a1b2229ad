/* shoal plan: what each rank would hold, how much traffic that causes, and how fast it should be.
 * Nothing is loaded or measured: the prediction (model/predict.h) uses the shapes in config.json
 * and the figures given by flags. */
#include "base/alloc.h"
#include "base/json.h"
#include "cmd/support/model_group_setup.h"
#include "model/predict.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double GIB = 1024.0 * 1024.0 * 1024.0;

struct plan {
    sh_config config;
    int ranks;
    sh_model_group_opts grid; /* tensor and stages */
    double shares[SH_RANKS_MAX];
    double memory[SH_RANKS_MAX]; /* bytes; 0: unknown */
    double speeds[SH_RANKS_MAX]; /* factors */
    sh_shard shards[SH_RANKS_MAX];
    sh_predict_machine machine;
};

/* A list such as "16G,8G" or "1,0.5", with one value for each rank. */
static sh_status list_parse(const char *name, const char *text, int ranks, bool sizes, double *out,
                            sh_err *err)
{
    sh_str rest = sh_str_of(text), part;
    int count = 0;
    while (sh_str_cut(&rest, ',', &part)) {
        double value = 0;
        bool ok = sizes ? sh_str_to_bytes(part, &value) : sh_str_to_double(part, &value);
        if (!ok || value <= 0 || count == ranks)
            return sh_err_set(err, SH_ERR_INPUT, "--%s: '%s' is not allowed; it takes %d %s", name,
                              text, ranks,
                              sizes ? "sizes such as 16G,8G" : "numbers such as 1,0.5");
        out[count++] = value;
    }
    if (count == ranks) return SH_OK;
    return sh_err_set(err, SH_ERR_INPUT, "--%s: '%s' has %d values for %d ranks", name, text, count,
                      ranks);
}

/* Shares are proportional to speed, up to the memory of each rank. */
static sh_status shares_fill(struct plan *p, sh_err *err)
{
    sh_shard whole = sh_shard_whole(&p->config);
    sh_rank_cost cost;
    sh_predict_rank(&p->config, &whole, &cost);
    sh_rank_resources resources[SH_RANKS_MAX];
    for (int i = 0; i < p->ranks; i++)
        resources[i] = (sh_rank_resources){.memory = p->memory[i] > 0 ? p->memory[i] : 1e18,
                                           .speed = p->speeds[i]};
    return sh_shares_by_resources(resources, p->ranks, cost.weight_bytes, p->shares, err);
}

/* --split overrides the shares; otherwise memory and speeds decide, as in a real group. */
static sh_status plan_init(struct plan *p, const sh_command_args *args, sh_err *err)
{
    const sh_settings *s = args->settings;
    if (s->model == NULL) return sh_err_set(err, SH_ERR_INPUT, "plan needs --model DIR");
    sh_status status = sh_config_load(s->model, &p->config, err);
    p->ranks = (int)s->ranks;
    for (int i = 0; i < p->ranks; i++) p->speeds[i] = 1;
    /* Bytes per number on the wire; int8 also sends a scale for each block. */
    double wire = strcmp(s->wire, "bf16") == 0 ? 2 : strcmp(s->wire, "int8") == 0 ? 1.125 : 4;
    p->machine = (sh_predict_machine){.read_bytes_per_s = s->read_gb_s * 1e9,
                                      .latency_s = s->link_us * 1e-6,
                                      .link_bytes_per_s = s->link_gbit * 1e9 / 8,
                                      .wire_bytes = wire};
    if (status == SH_OK) status = sh_parallel_parse(s->parallel, p->ranks, &p->grid, err);
    if (status == SH_OK && s->memory != NULL)
        status = list_parse("memory", s->memory, p->ranks, true, p->memory, err);
    if (status == SH_OK && s->speeds != NULL)
        status = list_parse("speeds", s->speeds, p->ranks, false, p->speeds, err);
    if (status == SH_OK && s->split != NULL)
        status = list_parse("split", s->split, p->ranks, false, p->shares, err);
    if (status == SH_OK && s->split == NULL) status = shares_fill(p, err);
    if (status != SH_OK) return status;
    sh_plan_opts opts = {.tensor_size = p->grid.tensor,
                         .stages = p->grid.stages,
                         .weights = p->shares,
                         .head_layers = sh_predict_head_layers(&p->config)};
    return sh_shard_plan(&p->config, &opts, p->shards, err);
}

/* Seconds per token of the fastest rank that could hold the whole model; 0 when none can. */
static double alone_token_s(const struct plan *p)
{
    sh_shard whole = sh_shard_whole(&p->config);
    sh_rank_cost cost;
    sh_predict_rank(&p->config, &whole, &cost);
    double best = 0;
    for (int i = 0; i < p->ranks; i++) {
        double token_s = cost.token_bytes / (p->machine.read_bytes_per_s * p->speeds[i]);
        bool fits = p->memory[i] == 0 || p->memory[i] > cost.weight_bytes;
        if (fits && (best == 0 || token_s < best)) best = token_s;
    }
    return best;
}

/* A group that would be slower than its fastest member alone is called out: adding machines does
 * not always help. */
static void print_text(const struct plan *p)
{
    printf("%-5s %-6s %-10s %-12s %-7s %-13s %10s %12s\n", "rank", "stage", "layers", "heads",
           "ffn", "vocab", "weights", "KV a token");
    for (int i = 0; i < p->ranks; i++) {
        const sh_shard *s = &p->shards[i];
        sh_rank_cost cost;
        sh_predict_rank(&p->config, s, &cost);
        int64_t ffn = p->config.moe.experts > 0 ? s->expert_ffn.count : s->ffn.count;
        char layers[24], heads[24];
        snprintf(layers, sizeof(layers), "%d..%d", s->layer_first,
                 s->layer_first + s->layer_count - 1);
        snprintf(heads, sizeof(heads), "%lld of %d", (long long)s->heads.count, p->config.heads);
        printf("%-5d %-6d %-10s %-12s %-7lld %-13lld %6.2f GiB %8.1f KiB%s\n", i, s->stage, layers,
               heads, (long long)ffn, (long long)s->vocab.count, cost.weight_bytes / GIB,
               cost.kv_token_bytes / 1024,
               p->memory[i] > 0 && cost.weight_bytes > p->memory[i] ? "  MORE THAN ITS MEMORY"
                                                                    : "");
    }
    sh_prediction r = sh_predict(&p->config, p->shards, p->speeds, &p->machine);
    double alone = alone_token_s(p);
    printf("on the wire: %.1f KiB per token, all ranks together\n", r.traffic_bytes / 1024);
    printf("predicted: %.1f tokens/s of one answer (%.2f ms in memory, %.2f ms between ranks)\n",
           1 / r.token_s, r.compute_s * 1e3, (r.token_s - r.compute_s) * 1e3);
    if (alone == 0)
        printf("no rank can hold the whole model\n");
    else if (p->ranks > 1)
        printf("one rank alone: %.1f tokens/s%s\n", 1 / alone,
               alone < r.token_s ? "; that would be FASTER than this group" : "");
}

static void print_json(const struct plan *p)
{
    sh_prediction r = sh_predict(&p->config, p->shards, p->speeds, &p->machine);
    double alone = alone_token_s(p);
    cJSON *top = cJSON_CreateObject(), *list = cJSON_AddArrayToObject(top, "ranks");
    for (int i = 0; i < p->ranks; i++) {
        const sh_shard *s = &p->shards[i];
        sh_rank_cost cost;
        sh_predict_rank(&p->config, s, &cost);
        cJSON *item = cJSON_CreateObject();
        cJSON_AddNumberToObject(item, "rank", i);
        cJSON_AddNumberToObject(item, "stage", s->stage);
        cJSON_AddNumberToObject(item, "layer_first", s->layer_first);
        cJSON_AddNumberToObject(item, "layer_count", s->layer_count);
        cJSON_AddNumberToObject(item, "heads", (double)s->heads.count);
        cJSON_AddNumberToObject(item, "vocab", (double)s->vocab.count);
        cJSON_AddNumberToObject(item, "weight_bytes", cost.weight_bytes);
        cJSON_AddNumberToObject(item, "token_bytes", cost.token_bytes);
        cJSON_AddNumberToObject(item, "kv_token_bytes", cost.kv_token_bytes);
        cJSON_AddItemToArray(list, item);
    }
    cJSON_AddNumberToObject(top, "traffic_bytes_per_token", r.traffic_bytes);
    cJSON_AddNumberToObject(top, "tokens_per_s", 1 / r.token_s);
    cJSON_AddNumberToObject(top, "alone_tokens_per_s", alone > 0 ? 1 / alone : 0);
    char *text = cJSON_Print(top);
    puts(text);
    cJSON_free(text);
    cJSON_Delete(top);
}

static int plan_run(const sh_command_args *args)
{
    sh_err err;
    struct plan *p = sh_alloc(sizeof(*p));
    sh_status status = plan_init(p, args, &err);
    if (status == SH_OK && args->settings->json)
        print_json(p);
    else if (status == SH_OK)
        print_text(p);
    sh_config_reset(&p->config);
    free(p);
    return status == SH_OK ? SH_EXIT_OK : sh_command_fail(&err);
}

const sh_command sh_command_plan = {
    SH_COMMAND_NAMED(plan),
    .summary = "predict what each machine would hold and how fast the group would be",
    .details =
        "Loads and measures nothing: ranks, memory, speeds and links are what the flags say.",
    .run = plan_run,
};
