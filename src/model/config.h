/* config.h - config.json as one plain struct, the same for every family.
 *
 * A family (model/family.h) knows the keys of its config.json and translates them into the fields
 * below. The planner, the loader and the forward pass look at these fields only, never at the name
 * of a family. Both spellings of RoPE are read (rope_theta with rope_scaling, and rope_parameters).
 * Every number is range-checked, so that shapes can be multiplied without overflow.
 *
 * The struct owns its arrays; release them with sh_config_reset. Threads: read-only once loaded. */
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
    int dim; /* dimensions of a head that are rotated, even */
    bool interleaved;
    double theta;
    double factor;           /* linear, llama3, yarn, longrope */
    double low_freq_factor;  /* llama3 */
    double high_freq_factor; /* llama3 */
    double beta_fast;        /* yarn; so are the next two */
    double beta_slow;
    bool truncate;
    double mscale;           /* 0: not set */
    double mscale_all_dim;   /* 0: not set */
    double attention_factor; /* scales cos and sin; 0: derived from the others */
    int original_context;
    const double *short_factor; /* longrope: [dim / 2]; so is the next */
    const double *long_factor;
} sh_rope_config;

/* Multi-head latent attention (MLA); kv_rank is 0 when the model does not use it. */
typedef struct {
    int q_rank;   /* 0: queries are projected from the hidden state directly */
    int kv_rank;  /* width of the latent */
    int nope_dim; /* part of a head's query and key that is not rotated */
    int rope_dim; /* part that is */
} sh_mla_config;

/* Mixture of experts; experts is 0 when the model has none. */
typedef struct {
    int experts;
    int topk;
    int ffn;        /* width of one expert */
    int shared_ffn; /* total width of the shared experts; 0: none */
    sh_route_kind route;
    int groups;
    int topk_groups;
    bool group_top2;
    bool normalize;
    float scale;
    bool shared_gate; /* the shared experts' part is scaled by the sigmoid of a projection */
    bool pick_bias;   /* the router has a correction bias that affects the choice only */
    bool all_biases;  /* router, gate, up and down have biases */
} sh_moe_config;

/* Gated short convolutions; taps is 0 when no layer has one. */
typedef struct {
    int channels;
    int taps;
    bool bias; /* of the convolution and of the projections around it */
} sh_conv_config;

/* Gated delta nets (kernels/device.h); k_heads is 0 when no layer has one. */
typedef struct {
    int k_heads;
    int v_heads; /* a multiple of k_heads */
    int k_dim;
    int v_dim;
    int taps;
} sh_delta_config;

/* How a layer mixes the tokens of a sequence. */
typedef enum {
    SH_MIXER_ATTENTION,
    SH_MIXER_MLA,
    SH_MIXER_SHORT_CONV,
    SH_MIXER_DELTA_NET,
    SH_MIXERS
} sh_mixer;

typedef struct {
    sh_mixer mixer;
    bool moe;
    int window; /* sliding window in tokens; 0: full attention */
    int rope;   /* index into sh_config.rope */
} sh_layer_config;

/* Whether the head is the embedding matrix. UNSAID: config.json has no such key. */
typedef enum { SH_TIED_NO, SH_TIED_YES, SH_TIED_UNSPECIFIED } sh_tied;

/* A module that is not quantized like the rest. */
typedef struct {
    const char *path; /* such as "model.layers.0.mlp.gate" */
    bool on;          /* false: not quantized */
    sh_quant quant;
} sh_quant_override;

typedef struct {
    bool on;
    bool hub_mxfp4; /* Hugging Face's layout: expert tensors as blocks and scales */
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
    int context; /* positions that the model was trained for */
    int heads;
    int kv_heads;
    int head_dim; /* of queries and keys; with MLA nope_dim + rope_dim */
    int v_dim;    /* of values, before the output projection */
    int ffn;      /* width of a dense feed-forward layer; 0 when every layer has experts */
    float norm_eps;
    sh_tied tied;
    bool qkv_bias;      /* the files must have these biases */
    bool out_bias;      /* bias of the attention's output projection */
    bool qk_norm;       /* RMS norm on each head of q and k */
    bool out_gate;      /* q has a gate for each head, which scales the head's output */
    bool sinks;         /* an extra logit for each head */
    bool sandwich;      /* norms after attention and feed-forward too (gemma) */
    bool norm_plus_one; /* norms multiply by 1 + w */
    bool mlx_plus_one;  /* but MLX's conversions have added the one already */
    bool layer_norm;    /* norms subtract the mean first (LayerNorm) */
    bool norm_bias;     /* and add a bias at the end */
    bool post_norm;     /* norms come after each sum, not before each block (BERT) */
    bool embed_norm;    /* the embedding has a norm of its own */
    bool first_norm;    /* the first layer has a norm before attention, too */
    bool ffn_gate;      /* the feed-forward multiplies by a second projection */
    bool ffn_bias;
    int positions;       /* rows of the table of positions that are added; 0: none */
    int position_offset; /* the row of position 0 */
    int types;           /* rows of the table of token types that are added; 0: none */
    bool bidirectional;  /* tokens see those after them: whole sequences run in one step */
    bool headless;       /* hidden states are all that the files can compute: no logits */
    float embed_scale;
    float attention_scale;
    float query_beta; /* queries are scaled by 1 + beta*ln(1 + floor(pos/original_context)) */
    sh_act act;
    sh_rope_config rope[SH_ROPES_MAX];
    int rope_count;
    sh_mla_config mla;
    sh_conv_config conv;
    sh_delta_config delta;
    sh_moe_config moe;
    sh_layer_config *layer; /* [layers] */
    int mtp_layers;         /* that follow these and predict the token after the next */
    bool mtp;               /* this is such a layer alone: see sh_config_take_mtp */
    int layer_base;         /* number of layer 0 in the files */
    sh_quant_config quant;
    uint64_t hash; /* of the text of config.json; ranks compare it */
    sh_arena arena;
} sh_config;

/* SH_OK if the folder has a config.json that can be read; the error says what a model is. */
SH_MUST_CHECK sh_status sh_config_check_folder(const char *dir, sh_err *err);

/* Reads dir/config.json. */
SH_MUST_CHECK sh_status sh_config_load(const char *dir, sh_config *out, sh_err *err);

/* Parses text; `where` names it in errors. */
SH_MUST_CHECK sh_status sh_config_parse(sh_str text, const char *where, sh_config *out,
                                        sh_err *err);
void sh_config_reset(sh_config *config);

/* Turns the config of a model into that of its first multi-token-prediction layer, as a model of
 * one layer. A token of it enters together with what the model made of the token before: its output
 * for that one. It is an error if the model has no such layer. */
SH_MUST_CHECK sh_status sh_config_take_mtp(sh_config *config, sh_err *err);

/* How the module at `path` is quantized: its override, or else the base. NULL when config.json says
 * that it is not quantized. */
const sh_quant *sh_config_quant(const sh_config *config, const char *path);

/* Numbers that one token adds to the KV cache of a layer, over all KV heads; 0 for a layer with a
 * fixed-size state. */
int64_t sh_config_kv_width(const sh_config *config, int layer);

/* Numbers of a layer's fixed-size state; 0 for a layer with KV. */
int64_t sh_config_state_width(const sh_config *config, int layer);

/* Whether any layer has a fixed-size state, which cannot be cut back to an earlier token. */
bool sh_config_has_fixed_state(const sh_config *config);

#endif
