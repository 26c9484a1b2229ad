/* step_driver.h - one sequence on the ranks of a model group, for commands that compute and leave.
 *
 * Every rank runs the same command; rank 0 gets a session, the others work for it inside
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
    int blocks_told;
    double load_s;
} sh_step_driver;

/* Room that the command needs. */
typedef struct {
    int chunk;   /* tokens of one step */
    int draws;   /* of one step */
    int context; /* of the sequence; 0: --context, or the model's */
} sh_step_driver_room;

/* SH_OK on rank 0: the session is ready. SH_AGAIN on other ranks: their work is done, and well.
 * *out stays where it is. Loading shows its progress on a terminal. */
SH_MUST_CHECK sh_status sh_step_driver_open(const sh_command_args *args,
                                            const sh_step_driver_room *room, sh_step_driver *out,
                                            sh_err *err);
void sh_step_driver_close(sh_step_driver *session);

/* Runs tokens [pos, pos + count) of the sequence `ids` and draws behind the last `draws` of them;
 * what was there behind pos is forgotten. len is how long the sequence may become. Draws are greedy
 * when `draw` is NULL; its position is set here. Picks stay valid until the next run. */
SH_MUST_CHECK sh_status sh_step_driver_run(sh_step_driver *session, const int32_t *ids, int pos,
                                           int count, int len, int draws, const sh_draw *draw,
                                           sh_err *err);

/* The whole row of logits [vocab] behind a draw of the last run. */
SH_MUST_CHECK sh_status sh_step_driver_row(sh_step_driver *session, int draw, float *out,
                                           sh_err *err);

/* "1,2,3" to ids below vocab; owned by the caller. */
SH_MUST_CHECK sh_status sh_step_driver_ids(const char *text, int vocab, int32_t **out, int *count,
                                           sh_err *err);

/* Shows how far loading is on a terminal: an sh_progress_fn without context. */
void sh_step_driver_progress(void *ctx, uint64_t done, uint64_t total);

#endif
