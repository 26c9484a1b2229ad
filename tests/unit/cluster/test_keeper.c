/* Which models are loaded: single rules, and a random history against what must always hold. */
#include "cluster/keeper.h"

#include "base/alloc.h"

#include "test.h"

enum { MODELS = 6, HOSTS = 2, STEPS = 200000 };

/* What the hooks were asked for, and what the world is like. */
static struct {
    sh_keeper *keeper;
    double need[MODELS][HOSTS];
    double limit[HOSTS];
    bool running[MODELS], stopping[MODELS], broken[MODELS], alone;
    int starts[MODELS];
    int64_t now;
} world;

static sh_status measure(void *arg, int model, double *need, sh_err *err)
{
    (void)arg;
    if (world.alone) {
        sh_err_set(err, SH_ERR_PEER, "a worker is missing");
        return SH_AGAIN;
    }
    if (world.broken[model]) return sh_err_set(err, SH_ERR_INPUT, "broken");
    for (int h = 0; h < HOSTS; h++) need[h] = world.need[model][h];
    return SH_OK;
}

static sh_status start(void *arg, int model, sh_err *err)
{
    (void)arg;
    (void)err;
    assert_false(world.running[model]);
    world.running[model] = true;
    world.starts[model]++;
    for (int h = 0; h < HOSTS; h++) {
        double sum = 0;
        for (int i = 0; i < MODELS; i++) sum += world.running[i] ? world.need[i][h] : 0;
        assert_true(sum <= world.limit[h]); /* the point of it all */
    }
    return SH_OK;
}

static void stop(void *arg, int model)
{
    (void)arg;
    assert_true(world.running[model]);
    world.stopping[model] = true;
}

static void changed(void *arg, int model)
{
    (void)arg;
    (void)model;
}

static void world_begin(int64_t keep_ms)
{
    sh_keeper_hooks hooks = {measure, start, stop, changed, NULL};
    memset(&world, 0, sizeof(world));
    world.keeper = sh_keeper_create(&hooks, keep_ms);
    for (int h = 0; h < HOSTS; h++) {
        world.limit[h] = 100;
        sh_keeper_set_host(world.keeper, h, h == 0 ? "a" : "b", world.limit[h]);
    }
    for (int i = 0; i < MODELS; i++) {
        char name[8];
        snprintf(name, sizeof(name), "m%d", i);
        assert_int_equal(sh_keeper_add(world.keeper, name, i == 0), i);
        for (int h = 0; h < HOSTS; h++) world.need[i][h] = 40;
    }
}

static void world_end(void)
{
    sh_keeper_free(world.keeper);
}

static sh_kept_state state_of(int model)
{
    return sh_keeper_model(world.keeper, model)->state;
}

static void tick(int64_t passed_ms)
{
    world.now += passed_ms;
    sh_keeper_tick(world.keeper, world.now);
}

static void want(int model)
{
    sh_keeper_want(world.keeper, model, world.now);
}

static void use(int model, bool begun)
{
    sh_keeper_use(world.keeper, model, begun, world.now);
}

static void end(int model)
{
    world.running[model] = world.stopping[model] = false;
    sh_keeper_gone(world.keeper, model, world.now);
}

/* Loads a model that fits, and uses it for a moment. */
static void load(int model)
{
    want(model);
    tick(1);
    assert_int_equal(state_of(model), SH_KEPT_LOADING);
    sh_keeper_up(world.keeper, model, world.now);
    use(model, true);
    tick(1);
    use(model, false);
    assert_int_equal(state_of(model), SH_KEPT_READY);
}

static void the_least_recently_used_goes(void **state)
{
    (void)state;
    world_begin(SH_KEEP_FOREVER);
    load(1);
    load(2);
    use(1, true);
    tick(1);
    use(1, false);
    want(3);
    tick(1);
    assert_int_equal(state_of(2), SH_KEPT_DRAINING);
    assert_int_equal(state_of(1), SH_KEPT_READY);
    assert_int_equal(state_of(3), SH_KEPT_QUEUED);
    sh_keeper_drained(world.keeper, 2);
    assert_true(world.stopping[2]);
    tick(1);
    assert_int_equal(state_of(3), SH_KEPT_QUEUED); /* its memory is not free yet */
    end(2);
    tick(1);
    assert_int_equal(state_of(3), SH_KEPT_LOADING);
    world_end();
}

static void an_idle_one_goes_before_a_busy_one(void **state)
{
    (void)state;
    world_begin(SH_KEEP_FOREVER);
    load(1);
    use(1, true); /* the least recently used, but busy */
    load(2);
    want(3);
    tick(1);
    assert_int_equal(state_of(1), SH_KEPT_READY);
    assert_int_equal(state_of(2), SH_KEPT_DRAINING);
    world_end();
}

static void a_busy_one_goes_if_it_must_and_comes_back(void **state)
{
    (void)state;
    world_begin(SH_KEEP_FOREVER);
    world.need[1][0] = world.need[2][0] = 90;
    load(1);
    use(1, true);
    want(2);
    tick(1);
    assert_int_equal(state_of(1), SH_KEPT_DRAINING);
    want(1); /* a request that came too late */
    use(1, false);
    sh_keeper_drained(world.keeper, 1);
    end(1);
    assert_int_equal(state_of(1), SH_KEPT_QUEUED);
    tick(1);
    assert_int_equal(state_of(2), SH_KEPT_LOADING);
    sh_keeper_up(world.keeper, 2, world.now);
    tick(1);
    assert_int_equal(state_of(2), SH_KEPT_READY); /* whoever wanted it has not had it yet */
    use(2, true);
    tick(1);
    assert_int_equal(state_of(2), SH_KEPT_DRAINING);
    use(2, false);
    sh_keeper_drained(world.keeper, 2);
    end(2);
    tick(1);
    assert_int_equal(state_of(1), SH_KEPT_LOADING);
    world_end();
}

static void what_is_pinned_stays(void **state)
{
    (void)state;
    world_begin(1000);
    load(0);
    load(1);
    tick(5000);
    assert_int_equal(state_of(0), SH_KEPT_READY);
    assert_int_equal(state_of(1), SH_KEPT_DRAINING);
    world.need[2][1] = 70; /* fits alone, but not beside the pinned one */
    want(2);
    tick(1);
    assert_int_equal(state_of(2), SH_KEPT_FAILED);
    assert_non_null(
        strstr(sh_keeper_model(world.keeper, 2)->why, "beside the models that are pinned"));
    world_end();
}

static void what_never_fits_is_refused_with_what_is_missing(void **state)
{
    (void)state;
    world_begin(SH_KEEP_FOREVER);
    load(1);
    world.need[2][1] = 150.0 * 1024 * 1024;
    want(2);
    tick(1);
    assert_int_equal(state_of(2), SH_KEPT_FAILED);
    assert_int_equal(state_of(1), SH_KEPT_READY); /* nobody had to go for that */
    assert_non_null(strstr(sh_keeper_model(world.keeper, 2)->why, "b has"));
    assert_non_null(strstr(sh_keeper_model(world.keeper, 2)->why, "150 MiB are missing"));
    world.need[2][1] = 10; /* it is smaller now */
    want(2);
    tick(1);
    assert_int_equal(state_of(2), SH_KEPT_LOADING);
    world_end();
}

static void idle_models_go_after_a_while(void **state)
{
    (void)state;
    world_begin(1000);
    load(1);
    tick(900);
    assert_int_equal(state_of(1), SH_KEPT_READY);
    use(1, true);
    tick(5000);
    assert_int_equal(state_of(1), SH_KEPT_READY); /* it is not idle */
    use(1, false);
    sh_keeper_keep(world.keeper, 1, 0);
    tick(0);
    assert_int_equal(state_of(1), SH_KEPT_DRAINING);
    sh_keeper_drained(world.keeper, 1);
    end(1);
    assert_int_equal(sh_keeper_model(world.keeper, 1)->keep_ms,
                     1000); /* what was asked for is over */
    load(1);
    sh_keeper_keep(world.keeper, 1, SH_KEEP_FOREVER);
    tick(1000000);
    assert_int_equal(state_of(1), SH_KEPT_READY);
    world_end();
}

static void failures_are_tried_again_later(void **state)
{
    (void)state;
    world_begin(SH_KEEP_FOREVER);
    world.broken[1] = true;
    want(1);
    tick(1);
    assert_int_equal(state_of(1), SH_KEPT_FAILED);
    assert_string_equal(sh_keeper_model(world.keeper, 1)->why, "broken");
    world.broken[1] = false;
    want(1);
    tick(1);
    assert_int_equal(state_of(1), SH_KEPT_FAILED); /* too soon */
    tick(6000);
    want(1);
    tick(1);
    assert_int_equal(state_of(1), SH_KEPT_LOADING);
    assert_string_equal(sh_keeper_model(world.keeper, 1)->why, "");
    sh_keeper_fail(world.keeper, 1, "crashed", world.now);
    assert_int_equal(state_of(1), SH_KEPT_STOPPING);
    end(1);
    assert_int_equal(state_of(1), SH_KEPT_FAILED);
    tick(6000);
    want(1);
    tick(1);
    assert_int_equal(state_of(1), SH_KEPT_FAILED); /* the pause has grown */
    world_end();
}

static void missing_hosts_are_waited_for(void **state)
{
    (void)state;
    world_begin(SH_KEEP_FOREVER);
    world.alone = true;
    want(1);
    tick(1);
    tick(100000);
    assert_int_equal(state_of(1), SH_KEPT_QUEUED);
    assert_string_equal(sh_keeper_model(world.keeper, 1)->why, "a worker is missing");
    world.alone = false;
    tick(1);
    assert_int_equal(state_of(1), SH_KEPT_LOADING);
    assert_string_equal(sh_keeper_model(world.keeper, 1)->why, "");
    world_end();
}

static void numbers_are_used_again(void **state)
{
    (void)state;
    world_begin(SH_KEEP_FOREVER);
    load(1);
    assert_false(sh_keeper_remove(world.keeper, 1));
    assert_true(sh_keeper_remove(world.keeper, 2));
    assert_null(sh_keeper_model(world.keeper, 2));
    tick(1);
    assert_int_equal(sh_keeper_add(world.keeper, "new", false), 2);
    assert_int_equal(state_of(2), SH_KEPT_ABSENT);
    world_end();
}

/* One random event of those that could happen now. */
static void event(void)
{
    int i = rand() % MODELS;
    const sh_kept_model *m = sh_keeper_model(world.keeper, i);
    switch (rand() % 8) {
    case 0: want(i); break;
    case 1:
        if (m->state == SH_KEPT_READY && m->users < 3) use(i, true);
        break;
    case 2:
        if (m->users > 0) use(i, false);
        break;
    case 3:
        if (m->state == SH_KEPT_LOADING) sh_keeper_up(world.keeper, i, world.now);
        break;
    case 4:
        if (m->state == SH_KEPT_DRAINING && m->users == 0) sh_keeper_drained(world.keeper, i);
        break;
    case 5:
        if (world.stopping[i]) end(i);
        break;
    case 6:
        if (rand() % 20 == 0) sh_keeper_fail(world.keeper, i, "chance", world.now);
        break;
    case 7:
        sh_keeper_keep(world.keeper, i, rand() % 2 == 0 ? SH_KEEP_FOREVER : rand() % 20000);
        break;
    }
}

/* Whatever happens, memory is never exceeded (start() checks that), a busy model is not stopped
 * unless it fails, and in the end everybody who wants a model that fits gets it. */
static void a_random_history_keeps_the_rules(void **state)
{
    (void)state;
    srand(7);
    world_begin(5000);
    for (int i = 0; i < MODELS; i++)
        for (int h = 0; h < HOSTS; h++) world.need[i][h] = 10 + rand() % 40;
    for (int n = 0; n < STEPS; n++) {
        event();
        tick(rand() % 300);
        for (int i = 0; i < MODELS; i++) {
            sh_kept_state s = state_of(i);
            bool has = s == SH_KEPT_LOADING || s == SH_KEPT_READY || s == SH_KEPT_DRAINING ||
                       s == SH_KEPT_STOPPING;
            assert_int_equal(has, world.running[i]);
            assert_int_equal(s == SH_KEPT_STOPPING, world.stopping[i]);
        }
    }
    for (int i = 0; i < MODELS; i++) { /* everybody lets go, and then wants one after the other */
        while (sh_keeper_model(world.keeper, i)->users > 0) use(i, false);
        world.starts[i] = 0;
    }
    for (int target = 0; target < MODELS; target++) {
        tick(100000);
        want(target);
        for (int n = 0; n < 100 && state_of(target) != SH_KEPT_READY; n++) {
            tick(1000);
            for (int i = 0; i < MODELS; i++) {
                if (state_of(i) == SH_KEPT_LOADING) sh_keeper_up(world.keeper, i, world.now);
                if (state_of(i) == SH_KEPT_DRAINING) sh_keeper_drained(world.keeper, i);
                if (world.stopping[i]) end(i);
            }
        }
        assert_int_equal(state_of(target), SH_KEPT_READY);
    }
    world_end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_least_recently_used_goes),
        cmocka_unit_test(an_idle_one_goes_before_a_busy_one),
        cmocka_unit_test(a_busy_one_goes_if_it_must_and_comes_back),
        cmocka_unit_test(what_is_pinned_stays),
        cmocka_unit_test(what_never_fits_is_refused_with_what_is_missing),
        cmocka_unit_test(idle_models_go_after_a_while),
        cmocka_unit_test(failures_are_tried_again_later),
        cmocka_unit_test(missing_hosts_are_waited_for),
        cmocka_unit_test(numbers_are_used_again),
        cmocka_unit_test(a_random_history_keeps_the_rules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
