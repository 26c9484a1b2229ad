/* shoal logits: the logits of every position, to compare with other implementations. They are
 * computed chunk by chunk and passed on to a file or to the screen, so that a long sequence does
 * not need count * vocabulary floats of memory. */
#include "base/alloc.h"
#include "cmd/support/step_driver.h"
#include "model/safetensors_writer.h"

#include <stdio.h>
#include <stdlib.h>

enum { CHUNK = 64, BEST = 8 };

/* Receives the logits of one chunk, [rows, vocab]. */
typedef sh_status (*take_fn)(void *ctx, const float *logits, int rows, sh_err *err);

static sh_status run(sh_step_driver *driver, const int32_t *ids, int count, take_fn take, void *ctx,
                     sh_err *err)
{
    size_t vocab = (size_t)sh_model_group_config(driver->model_group)->vocab;
    float *rows = sh_alloc_array(CHUNK * vocab, sizeof(*rows));
    sh_status status = SH_OK;
    for (int pos = 0; pos < count && status == SH_OK; pos += CHUNK) {
        int now = count - pos < CHUNK ? count - pos : CHUNK;
        status = sh_step_driver_run(driver, ids, pos, now, count, now, NULL, err);
        for (int i = 0; i < now && status == SH_OK; i++)
            status = sh_step_driver_row(driver, i, rows + (size_t)i * vocab, err);
        if (status == SH_OK) status = take(ctx, rows, now, err);
    }
    free(rows);
    return status;
}

typedef struct {
    sh_safetensors_writer *writer;
    size_t vocab;
} file_sink;

static sh_status take_file(void *ctx, const float *logits, int rows, sh_err *err)
{
    file_sink *sink = ctx;
    return sh_safetensors_writer_add(sink->writer, logits,
                                     (size_t)rows * sink->vocab * sizeof(*logits), err);
}

/* The file appears only when it is complete: an aborted writer leaves nothing behind. */
static sh_status write_file(sh_step_driver *driver, const int32_t *ids, int count, const char *path,
                            sh_err *err)
{
    int vocab = sh_model_group_config(driver->model_group)->vocab;
    file_sink sink = {.vocab = (size_t)vocab};
    sh_stored_tensor spec = {
        .name = "logits", .type = SH_TENSOR_F32, .dims = 2, .shape = {count, vocab}};
    sh_status status = sh_safetensors_writer_open(path, &spec, 1, NULL, &sink.writer, err);
    if (status != SH_OK) return status;
    status = run(driver, ids, count, take_file, &sink, err);
    if (status == SH_OK) return sh_safetensors_writer_finish(sink.writer, err);
    sh_safetensors_writer_abort(sink.writer);
    return status;
}

typedef struct {
    int vocab;
    int pos;
} text_sink;

/* The best few ids of each position, one line per position. A selection that scans the vocabulary
 * BEST times; ties are ordered by id. */
static sh_status take_text(void *ctx, const float *logits, int rows, sh_err *err)
{
    text_sink *sink = ctx;
    (void)err;
    for (int r = 0; r < rows; r++, logits += sink->vocab) {
        printf("%d:", sink->pos++);
        double limit = 1e30;
        int last = -1;
        for (int k = 0; k < BEST && k < sink->vocab; k++) {
            int best = -1;
            for (int i = 0; i < sink->vocab; i++) {
                bool open = (double)logits[i] < limit || ((double)logits[i] == limit && i > last);
                if (open && (best < 0 || logits[i] > logits[best])) best = i;
            }
            if (best < 0) break;
            printf(" %d=%.4f", best, (double)logits[best]);
            limit = (double)logits[best];
            last = best;
        }
        printf("\n");
    }
    return SH_OK;
}

static sh_status compute(const sh_command_args *args, const int32_t *ids, int count, sh_err *err)
{
    const char *path = args->settings->out;
    sh_step_driver_limits limits = {.chunk = CHUNK, .draws = CHUNK, .context = count};
    sh_step_driver driver;
    sh_status status = sh_step_driver_open(args, &limits, &driver, err);
    if (status != SH_OK) return status;
    text_sink sink = {.vocab = sh_model_group_config(driver.model_group)->vocab};
    status = path != NULL ? write_file(&driver, ids, count, path, err)
                          : run(&driver, ids, count, take_text, &sink, err);
    sh_step_driver_close(&driver);
    return status;
}

static int logits_run(const sh_command_args *args)
{
    const sh_settings *s = args->settings;
    sh_err err;
    sh_config config;
    int32_t *ids = NULL;
    int count = 0;
    if (s->model == NULL || s->ids == NULL) {
        fprintf(stderr, "shoal: logits needs --model and --ids\n");
        return SH_EXIT_USAGE;
    }
    if (sh_ranks_must_spawn(args)) return sh_ranks_spawn(args);
    /* Check the ids before the weights are loaded. */
    if (sh_config_load(s->model, &config, &err) != SH_OK) return sh_command_fail(&err);
    sh_status status = sh_step_driver_ids(s->ids, config.vocab, &ids, &count, &err);
    sh_config_reset(&config);
    if (status == SH_OK) status = compute(args, ids, count, &err);
    free(ids);
    return status >= 0 ? SH_EXIT_OK : sh_command_fail(&err);
}

const sh_command sh_command_logits = {
    SH_COMMAND_NAMED(logits),
    .summary = "compute the logits of given token ids",
    .details = "Writes the tensor `logits`, f32 [count, vocabulary], to --out. Without --out it "
               "prints the best ids of each position.",
    .run = logits_run,
};
