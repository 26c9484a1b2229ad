/* shoal info: what a model folder contains, and which machines it fits. Only config.json and the
 * headers of the weight files are read. */
#include "base/buf.h"
#include "base/json.h"
#include "cmd/command.h"
#include "cmd/support/model_facts.h"
#include "model/family.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double GIB = 1024.0 * 1024.0 * 1024.0;

static void count_text(double count, char *out, size_t cap)
{
    if (count >= 1e9)
        snprintf(out, cap, "%.2f billion", count / 1e9);
    else
        snprintf(out, cap, "%.1f million", count / 1e6);
}

/* Some models use a sliding window in part of their layers, or something else instead of attention;
 * with MLA the cache holds one latent vector instead of heads. */
static void attention_text(const sh_config *c, char *out, size_t cap)
{
    int sliding = 0, window = 0, convs = 0, nets = 0;
    for (int i = 0; i < c->layers; i++) {
        convs += c->layer[i].mixer == SH_MIXER_SHORT_CONV;
        nets += c->layer[i].mixer == SH_MIXER_DELTA_NET;
        if (c->layer[i].window > 0) {
            sliding++;
            window = c->layer[i].window;
        }
    }
    int len = c->mla.kv_rank > 0
                  ? snprintf(out, cap, "%d heads, latent of %d", c->heads, c->mla.kv_rank)
                  : snprintf(out, cap, "%d heads of %d, %d KV heads", c->heads, c->head_dim,
                             c->kv_heads);
    if (sliding > 0)
        snprintf(out + len, cap - (size_t)len, ", a window of %d in %d layers", window, sliding);
    if (convs > 0)
        snprintf(out + len, cap - (size_t)len, "; a convolution over %d tokens in %d layers",
                 c->conv.taps, convs);
    if (nets > 0)
        snprintf(out + len, cap - (size_t)len, "; linear attention of %d heads in %d layers",
                 c->delta.v_heads, nets);
}

/* How long a context fits next to the weights, for common memory sizes. Where not even the weights
 * fit, the number of machines that would hold them with a context of up to 8192 tokens. The list
 * ends at the first size that holds the whole context. */
static void print_fits(const sh_model_facts *f)
{
    static const int sizes[] = {8, 16, 24, 32, 64, 128, 256, 512};
    printf("fits\n");
    for (size_t i = 0; i < SH_COUNT_OF(sizes); i++) {
        double tokens = sh_model_facts_tokens(f, sizes[i] * GIB);
        bool all = tokens >= f->config.context;
        if (tokens > 0)
            printf("  %4d GiB    with %.0f tokens of KV%s\n", sizes[i], tokens,
                   all ? ", its whole context" : "");
        else
            printf("  %4d GiB    on %d machines together\n", sizes[i],
                   sh_model_facts_machines(f, sizes[i] * GIB));
        if (all) break;
    }
    printf("  this machine has %.1f GiB\n", f->available / GIB);
}

static void print_text(const sh_model_facts *f)
{
    const sh_config *c = &f->config;
    char text[160];
    printf("family       %s%s\n", c->family->model_type, c->headless ? ", for embeddings" : "");
    printf("layers       %d, %d wide\n", c->layers, c->hidden);
    attention_text(c, text, sizeof(text));
    printf("attention    %s\n", text);
    if (c->moe.experts > 0)
        printf("experts      %d, %d for a token%s\n", c->moe.experts, c->moe.topk,
               c->moe.shared_ffn > 0 ? ", and shared ones" : "");
    count_text((double)f->parameters, text, sizeof(text));
    printf("parameters   %s", text);
    count_text((double)f->active, text, sizeof(text));
    if (c->moe.experts > 0) printf(", %s for a token", text);
    sh_model_quant_text(c, text, sizeof(text));
    printf("\nquantized    %s\n", text);
    printf("bytes        %.2f GiB, %.2f bits a parameter\n", (double)f->bytes / GIB,
           (double)f->bytes * 8 / (double)f->parameters);
    printf("vocabulary   %d%s\n", c->vocab, c->tied == SH_TIED_YES ? ", head tied" : "");
    printf("context      %d tokens\n", c->context);
    printf("KV           %.1f KiB a token, %.2f GiB for the context\n",
           (double)f->kv_token_bytes / 1024, (double)f->kv_token_bytes * c->context / GIB);
    print_fits(f);
}

static void print_json(const sh_model_facts *f)
{
    const sh_config *c = &f->config;
    char quant[160];
    cJSON *json = cJSON_CreateObject();
    sh_model_quant_text(c, quant, sizeof(quant));
    cJSON_AddStringToObject(json, "family", c->family->model_type);
    cJSON_AddBoolToObject(json, "generates", !c->headless);
    cJSON_AddNumberToObject(json, "layers", c->layers);
    cJSON_AddNumberToObject(json, "hidden", c->hidden);
    cJSON_AddNumberToObject(json, "heads", c->heads);
    cJSON_AddNumberToObject(json, "kv_heads", c->kv_heads);
    cJSON_AddNumberToObject(json, "experts", c->moe.experts);
    cJSON_AddNumberToObject(json, "experts_per_token", c->moe.topk);
    cJSON_AddNumberToObject(json, "parameters", (double)f->parameters);
    cJSON_AddNumberToObject(json, "active_parameters", (double)f->active);
    cJSON_AddStringToObject(json, "quantization", quant);
    cJSON_AddNumberToObject(json, "bytes", (double)f->bytes);
    cJSON_AddNumberToObject(json, "vocabulary", c->vocab);
    cJSON_AddNumberToObject(json, "context", c->context);
    cJSON_AddNumberToObject(json, "kv_bytes_per_token", (double)f->kv_token_bytes);
    cJSON_AddNumberToObject(json, "memory_bytes", f->available);
    char *text = cJSON_Print(json);
    printf("%s\n", text);
    cJSON_free(text);
    cJSON_Delete(json);
}

static int info_run(const sh_command_args *args)
{
    const sh_settings *s = args->settings;
    sh_model_facts f = {0};
    sh_err err;
    if (s->model == NULL) {
        fprintf(stderr, "shoal: info needs --model\n");
        return SH_EXIT_USAGE;
    }
    sh_status status = sh_model_facts_gather(s->model, &f, &err);
    if (status == SH_OK && s->json) print_json(&f);
    if (status == SH_OK && !s->json) print_text(&f);
    sh_model_facts_reset(&f);
    return status == SH_OK ? SH_EXIT_OK : sh_command_fail(&err);
}

const sh_command sh_command_info = {
    SH_COMMAND_NAMED(info),
    .summary = "show what a model folder contains and which machines it fits",
    .run = info_run,
};
