/* local.h - a whole model on this machine, for commands that compute and leave.
 *
 * Threads: one owner. */
#ifndef SH_CMD_LOCAL_H
#define SH_CMD_LOCAL_H

#include "cmd/settings.h"
#include "model/forward.h"

typedef struct {
    sh_config config;
    sh_device *dev;
    sh_model *model;
    double load_s;
} sh_local;

/* Room that the command needs. */
typedef struct {
    int tokens_max; /* of one step */
    int rows_max;   /* of one step, that want logits */
    int kv_tokens;  /* of all sequences */
} sh_local_room;

/* Loads settings->model, with progress on a terminal. *out must stay where it is. */
SH_MUST_CHECK sh_status sh_local_open(const sh_settings *settings, const sh_local_room *room,
                                      sh_local *out, sh_err *err);
void sh_local_close(sh_local *local);

/* How wide KV numbers are, by --kv-format and --activations. */
sh_kv_format sh_local_kv_format(const sh_settings *settings);

/* Shows how far loading is on a terminal: an sh_progress_fn without context. */
void sh_local_progress(void *ctx, uint64_t done, uint64_t total);

/* "1,2,3" to ids below vocab; owned by the caller. */
SH_MUST_CHECK sh_status sh_local_ids(const char *text, int vocab, int32_t **out, int *count,
                                     sh_err *err);

/* Runs tokens [pos, pos + count) of the one sequence that uses block 0, 1, 2, ..., with logits for
 * the last `rows` of them. len is how long the sequence is going to be. */
SH_MUST_CHECK sh_status sh_local_run(sh_local *local, const int32_t *ids, int pos, int count,
                                     int len, int rows, sh_logits *out, sh_err *err);

#endif
