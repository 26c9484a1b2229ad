/* family.h - one row for each supported model family.
 *
 * A row names the model_type of config.json and what is particular to the family. Its configure
 * function translates the family's own keys into fields of sh_config; the common keys have been
 * read before. A new family made of existing building blocks is one row and, where it has keys of
 * its own, one function.
 *
 * Threads: constant data. */
#ifndef SH_MODEL_FAMILY_H
#define SH_MODEL_FAMILY_H

#include "model/config_read.h"

/* What the files call the parts that every family has. Norms are named with their ".weight"; NULL:
 * there is none. */
typedef struct {
    const char *stem; /* before all of these, as synthetic models have it */
    const char *embed;
    const char *embed_norm;
    const char *positions;
    const char *types;
    const char *layers;    /* before the number of a layer */
    const char *attention; /* of a layer: the module of what follows */
    const char *qkv;       /* the next three in one */
    const char *q;
    const char *k;
    const char *v;
    const char *mixer_norm; /* the norm before attention, or what a layer has in its place */
    const char *ffn_norm; /* before the feed-forward; after the mixer where there are four norms */
    const char *q_norm;
    const char *k_norm;
    const char *attn_out;
    const char *ffn;     /* the module of what follows; NULL: the layer itself */
    const char *gate_up; /* the next two in one */
    const char *gate;    /* what the activation is applied to */
    const char *up;
    const char *down;
    const char *last_norm; /* of the model, before the head */
} sh_tensor_names;

/* What a multi-token-prediction layer has beside the parts of any layer. The last two may be
 * missing: they are then the model's. */
typedef struct {
    const char
        *module; /* of these and of the layer, "layers.0."; NULL: the layer that follows the last */
    const char *embed_norm;
    const char *hidden_norm;
    const char *join; /* from the token's embedding, then the model's output before it */
    const char *last_norm;
    const char *embed;
    const char *head;
} sh_mtp_names;

typedef struct sh_family {
    const char *model_type;
    const sh_tensor_names *names;
    const char *norm_eps; /* its key in config.json */
    bool encoder;         /* made for embeddings: reads the whole text before it says anything */
    bool qkv_bias;
    bool qk_norm;
    const char *moe_path;    /* module of a layer that holds router and experts */
    const char *router;      /* the router's name in it */
    const char *shared;      /* that of the shared experts */
    const sh_mtp_names *mtp; /* NULL: the family has no multi-token-prediction layers */
    sh_status (*configure)(const sh_config_reader *in, sh_config *config); /* may be NULL */
} sh_family;

/* NULL for a model_type that is not supported. */
const sh_family *sh_family_find(const char *model_type);

/* All model types in one line, for errors and help. */
const char *sh_family_list(char *text, size_t cap);

/* True for a multi-modal model_type that keeps its language model under `text_config`. */
bool sh_family_is_wrapper(const char *model_type);

/* Configure functions, in family_*.c. */
sh_status sh_family_llama(const sh_config_reader *in, sh_config *config);
sh_status sh_family_mistral(const sh_config_reader *in, sh_config *config);
sh_status sh_family_ministral3(const sh_config_reader *in, sh_config *config);
sh_status sh_family_qwen(const sh_config_reader *in, sh_config *config);
sh_status sh_family_qwen3_moe(const sh_config_reader *in, sh_config *config);
sh_status sh_family_qwen3_next(const sh_config_reader *in, sh_config *config);
sh_status sh_family_mixtral(const sh_config_reader *in, sh_config *config);
sh_status sh_family_glm4_moe(const sh_config_reader *in, sh_config *config);
sh_status sh_family_deepseek_v2(const sh_config_reader *in, sh_config *config);
sh_status sh_family_deepseek_v3(const sh_config_reader *in, sh_config *config);
sh_status sh_family_phi3(const sh_config_reader *in, sh_config *config);
sh_status sh_family_gemma3(const sh_config_reader *in, sh_config *config);
sh_status sh_family_gpt_oss(const sh_config_reader *in, sh_config *config);
sh_status sh_family_bert(const sh_config_reader *in, sh_config *config);
sh_status sh_family_roberta(const sh_config_reader *in, sh_config *config);
sh_status sh_family_nomic_bert(const sh_config_reader *in, sh_config *config);
sh_status sh_family_modernbert(const sh_config_reader *in, sh_config *config);
sh_status sh_family_lfm2(const sh_config_reader *in, sh_config *config);

#endif
