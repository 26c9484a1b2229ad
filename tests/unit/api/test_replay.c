/* The replay against an engine that is lost again and again: by chance, or because one request
 * brings the ranks down. Each request must get its tokens once and in order, and one last event.
 *
 * The connection to the engine is replaced by a simulation, which runs in rounds. A token is a hash
 * of all tokens before it, as the engine was given them, so an answer that was put together wrongly
 * goes on wrongly. Cancels take effect in the round after, as at a real engine. */
#include "api/replay.h"

#include "base/hash.h"
#include "base/log.h"

#include "test.h"

enum {
    REQUESTS = 400,
    PROMPT_MAX = 150,
    CHUNK = 32,
    SLOTS = 24,
    DOWN_ROUNDS = 3,
    ROUNDS_MAX = 60000,
    MODEL = 5
};

static const char GRAMMAR[] = "stands for a packed grammar";

/* A request as its client sees it. */
struct request {
    sh_replay_sequence *sequence; /* NULL: it has ended, or was forgotten */
    sh_sequence_spec spec;
    int32_t ids[2 * PROMPT_MAX]; /* prompt, then the tokens that were received */
    int count, cancel_at, forget_at;
    int scored; /* the token of the prompt that is to be reported next */
    bool submitted, ended, cancelled, forgotten, given_up, failed;
    sh_status failure;
    int kills_at; /* brings the ranks down at this many tokens; 0: never */
    int reached, losses;
    bool alone; /* when it was last lost */
};

/* The same at the engine. */
struct run {
    uint64_t id; /* 0: free */
    sh_engine_conn_event_fn fn;
    void *arg;
    bool started, cancelled, forgotten, replayed;
    int32_t ids[2 * PROMPT_MAX];
    int count, computed, answered, max_tokens, score_from;
    struct request *request;
};

enum { GONE, REFORMING, UP }; /* no process; ranks are missing; ready */

static struct world {
    sh_loop *loop;
    sh_trigger *tick;
    sh_replay *replay;
    uint64_t random, serial, model;
    struct request *requests;
    int request_count, submitted, open;
    struct run runs[REQUESTS];
    int state, down_rounds, rounds;
    int loss_percent; /* chance of a loss in a round */
    int refuse_percent;
    int losses, culprit_losses;
    bool calls_back; /* callbacks submit and forget others */
} w;

static uint64_t next(uint64_t below)
{
    w.random = sh_mix64(w.random + 1);
    return (w.random >> 16) % below;
}

static int32_t token_after(const int32_t *ids, int count, uint64_t seed)
{
    uint64_t h = seed;
    for (int i = 0; i < count; i++) h = sh_mix64(h ^ (uint64_t)ids[i]);
    return (int32_t)(h % 5000);
}

/* --- the connection --- */

sh_status sh_engine_conn_submit(sh_engine_conn *conn, const sh_sequence_spec *spec,
                                sh_engine_conn_event_fn fn, void *arg, uint64_t *id, sh_err *err)
{
    (void)conn;
    if (w.state == GONE) return sh_err_set(err, SH_ERR_PEER, "no engine is connected");
    struct run *run = w.runs;
    while (run->id != 0) run++;
    *run = (struct run){.id = ++w.serial,
                        .fn = fn,
                        .arg = arg,
                        .replayed = spec->replayed,
                        .count = (int)spec->prompt_count,
                        .answered = spec->answered,
                        .max_tokens = spec->max_tokens,
                        .score_from = spec->score_from,
                        .request = &w.requests[spec->client]};
    memcpy(run->ids, spec->prompt, spec->prompt_count * sizeof(int32_t));
    assert_true(run->replayed || run->answered == 0);
    assert_int_equal(run->count - run->answered, run->request->spec.prompt_count);
    assert_ptr_not_equal(spec->grammar.ptr, GRAMMAR); /* the client's may be gone by now */
    assert_string_equal(spec->grammar.ptr, GRAMMAR);
    *id = run->id;
    return SH_OK;
}

static struct run *run_find(uint64_t id)
{
    for (int i = 0; i < REQUESTS; i++)
        if (w.runs[i].id == id) return &w.runs[i];
    return NULL;
}

void sh_engine_conn_cancel(sh_engine_conn *conn, uint64_t id)
{
    (void)conn;
    struct run *run = run_find(id);
    if (run != NULL) run->cancelled = true;
}

void sh_engine_conn_forget(sh_engine_conn *conn, uint64_t id)
{
    struct run *run = run_find(id);
    assert_non_null(run);
    sh_engine_conn_cancel(conn, id);
    run->forgotten = true;
}

static void emit(struct run *run, sh_event event)
{
    struct run copy = *run;
    event.id = copy.id;
    if (event.kind == SH_EVENT_DONE || event.kind == SH_EVENT_ERROR) run->id = 0;
    if (!copy.forgotten) copy.fn(copy.arg, &event);
}

static void run_fail(struct run *run, sh_status status, bool retry)
{
    sh_event event = {.kind = SH_EVENT_ERROR, .retry = retry};
    sh_err_set(&event.error, status, "rank 1 was lost");
    emit(run, event);
}

/* --- the clients --- */

static void request_submit(struct request *q);

static void request_forget(struct request *q)
{
    if (q->sequence == NULL) return;
    sh_replay_forget(q->sequence);
    q->sequence = NULL;
    q->forgotten = q->ended = true;
    w.open--;
}

static void mischief(void)
{
    if (!w.calls_back) return;
    if (next(60) == 0) request_forget(&w.requests[next((uint64_t)w.request_count)]);
    if (next(10) == 0 && w.submitted < w.request_count) request_submit(&w.requests[w.submitted]);
}

static void token_take(struct request *q, const sh_event *event)
{
    int known = (int)q->spec.prompt_count + q->count;
    if (q->spec.score_from > 0) assert_int_equal(q->scored, q->spec.prompt_count);
    assert_int_equal(event->token, token_after(q->ids, known, q->spec.sampling.seed));
    q->ids[known] = event->token;
    q->count++;
    assert_true(q->count <= q->spec.max_tokens);
    if (q->count == q->cancel_at) {
        q->cancelled = true;
        sh_replay_cancel(q->sequence);
    } else if (q->count == q->forget_at) {
        request_forget(q);
    }
}

static void on_event(void *arg, const sh_event *event)
{
    struct request *q = arg;
    assert_false(q->ended);
    if (event->kind == SH_EVENT_PROMPT_TOKEN) {
        assert_int_equal(event->token, q->ids[q->scored]);
        q->scored++;
        return;
    }
    if (event->kind == SH_EVENT_TOKEN) {
        token_take(q, event);
        mischief();
        return;
    }
    q->sequence = NULL;
    q->ended = true;
    w.open--;
    if (event->kind == SH_EVENT_DONE) {
        assert_true(q->count == q->spec.max_tokens || q->cancelled);
    } else {
        assert_int_equal(event->kind, SH_EVENT_ERROR);
        q->failed = true;
        q->failure = event->error.status;
        q->given_up = strstr(event->error.text, "it was given up") != NULL;
    }
    mischief();
}

static void request_submit(struct request *q)
{
    sh_err err;
    w.submitted++;
    q->submitted = true;
    w.open++;
    q->spec.prompt = q->ids;
    CHECK_OK(sh_replay_submit(w.replay, &q->spec, on_event, q, &q->sequence, &err), err);
}

/* --- the engine --- */

static int runs_count(void)
{
    int count = 0;
    for (int i = 0; i < REQUESTS; i++) count += w.runs[i].id != 0;
    return count;
}

/* A loss is counted here from the engine's side, to judge accusations by. */
static void loss_note(struct run *run, int at_engine)
{
    struct request *q = run->request;
    if (!run->started) return;
    q->alone = at_engine == 1;
    q->losses++;
}

static void lose(sh_status status)
{
    int at_engine = runs_count();
    w.losses++;
    w.state = status == SH_ERR_GROUP ? REFORMING : GONE;
    w.down_rounds = DOWN_ROUNDS;
    if (status != SH_ERR_CANCELLED)
        for (int i = 0; i < REQUESTS; i++)
            if (w.runs[i].id != 0) loss_note(&w.runs[i], at_engine);
    for (int i = 0; i < REQUESTS; i++)
        if (w.runs[i].id != 0) run_fail(&w.runs[i], status, false);
}

static void reached(struct run *run)
{
    struct request *q = run->request;
    if (run->computed <= q->reached) return;
    q->reached = run->computed;
    q->losses = 0;
}

/* Reports the tokens of the prompt that the first `rows` rows tell about. */
static void run_score(struct run *run, int rows)
{
    int prompt = run->count - run->answered;
    while (run->score_from > 0 && run->score_from < prompt && run->score_from <= rows)
        emit(run, (sh_event){.kind = SH_EVENT_PROMPT_TOKEN, .token = run->ids[run->score_from++]});
}

/* One chunk or one token. */
static void run_step(struct run *run)
{
    if (run->computed + CHUNK < run->count) {
        run->computed += CHUNK;
        reached(run);
        run_score(run, run->computed);
        emit(run, (sh_event){.kind = SH_EVENT_PROGRESS, .computed = run->computed});
        return;
    }
    if (run->answered == run->max_tokens) {
        emit(run, (sh_event){.kind = SH_EVENT_DONE, .finish = SH_FINISH_LENGTH});
        return;
    }
    run_score(run, run->count);
    int32_t token = token_after(run->ids, run->count, run->request->spec.sampling.seed);
    run->ids[run->count++] = token;
    run->computed = run->count;
    run->answered++;
    reached(run);
    emit(run, (sh_event){.kind = SH_EVENT_TOKEN, .token = token});
}

static bool kills(const struct run *run)
{
    int at = run->request->kills_at;
    int to = run->computed + CHUNK < run->count ? run->computed + CHUNK : run->count + 1;
    return at > 0 && run->started && run->computed < at && at <= to;
}

static void engine_step(void)
{
    int running = 0;
    for (int i = 0; i < REQUESTS; i++)
        if (w.runs[i].id != 0 && w.runs[i].cancelled)
            emit(&w.runs[i], (sh_event){.kind = SH_EVENT_DONE, .finish = SH_FINISH_CANCEL});
    for (int i = 0; i < REQUESTS && running < SLOTS; i++) {
        struct run *run = &w.runs[i];
        if (run->id == 0) continue;
        running++;
        if (run->started) continue;
        run->started = true;
        emit(run, (sh_event){.kind = SH_EVENT_PROGRESS});
    }
    for (int i = 0; i < REQUESTS; i++)
        if (w.runs[i].id != 0 && kills(&w.runs[i])) {
            w.culprit_losses++;
            lose(next(2) == 0 ? SH_ERR_GROUP : SH_ERR_PEER);
            return;
        }
    if (next(100) < (uint64_t)w.loss_percent) {
        static const sh_status kinds[] = {SH_ERR_GROUP, SH_ERR_PEER, SH_ERR_CANCELLED};
        lose(kinds[next(3)]);
        return;
    }
    for (int i = 0; i < REQUESTS; i++)
        if (w.runs[i].id != 0 && w.runs[i].started) run_step(&w.runs[i]);
}

static void on_tick(void *arg)
{
    (void)arg;
    assert_true(w.rounds++ < ROUNDS_MAX);
    if (w.state != UP) { /* what was sent too late is refused, and may be sent again */
        for (int i = 0; i < REQUESTS; i++)
            if (w.runs[i].id != 0) run_fail(&w.runs[i], SH_ERR_GROUP, true);
        if (--w.down_rounds <= 0) w.state = UP;
    } else {
        engine_step();
    }
    if (w.state == UP) sh_replay_ready(w.replay, w.model);
    /* a state that has changed since it was reported: the next submit is refused or fails */
    if (w.state == UP && next(100) < (uint64_t)w.refuse_percent) {
        w.state = runs_count() == 0 ? GONE : UP;
        w.down_rounds = 1;
    }
    for (int i = (int)next(4); i > 0 && w.submitted < w.request_count; i--)
        request_submit(&w.requests[w.submitted]);
    sh_replay_expire(w.replay);
    if (w.open == 0 && w.submitted == w.request_count)
        sh_loop_stop(w.loop);
    else
        sh_trigger_start(w.tick, 0);
}

/* --- the tests --- */

static void world_open(int requests, uint64_t seed, int64_t limit_ms)
{
    sh_err err;
    memset(&w, 0, sizeof(w));
    w.random = seed;
    w.model = MODEL;
    w.state = UP;
    CHECK_OK(sh_loop_create(&w.loop, &err), err);
    w.replay = sh_replay_create(w.loop, NULL, limit_ms);
    w.tick = sh_trigger_timer(w.loop, on_tick, NULL);
    w.request_count = requests;
    w.requests = calloc((size_t)requests, sizeof(*w.requests));
    for (int i = 0; i < requests; i++) {
        struct request *q = &w.requests[i];
        q->spec = (sh_sequence_spec){.client = (uint64_t)i,
                                     .prompt_count = 1 + next(PROMPT_MAX - 1),
                                     .max_tokens = 1 + (int)next(60),
                                     .score_from = i % 3 == 0,
                                     .grammar = {GRAMMAR, sizeof(GRAMMAR)},
                                     .sampling = sh_sampling_default()};
        q->scored = 1;
        q->spec.sampling.seed = next(1000);
        for (size_t t = 0; t < q->spec.prompt_count; t++) q->ids[t] = (int32_t)next(5000);
    }
    sh_replay_ready(w.replay, MODEL);
}

static void world_run(void)
{
    sh_trigger_start(w.tick, 0);
    sh_loop_run(w.loop);
    assert_int_equal(sh_replay_stats_of(w.replay).held, 0);
}

static void on_turn(void *arg)
{
    (void)arg;
    sh_loop_stop(w.loop);
}

/* Lets the replay submit what is held. */
static void loop_turn(void)
{
    sh_trigger *end = sh_trigger_timer(w.loop, on_turn, NULL);
    sh_trigger_start(end, 1);
    sh_loop_run(w.loop);
    sh_trigger_free(end);
}

static void world_close(void)
{
    sh_replay_free(w.replay);
    sh_trigger_free(w.tick);
    sh_loop_free(w.loop);
    free(w.requests);
}

/* No request was failed but those that bring the ranks down, and those that were lost alone three
 * times without progress in between: to tell these from culprits is impossible. */
static void check_accusations(void)
{
    for (int i = 0; i < w.request_count; i++) {
        const struct request *q = &w.requests[i];
        assert_true(q->submitted && q->ended);
        if (q->failed) assert_true(q->given_up);
        if (q->given_up) assert_true(q->alone && q->losses >= 3);
        if (q->kills_at > 0 && !q->forgotten && !q->cancelled) assert_true(q->given_up);
        if (!q->failed && !q->cancelled && !q->forgotten)
            assert_int_equal(q->count, q->spec.max_tokens);
    }
}

TEST(every_answer_is_complete_after_any_number_of_losses)
{
    UNUSED_STATE;
    for (uint64_t seed = 1; seed < 6; seed++) {
        world_open(REQUESTS, seed, SH_REPLAY_NO_LIMIT);
        w.loss_percent = 4;
        w.refuse_percent = 5;
        world_run();
        assert_true(w.losses > 5);
        assert_true(sh_replay_stats_of(w.replay).replays > 100);
        check_accusations();
        world_close();
    }
}

TEST(callbacks_may_cancel_forget_and_submit)
{
    UNUSED_STATE;
    for (uint64_t seed = 11; seed < 16; seed++) {
        world_open(REQUESTS, seed, SH_REPLAY_NO_LIMIT);
        w.loss_percent = 6;
        w.refuse_percent = 5;
        w.calls_back = true;
        for (int i = 0; i < REQUESTS; i++) {
            if (next(3) == 0) w.requests[i].cancel_at = 1 + (int)next(40);
            if (next(5) == 0) w.requests[i].forget_at = 1 + (int)next(40);
            if (next(40) == 0) w.requests[i].kills_at = 1 + (int)next(100);
        }
        for (int i = 0; i < REQUESTS; i++) {
            struct request *q = &w.requests[i]; /* one that ends before would kill nobody */
            if (q->kills_at > (int)q->spec.prompt_count) q->kills_at = 1;
        }
        world_run();
        check_accusations();
        world_close();
    }
}

/* All are there at once, so that the one to be found is among many. */
static void check_found(int requests, int kills_at, uint64_t seed)
{
    world_open(requests, seed, SH_REPLAY_NO_LIMIT);
    struct request *culprit = &w.requests[next((uint64_t)requests)];
    culprit->spec.prompt_count = PROMPT_MAX - 1;
    culprit->spec.max_tokens = 50;
    culprit->kills_at = kills_at;
    for (int i = 0; i < requests; i++) request_submit(&w.requests[i]);
    world_run();
    assert_true(culprit->given_up);
    assert_int_equal(sh_replay_stats_of(w.replay).given_up, 1);
    check_accusations();
    int most = 3;
    for (int n = 1; n < requests && n < SLOTS; n *= 2) most++;
    if (w.culprit_losses > most)
        fail_msg("it took %d losses to find one of %d", w.culprit_losses, requests);
    world_close();
}

TEST(a_request_that_brings_the_ranks_down_is_found_and_no_other_is_blamed)
{
    UNUSED_STATE;
    static const int counts[] = {1, 2, 3, 8, 24, 200};
    static const int places[] = {1, 3 * CHUNK, PROMPT_MAX, PROMPT_MAX + 20};
    for (size_t i = 0; i < SH_COUNT_OF(counts); i++)
        for (size_t k = 0; k < SH_COUNT_OF(places); k++)
            for (uint64_t seed = 1; seed < 6; seed++) check_found(counts[i], places[k], seed);
}

TEST(several_of_them_are_found_too)
{
    UNUSED_STATE;
    for (uint64_t seed = 1; seed < 6; seed++) {
        world_open(REQUESTS, seed, SH_REPLAY_NO_LIMIT);
        for (int i = 0; i < REQUESTS; i += 57) w.requests[i].kills_at = 1 + (int)next(20);
        for (int i = 0; i < REQUESTS; i += 57) w.requests[i].spec.prompt_count = 30;
        world_run();
        check_accusations();
        assert_int_equal(sh_replay_stats_of(w.replay).given_up, (REQUESTS + 56) / 57);
        world_close();
    }
}

/* Two suspects are on trial together; the client of one goes away, and the engine, which has not
 * read of it yet, is lost. Nothing is proved about the other. */
static void check_company(bool forget)
{
    world_open(4, 1, SH_REPLAY_NO_LIMIT);
    for (int i = 0; i < 4; i++) {
        w.requests[i].spec.prompt_count = PROMPT_MAX - 1;
        request_submit(&w.requests[i]);
    }
    for (int losses = 0; losses < 2; losses++) {
        for (int i = 0; i < 4; i++) w.runs[i].started = true;
        for (int i = 0; i < 4; i++) emit(&w.runs[i], (sh_event){.kind = SH_EVENT_PROGRESS});
        lose(SH_ERR_GROUP);
        w.state = UP;
        sh_replay_ready(w.replay, MODEL);
        loop_turn();
    }
    assert_int_equal(runs_count(), 2);
    for (int i = 0; i < 2; i++) emit(&w.runs[i], (sh_event){.kind = SH_EVENT_PROGRESS});
    if (forget) {
        request_forget(&w.requests[0]);
    } else {
        w.requests[0].cancelled = true;
        sh_replay_cancel(w.requests[0].sequence);
    }
    lose(SH_ERR_GROUP);
    assert_false(w.requests[1].failed);
    world_run();
    for (int i = 1; i < 4; i++) assert_false(w.requests[i].failed);
    world_close();
}

TEST(nobody_is_blamed_for_one_that_has_just_been_cancelled)
{
    UNUSED_STATE;
    check_company(true);
    check_company(false);
}

TEST(a_held_request_that_is_cancelled_ends_without_an_engine)
{
    UNUSED_STATE;
    world_open(1, 1, SH_REPLAY_NO_LIMIT);
    request_submit(&w.requests[0]);
    lose(SH_ERR_PEER);
    w.down_rounds = ROUNDS_MAX;
    assert_int_equal(sh_replay_stats_of(w.replay).held, 1);
    w.requests[0].cancelled = true;
    sh_replay_cancel(w.requests[0].sequence);
    world_run();
    assert_false(w.requests[0].failed);
    world_close();
}

TEST(a_request_is_held_no_longer_than_its_own_limit_or_the_replays)
{
    UNUSED_STATE;
    for (int own = 0; own < 2; own++) {
        world_open(1, 1, own ? SH_REPLAY_NO_LIMIT : 30);
        w.requests[0].spec.timeout_ms = own ? 30 : 60000;
        w.state = GONE;
        w.down_rounds = INT32_MAX;
        request_submit(&w.requests[0]);
        w.rounds = -100000000; /* limited by time, not by rounds */
        int64_t start = sh_clock_ns();
        world_run();
        assert_true(sh_clock_ns() - start > 25 * INT64_C(1000000));
        assert_int_equal(w.requests[0].failure, own ? SH_ERR_TIMEOUT : SH_ERR_PEER);
        world_close();
    }
}

TEST(another_model_ends_what_was_made_for_the_one_before)
{
    UNUSED_STATE;
    world_open(20, 1, SH_REPLAY_NO_LIMIT);
    for (int i = 0; i < 20; i++) request_submit(&w.requests[i]);
    engine_step();
    lose(SH_ERR_PEER);
    w.model = MODEL + 1;
    world_run();
    /* One that has no token yet may be sent again. */
    for (int i = 0; i < 20; i++)
        assert_int_equal(w.requests[i].failure,
                         w.requests[i].count == 0 ? SH_ERR_GROUP : SH_ERR_SYSTEM);
    world_close();
}

TEST(without_replay_a_loss_is_an_error_at_once)
{
    UNUSED_STATE;
    world_open(4, 1, 0);
    for (int i = 0; i < 4; i++) request_submit(&w.requests[i]);
    engine_step();
    lose(SH_ERR_GROUP);
    for (int i = 0; i < 4; i++) assert_int_equal(w.requests[i].failure, SH_ERR_GROUP);
    world_close();
}

TEST(stopping_ends_what_is_held_and_lets_the_rest_finish)
{
    UNUSED_STATE;
    world_open(6, 1, SH_REPLAY_NO_LIMIT);
    for (int i = 0; i < 3; i++) request_submit(&w.requests[i]);
    lose(SH_ERR_GROUP);
    sh_replay_stop(w.replay);
    for (int i = 0; i < 3; i++) assert_int_equal(w.requests[i].failure, SH_ERR_GROUP);
    w.state = UP;
    world_run();
    for (int i = 3; i < 6; i++) assert_false(w.requests[i].failed);
    world_close();
}

int main(void)
{
    sh_log_set_level(SH_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_answer_is_complete_after_any_number_of_losses),
        cmocka_unit_test(callbacks_may_cancel_forget_and_submit),
        cmocka_unit_test(a_request_that_brings_the_ranks_down_is_found_and_no_other_is_blamed),
        cmocka_unit_test(several_of_them_are_found_too),
        cmocka_unit_test(nobody_is_blamed_for_one_that_has_just_been_cancelled),
        cmocka_unit_test(a_held_request_that_is_cancelled_ends_without_an_engine),
        cmocka_unit_test(a_request_is_held_no_longer_than_its_own_limit_or_the_replays),
        cmocka_unit_test(another_model_ends_what_was_made_for_the_one_before),
        cmocka_unit_test(without_replay_a_loss_is_an_error_at_once),
        cmocka_unit_test(stopping_ends_what_is_held_and_lets_the_rest_finish),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
