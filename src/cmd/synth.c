/* shoal synth: writes a model of random weights with a known shape, to measure a machine before
 * downloading the real one. */
#include "model/synth.h"

#include "base/buf.h"
#include "base/file.h"
#include "cmd/command.h"
#include "cmd/synth_text.h"
#include "model/shapes.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { CONFIG_MAX = 16 << 20, PERCENT = 100 };

/* Progress on a terminal only, and only when the percentage changes. */
static void show(void *ctx, uint64_t done, uint64_t total)
{
    int *last = ctx;
    int percent = (int)(total == 0 ? PERCENT : done * PERCENT / total);
    if (percent == *last || !isatty(STDERR_FILENO)) return;
    *last = percent;
    fprintf(stderr, "\rwriting %d %% of %.2f GiB%s", percent,
            (double)total / (1024.0 * 1024.0 * 1024.0), done == total ? "\n" : "");
}

static sh_status check(const sh_settings *s, sh_err *err)
{
    bool bits = (s->bits >= 2 && s->bits <= 6) || s->bits == 8 || s->bits == 16;
    if (!bits)
        return sh_err_set(err, SH_ERR_INPUT, "--bits %d is not 2, 3, 4, 5, 6, 8 or 16",
                          (int)s->bits);
    if (s->group != 32 && s->group != 64 && s->group != 128)
        return sh_err_set(err, SH_ERR_INPUT, "--group %d is not 32, 64 or 128", (int)s->group);
    return SH_OK;
}

/* The config.json of a known shape, or of a file. */
static sh_status read_shape(const char *shape, sh_buf *text, sh_err *err)
{
    char list[SH_ERR_TEXT_MAX];
    const char *known = sh_shape_find(shape);
    if (known != NULL) {
        sh_buf_add_text(text, known);
        return SH_OK;
    }
    if (!sh_file_exists(shape))
        return sh_err_set(err, SH_ERR_NOT_FOUND, "--shape '%s' is neither a file nor one of %s",
                          shape, sh_shape_list(list, sizeof(list)));
    return sh_file_read(shape, CONFIG_MAX, text, err);
}

static int synth_run(const sh_command_args *args)
{
    const sh_settings *s = args->settings;
    sh_buf text = {0};
    sh_err err;
    int last = -1;
    if (s->shape == NULL || s->out == NULL) {
        fprintf(stderr, "shoal: synth needs --shape and --out\n");
        return SH_EXIT_USAGE;
    }
    sh_synth_opts opts = {.bits = (int)s->bits,
                          .group = (int)s->group,
                          .seed = (uint64_t)s->seed,
                          .progress = show,
                          .progress_ctx = &last};
    sh_status status = check(s, &err);
    if (status == SH_OK) status = read_shape(s->shape, &text, &err);
    if (status == SH_OK) status = sh_synth_write(sh_buf_str(&text), s->shape, s->out, &opts, &err);
    if (status == SH_OK) status = sh_synth_text(s->out, &err);
    sh_buf_reset(&text);
    return status == SH_OK ? SH_EXIT_OK : sh_command_fail(&err);
}

const sh_command sh_command_synth = {
    SH_COMMAND_NAMED(synth),
    .summary = "write a model of random weights with a known shape",
    .details =
        "Its answers are meaningless, but it is as large and as fast as the real one: measure a "
        "machine before you download. An interrupted run resumes where it stopped.",
    .run = synth_run,
};
