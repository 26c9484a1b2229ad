/* Drives a model group step by step. There is one sequence in slot 0, whose KV blocks are numbered
 * from 0 in order and never freed, so no block allocator is needed: blocks that a step needs for
 * the first time are announced to the ranks with it. */
#include "cmd/support/step_driver.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { PERCENT = 100 };

void sh_step_driver_progress(void *ctx, uint64_t done, uint64_t total)
{
    (void)ctx;
    if (!isatty(STDERR_FILENO)) return;
    fprintf(stderr, "\rloading %d %%", (int)(total == 0 ? PERCENT : done * PERCENT / total));
    if (done == total) fprintf(stderr, "\r             \r");
    fflush(stderr);
}

/* Only rank 0 gets a plan and picks: sh_step_driver_close tells the ranks apart by them. */
sh_status sh_step_driver_open(const sh_command_args *args, const sh_step_driver_limits *limits,
                              sh_step_driver *out, sh_err *err)
{
    int64_t start = sh_clock_ns();
    *out = (sh_step_driver){0};
    sh_status status = sh_model_group_setup_init(&out->setup, args, err);
    if (status != SH_OK) return status;
    sh_model_group_opts *opts = &out->setup.opts;
    opts->slots = 1;
    opts->chunk = limits->chunk;
    opts->draws = limits->draws;
    if (limits->context > 0) opts->context = limits->context;
    bool first = out->setup.ranks.opts.mesh.rank == 0;
    opts->load.progress = first ? sh_step_driver_progress : NULL;
    status = sh_model_group_setup_join(&out->setup, &out->model_group, &out->group, err);
    if (status != SH_OK) return status;
    if (!first) {
        status = sh_model_group_work(out->model_group, err);
        sh_step_driver_close(out);
        return status == SH_OK ? SH_AGAIN : status;
    }
    out->plan = sh_step_plan_create(sh_model_group_limits(out->model_group));
    out->picks = sh_alloc_array((size_t)limits->draws, sizeof(*out->picks));
    out->load_s = (double)(sh_clock_ns() - start) * 1e-9;
    if (!sh_model_group_config(out->model_group)->headless) return SH_OK;
    sh_step_driver_close(out);
    return sh_err_set(err, SH_ERR_UNSUPPORTED, "this model makes embeddings; it has no logits");
}

void sh_step_driver_close(sh_step_driver *s)
{
    sh_err err;
    bool drives = s->plan != NULL;
    if (drives && sh_model_group_stop(s->model_group, &err) != SH_OK) SH_LOGW("%s", err.text);
    sh_step_plan_free(s->plan);
    free(s->picks);
    if (s->group != NULL)
        sh_group_close(s->group); /* first: it may still write into the model group's memory */
    sh_model_group_close(s->model_group);
    s->plan = NULL;
    s->picks = NULL;
    s->model_group = NULL;
    s->group = NULL;
}

/* Builds the same plan that the engine's scheduler would for one sequence. A sequence that starts
 * over at pos 0 keeps its blocks and overwrites them. Models with "longrope" choose their rotary
 * factors by the length that the sequence will reach, hence `len`. */
sh_status sh_step_driver_run(sh_step_driver *s, const int32_t *ids, int pos, int count, int len,
                             int draws, const sh_draw *draw, sh_err *err)
{
    const sh_step_limits *limits = sh_model_group_limits(s->model_group);
    const sh_config *config = sh_model_group_config(s->model_group);
    int blocks = (pos + count + SH_KV_BLOCK - 1) / SH_KV_BLOCK;
    if (pos + count > sh_model_group_context(s->model_group))
        return sh_err_set(err, SH_ERR_LIMIT, "the sequence has %d tokens; the context holds %d",
                          pos + count, sh_model_group_context(s->model_group));
    SH_ASSERT(count <= limits->tokens && draws <= count && draws <= limits->draws);
    sh_step_plan *p = s->plan;
    sh_step_plan_clear(p);
    p->seqs[p->seq_count++] = (sh_step_seq){
        .fresh = s->blocks_sent == 0,
        .pos = pos,
        .token_count = count,
        .draw_count = draws,
        .block_count = blocks > s->blocks_sent ? blocks - s->blocks_sent : 0,
        .long_rope = config->rope[0].kind == SH_ROPE_LONGROPE &&
                     len > config->rope[0].original_context,
    };
    for (int i = 0; i < count; i++) p->tokens[p->token_count++] = ids[pos + i];
    while (s->blocks_sent < blocks) p->blocks[p->block_count++] = s->blocks_sent++;
    for (int i = 0; i < draws; i++) {
        sh_step_draw *d = &p->draws[p->draw_count++];
        *d = (sh_step_draw){.draw = draw != NULL ? *draw : (sh_draw){.top_p = 1, .logprobs = -1},
                            .whole = draw == NULL};
        d->draw.position = pos + count - draws + 1 + i;
    }
    sh_status status = sh_model_group_begin(s->model_group, p, err);
    return status == SH_OK ? sh_model_group_finish(s->model_group, p, s->picks, err) : status;
}

sh_status sh_step_driver_row(sh_step_driver *s, int draw, float *out, sh_err *err)
{
    return sh_model_group_row(s->model_group, s->plan, draw, out, err);
}

/* There are at most as many ids as characters, so one allocation is enough. */
sh_status sh_step_driver_ids(const char *text, int vocab, int32_t **out, int *count, sh_err *err)
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
