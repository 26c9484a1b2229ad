/* Every model of tests/data/models on real groups: the ranks are processes on loopback, rank 0 is
 * this process. The expected logits come from another implementation. */
#include "engine/model_group_internal.h"

#include "base/log.h"

#include "unit/engine/ranks.h"
#include "unit/fenced.h"
#include "unit/model/rig.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS_MAX = 5 };

struct form {
    const char *name;
    int tensor, stages;
    double split[RANKS_MAX]; /* all 0: equal */
};

static const struct form forms[] = {
    {"tensor 2", 2, 1, {0}},           {"tensor 3", 3, 1, {0}}, {"tensor 5", 5, 1, {0}},
    {"pipeline 2", 1, 2, {0}},         {"grid 2x2", 2, 2, {0}}, {"tensor 3:1", 2, 1, {3, 1}},
    {"tensor 1:0:2", 3, 1, {1, 0, 2}},
};

static char token[SH_CLUSTER_TOKEN_LEN + 1];

static sh_model_group_opts opts_of(const char *dir, const struct form *f, const double *split)
{
    return (sh_model_group_opts){.model_dir = dir,
                                 .device = test_device(),
                                 .device_opts = {.threads = 1,
                                                 .level = getenv("SHOAL_CPU"),
                                                 .activations = SH_ACTIVATIONS_F32},
                                 .kv_format = SH_KV_F32,
                                 .tensor = f->tensor,
                                 .stages = f->stages,
                                 .split = split,
                                 .split_count = f->tensor * f->stages,
                                 .context = RIG_TOKENS,
                                 .slots = 2,
                                 .chunk = RIG_TOKENS,
                                 .draws = RIG_TOKENS,
                                 .load = {.threads = 1, .exact = true}};
}

/* Faults injected into a rank's memory after it has run a step. They are triggered by a wrapped
 * device, since the device is called in every step. */
typedef void (*fault_fn)(void);

static struct {
    sh_model_group *model_group;
    sh_ops ops; /* those of its device, except for what the fault replaces */
    const sh_ops *real;
    int steps;
} victim;

/* Gives the second slot a block that is in no plan. */
static void embed_then_change_state(sh_device *dev, const sh_device_batch *b, const sh_matrix *w,
                                    int64_t row_first, float scale, sh_tensor y)
{
    victim.real->embed(dev, b, w, row_first, scale, y);
    if (victim.steps++ > 0) return;
    sh_step_plan *plan = sh_step_plan_create(sh_model_group_limits(victim.model_group));
    sh_err err;
    uint64_t fingerprint;
    plan->seqs[plan->seq_count++] = (sh_step_seq){
        .slot = 1, .fresh = true, .token_count = 1, .block_count = 1};
    plan->token_count = plan->block_count = 1;
    if (sh_rank_apply(victim.model_group->self, plan, &fingerprint, &err) != SH_OK) _exit(2);
    sh_step_plan_free(plan);
}

static void change_state(void)
{
    victim.ops.embed = embed_then_change_state;
}

/* Another hash of the hidden states from the second step on. */
static void hash_with_an_error(sh_device *dev, const sh_device_batch *b, sh_tensor x, int64_t cols,
                               uint64_t seed, uint64_t *out)
{
    victim.real->hash_rows(dev, b, x, cols, seed, out);
    if (victim.steps++ > 0) *out ^= 1;
}

static void change_hidden(void)
{
    victim.ops.hash_rows = hash_with_an_error;
}

static void victim_prepare(sh_model_group *model_group, fault_fn fault)
{
    victim.model_group = model_group;
    victim.real = model_group->dev->ops;
    victim.ops = *victim.real;
    fault();
    model_group->dev->ops = &victim.ops;
}

/* A rank other than 0, in its own process; it prints why it failed. */
static void worker(const sh_model_group_opts *opts, const sh_group_opts *group_opt, fault_fn fault)
{
    sh_err err = {0};
    sh_model_group *model_group = NULL;
    sh_group *group = NULL;
    sh_status status = sh_model_group_open(opts, &model_group, &err);
    if (status == SH_OK) status = sh_group_open(group_opt, &group, &err);
    if (status == SH_OK) status = sh_model_group_join(model_group, group, &err);
    if (status == SH_OK && fault != NULL) victim_prepare(model_group, fault);
    if (status == SH_OK) status = sh_model_group_work(model_group, &err);
    sh_model_group_close(model_group);
    if (group != NULL) sh_group_close(group);
    if (status != SH_OK && fault == NULL) fprintf(stderr, "worker: %s\n", err.text);
    _exit(status == SH_OK ? 0 : 1);
}

struct team {
    sh_model_group *model_group;
    sh_group *group;
    sh_step_plan *plan;
    pid_t pids[RANKS_MAX];
    int size;
};

static struct team team_open(const char *dir, const struct form *f, fault_fn fault)
{
    struct team t = {.size = f->tensor * f->stages};
    sh_err err;
    char where[SH_ADDR_TEXT_MAX];
    double even[RANKS_MAX] = {1, 1, 1, 1, 1};
    const double *split = f->split[0] > 0 ? f->split : even;
    int fd = listen_somewhere(where);
    sh_model_group_opts opts = opts_of(dir, f, split);
    for (int r = 1; r < t.size; r++) {
        sh_group_opts g = group_opts(r, t.size, where, -1, token);
        if ((t.pids[r] = fork()) != 0) continue;
        close(fd);
        worker(&opts, &g, r == t.size - 1 ? fault : NULL);
    }
    sh_group_opts g = group_opts(0, t.size, where, fd, token);
    CHECK_OK(sh_model_group_open(&opts, &t.model_group, &err), err);
    CHECK_OK(sh_group_open(&g, &t.group, &err), err);
    CHECK_OK(sh_model_group_join(t.model_group, t.group, &err), err);
    t.plan = sh_step_plan_create(sh_model_group_limits(t.model_group));
    return t;
}

static void team_close(struct team *t, bool well)
{
    sh_err err;
    if (well) CHECK_OK(sh_model_group_stop(t->model_group, &err), err);
    sh_step_plan_free(t->plan);
    sh_model_group_close(t->model_group);
    sh_group_close(t->group);
    for (int r = 1; r < t->size; r++) {
        int status = -1;
        assert_int_equal(waitpid(t->pids[r], &status, 0), t->pids[r]);
        if (well) assert_int_equal(status, 0);
    }
}

/* One sequence from the start, in one step, with a draw after every token. */
static sh_status run(struct team *t, const golden *g, const int32_t *ids, int len, sh_pick *picks,
                     sh_err *err)
{
    const sh_config *config = sh_model_group_config(t->model_group);
    const sh_rope_config *rope = &config->rope[0];
    sh_step_plan *p = t->plan;
    (void)g;
    sh_step_plan_clear(p);
    p->seqs[p->seq_count++] = (sh_step_seq){.fresh = true,
                                            .token_count = len,
                                            .draw_count = len,
                                            .block_count = (len + SH_KV_BLOCK - 1) / SH_KV_BLOCK,
                                            .long_rope = rope->kind == SH_ROPE_LONGROPE &&
                                                         len > rope->original_context};
    for (int i = 0; i < len; i++) p->tokens[p->token_count++] = ids[i];
    for (int i = 0; i < p->seqs[0].block_count; i++) p->blocks[p->block_count++] = i;
    for (int i = 0; i < len; i++)
        p->draws[p->draw_count++] = (sh_step_draw){
            .draw = {.top_p = 1, .logprobs = -1, .position = i + 1}, .whole = true};
    sh_status status = sh_model_group_begin(t->model_group, p, err);
    return status == SH_OK ? sh_model_group_finish(t->model_group, p, picks, err) : status;
}

static double largest_difference(struct team *t, const golden *g)
{
    sh_err err;
    float *row = sh_alloc_array((size_t)g->vocab, sizeof(*row));
    sh_pick *picks = sh_alloc_array(RIG_TOKENS, sizeof(*picks));
    double largest = 0;
    for (int s = 0; s < g->count; s++) {
        CHECK_OK(run(t, g, g->ids + s * g->len, g->len, picks, &err), err);
        for (int i = 0; i < g->len; i++) {
            const float *want = g->logits + (int64_t)(s * g->len + i) * g->vocab;
            CHECK_OK(sh_model_group_row(t->model_group, t->plan, i, row, &err), err);
            int best = 0;
            for (int v = 0; v < g->vocab; v++) {
                largest = fmax(largest, fabs((double)row[v] - (double)want[v]));
                if (row[v] > row[best]) best = v;
            }
            assert_int_equal(picks[i].id, best);
        }
    }
    free(picks);
    free(row);
    return largest / g->std;
}

/* A model may have fewer layers than there are stages; that is refused, and not tested here. */
static void splits(void **state)
{
    golden g = golden_load(*state);
    sh_err err;
    sh_config config;
    CHECK_OK(sh_config_load(g.dir, &config, &err), err);
    int layers = config.layers;
    sh_config_reset(&config);
    for (size_t i = 0; i < SH_COUNT_OF(forms); i++) {
        if (forms[i].stages > layers) continue;
        if (SLOW && i != 0 && forms[i].stages != 2)
            continue; /* sanitizers are slow, and it is much the same code */
        struct team t = team_open(g.dir, &forms[i], NULL);
        double largest = largest_difference(&t, &g);
        if (!(largest <= 0.001))
            fail_msg("%s: %.6f of the standard deviation", forms[i].name, largest);
        team_close(&t, true);
    }
    golden_free(&g);
}

static void guard(fault_fn fault, const char *text)
{
    sh_err err;
    golden g = golden_load("llama-4bit");
    sh_pick picks[RIG_TOKENS];
    struct team t = team_open(g.dir, &forms[0], fault);
    CHECK_OK(run(&t, &g, g.ids, g.len, picks, &err), err);
    CHECK_FAILS(run(&t, &g, g.ids, g.len, picks, &err), err, text);
    team_close(&t, false);
    golden_free(&g);
}

TEST(a_rank_with_another_batch_state_is_caught_in_that_step)
{
    UNUSED_STATE;
    guard(change_state, "step 2: the batch state of rank 1 differs from rank 0's");
}

TEST(a_rank_with_another_hidden_state_is_caught_in_that_step)
{
    UNUSED_STATE;
    guard(change_hidden, "step 2: ranks 0 and 1 computed different hidden states");
}

TEST(a_rank_that_dies_in_a_step_is_named)
{
    UNUSED_STATE;
    sh_err err;
    golden g = golden_load("llama-4bit");
    sh_pick picks[RIG_TOKENS];
    struct team t = team_open(g.dir, &forms[1], NULL);
    CHECK_OK(run(&t, &g, g.ids, g.len, picks, &err), err);
    kill(t.pids[2], SIGKILL);
    sh_status status = SH_OK;
    for (int i = 0; i < 1000 && status == SH_OK; i++)
        status = run(&t, &g, g.ids, g.len, picks, &err);
    assert_int_equal(status, SH_ERR_GROUP);
    assert_non_null(strstr(err.text, "rank 2"));
    team_close(&t, false);
    golden_free(&g);
}

TEST(every_link_is_measured_and_its_kind_is_known)
{
    UNUSED_STATE;
    golden g = golden_load("llama-4bit");
    struct team t = team_open(g.dir, &forms[1], NULL);
    for (int a = 0; a < 3; a++) {
        for (int b = a + 1; b < 3; b++) {
            const sh_link_report *link = sh_model_group_link(t.model_group, a, b);
            assert_string_equal(link->kind, sh_group_path(t.group, 1)); /* all on one machine */
            assert_string_equal(link->device, "");
            assert_true(link->latency_s > 0 && link->bytes_per_s > 0);
        }
    }
    team_close(&t, true);
    golden_free(&g);
}

int main(void)
{
    sh_log_set_level(SH_LOG_ERROR);
    sh_cluster_token_make(token);
    const struct CMUnitTest guards[] = {
        cmocka_unit_test(a_rank_with_another_batch_state_is_caught_in_that_step),
        cmocka_unit_test(a_rank_with_another_hidden_state_is_caught_in_that_step),
        cmocka_unit_test(a_rank_that_dies_in_a_step_is_named),
        cmocka_unit_test(every_link_is_measured_and_its_kind_is_known),
    };
    int failed = cmocka_run_group_tests_name("guards", guards, NULL, NULL);
    return failed + rig_each_model("split", splits);
}
