/* synth.h - writes a model of random weights in MLX's format.
 *
 * Its answers are meaningless, but every product has the size, format and byte count of the real
 * model, and numbers stay in their usual range. What is written depends only on config, options and
 * seed. A file that exists and has the right header is kept (whatever its seed was), so an
 * interrupted run can be resumed.
 *
 * Threads: one owner. */
#ifndef SH_MODEL_SYNTH_H
#define SH_MODEL_SYNTH_H

#include "base/str.h"
#include "model/loader.h"

typedef struct {
    int bits;  /* 2, 3, 4, 5, 6 or 8; 16: bf16, not quantized */
    int group; /* 32, 64 or 128 */
    uint64_t seed;
    uint64_t file_max; /* bytes of one weight file; 0: 1 GiB */
    sh_progress_fn progress;
    void *progress_ctx;
} sh_synth_opts;

/* `config_text` is a config.json; a quantization in it is replaced. Creates `dir` if needed. */
SH_MUST_CHECK sh_status sh_synth_write(sh_str config_text, const char *where, const char *dir,
                                       const sh_synth_opts *opts, sh_err *err);

#endif
