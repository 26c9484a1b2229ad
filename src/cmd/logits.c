/* shoal logits: the logits of every position, for comparing with other implementations. */
#include "base/alloc.h"
#include "cmd/command.h"
#include "cmd/local.h"
#include "model/safetensors_writer.h"

#include <stdio.h>
#include <stdlib.h>

enum { CHUNK = 64, BEST = 8 };

/* Gives each chunk's logits [rows, vocab] to `take`. */
typedef sh_status (*take_fn)(void *ctx, const float *logits, int rows, sh_err *err);

static sh_status run(sh_local *local, const int32_t *ids, int count, take_fn take, void *ctx,
                     sh_err *err)
{
    size_t vocab = (size_t)local->config.vocab;
    float *rows = sh_alloc_array(CHUNK * vocab, sizeof(*rows));
    sh_status status = SH_OK;
    for (int pos = 0; pos < count && status == SH_OK; pos += CHUNK) {
        int now = count - pos < CHUNK ? count - pos : CHUNK;
        sh_logits out;
        status = sh_local_run(local, ids, pos, now, count, now, &out, err);
        if (status != SH_OK) break;
        local->dev->ops->download(local->dev, rows, out.data, (size_t)now * vocab * sizeof(*rows));
        status = take(ctx, rows, now, err);
    }
    free(rows);
    return status;
}

typedef struct {
    sh_writer *writer;
    size_t vocab;
} file_sink;

static sh_status take_file(void *ctx, const float *logits, int rows, sh_err *err)
{
    file_sink *sink = ctx;
    return sh_writer_add(sink->writer, logits, (size_t)rows * sink->vocab * sizeof(*logits), err);
}

static sh_status write_file(sh_local *local, const int32_t *ids, int count, const char *path,
                            sh_err *err)
{
    file_sink sink = {.vocab = (size_t)local->config.vocab};
    sh_tensor spec = {
        .name = "logits", .type = SH_TENSOR_F32, .dims = 2, .shape = {count, local->config.vocab}};
    sh_status status = sh_writer_open(path, &spec, 1, NULL, &sink.writer, err);
    if (status != SH_OK) return status;
    status = run(local, ids, count, take_file, &sink, err);
    if (status == SH_OK) return sh_writer_finish(sink.writer, err);
    sh_writer_abort(sink.writer);
    return status;
}

typedef struct {
    int vocab;
    int pos;
} text_sink;

/* The best few of each position, one line each. */
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

int sh_cmd_logits(const sh_command_args *args)
{
    const sh_settings *s = args->settings;
    sh_local local;
    sh_err err;
    sh_config config;
    int32_t *ids = NULL;
    int count = 0;
    if (s->model == NULL || s->ids == NULL) {
        fprintf(stderr, "shoal: logits needs --model and --ids\n");
        return SH_EXIT_USAGE;
    }
    /* Ids are checked before the weights are read. */
    if (sh_config_load(s->model, &config, &err) != SH_OK) return sh_command_fail(&err);
    sh_status status = sh_local_ids(s->ids, config.vocab, &ids, &count, &err);
    sh_config_reset(&config);
    if (status != SH_OK) return sh_command_fail(&err);
    sh_local_room room = {.tokens_max = CHUNK, .rows_max = CHUNK, .kv_tokens = count};
    status = sh_local_open(s, &room, &local, &err);
    if (status == SH_OK) {
        text_sink sink = {.vocab = local.config.vocab};
        status = s->out != NULL ? write_file(&local, ids, count, s->out, &err)
                                : run(&local, ids, count, take_text, &sink, &err);
        sh_local_close(&local);
    }
    free(ids);
    return status == SH_OK ? SH_EXIT_OK : sh_command_fail(&err);
}
