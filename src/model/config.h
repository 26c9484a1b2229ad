/* config.h - config.json as one plain struct, the same for every family.
 *
 * A family (model/family.h) says what its config.json may hold and turns it into the fields below;
 * the planner, the loader and the forward pass look at these fields alone and never at a family's
 * name. Both spellings of RoPE are read (rope_theta with rope_scaling, and rope_parameters). Every
 * number is checked: what is here can be multiplied without overflow.
 *
 * The struct owns its arrays: sh_config_reset. Threads: read-only once loaded. */
#ifndef SH_MODEL_CONFIG_H
#define SH_MODEL_CONFIG_H

#include "base/arena.h"
#include "base/status.h"
#include "kernels/device.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum {
    SH_ROPE_DEFAULT,
    SH_ROPE_LINEAR,
    SH_ROPE_LLAMA3,
    SH_ROPE_YARN,
    SH_ROPE_LONGROPE,
} sh_rope_kind;

typedef struct {
    sh_rope_kind kind;
    int dim; /* numbers of a head that turn, even */
    bool interleaved;
    double theta;
    double factor;           /* linear, llama3, yarn, longrope */
    double low_freq_factor;  /* llama3 */
    double high_freq_factor; /* llama3 */
    double beta_fast;        /* yarn, likewise the next two */
    double beta_slow;
    bool truncate;
    double mscale;           /* 0: not given */
    double mscale_all_dim;   /* 0: not given */
    double attention_factor; /* on cos and sin; 0: follows from the others */
    int original_context;
    const double *short_factor; /* longrope: [dim / 2], likewise the next */
    const double *long_factor;
} sh_rope_config;

/* Latent attention; kv_rank 0 when the model has none. */
typedef struct {
    int q_rank;   /* 0: queries come from the hidden state in one step */
    int kv_rank;  /* width of the latent */
    int nope_dim; /* part of a head's query and key that does not turn */
    int rope_dim; /* part that does */
} sh_mla_config;

/* experts 0 when the model has none. */
typedef struct {
    int experts;
    int topk;
    int ffn;        /* width of one expert */
    int shared_ffn; /* width of the shared experts together; 0: none */
    sh_route_kind route;
    int groups;
    int topk_groups;
    bool group_top2;
    bool normalize;
    float scale;
    bool pick_bias;  /* the router has a correction bias for choosing */
    bool all_biases; /* router, gate, up and down have biases */
} sh_moe_config;

typedef struct {
    bool moe;
    int window; /* 0: sees everything before it */
    int rope;   /* index into sh_config.rope */
} sh_layer_config;

typedef enum { SH_TIED_NO, SH_TIED_YES, SH_TIED_UNSAID } sh_tied;

/* A module that is not quantized as the rest. */
typedef struct {
    const char *path; /* such as "model.layers.0.mlp.gate" */
    bool on;          /* false: not quantized */
    sh_quant quant;
} sh_quant_override;

typedef struct {
    bool on;
    bool hub_mxfp4; /* Hugging Face's own form: expert tensors in blocks and scales */
    sh_quant base;
    const sh_quant_override *overrides; /* sorted by path */
    size_t override_count;
} sh_quant_config;

enum { SH_ROPES_MAX = 2 };

typedef struct {
    const struct sh_family *family;
    int layers;
    int hidden;
    int vocab;
    int context; /* positions that the model was made for */
    int heads;
    int kv_heads;
    int head_dim; /* of queries and keys; with MLA nope_dim + rope_dim */
    int v_dim;    /* of values, before the output projection */
    int ffn;      /* width of a dense feed-forward layer; 0 when every layer has experts */
    float norm_eps;
    sh_tied tied;
    bool qkv_bias;      /* these biases must be in the file */
    bool out_bias;      /* of the attention's output projection */
    bool qk_norm;       /* RMS norm on each head of q and k */
    bool sinks;         /* an extra logit for each head */
    bool sandwich;      /* norms behind attention and feed-forward too (gemma) */
    bool norm_plus_one; /* norms multiply by 1 + w */
    float embed_scale;
    float attention_scale;
    float query_beta; /* queries grow by 1 + beta*ln(1 + pos/original_context); 0: they do not */
    sh_act act;
    sh_rope_config rope[SH_ROPES_MAX];
    int rope_count;
    sh_mla_config mla;
    sh_moe_config moe;
    sh_layer_config *layer; /* [layers] */
    sh_quant_config quant;
    uint64_t hash; /* of config.json's text: ranks compare it */
    sh_arena arena;
} sh_config;

/* Reads dir/config.json, and dir/generation_config.json for the ids that end an answer. */
SH_MUST_CHECK sh_status sh_config_load(const char *dir, sh_config *out, sh_err *err);

/* From text alone; `where` names it in errors. */
SH_MUST_CHECK sh_status sh_config_parse(sh_str text, const char *where, sh_config *out,
                                        sh_err *err);
void sh_config_reset(sh_config *config);

/* How the module at `path` is stored if it is quantized at all: the override for it, or the base.
 * NULL when config.json says that it is not. */
const sh_quant *sh_config_quant(const sh_config *config, const char *path);

/* Numbers of one token in one layer's KV cache, for all KV heads. */
int64_t sh_config_kv_width(const sh_config *config);

#endif
