/* crew.h - from settings to a crew: what every command that computes does first.
 *
 * Threads: the main thread. */
#ifndef SH_CMD_CREW_H
#define SH_CMD_CREW_H

#include "cmd/ranks.h"
#include "engine/crew.h"

/* Options and the numbers that they point to; stays where it is while the crew lives. */
typedef struct {
    sh_ranks ranks;
    sh_crew_opts opts;
    double split[SH_RANKS_MAX];
} sh_crew_setup;

/* Fills all but slots, chunk and draws, which the command knows. Errors name the setting. */
SH_MUST_CHECK sh_status sh_crew_setup_init(sh_crew_setup *setup, const sh_command_args *args,
                                           sh_err *err);

/* "tensor", "pipeline", "auto", or a grid such as "2x3" into opts->tensor and opts->stages. */
SH_MUST_CHECK sh_status sh_parallel_parse(const char *text, int ranks, sh_crew_opts *opts,
                                          sh_err *err);

/* Opens the crew and forms its group, once; *group is NULL for a rank alone. */
SH_MUST_CHECK sh_status sh_crew_setup_join(const sh_crew_setup *setup, sh_crew **crew,
                                           sh_group **group, sh_err *err);

#endif
