#include "cmd/local.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/str.h"
#include "cmd/compute.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PERCENT = 100, BLOCKS_MAX = 1 << 16 };

static bool exact(const sh_settings *s)
{
    return strcmp(s->activations, "f32") == 0;
}

sh_kv_format sh_local_kv_format(const sh_settings *s)
{
    if (strcmp(s->kv_format, "f32") == 0) return SH_KV_F32;
    if (strcmp(s->kv_format, "int8") == 0) return SH_KV_INT8;
    if (strcmp(s->kv_format, "f16") == 0) return SH_KV_F16;
    return exact(s) ? SH_KV_F32 : SH_KV_F16;
}

void sh_local_progress(void *ctx, uint64_t done, uint64_t total)
{
    (void)ctx;
    if (!isatty(STDERR_FILENO)) return;
    fprintf(stderr, "\rloading %d %%", (int)(total == 0 ? PERCENT : done * PERCENT / total));
    if (done == total) fprintf(stderr, "\r             \r");
    fflush(stderr);
}

sh_status sh_local_open(const sh_settings *s, const sh_local_room *room, sh_local *out, sh_err *err)
{
    sh_cpu_opts cpu = sh_compute_cpu(s);
    sh_model_opts opts = {
        .tokens_max = room->tokens_max,
        .rows_max = room->rows_max,
        .kv_format = sh_local_kv_format(s),
        .load = {.threads = (int)s->threads, .exact = exact(s), .progress = sh_local_progress}};
    int64_t start = sh_clock_ns();
    *out = (sh_local){0};
    if (s->model == NULL) return sh_err_set(err, SH_ERR_INPUT, "--model is missing");
    sh_status status = sh_config_load(s->model, &out->config, err);
    if (status == SH_OK) status = sh_device_open_cpu(&cpu, &out->dev, err);
    if (status == SH_OK) {
        sh_shard whole = sh_shard_whole(&out->config);
        status = sh_model_load(s->model, &out->config, &whole, out->dev, &opts, &out->model, err);
    }
    if (status == SH_OK)
        status = sh_model_reserve_kv(out->model, room->kv_tokens / SH_KV_BLOCK + 1, err);
    out->load_s = (double)(sh_clock_ns() - start) * 1e-9;
    if (status != SH_OK) sh_local_close(out);
    return status;
}

void sh_local_close(sh_local *local)
{
    sh_model_free(local->model);
    if (local->dev != NULL) local->dev->ops->close(local->dev);
    sh_config_reset(&local->config);
    *local = (sh_local){0};
}

sh_status sh_local_ids(const char *text, int vocab, int32_t **out, int *count, sh_err *err)
{
    sh_str rest = sh_str_of(text), part;
    int32_t *ids = sh_alloc_array(rest.len + 1, sizeof(*ids));
    int found = 0;
    while (sh_str_cut(&rest, ',', &part)) {
        int64_t id = 0;
        if (!sh_str_to_int(sh_str_trim(part), &id) || id < 0 || id >= vocab) {
            free(ids);
            return sh_err_set(err, SH_ERR_INPUT, "--ids: '%.*s' is not a token id from 0 to %d",
                              (int)part.len, part.ptr, vocab - 1);
        }
        ids[found++] = (int32_t)id;
    }
    if (found == 0) {
        free(ids);
        return sh_err_set(err, SH_ERR_INPUT, "--ids: no ids");
    }
    *out = ids;
    *count = found;
    return SH_OK;
}

sh_status sh_local_run(sh_local *local, const int32_t *ids, int pos, int count, int len, int rows,
                       sh_logits *out, sh_err *err)
{
    static int32_t blocks[BLOCKS_MAX];
    const sh_rope_config *rope = &local->config.rope[0];
    bool stretched = rope->kind == SH_ROPE_LONGROPE && len > rope->original_context;
    int32_t *wanted = sh_alloc_array((size_t)rows + 1, sizeof(*wanted));
    for (int i = 0; i < BLOCKS_MAX; i++) blocks[i] = i;
    for (int i = 0; i < rows; i++) wanted[i] = count - rows + i;
    SH_ASSERT(len <= BLOCKS_MAX * SH_KV_BLOCK);
    sh_span span = {.count = count, .pos = pos, .blocks = blocks};
    sh_step step = {.batch = {.tokens = count, .span_count = 1, .spans = &span},
                    .ids = ids + pos,
                    .stretched = &stretched,
                    .rows = wanted,
                    .row_count = rows};
    sh_status status = sh_model_step(local->model, &step, NULL, out, err);
    free(wanted);
    return status;
}
