/* Real ranks that are killed or stopped between a plan and its masks, and rank 0 in their place:
 * every answer goes on with the tokens of an undisturbed run.
 *
 * All ranks are processes, and the test only watches them. Rank 0 computes on a device that calls
 * back at two points of each forward pass: at its start, when the plan has been sent, and before
 * the logits, when the sums of the last layer show that the other ranks are as far. In both cases
 * the masks of the plan are still being made, and rank 0 cannot send them while it is in the
 * callback. One answer has a grammar whose every state is new, so every plan brings a mask; in a
 * pipeline, where it is in every other plan, all answers have. */
#include "engine/engine.h"

#include "base/json.h"
#include "base/log.h"
#include "cmd/support/vocabulary.h"
#include "text/grammar/pack.h"

#include "unit/engine/ranks.h"

#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ASKS = 9, ANSWER = 40, PROMPT_MAX = 80, RANKS_MAX = 4, FAULTS_MAX = 4, TOP = 2 };
enum { END_OF_TEXT = 4085, IM_END = 4087 };
enum { SILENCE_MS = 1500, NEVER_SILENT_MS = 60000, NOTICED_MS = 20000, RUN_MS = 150000 };

static const char DIR[] = "models/demo";

/* ---- requests ---- */

#define PERSON                                                                                     \
    "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"maxLength\":12},"        \
    "\"age\":"                                                                                     \
    "{\"type\":\"integer\",\"minimum\":0,\"maximum\":150},\"married\":{\"type\":\"boolean\"}},"    \
    "\"required\":[\"name\",\"age\",\"married\"],\"additionalProperties\":false}"

static const struct ask {
    const char *kind, *text; /* NULL: no grammar */
    double temperature, top_p, frequency;
    int min_tokens, logprobs;
} asks[ASKS] = {
    {"new", "a", 0, 1, 0, 0, -1},
    {"schema", PERSON, 0, 1, 0, 0, -1},
    {"schema", PERSON, 0.9, 1, 0, 30, 1},
    {"gbnf", "root ::= term ([+*-] term)*\nterm ::= [0-9]{1,4} | \"(\" root \")\"", 1, 1, 0.5, 9,
     0},
    {NULL, NULL, 0, 1, 0, 0, -1},
    {"gbnf", "root ::= \"[\" (item (\", \" item)*)? \"]\"\nitem ::= [a-z]{2,7} | root", 0, 1, 0, 20,
     TOP},
    {NULL, NULL, 0.9, 0.9, 0, 0, TOP},
    {"new", "n", 1, 0.95, 0, 0, 0},
    {"gbnf", "root ::= word (\" \" word)* \".\"\nword ::= [A-Z]? [a-z]{1,9}", 1.2, 1, 0, 0, TOP},
};

static int answer_max(void)
{
    return test_is_short() ? ANSWER / 2 : ANSWER;
}

struct answer {
    atomic_int count;
    atomic_bool done, lost;
    int32_t tokens[ANSWER];
    float logprobs[ANSWER];
    sh_token_logprob top[ANSWER][TOP];
    sh_event end;
};

static sh_buf packed[ASKS], packed_new[ASKS];
static sh_vocabulary_files files = {.model_dir = DIR};
static sh_vocabulary vocabulary;

/* Half of the letters at each place, each time others: no two states have the same mask. */
static sh_expr new_make(sh_grammar_builder *b, char first)
{
    sh_buf text = {0};
    uint64_t letters = (uint64_t)first;
    for (int i = 0; i < 3 * ANSWER; i++) {
        letters = sh_mix64(letters);
        sh_buf_add_text(&text, "[");
        for (int c = 0; c < 26; c++)
            if (c == i % 26 || (letters >> c & 1) != 0) sh_buf_add_char(&text, (char)('a' + c));
        sh_buf_add_text(&text, "]");
    }
    sh_expr made = sh_expr_regex(b, sh_buf_str(&text));
    sh_buf_reset(&text);
    return made;
}

static sh_expr schema_make(sh_grammar_builder *b, const char *text)
{
    sh_err err;
    cJSON *schema = NULL;
    CHECK_OK(sh_json_parse(sh_str_of(text), "schema", &schema, &err), err);
    sh_expr made = sh_expr_json_schema(b, schema, (sh_json_form){.spaces = true});
    cJSON_Delete(schema);
    return made;
}

static sh_expr expr_make(sh_grammar_builder *b, const struct ask *a)
{
    if (strcmp(a->kind, "new") == 0) return new_make(b, a->text[0]);
    if (strcmp(a->kind, "gbnf") == 0) return sh_expr_gbnf(b, sh_str_of(a->text));
    return schema_make(b, a->text);
}

static void pack(sh_grammar_builder *b, sh_expr root, sh_buf *out)
{
    sh_err err;
    sh_grammar *compiled;
    CHECK_OK(sh_grammar_compile(b, root, &compiled, &err), err);
    sh_grammar_builder_free(b);
    sh_grammar_pack(compiled, out);
    sh_grammar_free(compiled);
}

static int open_all(void **state)
{
    UNUSED_STATE;
    sh_err err;
    CHECK_OK(sh_vocabulary_load(&files, &vocabulary, &err), err);
    for (int i = 0; i < ASKS; i++) {
        sh_grammar_builder *b = sh_grammar_builder_create();
        pack(b, new_make(b, (char)('A' + i)), &packed_new[i]);
        if (asks[i].kind == NULL) continue;
        b = sh_grammar_builder_create();
        pack(b, expr_make(b, &asks[i]), &packed[i]);
    }
    return 0;
}

static int close_all(void **state)
{
    UNUSED_STATE;
    for (int i = 0; i < ASKS; i++) {
        sh_buf_reset(&packed[i]);
        sh_buf_reset(&packed_new[i]);
    }
    sh_vocabulary_files_reset(&files);
    return 0;
}

/* ---- what all processes see ---- */

enum { AT_START = 0, AT_LOGITS = 1000 }; /* points of a pass; between them, its products */
typedef enum {
    KILL,         /* as soon as rank 0 gets to the point */
    KILL_WAITING, /* when the rank waits */
    STOP,         /* when the rank waits; another one comes in its place */
    STOP_A_WHILE, /* likewise, but it goes on after it was given up */
    KILL_RANK_0
} fault_kind;

/* How the requests run. A fault is due in the given plan with draws, counted over all groups. */
struct way {
    const char *name;
    int tensor, stages, drafts;
    bool all_new; /* all answers have grammars whose every state is new */
    bool without; /* a rank that is lost does not come back */
    struct fault {
        fault_kind kind;
        int point;
        int rank, plan;
    } faults[FAULTS_MAX + 1]; /* up to one with plan 0 */
};

static int fault_count(const struct way *way)
{
    int count = 0;
    while (way->faults[count].plan > 0) count++;
    return count;
}

/* In shared memory. Rank 0 writes, but for `pids` and `allowed`. */
static struct world {
    struct answer answers[ASKS];
    atomic_int pids[RANKS_MAX];
    atomic_int allowed; /* faults that may come: the test has seen the ones before */
    atomic_int plans;   /* with draws */
    atomic_int struck;  /* faults so far */
    atomic_llong struck_ns;
    atomic_int noticed; /* the last of them that rank 0 has noticed */
    atomic_llong noticed_ns;
    atomic_int noticed_plans; /* at that time */
    atomic_int done;
    /* Of the last process that was rank 0. */
    atomic_int before; /* faults before its time */
    atomic_int losses; /* groups that were lost */
    atomic_long made;  /* masks */
    int world_size;
    char error[SH_ERR_TEXT_MAX]; /* of a request, other than for a lost rank */
} * world;

/* ---- rank 0 ---- */

static const struct way *own_way;

/* A thread that sleeps in each of so many looks is waiting for a message: it has no other reason
 * to. */
static void await_asleep(pid_t pid)
{
    char path[64], line[256], status = '?';
    snprintf(path, sizeof(path), "/proc/%d/task/%d/stat", (int)pid, (int)pid);
    sh_deadline end = sh_deadline_in_ms(NOTICED_MS);
    for (int asleep = 0; asleep < 10 && !sh_deadline_passed(end);) {
        FILE *file = fopen(path, "r");
        if (file == NULL) return;
        const char *name_end = fgets(line, sizeof(line), file) == NULL ? NULL : strrchr(line, ')');
        if (name_end != NULL) status = name_end[2];
        fclose(file);
        asleep = status == 'S' ? asleep + 1 : 0;
        sh_sleep_ms(2);
    }
}

static void strike(const struct fault *f)
{
    sh_deadline end = sh_deadline_in_ms(NOTICED_MS);
    while (atomic_load(&world->allowed) <= atomic_load(&world->struck) && !sh_deadline_passed(end))
        sh_sleep_ms(1);
    pid_t pid = atomic_load(&world->pids[f->rank]);
    if (f->kind != KILL && f->kind != KILL_RANK_0) await_asleep(pid);
    atomic_store(&world->struck_ns, sh_clock_ns());
    atomic_fetch_add(&world->struck, 1);
    if (f->kind == KILL_RANK_0) pid = getpid();
    kill(pid, f->kind == STOP || f->kind == STOP_A_WHILE ? SIGSTOP : SIGKILL);
}

static const sh_ops *watched_ops; /* of the device underneath */
static bool plan_draws, logits_made;
static int products; /* of this pass */

/* A fault that is due at a point that does not come is due at the next one, and not before the loss
 * by the one before was noticed: a pipeline goes on for a while. */
static void on_point(int point)
{
    int struck = atomic_load(&world->struck);
    const struct fault *f = &own_way->faults[struck];
    if (struck > atomic_load(&world->noticed) && struck > atomic_load(&world->before)) return;
    if (f->plan == 0 || atomic_load(&world->plans) < f->plan || point < f->point) return;
    strike(f);
}

static const sh_device_batch *watched_step_begin(sh_device *dev, const sh_batch *batch)
{
    plan_draws = batch->row_count > 0;
    logits_made = false;
    products = 0;
    if (plan_draws) {
        atomic_fetch_add(&world->plans, 1);
        on_point(AT_START);
    }
    return watched_ops->step_begin(dev, batch);
}

static void watched_matmul(sh_device *dev, const sh_product *of, int count, sh_tensor x, int tokens)
{
    products++;
    if (plan_draws) on_point(products);
    watched_ops->matmul(dev, of, count, x, tokens);
}

static void watched_copy_rows(sh_device *dev, const sh_device_batch *b, sh_tensor y, sh_tensor x,
                              int64_t cols)
{
    logits_made = true;
    on_point(AT_LOGITS);
    watched_ops->copy_rows(dev, b, y, x, cols);
}

/* The first stage of a pipeline makes no logits. */
static sh_status watched_step_end(sh_device *dev, const sh_device_batch *b, sh_err *err)
{
    if (plan_draws && !logits_made) on_point(AT_LOGITS);
    return watched_ops->step_end(dev, b, err);
}

static sh_status watched_open(const sh_device_opts *opts, sh_device **out, sh_err *err)
{
    static sh_ops ops;
    sh_status status = sh_device_open(test_device(), opts, out, err);
    if (status != SH_OK) return status;
    watched_ops = (*out)->ops;
    ops = *watched_ops;
    ops.step_begin = watched_step_begin;
    ops.matmul = watched_matmul;
    ops.copy_rows = watched_copy_rows;
    ops.step_end = watched_step_end;
    (*out)->ops = &ops;
    return SH_OK;
}

static sh_status vocabulary_give(void *ctx, sh_vocabulary *out, sh_err *err)
{
    (void)ctx;
    (void)err;
    *out = vocabulary;
    return SH_OK;
}

static long count_of(const char *json, const char *name)
{
    const char *at = strstr(json, name);
    return at == NULL ? -1 : strtol(at + strlen(name), NULL, 10);
}

static void on_error(const sh_event *e)
{
    int struck = atomic_load(&world->struck);
    world->answers[e->id].lost = true;
    if (e->error.status != SH_ERR_GROUP && e->error.status != SH_ERR_CANCELLED)
        memcpy(world->error, e->error.text, sizeof(world->error));
    if (atomic_load(&world->noticed) == struck) return;
    atomic_store(&world->noticed_ns, sh_clock_ns());
    atomic_store(&world->noticed_plans, atomic_load(&world->plans));
    atomic_store(&world->noticed, struck);
}

/* Runs on the engine's thread, as the device's callbacks do. */
static void sink(void *ctx, uint64_t owner, const sh_event *e)
{
    (void)ctx;
    (void)owner;
    struct answer *a = &world->answers[e->id];
    int count = atomic_load(&a->count);
    switch (e->kind) {
    case SH_EVENT_TOKEN:
        if (count == ANSWER) abort();
        a->tokens[count] = e->token;
        a->logprobs[count] = e->logprob;
        memcpy(a->top[count], e->top, (size_t)e->top_count * sizeof(e->top[0]));
        atomic_store(&a->count, count + 1);
        break;
    case SH_EVENT_ERROR: on_error(e); break;
    case SH_EVENT_STATS:
        atomic_store(&world->losses, (int)count_of(e->stats.ptr, "\"group_failures\":"));
        atomic_store(&world->made, count_of(e->stats.ptr, "\"masks_made\":"));
        break;
    case SH_EVENT_DONE:
        a->end = *e;
        a->done = true;
        atomic_fetch_add(&world->done, 1);
        break;
    default: break;
    }
}

static sh_engine_opts engine_opts(const struct way *way)
{
    return (sh_engine_opts){.model_group = {.model_dir = DIR,
                                            .device = test_device(),
                                            .device_opts = {.threads = 1,
                                                            .level = getenv("SHOAL_CPU"),
                                                            .activations = SH_ACTIVATIONS_F32},
                                            .kv_format = SH_KV_F32,
                                            .context = 256,
                                            .ranks = way->tensor * way->stages,
                                            .tensor = way->tensor,
                                            .stages = way->stages,
                                            .slots = ASKS,
                                            .chunk = 64,
                                            .load = {.exact = true}},
                            .queue_max = 100,
                            .stall_s = 0.2,
                            .elastic = true,
                            .degrade_ms = way->without ? 100 : -1,
                            .rejoin_ms = 100000,
                            .drafts = way->drafts,
                            .drafts_always = true,
                            .vocabulary = {vocabulary_give, NULL}};
}

/* As the API submits it: the first time, or with the answer so far. */
static void ask(sh_engine *engine, int id)
{
    static const int32_t stop_ids[] = {IM_END, END_OF_TEXT};
    const struct ask *a = &asks[id];
    struct answer *so_far = &world->answers[id];
    int32_t prompt[PROMPT_MAX + ANSWER];
    int count = 29 + 5 * id, answered = atomic_load(&so_far->count);
    for (int i = 0; i < count; i++) prompt[i] = 300 + (i % 13 * 17 + (i < 20 ? 0 : id)) % 3000;
    for (int i = 0; i < answered; i++) prompt[count++] = so_far->tokens[i];
    sh_sequence_spec q = {.id = (uint64_t)id,
                          .prompt = prompt,
                          .prompt_count = (size_t)count,
                          .answered = answered,
                          .replayed = so_far->lost,
                          .max_tokens = answer_max(),
                          .min_tokens = a->min_tokens,
                          .stop_ids = stop_ids,
                          .stop_id_count = SH_COUNT_OF(stop_ids),
                          .logprobs = a->logprobs,
                          .grammar = sh_buf_str(own_way->all_new ? &packed_new[id] : &packed[id]),
                          .sampling = sh_sampling_default()};
    q.sampling.temperature = a->temperature;
    q.sampling.top_p = a->top_p;
    q.sampling.frequency_penalty = a->frequency;
    q.sampling.seed = (uint64_t)id;
    so_far->lost = false;
    engine_ask(engine, &q);
}

/* Submits what is not answered yet, and again what was lost, until all is answered. */
static void answer_all(sh_engine *engine)
{
    sh_deadline end = sh_deadline_in_ms(RUN_MS);
    for (int i = 0; i < ASKS; i++) world->answers[i].lost = !world->answers[i].done;
    while (atomic_load(&world->done) < ASKS && !sh_deadline_passed(end)) {
        bool ready = sh_engine_info_of(engine).ready;
        for (int i = 0; i < ASKS && ready; i++)
            if (world->answers[i].lost) ask(engine, i);
        sh_sleep_ms(1);
    }
}

static void take_stats(sh_engine *engine)
{
    sh_deadline end = sh_deadline_in_ms(NOTICED_MS);
    atomic_store(&world->made, -1);
    sh_engine_ask_stats(engine, 1);
    while (atomic_load(&world->made) < 0 && !sh_deadline_passed(end)) sh_sleep_ms(1);
}

static bool has_stops(const struct way *way)
{
    bool stops = false;
    for (int i = 0; i < fault_count(way); i++)
        stops = stops || way->faults[i].kind == STOP || way->faults[i].kind == STOP_A_WHILE;
    return stops;
}

static sh_group_opts rank_opts(const struct way *way, int rank, const char *where, int fd)
{
    sh_group_opts opts = group_opts(rank, way->tensor * way->stages, where, fd, NULL);
    opts.silence_ms = has_stops(way) ? SILENCE_MS : NEVER_SILENT_MS;
    return opts;
}

static pid_t rank_0_start(const struct way *way, const char *where, int fd, bool again)
{
    pid_t pid = fork();
    if (pid != 0) return pid;
    sh_err err;
    sh_engine *engine = NULL;
    sh_engine_opts opts = engine_opts(way);
    sh_group_opts own = rank_opts(way, 0, where, fd);
    own_way = way;
    atomic_store(&world->before, atomic_load(&world->struck));
    test_device();
    sh_device_register(&(sh_device_kind){"watched", watched_open});
    opts.model_group.device = "watched";
    opts.group = &own;
    opts.resumed = again;
    sh_status status = sh_engine_open(&opts, &engine, &err);
    if (status == SH_OK) status = sh_engine_start(engine, sink, NULL, &err);
    if (status == SH_OK) {
        answer_all(engine);
        take_stats(engine);
        world->world_size = sh_engine_info_of(engine).world_size;
        sh_engine_stop(engine, 100);
    }
    sh_engine_close(engine);
    if (status != SH_OK) fprintf(stderr, "rank 0: %s\n", err.text);
    _exit(status == SH_OK ? 0 : 1);
}

/* ---- other ranks ---- */

static pid_t worker_start(const struct way *way, int rank, const char *where)
{
    pid_t pid = fork();
    if (pid != 0) return pid;
    sh_err err;
    sh_model_group *model_group = NULL;
    sh_model_group_opts opts = engine_opts(way).model_group;
    sh_group_opts own = rank_opts(way, rank, where, -1);
    opts.draws = sh_engine_draws(opts.slots);
    if (sh_model_group_open(&opts, &model_group, &err) == SH_OK)
        rank_run_again(model_group, &own, RUN_MS);
    fprintf(stderr, "rank %d: %s\n", rank, err.text);
    _exit(1);
}

/* ---- the test ---- */

struct cluster {
    const struct way *way;
    char where[SH_ADDR_TEXT_MAX];
    int fd;
    pid_t stopped; /* the last that another one replaced; 0: none */
};

static bool is_rank(const struct cluster *c, int rank)
{
    return rank < c->way->tensor * c->way->stages;
}

static void process_start(struct cluster *c, int rank, bool again)
{
    pid_t pid = rank == 0 ? rank_0_start(c->way, c->where, c->fd, again)
                          : worker_start(c->way, rank, c->where);
    atomic_store(&world->pids[rank], pid);
}

/* Whatever happens, no process is left. */
static void cluster_fail(const struct cluster *c, const char *what)
{
    for (int r = 0; is_rank(c, r); r++) {
        pid_t pid = atomic_load(&world->pids[r]);
        if (pid <= 0) continue;
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
    fail_msg("%s: %s; %d of %d requests were answered, after %d faults", c->way->name, what,
             atomic_load(&world->done), ASKS, atomic_load(&world->struck));
}

/* A rank that was killed. */
static void bury(const struct cluster *c, int rank)
{
    int status = 0;
    pid_t pid = atomic_load(&world->pids[rank]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
        cluster_fail(c, "a rank ended by itself");
}

static void await(const struct cluster *c, atomic_int *what, int least, int limit_ms,
                  const char *missing)
{
    sh_deadline end = sh_deadline_in_ms(limit_ms);
    while (atomic_load(what) < least) {
        if (sh_deadline_passed(end)) cluster_fail(c, missing);
        sh_sleep_ms(1);
    }
}

static void check_noticed(const struct cluster *c, int number)
{
    await(c, &world->noticed, number, NOTICED_MS, "the loss was not noticed");
    double after = (double)(atomic_load(&world->noticed_ns) - atomic_load(&world->struck_ns)) / 1e6;
    print_message("# %s: noticed after %.0f ms\n", c->way->name, after);
}

/* What comes after a fault, until the rank is back or another one in its place. */
static void recover(struct cluster *c, int number)
{
    const struct fault *f = &c->way->faults[number - 1];
    pid_t pid = atomic_load(&world->pids[f->rank]);
    switch (f->kind) {
    case KILL_RANK_0:
        bury(c, 0);
        process_start(c, 0, true);
        break;
    case STOP_A_WHILE:
        check_noticed(c, number);
        kill(pid, SIGCONT);
        break;
    case STOP:
        check_noticed(c, number);
        process_start(c, f->rank, true);
        c->stopped = pid;
        break;
    default:
        check_noticed(c, number);
        bury(c, f->rank);
        if (c->way->without)
            atomic_store(&world->pids[f->rank], 0);
        else
            process_start(c, f->rank, true);
    }
}

static void end_well(struct cluster *c)
{
    for (int r = 0; is_rank(c, r); r++) {
        int status = -1;
        pid_t pid = atomic_load(&world->pids[r]);
        if (pid == 0) continue;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        atomic_store(&world->pids[r], 0);
        if (status != 0) cluster_fail(c, "a rank did not end well");
    }
    close(c->fd);
}

/* The rank whose place was taken goes on when another has its number: it must do no harm. */
static void release(struct cluster *c)
{
    if (c->stopped == 0) return;
    await(c, &world->plans, atomic_load(&world->noticed_plans) + 1, RUN_MS, "nothing goes on");
    kill(c->stopped, SIGCONT);
}

static void run(const struct way *way, struct answer *out)
{
    struct cluster c = {.way = way};
    world = mmap(NULL, sizeof(*world), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(world != MAP_FAILED);
    c.fd = listen_somewhere(c.where);
    for (int r = 0; is_rank(&c, r); r++) process_start(&c, r, false);
    for (int i = 1; i <= fault_count(way); i++) {
        atomic_store(&world->allowed, i);
        await(&c, &world->struck, i, RUN_MS, "a fault did not come");
        recover(&c, i);
    }
    release(&c);
    await(&c, &world->done, ASKS, RUN_MS, "an answer is missing");
    if (c.stopped != 0) {
        kill(c.stopped, SIGKILL);
        waitpid(c.stopped, NULL, 0);
    }
    end_well(&c);
    if (world->error[0] != '\0') fail_msg("%s: %s", way->name, world->error);
    memcpy((void *)out, (void *)world->answers, sizeof(world->answers));
    print_message("# %s: %d plans with draws, %ld masks, %d ranks at the end\n", way->name,
                  atomic_load(&world->plans), atomic_load(&world->made), world->world_size);
    assert_int_equal(world->world_size,
                     way->tensor * way->stages - (way->without ? fault_count(way) : 0));
    /* No group was lost but for a fault; a machine that is busy may be silent for long. */
    if (!has_stops(way))
        assert_int_equal(atomic_load(&world->losses), fault_count(way) - world->before);
    /* Every draw of such a grammar needs a mask that was not made before. */
    if (fault_count(way) == 0 && way->all_new)
        assert_int_equal(atomic_load(&world->made), ASKS * answer_max());
    munmap(world, sizeof(*world));
}

static void check_same(const struct way *way, const struct answer *a, const struct answer *b)
{
    for (int i = 0; i < ASKS; i++) {
        for (int t = 0; t < a[i].count && t < b[i].count; t++)
            if (a[i].tokens[t] != b[i].tokens[t])
                fail_msg("%s: request %d, token %d is %d, not %d", way->name, i, t, b[i].tokens[t],
                         a[i].tokens[t]);
        assert_int_equal(a[i].count, b[i].count);
        assert_int_equal(a[i].end.finish, b[i].end.finish);
        assert_int_equal(a[i].end.completion_tokens, b[i].end.completion_tokens);
        if (way->without) continue; /* other shares round differently */
        assert_memory_equal(a[i].logprobs, b[i].logprobs, sizeof(a[i].logprobs));
        assert_memory_equal(a[i].top, b[i].top, sizeof(a[i].top));
    }
}

static void check_ways(const struct way *ways, size_t count)
{
    static struct answer want[ASKS], got[ASKS];
    struct way quiet = {
        .name = "undisturbed",
        .tensor = ways[0].tensor,
        .stages = ways[0].stages,
        .all_new = ways[0].all_new,
    };
    run(&quiet, want);
    for (int i = 0; i < ASKS; i++) assert_true(want[i].count > 0);
    for (size_t i = 0; i < (test_is_short() ? 1 : count); i++) {
        run(&ways[i], got);
        check_same(&ways[i], want, got);
    }
}

TEST(a_rank_that_is_killed_between_plan_and_masks_costs_no_answer)
{
    UNUSED_STATE;
    static const struct way ways[] = {
        {.name = "killed, 2 ranks",
         .tensor = 2,
         .stages = 1,
         .faults = {{KILL, AT_LOGITS, 1, 2},
                    {KILL_WAITING, AT_LOGITS, 1, 9},
                    {KILL, AT_START, 1, 17}}},
        {.name = "killed, 2 ranks, drafts",
         .tensor = 2,
         .stages = 1,
         .drafts = 4,
         .faults = {{KILL_WAITING, AT_LOGITS, 1, 5}, {KILL, AT_START, 1, 11}}},
    };
    check_ways(ways, SH_COUNT_OF(ways));
}

TEST(nor_does_one_of_three_while_the_third_waits)
{
    UNUSED_STATE;
    if (test_is_short()) skip();
    static const struct way ways[] = {
        {.name = "killed, 3 ranks",
         .tensor = 3,
         .stages = 1,
         .faults = {{KILL_WAITING, AT_LOGITS, 1, 3},
                    {KILL, AT_LOGITS, 2, 8},
                    {KILL, AT_START, 1, 15}}},
        {.name = "killed, 3 ranks, for good",
         .tensor = 3,
         .stages = 1,
         .drafts = 4,
         .without = true,
         .faults = {{KILL_WAITING, AT_LOGITS, 1, 4}}},
    };
    check_ways(ways, SH_COUNT_OF(ways));
}

TEST(nor_does_one_of_a_pipeline)
{
    UNUSED_STATE;
    static const struct way ways[] = {
        {.name = "killed, 2 stages",
         .tensor = 1,
         .stages = 2,
         .all_new = true,
         .faults = {{KILL, AT_LOGITS, 1, 1}, {KILL_WAITING, AT_LOGITS, 1, 12}}},
        {.name = "killed, 2 stages, drafts",
         .tensor = 1,
         .stages = 2,
         .drafts = 4,
         .all_new = true,
         .faults = {{KILL_WAITING, AT_LOGITS, 1, 6}, {KILL, AT_START, 1, 11}}},
    };
    static const struct way mixed = {
        .name = "killed, 2 stages, mixed",
        .tensor = 1,
        .stages = 2,
        .drafts = 4,
        .faults = {{KILL_WAITING, AT_LOGITS, 1, 4}, {KILL, AT_LOGITS, 1, 9}}};
    check_ways(ways, SH_COUNT_OF(ways));
    if (!test_is_short()) check_ways(&mixed, 1);
}

TEST(nor_does_one_that_is_stopped_there_until_it_is_given_up)
{
    UNUSED_STATE;
    static const struct way ways[] = {
        {.name = "stopped, and replaced",
         .tensor = 2,
         .stages = 1,
         .faults = {{STOP, AT_LOGITS, 1, 7}}},
        {.name = "stopped for a while",
         .tensor = 2,
         .stages = 1,
         .drafts = 4,
         .faults = {{STOP_A_WHILE, AT_LOGITS, 1, 7}}},
    };
    check_ways(ways, SH_COUNT_OF(ways));
}

TEST(nor_does_rank_0_whose_place_another_process_takes)
{
    UNUSED_STATE;
    if (test_is_short()) skip();
    static const struct way tensor = {
        .name = "rank 0 killed, 3 ranks",
        .tensor = 3,
        .stages = 1,
        .faults = {{KILL_RANK_0, AT_LOGITS, 0, 2}, {KILL_RANK_0, AT_START, 0, 10}}};
    static const struct way pipeline = {.name = "rank 0 killed, 2 stages, drafts",
                                        .tensor = 1,
                                        .stages = 2,
                                        .drafts = 4,
                                        .all_new = true,
                                        .faults = {{KILL_RANK_0, AT_LOGITS, 0, 7}}};
    check_ways(&tensor, 1);
    check_ways(&pipeline, 1);
}

static uint64_t pick(uint64_t *random, int count)
{
    *random = sh_mix64(*random + 1);
    return (*random >> 16) % (uint64_t)count;
}

/* Faults at any product of a pass, and any mixture of them. */
static void way_make(uint64_t seed, struct way *way, char name[64])
{
    static const struct {
        int tensor, stages;
    } grids[] = {{2, 1}, {3, 1}, {1, 2}, {2, 2}, {1, 3}};
    static const fault_kind kinds[] = {KILL, KILL, KILL, KILL_WAITING, KILL_RANK_0, STOP_A_WHILE};
    uint64_t random = seed;
    size_t grid = seed % SH_COUNT_OF(grids);
    int size = grids[grid].tensor * grids[grid].stages, plan = 0;
    *way = (struct way){.name = name,
                        .tensor = grids[grid].tensor,
                        .stages = grids[grid].stages,
                        .drafts = pick(&random, 2) == 0 ? 0 : 4,
                        .all_new = pick(&random, 3) == 0};
    snprintf(name, 64, "seed %d, %dx%d%s", (int)seed, way->tensor, way->stages,
             way->drafts > 0 ? ", drafts" : "");
    for (int i = 0; i < FAULTS_MAX; i++) {
        plan += 1 + (int)pick(&random, 7);
        const int points[] = {AT_START, 1 + (int)pick(&random, 40), AT_LOGITS};
        struct fault *f = &way->faults[i];
        f->kind = kinds[pick(&random, SH_COUNT_OF(kinds))];
        f->point = points[pick(&random, SH_COUNT_OF(points))];
        f->rank = 1 + (int)pick(&random, size - 1);
        f->plan = plan;
    }
}

TEST(nor_do_faults_at_any_point)
{
    UNUSED_STATE;
    uint64_t rounds = SLOW || test_device() != NULL       ? 0
                      : getenv("SHOAL_TEST_FULL") != NULL ? 40
                                                          : 3;
    for (uint64_t seed = 1; seed <= rounds; seed++) {
        struct way way;
        char name[64];
        way_make(seed, &way, name);
        check_ways(&way, 1);
    }
}

int main(void)
{
    sh_log_set_level(SH_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_that_is_killed_between_plan_and_masks_costs_no_answer),
        cmocka_unit_test(nor_does_one_of_three_while_the_third_waits),
        cmocka_unit_test(nor_does_one_of_a_pipeline),
        cmocka_unit_test(nor_does_one_that_is_stopped_there_until_it_is_given_up),
        cmocka_unit_test(nor_does_rank_0_whose_place_another_process_takes),
        cmocka_unit_test(nor_do_faults_at_any_point),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
