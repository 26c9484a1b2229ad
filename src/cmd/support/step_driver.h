/* step_driver.h - runs the steps of one sequence on a model group, without an engine. For commands
 * that measure or dump what a step computes (bench, logits).
 *
 * Every rank runs the same command; rank 0 gets a driver, the others work for it inside
 * sh_step_driver_open until it is closed.
 *
 * Threads: one owner. */
#ifndef SH_CMD_SUPPORT_STEP_DRIVER_H
#define SH_CMD_SUPPORT_STEP_DRIVER_H

#include "cmd/support/model_group_setup.h"

typedef struct {
    sh_model_group_setup setup;
    sh_model_group *model_group;
    sh_group *group; /* NULL: one rank */
    sh_step_plan *plan;
    sh_pick *picks;
    int blocks_sent; /* KV blocks that the ranks already know */
    double load_s;
} sh_step_driver;

/* The largest step that the command needs. */
typedef struct {
    int chunk;   /* tokens of one step */
    int draws;   /* of one step */
    int context; /* of the sequence; 0: --context, or the model's */
} sh_step_driver_limits;

/* SH_OK on rank 0: the driver is ready. SH_AGAIN on other ranks: their work is successfully done.
 * *out must not move afterwards. Loading shows its progress on a terminal. */
SH_MUST_CHECK sh_status sh_step_driver_open(const sh_command_args *args,
                                            const sh_step_driver_limits *limits,
                                            sh_step_driver *out, sh_err *err);
void sh_step_driver_close(sh_step_driver *driver);

/* Runs tokens [pos, pos + count) of the sequence `ids` and draws after each of the last `draws` of
 * them; what was computed after pos before is discarded. len is the final length of the sequence.
 * Draws are greedy when `draw` is NULL; its position is set here. Picks are valid until the next
 * run. */
SH_MUST_CHECK sh_status sh_step_driver_run(sh_step_driver *driver, const int32_t *ids, int pos,
                                           int count, int len, int draws, const sh_draw *draw,
                                           sh_err *err);

/* The complete row of logits [vocab] of a draw of the last run. */
SH_MUST_CHECK sh_status sh_step_driver_row(sh_step_driver *driver, int draw, float *out,
                                           sh_err *err);

/* Parses "1,2,3" into ids below vocab; owned by the caller. */
SH_MUST_CHECK sh_status sh_step_driver_ids(const char *text, int vocab, int32_t **out, int *count,
                                           sh_err *err);

/* Shows the progress of loading if stderr is a terminal: an sh_progress_fn without context. */
void sh_step_driver_progress(void *ctx, uint64_t done, uint64_t total);

#endif
