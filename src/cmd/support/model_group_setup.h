/* model_group_setup.h - from settings to a model group: what every command that computes does
 * first.
 *
 * Threads: the main thread. */
#ifndef SH_CMD_SUPPORT_MODEL_GROUP_SETUP_H
#define SH_CMD_SUPPORT_MODEL_GROUP_SETUP_H

#include "cmd/support/ranks.h"
#include "engine/model_group.h"

/* Options and the numbers that they point to; stays where it is while the model group lives. */
typedef struct {
    sh_ranks ranks;
    sh_model_group_opts opts;
    double split[SH_RANKS_MAX];
} sh_model_group_setup;

/* Fills all but slots, chunk and draws, which the command knows. Errors name the setting. */
SH_MUST_CHECK sh_status sh_model_group_setup_init(sh_model_group_setup *setup,
                                                  const sh_command_args *args, sh_err *err);

/* "tensor", "pipeline", "auto", or a grid such as "2x3" into opts->tensor and opts->stages. */
SH_MUST_CHECK sh_status sh_parallel_parse(const char *text, int ranks, sh_model_group_opts *opts,
                                          sh_err *err);

/* Opens the model group and forms its group, once; *group is NULL for a rank alone. */
SH_MUST_CHECK sh_status sh_model_group_setup_join(const sh_model_group_setup *setup,
                                                  sh_model_group **model_group, sh_group **group,
                                                  sh_err *err);

#endif
