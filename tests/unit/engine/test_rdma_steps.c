/* Steps of a model group over RDMA, with ranks as threads and devices made of memory: plans, sums,
 * hidden states and summaries are sent from and received in the memory where they belong. */
#include "engine/model_group.h"

#include "base/log.h"
#include "coll/coll.h"
#include "unit/fake_verbs.h"
#include "unit/fenced.h"
#include "unit/ranks.h"

#include <signal.h>

enum { PROMPT = SLOW ? 300 : 700, DECODES = 8, CHUNK = 1024 };

typedef struct {
    int tensor, stages;
    bool unreliable;
    long copied[2]; /* in steps, by rank */
} form;

/* One step of `count` tokens, after `before` others; its last token draws. */
static sh_status step(sh_model_group *mg, sh_step_plan *p, int before, int count, sh_err *err)
{
    sh_pick picks[4];
    sh_step_plan_clear(p);
    int blocks = (before + count + SH_KV_BLOCK - 1) / SH_KV_BLOCK,
        had = (before + SH_KV_BLOCK - 1) / SH_KV_BLOCK;
    p->seqs[p->seq_count++] = (sh_step_seq){
        .fresh = before == 0, .token_count = count, .draw_count = 1, .block_count = blocks - had};
    for (int i = 0; i < count; i++) p->tokens[p->token_count++] = (before + i) * 31 % 4000;
    for (int i = had; i < blocks; i++) p->blocks[p->block_count++] = i;
    p->draws[p->draw_count++] = (sh_step_draw){
        .draw = {.top_p = 1, .logprobs = -1, .position = before + count}};
    sh_status status = sh_model_group_begin(mg, p, err);
    return status == SH_OK ? sh_model_group_finish(mg, p, picks, err) : status;
}

static sh_status lead(sh_model_group *mg, sh_err *err)
{
    sh_step_plan *plan = sh_step_plan_create(sh_model_group_limits(mg));
    sh_status status = step(mg, plan, 0, PROMPT, err);
    for (int i = 0; i < DECODES && status == SH_OK; i++)
        status = step(mg, plan, PROMPT + i, 1, err);
    sh_err stopped;
    sh_status stop = sh_model_group_stop(mg, &stopped);
    sh_step_plan_free(plan);
    if (status == SH_OK && stop != SH_OK) *err = stopped, status = stop;
    return status;
}

static void run(ranks_one *one)
{
    form *f = one->arg;
    sh_rdma *rdma = NULL;
    sh_group *group = NULL;
    sh_model_group *mg = NULL;
    sh_model_group_opts opts = {.model_dir = "models/demo",
                                .device = test_device(),
                                .device_opts = {.threads = 1},
                                .kv_format = SH_KV_F16,
                                .tensor = f->tensor,
                                .stages = f->stages,
                                .slots = 2,
                                .chunk = CHUNK,
                                .draws = 4,
                                .kv_tokens = 2048,
                                .load = {.threads = 1}};
    sh_group_opts group_opts;
    sh_group_opts_init(&group_opts);
    group_opts.mesh = ranks_opts(one);
    group_opts.mesh.wanted = &sh_transport_rdma;
    group_opts.op_ms = 60000;
    group_opts.silence_ms = 20000;
    one->status = sh_rdma_open(&(sh_rdma_opts){.plugin = &FAKE_VERBS}, &rdma, &one->err);
    group_opts.mesh.library = rdma;
    if (one->status == SH_OK) one->status = sh_model_group_open(&opts, &mg, &one->err);
    if (one->status == SH_OK) one->status = sh_group_open(&group_opts, &group, &one->err);
    if (one->status == SH_OK) one->status = sh_model_group_join(mg, group, &one->err);
    uint64_t before = one->status == SH_OK ? sh_rdma_copied(rdma) : 0;
    if (one->status == SH_OK)
        one->status = one->rank == 0 ? lead(mg, &one->err) : sh_model_group_work(mg, &one->err);
    if (one->status == SH_OK) f->copied[one->rank] = (long)(sh_rdma_copied(rdma) - before);
    sh_group_close(group);
    sh_model_group_close(mg);
    sh_rdma_close(rdma);
}

TEST(no_byte_of_a_step_is_copied)
{
    UNUSED_STATE;
    form forms[] = {{2, 1, false, {-1, -1}}, {1, 2, true, {-1, -1}}};
    (void)test_device(); /* registers it, before there are threads */
    for (size_t i = 0; i < SH_COUNT_OF(forms); i++) {
        ranks_one ranks[2];
        fake_reset();
        FAKE.no_kind[SH_RDMA_RC] = forms[i].unreliable;
        ranks_run(2, 2, run, &forms[i], ranks);
        for (int r = 0; r < 2; r++) {
            CHECK_OK(ranks[r].status, ranks[r].err);
            assert_int_equal(forms[i].copied[r], 0);
        }
        assert_int_equal(FAKE.unposted + FAKE.bad_writes + FAKE.registered, 0);
    }
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    sh_log_set_level(SH_LOG_ERROR);
    const struct CMUnitTest tests[] = {cmocka_unit_test(no_byte_of_a_step_is_copied)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
