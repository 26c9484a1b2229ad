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

/* What the files call the parts of a layer that every family has. */
typedef struct {
    const char *mixer_norm; /* the norm before attention, or what a layer has in its place */
    const char *ffn_norm; /* before the feed-forward; after the mixer where there are four norms */
    const char *q_norm;
    const char *k_norm;
    const char *attn_out;
    const char *ffn; /* the module of the next three */
    const char *gate;
    const char *up;
    const char *down;
    const char *last_norm; /* of the model, before the head */
} sh_tensor_names;

typedef struct sh_family {
    const char *model_type;
    const sh_tensor_names *names;
    const char *norm_eps; /* its key in config.json */
    bool qkv_bias;
    bool qk_norm;
    const char *moe_path; /* module of a layer that holds router and experts */
    const char *router;   /* the router's name in it */
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
sh_status sh_family_mixtral(const sh_config_reader *in, sh_config *config);
sh_status sh_family_glm4_moe(const sh_config_reader *in, sh_config *config);
sh_status sh_family_deepseek_v2(const sh_config_reader *in, sh_config *config);
sh_status sh_family_deepseek_v3(const sh_config_reader *in, sh_config *config);
sh_status sh_family_phi3(const sh_config_reader *in, sh_config *config);
sh_status sh_family_gemma3(const sh_config_reader *in, sh_config *config);
sh_status sh_family_gpt_oss(const sh_config_reader *in, sh_config *config);
sh_status sh_family_lfm2(const sh_config_reader *in, sh_config *config);

#endif
