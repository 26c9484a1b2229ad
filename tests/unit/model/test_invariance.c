/* The logits of a token have the same bits alone, in a batch, and however its prompt is split. */
#include "rig.h"

enum { OTHERS = 7, CUTS = SLOW ? 2 : 6 };

static void check_same(const golden *g, const float *want, const float *got, int first, int count,
                       const char *how)
{
    for (int64_t i = 0; i < (int64_t)count * g->vocab; i++) {
        if (memcmp(&got[i], &want[(int64_t)first * g->vocab + i], sizeof(float)) == 0) continue;
        fail_msg("%s: token %d, logit %d is %a, alone it was %a", how, first + (int)(i / g->vocab),
                 (int)(i % g->vocab), (double)got[i], (double)want[(int64_t)first * g->vocab + i]);
    }
}

/* A split that differs from call to call, but is the same in every run. */
static int next_cut(unsigned *seed, int left)
{
    *seed = *seed * 1664525U + 1013904223U;
    int size = 1 + (int)(*seed >> 16) % (*seed >> 28 < 6 ? 3 : 70);
    return size < left ? size : left;
}

static void check_cuts(const rig *r, const golden *g, const float *want, float *got)
{
    unsigned seed = 1;
    for (int round = 0; round < CUTS; round++)
        for (int pos = 0, count; pos < g->len; pos += count) {
            count = round == 0 ? 1 : next_cut(&seed, g->len - pos);
            rig_run(r, g->ids, pos, count, g->len, 0, got);
            check_same(g, want, got, pos, count, "cut");
        }
}

/* A layer with a fixed-size state depends on the cut itself, so all cuts around the borders of
 * blocks are tried: in the first part, in the second, and with one token alone between them. After
 * a border was passed, the sequence can be taken back to it, as after wrong drafts. */
static void check_borders(const rig *r, const golden *g, const float *want, float *got)
{
    if (!sh_config_has_fixed_state(r->config)) return;
    for (int border = SH_KV_BLOCK; border < g->len; border += SH_KV_BLOCK) {
        for (int at = border - 4; at <= border + 4 && at < g->len - 1; at++) {
            rig_run(r, g->ids, 0, at, g->len, 0, got);
            rig_run(r, g->ids, at, 1, g->len, 0, got);
            check_same(g, want, got, at, 1, "one token after a cut");
            rig_run(r, g->ids, at + 1, g->len - at - 1, g->len, 0, got);
            check_same(g, want, got, at + 1, g->len - at - 1, "after a cut near a border");
        }
        rig_run(r, g->ids, border, g->len - border, g->len, 0, got);
        check_same(g, want, got, border, g->len - border, "back to a border");
    }
}

/* The sequence somewhere among seven others, which have other tokens and other lengths. */
static void check_batch(const rig *r, const golden *g, const float *want, float *got)
{
    sh_err err = {0};
    int32_t ids[RIG_TOKENS], rows[RIG_TOKENS], blocks[OTHERS + 1][8];
    sh_span spans[OTHERS + 1];
    int count = g->len > 96 ? 96 : g->len;
    for (int place = 0; place <= OTHERS; place += 3) {
        int tokens = 0, first = 0;
        for (int s = 0; s <= OTHERS; s++) {
            int len = s == place ? count : 1 + (s * 5) % 16;
            if (s == place) first = tokens;
            bool long_rope = s == place ? rig_long_rope(r, g->len) : s % 2 == 0;
            spans[s] = (sh_span){
                .first = tokens, .count = len, .long_rope = long_rope, .blocks = blocks[s]};
            for (int i = 0; i < 8; i++) blocks[s][i] = (i * 8 + s * 5) % RIG_BLOCKS;
            for (int i = 0; i < len; i++, tokens++)
                ids[tokens] = s == place ? g->ids[i] : (i * 31 + s * 17) % g->vocab;
        }
        for (int i = 0; i < count; i++) rows[i] = first + i;
        sh_forward_input in = {.batch = {.tokens = tokens,
                                         .ids = ids,
                                         .span_count = OTHERS + 1,
                                         .spans = spans,
                                         .rows = rows,
                                         .row_count = count}};
        sh_logits out;
        CHECK_OK(sh_model_step(r->model, &in, NULL, &out, &err), err);
        r->dev->ops->read_rows(r->dev, out.rows, 0, count, g->vocab, got);
        check_same(g, want, got, 0, count, "batch");
    }
}

static void check_model(const char *name, bool exact)
{
    golden g = golden_load(name);
    size_t size = (size_t)(g.len * g.vocab);
    float *want = sh_alloc_array(size, sizeof(float)), *got = sh_alloc_array(size, sizeof(float));
    rig one = rig_open(g.dir, exact, NULL, 1), r = rig_open(g.dir, exact, NULL, 3);
    rig_run(&one, g.ids, 0, g.len, g.len, 0, want);
    rig_run(&r, g.ids, 0, g.len, g.len, 5, got);
    check_same(&g, want, got, 0, g.len, "three threads, other blocks");
    check_cuts(&r, &g, want, got);
    check_borders(&r, &g, want, got);
    check_batch(&r, &g, want, got);
    rig_close(&one);
    rig_close(&r);
    free(want);
    free(got);
    golden_free(&g);
}

TEST(bits_do_not_depend_on_the_batch)
{
    check_model(*state, false);
}

TEST(bits_do_not_depend_on_the_batch_in_f32)
{
    check_model(*state, true);
}

int main(void)
{
    return rig_each_model("int8 bits do not depend on the batch", bits_do_not_depend_on_the_batch) +
           rig_each_model("f32 bits do not depend on the batch",
                          bits_do_not_depend_on_the_batch_in_f32);
}
