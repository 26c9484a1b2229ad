/* model_group_setup.h - from settings to a model group, for every command that computes.
 *
 * Threads: the main thread. */
#ifndef SH_CMD_SUPPORT_MODEL_GROUP_SETUP_H
#define SH_CMD_SUPPORT_MODEL_GROUP_SETUP_H

#include "cmd/support/ranks.h"
#include "engine/model_group.h"

/* The options and the arrays that they point to. Must not move while the model group exists. */
typedef struct {
    sh_ranks ranks;
    sh_model_group_opts opts;
    const char *shard_cache; /* NULL: this rank has the model */
    const sh_share_hub *hub; /* NULL: a rank without it asks rank 0 */
    double split[SH_RANKS_MAX];
} sh_model_group_setup;

/* Fills everything but slots, chunk and draws, which the command sets. Errors name the setting. */
SH_MUST_CHECK sh_status sh_model_group_setup_init(sh_model_group_setup *setup,
                                                  const sh_command_args *args, sh_err *err);

/* Parses "tensor", "pipeline", "auto", or a grid such as "2x3" into opts->tensor and opts->stages.
 */
SH_MUST_CHECK sh_status sh_parallel_parse(const char *text, int ranks, sh_model_group_opts *opts,
                                          sh_err *err);

/* Opens the model group and joins its ranks, once; *group is NULL for a single rank. */
SH_MUST_CHECK sh_status sh_model_group_setup_join(const sh_model_group_setup *setup,
                                                  sh_model_group **model_group, sh_group **group,
                                                  sh_err *err);

#endif
