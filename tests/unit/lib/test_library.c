/* The library as its users see it: this program has its header and the shared library, nothing
 * else of the tree. The ranks of a group are threads here, which the library allows. */
#include "test.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <shoal.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

static const char DEMO[] = "models/demo";
static const char HELLO[] = "[{\"role\": \"user\", \"content\": \"Hello\"}]";

#define TOKEN "0123456789abcdef0123456789abcdef"

static void set(shoal_settings *settings, const char *name, const char *value)
{
    shoal_error err;
    CHECK_OK(shoal_settings_set(settings, name, value, &err), err);
}

static void set_int(shoal_settings *settings, const char *name, int value)
{
    char text[16];
    snprintf(text, sizeof(text), "%d", value);
    set(settings, name, text);
}

/* ---- settings ---- */

TEST(settings_are_checked_when_they_are_set)
{
    UNUSED_STATE;
    shoal_error err;
    shoal_settings *s = shoal_settings_new();
    CHECK_FAILS(shoal_settings_set(s, "treads", "4", &err), err, "there is no setting 'treads'");
    assert_int_equal(err.status, SHOAL_ERR_INPUT);
    CHECK_FAILS(shoal_settings_set(s, "ranks", "many", &err), err, "it takes a whole number");
    CHECK_FAILS(shoal_settings_set(s, NULL, "1", &err), err, "a name and a value");
    assert_int_equal(shoal_settings_set(s, "ranks", "many", NULL), SHOAL_ERR_INPUT);
    set(s, "ranks", "2");
    set(s, "ranks", "3"); /* the last one counts */
    shoal_settings_free(s);
    shoal_settings_free(NULL);
}

TEST(a_bad_variable_is_named_and_settings_take_precedence)
{
    UNUSED_STATE;
    shoal_error err;
    shoal_group *group;
    shoal_settings *s = shoal_settings_new();
    setenv("SHOAL_OP_TIMEOUT", "soon", 1);
    CHECK_FAILS(shoal_settings_use_environment(s, &err), err, "SHOAL_OP_TIMEOUT: 'soon'");
    CHECK_OK(shoal_group_open(s, &group, &err), err); /* and is not used */
    shoal_group_close(group);
    CHECK_FAILS(shoal_group_open(NULL, &group, &err), err, "SHOAL_OP_TIMEOUT: 'soon'");
    setenv("SHOAL_OP_TIMEOUT", "5", 1);
    setenv("SHOAL_RANKS", "2", 1);
    CHECK_OK(shoal_settings_use_environment(s, &err), err);
    set(s, "ranks", "1");
    CHECK_OK(shoal_group_open(s, &group, &err), err);
    assert_int_equal(shoal_group_size(group), 1);
    shoal_group_close(group);
    shoal_settings_free(s);
    unsetenv("SHOAL_OP_TIMEOUT");
    unsetenv("SHOAL_RANKS");
}

/* ---- groups ---- */

enum { SIZE = 3, LONG = 100003 };

typedef struct member {
    int rank, listener, port;
    const char *token;
    shoal_group *group;
    shoal_status status;
    shoal_error err;
    void (*act)(struct member *m);
} member;

static int listen_here(int *port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(at);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_true(fd >= 0 && bind(fd, (struct sockaddr *)&at, len) == 0 && listen(fd, 16) == 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &len), 0);
    *port = ntohs(at.sin_port);
    return fd;
}

static shoal_settings *place_of(const member *m)
{
    char address[32];
    shoal_settings *s = shoal_settings_new();
    snprintf(address, sizeof(address), "127.0.0.1:%d", m->port);
    set_int(s, "rank", m->rank);
    set_int(s, "ranks", SIZE);
    set(s, "coordinator", address);
    set(s, "token", m->token);
    set(s, "join-timeout", "60");
    set(s, "peer-timeout-ms", "30000"); /* a loaded machine */
    if (m->rank == 0) set_int(s, "coordinator-fd", m->listener);
    return s;
}

static void *member_main(void *arg)
{
    member *m = arg;
    shoal_settings *s = place_of(m);
    m->status = shoal_group_open(s, &m->group, &m->err);
    shoal_settings_free(s);
    if (m->status == SHOAL_OK) m->act(m);
    shoal_group_close(m->group);
    return NULL;
}

static void start(pthread_t threads[SIZE], member members[SIZE], void (*act)(member *m))
{
    int port, listener = listen_here(&port);
    for (int r = 0; r < SIZE; r++) {
        members[r] = (member){
            .rank = r, .listener = listener, .port = port, .token = TOKEN, .act = act};
        assert_int_equal(pthread_create(&threads[r], NULL, member_main, &members[r]), 0);
    }
}

static void finish(pthread_t threads[SIZE], member members[SIZE])
{
    for (int r = 0; r < SIZE; r++) pthread_join(threads[r], NULL);
    close(members[0].listener);
}

/* Runs `act` on all ranks. */
static void on_all(member members[SIZE], void (*act)(member *m))
{
    pthread_t threads[SIZE];
    start(threads, members, act);
    finish(threads, members);
}

static void check_all_well(const member members[SIZE])
{
    for (int r = 0; r < SIZE; r++)
        if (members[r].status != SHOAL_OK) fail_msg("rank %d: %s", r, members[r].err.text);
}

/* For threads, where cmocka cannot: the first failure is kept. */
static void expect(member *m, int holds, const char *what)
{
    if (holds || m->status != SHOAL_OK) return;
    m->status = SHOAL_ERR_INPUT;
    snprintf(m->err.text, sizeof(m->err.text), "wrong: %.400s", what);
}

#define DO(m, call)                                                                                \
    do {                                                                                           \
        if ((m)->status == SHOAL_OK) (m)->status = (call);                                         \
    } while (0)

static void act_collectives(member *m)
{
    int64_t ints[2] = {m->rank == 1 ? 41 : 0, m->rank == 1 ? -2 : 0};
    char bytes[8] = "", all[SIZE * 2] = "", mine[2] = {(char)('a' + m->rank), '.'};
    if (m->rank == 2) strcpy(bytes, "shoal");
    expect(m, shoal_group_rank(m->group) == m->rank && shoal_group_size(m->group) == SIZE, "place");
    DO(m, shoal_barrier(m->group, &m->err));
    DO(m, shoal_broadcast(m->group, 2, bytes, sizeof(bytes), &m->err));
    expect(m, strcmp(bytes, "shoal") == 0, "broadcast");
    DO(m, shoal_broadcast_i64(m->group, 1, ints, 2, &m->err));
    expect(m, ints[0] == 41 && ints[1] == -2, "broadcast of ints");
    DO(m, shoal_all_gather(m->group, mine, sizeof(mine), all, &m->err));
    expect(m, memcmp(all, "a.b.c.", sizeof(all)) == 0, "all-gather");
}

TEST(all_ranks_meet_broadcast_and_gather)
{
    UNUSED_STATE;
    member members[SIZE];
    on_all(members, act_collectives);
    check_all_well(members);
}

/* One length takes one hop, the other is cut into chunks; neither fills its last block. */
static void reduce(member *m, size_t count)
{
    float *x = malloc(count * sizeof(*x));
    int64_t *sums = malloc(count * sizeof(*sums)), *most = malloc(count * sizeof(*most));
    int right = 1;
    for (size_t i = 0; i < count; i++) {
        x[i] = (float)((int)(i % 7) * (m->rank + 1));
        sums[i] = ((int64_t)i << 33) + m->rank;
        most[i] = i % SIZE == (size_t)m->rank ? (int64_t)i << 32 : -(int64_t)i;
    }
    DO(m, shoal_all_reduce_f32(m->group, x, count, &m->err));
    DO(m, shoal_all_reduce_i64(m->group, sums, count, SHOAL_SUM, &m->err));
    DO(m, shoal_all_reduce_i64(m->group, most, count, SHOAL_MAX, &m->err));
    for (size_t i = 0; i < count && right; i++)
        right = (int)x[i] == (int)(i % 7) * 6 && sums[i] == SIZE * ((int64_t)i << 33) + 3 &&
                most[i] == (int64_t)i << 32;
    expect(m, right, "all-reduce");
    free(x);
    free(sums);
    free(most);
}

static void act_reduce(member *m)
{
    reduce(m, 1);
    reduce(m, 101);
    reduce(m, LONG);
    DO(m, shoal_all_reduce_f32(m->group, NULL, 0, &m->err));
}

TEST(numbers_are_reduced_at_every_length)
{
    UNUSED_STATE;
    member members[SIZE];
    on_all(members, act_reduce);
    check_all_well(members);
}

/* Around the ring, and mistakes in between, of which nobody else learns. */
static void act_pairs(member *m)
{
    int next = (m->rank + 1) % SIZE, before = (m->rank + SIZE - 1) % SIZE;
    int64_t token = 1;
    shoal_error ignored;
    if (m->rank > 0) DO(m, shoal_receive(m->group, before, &token, sizeof(token), &m->err));
    token *= m->rank + 2;
    expect(m, shoal_send(m->group, m->rank, &token, 8, &ignored) == SHOAL_ERR_INPUT, "to itself");
    expect(m, shoal_send(m->group, SIZE, &token, 8, &ignored) == SHOAL_ERR_INPUT, "to nobody");
    expect(m, shoal_receive(m->group, -1, &token, 8, &ignored) == SHOAL_ERR_INPUT, "from nobody");
    expect(m, shoal_broadcast(m->group, 0, NULL, 8, &ignored) == SHOAL_ERR_INPUT, "no memory");
    expect(m, shoal_group_set_timeout(m->group, -1, &ignored) == SHOAL_ERR_INPUT, "timeout");
    expect(m,
           shoal_all_reduce_i64(m->group, &token, 1, (shoal_reduction)7, NULL) == SHOAL_ERR_INPUT,
           "reduction");
    DO(m, shoal_send(m->group, next, &token, sizeof(token), &m->err));
    if (m->rank == 0) DO(m, shoal_receive(m->group, before, &token, sizeof(token), &m->err));
    expect(m, m->rank > 0 || token == 24, "what came around");
    DO(m, shoal_barrier(m->group, &m->err));
}

TEST(two_ranks_exchange_messages_and_mistakes_stay_with_who_made_them)
{
    UNUSED_STATE;
    member members[SIZE];
    on_all(members, act_pairs);
    check_all_well(members);
}

static void act_late(member *m)
{
    shoal_error ignored;
    DO(m, shoal_barrier(m->group, &m->err));
    DO(m, shoal_group_set_timeout(m->group, 300, &m->err));
    /* Rank 2 is in the group, but does not take part. */
    if (m->rank < 2) {
        expect(m, shoal_barrier(m->group, &ignored) == SHOAL_ERR_GROUP, "the deadline");
        expect(m, strstr(ignored.text, "rank 2") != NULL, ignored.text);
        expect(m, shoal_barrier(m->group, &ignored) == SHOAL_ERR_GROUP, "it stays so");
    } else {
        while (shoal_receive(m->group, 0, &(char){0}, 1, &ignored) != SHOAL_ERR_GROUP) continue;
    }
}

TEST(an_operation_has_a_deadline_and_its_error_names_the_rank)
{
    UNUSED_STATE;
    member members[SIZE];
    on_all(members, act_late);
    check_all_well(members);
}

static void act_leave(member *m)
{
    if (m->rank != 1) m->status = shoal_barrier(m->group, &m->err);
}

TEST(a_rank_that_leaves_fails_what_needs_it)
{
    UNUSED_STATE;
    member members[SIZE];
    on_all(members, act_leave);
    for (int r = 0; r < SIZE; r += 2) {
        assert_int_equal(members[r].status, SHOAL_ERR_GROUP);
        assert_non_null(strstr(members[r].err.text, "rank 1"));
    }
}

TEST(two_groups_of_one_process_do_not_disturb_each_other)
{
    UNUSED_STATE;
    member one[SIZE], two[SIZE];
    pthread_t first[SIZE], second[SIZE];
    start(first, one, act_reduce);
    start(second, two, act_collectives);
    finish(first, one);
    finish(second, two);
    check_all_well(one);
    check_all_well(two);
}

TEST(a_group_needs_to_know_where_it_is)
{
    UNUSED_STATE;
    shoal_error err;
    shoal_group *group;
    shoal_settings *s = shoal_settings_new();
    set(s, "ranks", "2");
    CHECK_FAILS(shoal_group_open(s, &group, &err), err, "--coordinator");
    set(s, "coordinator", "192.0.2.1:4000");
    CHECK_FAILS(shoal_group_open(s, &group, &err), err, "token");
    set(s, "token", "short");
    CHECK_FAILS(shoal_group_open(s, &group, &err), err, "token");
    set(s, "token", TOKEN);
    set(s, "coordinator-fd", "0");
    CHECK_FAILS(shoal_group_open(s, &group, &err), err, "not a listening socket");
    shoal_settings_free(s);
}

/* ---- models ---- */

typedef struct {
    char text[4096];
    size_t len;
    int pieces, stop_after;
    shoal_model *cancel; /* this model, on the first piece */
} collected;

static int collect(void *ctx, shoal_piece_kind kind, const char *text, size_t len)
{
    collected *c = ctx;
    if (kind == SHOAL_PIECE_TEXT && c->len + len < sizeof(c->text)) {
        memcpy(c->text + c->len, text, len + 1);
        c->len += len;
    }
    c->pieces++;
    if (c->cancel != NULL) shoal_model_cancel(c->cancel);
    return c->stop_after > 0 && c->pieces >= c->stop_after;
}

static shoal_question question_of(const char *messages, const char *prompt, collected *to)
{
    shoal_question q;
    SHOAL_QUESTION_INIT(&q);
    q.messages = messages;
    q.prompt = prompt;
    q.max_tokens = 24;
    q.piece = collect;
    q.ctx = to;
    *to = (collected){0};
    return q;
}

static shoal_model *demo_open(const char *slots)
{
    shoal_error err;
    shoal_model *model = NULL;
    shoal_settings *s = shoal_settings_new();
    set(s, "model", DEMO);
    set(s, "threads", "2");
    set(s, "slots", slots);
    CHECK_OK(shoal_model_open(s, &model, &err), err);
    shoal_settings_free(s);
    return model;
}

TEST(a_model_answers_in_this_process)
{
    UNUSED_STATE;
    shoal_error err;
    shoal_reply reply;
    collected first, again;
    shoal_model *model = demo_open("1");
    SHOAL_REPLY_INIT(&reply);
    shoal_question q = question_of(HELLO, NULL, &first);
    q.temperature = 1;
    q.seed = 7;
    CHECK_OK(shoal_model_ask(model, &q, &reply, &err), err);
    assert_true(first.len > 0 && reply.completion_tokens > 0 && reply.prompt_tokens > 0);
    assert_true(strcmp(reply.finish, "stop") == 0 || strcmp(reply.finish, "length") == 0);
    assert_true(reply.prompt_s > 0 && reply.answer_s >= 0);
    again = (collected){0};
    q.ctx = &again;
    CHECK_OK(shoal_model_ask(model, &q, NULL, NULL), err);
    assert_string_equal(again.text, first.text);

    q = question_of(NULL, "Once", &first);
    q.temperature = 0;
    q.max_tokens = 3;
    CHECK_OK(shoal_model_ask(model, &q, &reply, &err), err);
    assert_int_equal(reply.completion_tokens, 3);
    assert_string_equal(reply.finish, "length");
    shoal_model_close(model);
}

TEST(an_answer_stops_when_it_is_told_to)
{
    UNUSED_STATE;
    shoal_error err;
    shoal_reply reply;
    collected got;
    shoal_model *model = demo_open("1");
    SHOAL_REPLY_INIT(&reply);
    shoal_question q = question_of(NULL, "Once upon a time", &got);
    q.max_tokens = 500;
    q.temperature = 0;
    got.stop_after = 2;
    CHECK_OK(shoal_model_ask(model, &q, &reply, &err), err);
    assert_string_equal(reply.finish, "interrupted");
    assert_int_equal(got.pieces, 2);

    q = question_of(NULL, "Once upon a time", &got);
    q.max_tokens = 500;
    got.cancel = model;
    CHECK_OK(shoal_model_ask(model, &q, &reply, &err), err);
    assert_string_equal(reply.finish, "interrupted");

    q = question_of(NULL, "Once upon a time", &got);
    q.max_tokens = 500;
    q.stop = "[\"e\"]";
    CHECK_OK(shoal_model_ask(model, &q, &reply, &err), err);
    assert_string_equal(reply.finish, "stop");
    assert_null(strchr(got.text, 'e'));
    shoal_model_close(model);
}

TEST(questions_are_checked)
{
    UNUSED_STATE;
    shoal_error err;
    collected got;
    shoal_model *model = demo_open("1");
    shoal_question q = question_of(HELLO, "and a prompt", &got);
    CHECK_FAILS(shoal_model_ask(model, &q, NULL, &err), err, "either messages or a prompt");
    q = question_of("{", NULL, &got);
    CHECK_FAILS(shoal_model_ask(model, &q, NULL, &err), err, "messages");
    q = question_of("{\"a\": 1}", NULL, &got);
    CHECK_FAILS(shoal_model_ask(model, &q, NULL, &err), err, "must be a JSON list");
    q = question_of("[{\"content\": \"no role\"}]", NULL, &got);
    CHECK_FAILS(shoal_model_ask(model, &q, NULL, &err), err, "role");
    q = question_of(HELLO, NULL, &got);
    q.temperature = -1;
    CHECK_FAILS(shoal_model_ask(model, &q, NULL, &err), err, "temperature is -1: must be 0 to 100");
    q = question_of(HELLO, NULL, &got);
    q.stop = "[\"\"]";
    CHECK_FAILS(shoal_model_ask(model, &q, NULL, &err), err, "stop");
    assert_int_equal(got.pieces, 0);
    shoal_model_close(model);
}

typedef struct {
    shoal_model *model;
    shoal_status status;
    collected got;
    shoal_error err;
} asker;

static void *ask_main(void *arg)
{
    asker *a = arg;
    shoal_question q = question_of(HELLO, NULL, &a->got);
    q.temperature = 0;
    a->status = shoal_model_ask(a->model, &q, NULL, &a->err);
    return NULL;
}

TEST(threads_ask_one_model_and_get_the_same_answer)
{
    UNUSED_STATE;
    enum { ASKERS = 4 };
    asker askers[ASKERS];
    pthread_t threads[ASKERS];
    shoal_model *model = demo_open("2");
    for (int i = 0; i < ASKERS; i++) {
        askers[i].model = model;
        assert_int_equal(pthread_create(&threads[i], NULL, ask_main, &askers[i]), 0);
    }
    for (int i = 0; i < ASKERS; i++) {
        pthread_join(threads[i], NULL);
        if (askers[i].status != SHOAL_OK) fail_msg("%s", askers[i].err.text);
        assert_string_equal(askers[i].got.text, askers[0].got.text);
    }
    assert_true(askers[0].got.len > 0);
    shoal_model_close(model);
}

TEST(two_models_in_one_process)
{
    UNUSED_STATE;
    asker one = {.model = demo_open("1")}, two = {.model = demo_open("1")};
    ask_main(&one);
    ask_main(&two);
    assert_int_equal(one.status, SHOAL_OK);
    assert_string_equal(one.got.text, two.got.text);
    shoal_model_close(one.model);
    shoal_model_close(two.model);
}

TEST(a_model_that_cannot_be_opened_is_an_error)
{
    UNUSED_STATE;
    shoal_error err;
    shoal_model *model;
    shoal_settings *s = shoal_settings_new();
    CHECK_FAILS(shoal_model_open(s, &model, &err), err, "set 'model', 'url' or 'socket'");
    set(s, "model", "/nowhere");
    CHECK_FAILS(shoal_model_open(s, &model, &err), err, "/nowhere");
    set(s, "url", "http://127.0.0.1:1");
    CHECK_FAILS(shoal_model_open(s, &model, &err), err, "'model' and 'url'");
    shoal_settings_free(s);
    s = shoal_settings_new();
    set(s, "url", "http://127.0.0.1:1");
    CHECK_FAILS(shoal_model_open(s, &model, &err), err, "127.0.0.1:1");
    assert_int_equal(err.status, SHOAL_ERR_PEER);
    shoal_settings_free(s);
    s = shoal_settings_new();
    set(s, "socket", "/nowhere.sock");
    set(s, "slots", "33");
    CHECK_FAILS(shoal_model_open(s, &model, &err), err, "slots: 33 questions");
    set(s, "slots", "2");
    CHECK_FAILS(shoal_model_open(s, &model, &err), err, "/nowhere.sock");
    shoal_settings_free(s);
}

/* ---- text and facts ---- */

TEST(text_becomes_ids_and_comes_back)
{
    UNUSED_STATE;
    shoal_error err;
    shoal_text *text;
    int32_t *ids, far[] = {1 << 30};
    size_t count, len;
    char *back;
    const char hello[] = "Hello, w\xc3\xb6rld";
    shoal_settings *s = shoal_settings_new();
    set(s, "model", DEMO);
    CHECK_OK(shoal_text_open(s, &text, &err), err);
    shoal_settings_free(s);
    CHECK_OK(shoal_text_encode(text, hello, strlen(hello), 0, &ids, &count, &err), err);
    assert_true(count > 1);
    CHECK_OK(shoal_text_decode(text, ids, count, 0, &back, &len, &err), err);
    assert_string_equal(back, hello);
    assert_int_equal(len, strlen(hello));
    shoal_free(ids);
    shoal_free(back);
    CHECK_OK(shoal_text_encode(text, "", 0, 0, &ids, &count, &err), err);
    assert_int_equal(count, 0);
    shoal_free(ids);
    CHECK_FAILS(shoal_text_encode(text, "\xff", 1, 0, &ids, &count, &err), err, "UTF-8");
    CHECK_FAILS(shoal_text_decode(text, far, 1, 0, &back, NULL, &err), err, "id 0 is 1073741824");
    shoal_text_close(text);
}

TEST(a_chat_becomes_a_prompt)
{
    UNUSED_STATE;
    shoal_error err;
    shoal_text *text;
    char *prompt;
    shoal_settings *s = shoal_settings_new();
    set(s, "model", DEMO);
    CHECK_OK(shoal_text_open(s, &text, &err), err);
    shoal_settings_free(s);
    CHECK_OK(shoal_text_render(text, "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi!\"}]}",
                               &prompt, NULL, &err),
             err);
    assert_non_null(strstr(prompt, "Hi!"));
    shoal_free(prompt);
    CHECK_FAILS(shoal_text_render(text, "[]", &prompt, NULL, &err), err, "JSON object");
    CHECK_FAILS(shoal_text_render(text, "{}", &prompt, NULL, &err), err, "'messages'");
    CHECK_FAILS(shoal_text_render(text, "{\"messages\": []}", &prompt, NULL, &err), err, "empty");
    shoal_text_close(text);
}

TEST(facts_of_a_model)
{
    UNUSED_STATE;
    shoal_error err;
    shoal_facts facts;
    shoal_settings *s = shoal_settings_new();
    SHOAL_FACTS_INIT(&facts);
    CHECK_FAILS(shoal_model_facts(s, &facts, &err), err, "the setting 'model' is missing");
    set(s, "model", DEMO);
    CHECK_OK(shoal_model_facts(s, &facts, &err), err);
    assert_string_equal(facts.family, "qwen3");
    assert_int_equal(facts.layers, 8);
    assert_int_equal(facts.context, 2048);
    assert_true(facts.generates && facts.fits_tokens == facts.context && facts.machines == 1);
    assert_true(facts.parameters > 15000000 && facts.bytes > 8000000 && facts.bytes < 10000000);
    assert_non_null(strstr(facts.quantization, "4 bits"));

    /* A caller that was compiled when the struct ended earlier. */
    shoal_facts_init(&facts, offsetof(shoal_facts, bytes));
    facts.bytes = -5;
    CHECK_OK(shoal_model_facts(s, &facts, &err), err);
    assert_int_equal(facts.layers, 8);
    assert_int_equal(facts.bytes, -5);
    shoal_settings_free(s);
}

/* ---- manners ---- */

static atomic_int log_lines;

static void on_log(void *ctx, shoal_log_level level, const char *text)
{
    (void)ctx;
    if (level <= SHOAL_LOG_DEBUG && strchr(text, '\n') == NULL) atomic_fetch_add(&log_lines, 1);
}

/* What a program notices of a library besides its calls. */
TEST(nothing_is_printed_and_signals_are_left_alone)
{
    UNUSED_STATE;
    static const int numbers[] = {SIGPIPE, SIGINT, SIGTERM, SIGCHLD, SIGUSR1, SIGHUP};
    struct sigaction action;
    sigset_t before, after;
    member members[SIZE];
    asker a = {0};
    int pipes[2], kept[2] = {dup(STDOUT_FILENO), dup(STDERR_FILENO)};
    char bytes[256];
    sigprocmask(SIG_BLOCK, NULL, &before);
    assert_int_equal(pipe2(pipes, O_NONBLOCK | O_CLOEXEC), 0);
    dup2(pipes[1], STDOUT_FILENO);
    dup2(pipes[1], STDERR_FILENO);
    on_all(members, act_leave); /* a group that fails */
    shoal_set_log(on_log, NULL, SHOAL_LOG_DEBUG);
    a.model = demo_open("1");
    ask_main(&a);
    shoal_model_close(a.model);
    on_all(members, act_collectives);
    shoal_set_log(NULL, NULL, SHOAL_LOG_ERROR);
    dup2(kept[0], STDOUT_FILENO);
    dup2(kept[1], STDERR_FILENO);
    ssize_t got = read(pipes[0], bytes, sizeof(bytes));
    if (got > 0) fail_msg("printed: %.*s", (int)got, bytes);
    assert_int_equal(a.status, SHOAL_OK);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        sigaction(numbers[i], NULL, &action);
        assert_ptr_equal(action.sa_handler, SIG_DFL);
    }
    sigprocmask(SIG_BLOCK, NULL, &after);
    for (int number = 1; number < SIGRTMIN; number++)
        assert_int_equal(sigismember(&before, number), sigismember(&after, number));
    assert_true(atomic_load(&log_lines) > 0);
    for (int i = 0; i < 2; i++) {
        close(pipes[i]);
        close(kept[i]);
    }
}

TEST(the_version_is_a_version)
{
    UNUSED_STATE;
    assert_true(shoal_version()[0] >= '0' && strchr(shoal_version(), '.') != NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(settings_are_checked_when_they_are_set),
        cmocka_unit_test(a_bad_variable_is_named_and_settings_take_precedence),
        cmocka_unit_test(all_ranks_meet_broadcast_and_gather),
        cmocka_unit_test(numbers_are_reduced_at_every_length),
        cmocka_unit_test(two_ranks_exchange_messages_and_mistakes_stay_with_who_made_them),
        cmocka_unit_test(an_operation_has_a_deadline_and_its_error_names_the_rank),
        cmocka_unit_test(a_rank_that_leaves_fails_what_needs_it),
        cmocka_unit_test(two_groups_of_one_process_do_not_disturb_each_other),
        cmocka_unit_test(a_group_needs_to_know_where_it_is),
        cmocka_unit_test(a_model_answers_in_this_process),
        cmocka_unit_test(an_answer_stops_when_it_is_told_to),
        cmocka_unit_test(questions_are_checked),
        cmocka_unit_test(threads_ask_one_model_and_get_the_same_answer),
        cmocka_unit_test(two_models_in_one_process),
        cmocka_unit_test(a_model_that_cannot_be_opened_is_an_error),
        cmocka_unit_test(text_becomes_ids_and_comes_back),
        cmocka_unit_test(a_chat_becomes_a_prompt),
        cmocka_unit_test(facts_of_a_model),
        cmocka_unit_test(nothing_is_printed_and_signals_are_left_alone),
        cmocka_unit_test(the_version_is_a_version),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
