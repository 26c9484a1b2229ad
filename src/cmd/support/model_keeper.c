/* A model is drained once every client has said so; one that disconnects has nothing running any
 * more. */
#include "cmd/support/model_keeper.h"

#include "api/json_writer.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/system.h"
#include "cluster/hostfile.h"
#include "cluster/keeper.h"
#include "cluster/local_ranks.h"
#include "cluster/model_hosts.h"
#include "cmd/support/keeper_clients.h"
#include "cmd/support/model_facts.h"
#include "cmd/support/model_find.h"
#include "cmd/support/role.h"
#include "model/shard.h"
#include "store/definition.h"
#include "store/model_dir.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    SCAN_MS = 2000,
    STOP_EXTRA_MS = 5000,
    KV_TOKENS = 32768,        /* of a model's KV cache, unless --kv-tokens says otherwise */
    PROCESS_BYTES = 64 << 20, /* of a rank, beside weights and KV */
};

/* A rank of a model on another host. */
typedef struct {
    int host;
    uint32_t rank;
    bool up, gone;
} far_rank;

/* The processes of a model. */
typedef struct {
    char *dir;
    char *definition; /* the file that describes it (store/definition.h), or NULL */
    char *draft;      /* of the definition, like the next */
    int64_t context;  /* 0: not given */
    char *socket;     /* of its engine; NULL: it has no processes */
    int fd;           /* where its ranks join */
    uint16_t port;
    uint64_t load; /* the number of this loading */
    int places[SH_RANKS_MAX];
    int ranks; /* on this host */
    far_rank far[SH_RANKS_MAX];
    int far_count;
    bool found;     /* in the last look at the folder */
    int64_t bytes;  /* of its weights; 0: not known yet */
    int64_t tokens; /* of its KV cache */
} group;

/* What a client does, by model: it uses it; it has not said yet that it is drained. */
typedef struct {
    bool *busy, *owes;
} client_view;

struct sh_model_keeper {
    const sh_command_args *args;
    const char *program, *folder;
    int ranks;     /* of a model on this host */
    double memory; /* of this host, for models */
    sh_children *children;
    sh_keeper *keeper;
    group *groups; /* by model */
    int count;
    int standing; /* the model of --model, or -1 */
    char *path;
    sh_keeper_clients *clients;
    client_view views[SH_KEEPER_CLIENTS_MAX];
    sh_model_hosts *hosts; /* NULL: all ranks are on this host */
    int expected;          /* hosts, this one included; 0: as many as there are */
    sh_deadline scan_at;
    uint64_t loads; /* so far */
    bool scan_failed;
    sh_buf problems; /* of the last scan */
};

static int64_t now_ms(void)
{
    return sh_clock_ns() / 1000000;
}

sh_status sh_duration_parse(const char *text, int64_t *ms, sh_err *err)
{
    static const struct {
        char unit;
        double seconds;
    } units[] = {{'s', 1}, {'m', 60}, {'h', 3600}};
    sh_str number = sh_str_of(text);
    double value, factor = 1;
    for (size_t i = 0; i < SH_COUNT_OF(units) && number.len > 0; i++)
        if (number.ptr[number.len - 1] == units[i].unit) {
            factor = units[i].seconds;
            number.len--;
            break;
        }
    if (!sh_str_to_double(number, &value) || !(value * factor < 1e9))
        return sh_err_set(err, SH_ERR_INPUT,
                          "'%s' is not a duration: it takes seconds, or a number with s, m or h; "
                          "-1 is forever",
                          text);
    *ms = value < 0 ? SH_KEEP_FOREVER : (int64_t)(value * factor * 1000);
    return SH_OK;
}

/* ---- to the clients ---- */

static void state_write(const sh_model_keeper *k, int model, sh_buf *out)
{
    const sh_kept_model *m = sh_keeper_model(k->keeper, model);
    const group *g = &k->groups[model];
    sh_json_writer w = sh_json_writer_on(out);
    double need = 0;
    for (int i = 0; i < SH_KEEPER_HOSTS_MAX; i++) need += m->need[i];
    sh_write_begin(&w, NULL, '{');
    sh_write_text(&w, "model", m->name);
    sh_write_text(&w, "state", sh_kept_state_name(m->state));
    sh_write_text(&w, "why", m->why[0] == '\0' ? NULL : m->why);
    sh_write_text(&w, "dir", g->dir);
    sh_write_text(&w, "definition", g->definition);
    sh_write_text(&w, "socket", g->socket);
    sh_write_bool(&w, "pinned", m->pinned);
    sh_write_int(&w, "bytes", (int64_t)need);
    sh_write_int(&w, "keep_s", m->keep_ms == SH_KEEP_FOREVER ? -1 : m->keep_ms / 1000);
    sh_write_end(&w, '}');
    sh_buf_add_char(out, '\n');
}

static void state_tell(sh_model_keeper *k, int model)
{
    sh_buf line = {0};
    state_write(k, model, &line);
    sh_keeper_clients_tell(k->clients, sh_buf_str(&line));
    sh_buf_reset(&line);
}

static void on_client(void *arg, int client, sh_buf *out)
{
    sh_model_keeper *k = arg;
    for (int i = 0; i < k->count; i++) {
        k->views[client].busy[i] = k->views[client].owes[i] = false;
        if (sh_keeper_model(k->keeper, i) != NULL) state_write(k, i, out);
    }
    sh_json_writer w = sh_json_writer_on(out);
    sh_write_begin(&w, NULL, '{');
    sh_write_bool(&w, "listed", true);
    sh_write_text(&w, "default",
                  k->standing < 0 ? NULL : sh_keeper_model(k->keeper, k->standing)->name);
    sh_write_end(&w, '}');
    sh_buf_add_char(out, '\n');
}

/* ---- hooks of the keeper ---- */

/* 0: as the ranks see fit, which is little where a sequence lasts one step. */
static int64_t kv_tokens(const sh_settings *s, const sh_config *config, const group *g)
{
    int64_t asked = s->context > 0 ? s->context : g->context;
    int64_t context = asked > 0 && asked < config->context ? asked : config->context;
    if (s->kv_tokens > 0 || config->bidirectional) return s->kv_tokens;
    return context * s->slots < KV_TOKENS ? context * s->slots : KV_TOKENS;
}

/* Every worker that is here gets a rank: the next one, or that of a hostfile. One that a hostfile
 * does not have gets none. */
static void far_fill(const sh_model_keeper *k, group *g)
{
    bool numbered = k->args->settings->hostfile != NULL;
    g->far_count = 0;
    for (int h = 1; k->hosts != NULL && h < SH_MODEL_HOSTS_MAX; h++) {
        if (!sh_model_hosts_here(k->hosts, h)) continue;
        uint32_t rank = numbered ? sh_model_hosts_rank(k->hosts, h) : (uint32_t)g->far_count + 1;
        if (rank == SH_RANK_ANY) continue;
        g->far[g->far_count++] = (far_rank){.host = h, .rank = rank};
    }
}

/* What each host gets of so many bytes, by its memory: as the ranks will decide themselves, unless
 * one of them is slower. Equal parts if it does not fit: the keeper will say so. */
static void shares_guess(const sh_model_keeper *k, const group *g, double bytes, double *shares)
{
    sh_rank_resources resources[SH_RANKS_MAX] = {{.memory = k->memory, .speed = 1}};
    sh_err err;
    for (int i = 0; i < g->far_count; i++)
        resources[i + 1] = (sh_rank_resources){
            .memory = sh_model_hosts_memory(k->hosts, g->far[i].host), .speed = 1};
    if (sh_shares_by_resources(resources, g->far_count + 1, bytes, shares, &err) != SH_OK)
        for (int i = 0; i <= g->far_count; i++) shares[i] = 1;
}

/* Weights take a little more in memory than in the files. */
static void need_fill(const sh_model_keeper *k, const group *g, int64_t kv_token_bytes,
                      double *need)
{
    double shares[SH_RANKS_MAX], sum = 0;
    double bytes = (double)g->bytes * 1.02 + (double)g->tokens * (double)kv_token_bytes;
    shares_guess(k, g, bytes, shares);
    for (int i = 0; i <= g->far_count; i++) sum += shares[i];
    need[0] = bytes * shares[0] / sum + (double)PROCESS_BYTES * k->ranks;
    for (int i = 0; i < g->far_count; i++)
        need[g->far[i].host] = bytes * shares[i + 1] / sum + PROCESS_BYTES;
}

static void text_set(char **to, const char *text)
{
    char *old = *to;
    *to = text == NULL ? NULL : sh_strdup(text);
    free(old);
}

/* The folder of a model that a definition names, owned by the caller. */
static sh_status folder_find(const sh_model_keeper *k, const sh_definition *d, char **out,
                             sh_err *err)
{
    sh_settings own = *k->args->settings;
    own.model = d->model;
    return sh_model_find(&own, out, err);
}

/* What a definition says is read when the model is loaded, like the model itself. Requests are the
 * API's business; what concerns the whole server, under `options`, has no effect on one model. */
static sh_status definition_read(const sh_model_keeper *k, group *g, sh_err *err)
{
    sh_definition d;
    char *dir = NULL;
    if (g->definition == NULL) return SH_OK;
    sh_status status = sh_definition_load(g->definition, &d, err);
    if (status == SH_OK) status = folder_find(k, &d, &dir, err);
    if (status == SH_OK) {
        text_set(&g->dir, dir);
        text_set(&g->draft, d.draft_model);
        g->context = d.context_size > 0 ? d.context_size : 0;
        for (size_t i = 0; i < d.options.count; i++)
            SH_LOGI("%s: the option '%s' has no effect in --models-dir", g->definition,
                    d.options.items[i]);
    }
    free(dir);
    sh_definition_reset(&d);
    return status;
}

static sh_status measure(void *arg, int model, double *need, sh_err *err)
{
    sh_model_keeper *k = arg;
    group *g = &k->groups[model];
    sh_model_facts facts = {0};
    far_fill(k, g);
    if (k->hosts != NULL && g->far_count + 1 < k->expected) {
        sh_err_set(err, SH_ERR_PEER, "%d of %d workers are not here yet",
                   k->expected - 1 - g->far_count, k->expected - 1);
        return SH_AGAIN;
    }
    sh_status status = definition_read(k, g, err);
    if (status == SH_OK) status = sh_model_facts_gather(g->dir, &facts, err);
    if (status == SH_OK) {
        g->bytes = (int64_t)facts.bytes;
        g->tokens = kv_tokens(k->args->settings, &facts.config, g);
        need_fill(k, g, facts.kv_token_bytes, need);
    }
    sh_model_facts_reset(&facts);
    return status;
}

static sh_status near_start(sh_model_keeper *k, group *g, const char *name, char **argv, char **env,
                            sh_err *err)
{
    sh_local_ranks_spec spec = {.argv = argv,
                                .ranks = k->ranks,
                                .token = k->args->settings->token,
                                .policy = SH_CHILD_MODEL_RANK,
                                .model = name,
                                .env = env};
    for (g->ranks = 0; g->ranks < k->ranks; g->ranks++) g->places[g->ranks] = -1;
    return sh_local_ranks_add(k->children, &spec, &g->fd, g->places, err);
}

/* Rank 0 alone, or of a group whose other ranks are on other hosts. */
static sh_status first_start(sh_model_keeper *k, group *g, const char *name, char **argv,
                             char **env, sh_err *err)
{
    char *title = sh_asprintf("%.64s rank 0", name);
    sh_child_spec child = {.name = title,
                           .argv = argv,
                           .env = env,
                           .policy = SH_CHILD_MODEL_RANK,
                           .keep_fds = (int[]){g->fd, 0},
                           .capture = true};
    g->ranks = 1;
    g->places[0] = -1;
    sh_status status = sh_children_add(k->children, &child, err);
    if (status == SH_OK) g->places[0] = sh_children_last(k->children);
    free(title);
    return status;
}

static void far_start(sh_model_keeper *k, int model, const far_rank *part)
{
    const group *g = &k->groups[model];
    char *dir = realpath(g->dir, NULL);
    sh_model_message m = {.kind = SH_MODEL_START,
                          .load = g->load,
                          .rank = part->rank,
                          .ranks = (uint32_t)g->far_count + 1,
                          .port = g->port,
                          .kv_tokens = (uint64_t)g->tokens};
    snprintf(m.name, sizeof(m.name), "%s", sh_keeper_model(k->keeper, model)->name);
    snprintf(m.dir, sizeof(m.dir), "%s", dir == NULL ? "" : dir);
    sh_model_hosts_send(k->hosts, part->host, &m);
    free(dir);
}

static sh_status group_start(sh_model_keeper *k, group *g, const char *name, sh_err *err)
{
    const sh_settings *s = k->args->settings;
    char tokens[24], context[24], fd[16] = "", ranks[16], at[SH_ADDR_TEXT_MAX] = "";
    sh_addr addr;
    sh_status status = SH_OK;
    if (k->hosts != NULL) status = sh_model_hosts_listen(k->hosts, &g->fd, &addr, err);
    if (status != SH_OK) return status;
    if (k->hosts != NULL) sh_addr_format(&addr, at);
    if (k->hosts != NULL) g->port = sh_addr_port(&addr);
    snprintf(tokens, sizeof(tokens), "%lld", (long long)g->tokens);
    snprintf(fd, sizeof(fd), "%d", g->fd);
    snprintf(ranks, sizeof(ranks), "%d", g->far_count + 1);
    char **env = sh_role_env(ROLE_RANK, (char *[]){"SHOAL_PART=engine", NULL});
    const char *own[24] = {"--model",     g->dir, "--socket",     g->socket,
                           "--kv-tokens", tokens, "--no-progress"};
    int count = 7;
    const char *grouped[] = {"--coordinator", at,  "--coordinator-fd", fd,
                             "--rank",        "0", "--ranks",          ranks};
    if (k->hosts != NULL) memcpy(own + count, grouped, sizeof(grouped));
    if (k->hosts != NULL) count += (int)SH_COUNT_OF(grouped);
    if (g->context > 0 && s->context == 0) {
        snprintf(context, sizeof(context), "%lld", (long long)g->context);
        own[count++] = "--context";
        own[count++] = context;
    }
    if (g->draft != NULL && s->draft_model == NULL) {
        own[count++] = "--draft-model";
        own[count++] = g->draft;
    }
    char **argv = sh_role_argv_add(
        sh_role_argv(ROLE_RANK, (char *)(uintptr_t)k->program, k->args->line), own);
    status = k->ranks > 1 ? near_start(k, g, name, argv, env, err)
                          : first_start(k, g, name, argv, env, err);
    sh_role_env_free(env);
    free(argv);
    return status;
}

static sh_status start(void *arg, int model, sh_err *err)
{
    sh_model_keeper *k = arg;
    group *g = &k->groups[model];
    const char *name = sh_keeper_model(k->keeper, model)->name;
    if (g->socket != NULL)
        return sh_err_set(err, SH_ERR_CONFLICT, "its last processes have not ended yet");
    g->load = ++k->loads;
    char *file = sh_asprintf("%llu.sock", (unsigned long long)g->load);
    g->socket = sh_path_join(k->folder, file);
    g->fd = -1;
    free(file);
    sh_status status = group_start(k, g, name, err);
    if (status != SH_OK) return status;
    for (int i = 0; i < g->far_count; i++) far_start(k, model, &g->far[i]);
    SH_LOGI("loading the model '%s'", name);
    return SH_OK;
}

/* The place of a process that has ended may get another one: it is not looked at again. Returns how
 * many have ended; *why is what the first of them said. */
static int places_forget(const sh_model_keeper *k, group *g, const char **why)
{
    int gone = 0;
    for (int i = 0; i < g->ranks; i++) {
        int place = g->places[i];
        if (place >= 0 && sh_children_state(k->children, place) == SH_CHILD_GONE) {
            g->places[i] = -1;
            if (why != NULL && *why == NULL) *why = sh_children_reason(k->children, place);
        }
        gone += g->places[i] < 0;
    }
    return gone;
}

static void stop(void *arg, int model)
{
    const sh_model_keeper *k = arg;
    group *g = &k->groups[model];
    int64_t grace = k->args->settings->grace * 1000 + STOP_EXTRA_MS;
    SH_LOGI("unloading the model '%s'", sh_keeper_model(k->keeper, model)->name);
    for (int i = 0; i < g->ranks; i++)
        if (g->places[i] >= 0) sh_children_stop(k->children, g->places[i], grace);
    for (int i = 0; i < g->far_count; i++) {
        sh_model_message m = {.kind = SH_MODEL_STOP, .load = g->load};
        if (sh_model_hosts_here(k->hosts, g->far[i].host))
            sh_model_hosts_send(k->hosts, g->far[i].host, &m);
        else
            g->far[i].gone = true;
    }
    places_forget(k, g, NULL);
}

static void changed(void *arg, int model)
{
    sh_model_keeper *k = arg;
    const sh_kept_model *m = sh_keeper_model(k->keeper, model);
    if (m->state == SH_KEPT_FAILED) SH_LOGE("the model '%s' cannot be loaded: %s", m->name, m->why);
    if (m->state == SH_KEPT_QUEUED && m->why[0] != '\0')
        SH_LOGW("the model '%s' waits: %s", m->name, m->why);
    for (int i = 0; i < SH_KEEPER_CLIENTS_MAX && m->state == SH_KEPT_DRAINING; i++)
        k->views[i].owes[model] = sh_keeper_clients_here(k->clients, i);
    state_tell(k, model);
}

/* ---- models and their processes ---- */

static int model_find(const sh_model_keeper *k, const char *name)
{
    for (int i = 0; i < k->count; i++) {
        const sh_kept_model *m = sh_keeper_model(k->keeper, i);
        if (m != NULL && strcmp(m->name, name) == 0) return i;
    }
    return -1;
}

static bool is_pinned(const sh_settings *s, const char *name)
{
    sh_str rest = sh_str_of(s->pin), one;
    while (sh_str_cut(&rest, ',', &one))
        if (sh_str_is(sh_str_trim(one), name)) return true;
    return false;
}

static void flags_grow(bool **flags, int from, int to)
{
    *flags = sh_realloc_array(*flags, (size_t)to, sizeof(**flags));
    for (int i = from; i < to; i++) (*flags)[i] = false;
}

/* Everything that is kept by model has as many entries as there are numbers. */
static void numbers_grow(sh_model_keeper *k)
{
    int count = sh_keeper_count(k->keeper);
    if (count <= k->count) return;
    k->groups = sh_realloc_array(k->groups, (size_t)count, sizeof(*k->groups));
    for (int i = k->count; i < count; i++) k->groups[i] = (group){.fd = -1};
    for (int i = 0; i < SH_KEEPER_CLIENTS_MAX; i++) {
        flags_grow(&k->views[i].busy, k->count, count);
        flags_grow(&k->views[i].owes, k->count, count);
    }
    k->count = count;
}

static int model_add(sh_model_keeper *k, const char *name, const char *dir, const char *definition)
{
    int model = sh_keeper_add(k->keeper, name, is_pinned(k->args->settings, name));
    numbers_grow(k);
    k->groups[model] = (group){.dir = sh_strdup(dir), .fd = -1, .found = true};
    text_set(&k->groups[model].definition, definition);
    for (int i = 0; i < SH_KEEPER_CLIENTS_MAX; i++) /* the number may have been another's */
        k->views[i].busy[model] = k->views[i].owes[model] = false;
    state_tell(k, model);
    return model;
}

static void texts_free(group *g)
{
    free(g->dir);
    free(g->definition);
    free(g->draft);
}

static void model_drop(sh_model_keeper *k, int model)
{
    sh_buf line = {0};
    sh_json_writer w = sh_json_writer_on(&line);
    sh_write_begin(&w, NULL, '{');
    sh_write_text(&w, "model", sh_keeper_model(k->keeper, model)->name);
    sh_write_text(&w, "state", "unlisted");
    sh_write_end(&w, '}');
    sh_buf_add_char(&line, '\n');
    if (sh_keeper_remove(k->keeper, model)) {
        sh_keeper_clients_tell(k->clients, sh_buf_str(&line));
        texts_free(&k->groups[model]);
        k->groups[model] = (group){.fd = -1};
    }
    sh_buf_reset(&line);
}

/* A model is here: at this folder, or as this file describes it. */
static void found_take(sh_model_keeper *k, const char *name, const char *dir,
                       const char *definition)
{
    int model = model_find(k, name);
    if (model < 0) model = model_add(k, name, dir, definition);
    group *g = &k->groups[model];
    bool settled = g->found || g->socket != NULL; /* by another file; or it is in use */
    bool same = g->definition == NULL || definition == NULL
                    ? g->definition == definition && strcmp(g->dir, dir) == 0
                    : strcmp(g->definition, definition) == 0;
    g->found = true;
    if (settled || same) return;
    text_set(&g->dir, dir);
    text_set(&g->definition, definition);
    text_set(&g->draft, NULL);
    g->context = 0;
    state_tell(k, model);
}

/* The folder is that of the definition until it is found, which may fail. */
static void defined_take(sh_model_keeper *k, const sh_definition *d)
{
    char *dir = NULL;
    sh_err err;
    if (folder_find(k, d, &dir, &err) != SH_OK) dir = sh_strdup(d->model);
    found_take(k, d->name, dir, d->file);
    free(dir);
}

/* Logs what is wrong with files of the folder, once for each state of it. */
static void problems_tell(sh_model_keeper *k, const sh_definitions *defined)
{
    sh_str now = sh_buf_str(&defined->problems), line, rest = now;
    if (sh_str_eq(now, sh_buf_str(&k->problems))) return;
    while (sh_str_cut(&rest, '\n', &line))
        SH_LOGW("--models-dir: %.*s; this file is left out", (int)line.len, line.ptr);
    sh_buf_clear(&k->problems);
    sh_buf_add(&k->problems, now.ptr, now.len);
}

/* Looks at the folder again. What is loaded stays, even without its folder. A file describes a
 * model better than a folder of the same name does. */
static sh_status scan(sh_model_keeper *k, sh_err *err)
{
    const char *dir = k->args->settings->models_dir;
    sh_model_dir found = {0};
    sh_definitions defined = {0};
    sh_status status = sh_model_dir_read(dir, &found, err);
    if (status == SH_OK) status = sh_definitions_load(dir, &defined, err);
    if (status == SH_OK) problems_tell(k, &defined);
    if (status == SH_OK)
        for (int i = 0; i < k->count; i++) k->groups[i].found = i == k->standing;
    for (size_t i = 0; status == SH_OK && i < defined.count; i++) defined_take(k, &defined.list[i]);
    for (size_t i = 0; status == SH_OK && i < found.count; i++) {
        char *path = sh_path_join(dir, found.names[i]);
        found_take(k, found.names[i], path, NULL);
        free(path);
    }
    sh_model_dir_reset(&found);
    sh_definitions_reset(&defined);
    if (status != SH_OK) return status;
    for (int i = 0; i < k->count; i++)
        if (sh_keeper_model(k->keeper, i) != NULL && !k->groups[i].found) model_drop(k, i);
    return SH_OK;
}

static void scan_again(sh_model_keeper *k)
{
    sh_err err;
    if (!sh_deadline_passed(k->scan_at)) return;
    k->scan_at = sh_deadline_in_ms(SCAN_MS);
    bool failed = scan(k, &err) != SH_OK;
    if (failed && !k->scan_failed) SH_LOGW("--models-dir: %s", err.text);
    k->scan_failed = failed;
}

/* Frees what a group has left once its processes have ended. */
static void group_clear(group *g)
{
    if (g->fd >= 0) close(g->fd);
    if (g->socket != NULL) unlink(g->socket);
    free(g->socket);
    g->socket = NULL;
    g->fd = -1;
    g->ranks = g->far_count = 0;
}

static void group_poll(sh_model_keeper *k, int model)
{
    group *g = &k->groups[model];
    const char *why = NULL;
    int up = 0, far_up = 0, far_gone = 0;
    if (g->socket == NULL) return;
    int gone = places_forget(k, g, &why);
    for (int i = 0; i < g->ranks; i++)
        up += g->places[i] >= 0 && sh_children_state(k->children, g->places[i]) == SH_CHILD_UP;
    for (int i = 0; i < g->far_count; i++) {
        far_up += g->far[i].up;
        far_gone += g->far[i].gone;
    }
    if (up == g->ranks && far_up == g->far_count) sh_keeper_up(k->keeper, model, now_ms());
    if (gone > 0)
        sh_keeper_fail(k->keeper, model, why == NULL ? "its processes were not started" : why,
                       now_ms());
    if (gone < g->ranks || far_gone < g->far_count) return;
    group_clear(g);
    sh_keeper_gone(k->keeper, model, now_ms());
}

/* ---- other hosts ---- */

/* A worker that came back has stopped its ranks: those of loaded models start again. */
static void on_came(void *arg, int host)
{
    sh_model_keeper *k = arg;
    sh_keeper_set_host(k->keeper, host, sh_model_hosts_name(k->hosts, host),
                       sh_model_hosts_memory(k->hosts, host));
    if (k->args->settings->hostfile != NULL && sh_model_hosts_rank(k->hosts, host) == SH_RANK_ANY)
        SH_LOGW("the worker on %s is not in the hostfile: it gets no part of any model",
                sh_model_hosts_name(k->hosts, host));
    for (int i = 0; i < k->count; i++) {
        const sh_kept_model *m = sh_keeper_model(k->keeper, i);
        const group *g = &k->groups[i];
        if (m == NULL || (m->state != SH_KEPT_LOADING && m->state != SH_KEPT_READY)) continue;
        for (int n = 0; n < g->far_count; n++)
            if (g->far[n].host == host) far_start(k, i, &g->far[n]);
    }
}

/* The group of a model that is loaded goes on, or waits for the rank (docs/failures.md). */
static void on_went(void *arg, int host)
{
    sh_model_keeper *k = arg;
    char why[SH_ERR_TEXT_MAX];
    sh_keeper_set_host(k->keeper, host, sh_model_hosts_name(k->hosts, host), 0);
    snprintf(why, sizeof(why), "the worker on %.200s was lost",
             sh_model_hosts_name(k->hosts, host));
    for (int i = 0; i < k->count; i++) {
        const sh_kept_model *m = sh_keeper_model(k->keeper, i);
        group *g = &k->groups[i];
        for (int n = 0; m != NULL && n < g->far_count; n++) {
            if (g->far[n].host != host) continue;
            g->far[n].up = false;
            if (m->state == SH_KEPT_LOADING) sh_keeper_fail(k->keeper, i, why, now_ms());
            if (m->state == SH_KEPT_STOPPING) g->far[n].gone = true;
        }
    }
}

static void on_said(void *arg, int host, const sh_model_message *message)
{
    sh_model_keeper *k = arg;
    char why[SH_ERR_TEXT_MAX];
    for (int i = 0; i < k->count; i++) {
        group *g = &k->groups[i];
        if (g->socket == NULL || g->load != message->load) continue;
        for (int n = 0; n < g->far_count; n++) {
            if (g->far[n].host != host) continue;
            g->far[n].up = message->kind == SH_MODEL_UP;
            g->far[n].gone = message->kind == SH_MODEL_GONE;
        }
        if (message->kind != SH_MODEL_GONE) continue;
        snprintf(why, sizeof(why), "%.100s: %.380s", sh_model_hosts_name(k->hosts, host),
                 message->text);
        sh_keeper_fail(k->keeper, i, why, now_ms());
    }
}

/* ---- from the clients ---- */

static void client_use(sh_model_keeper *k, int client, int model, bool busy)
{
    bool *was = &k->views[client].busy[model];
    if (*was != busy) sh_keeper_use(k->keeper, model, busy, now_ms());
    *was = busy;
}

/* Stops a model that nobody holds any more. */
static void drained_check(sh_model_keeper *k, int model)
{
    for (int i = 0; i < SH_KEEPER_CLIENTS_MAX; i++)
        if (k->views[i].owes[model]) return;
    sh_keeper_drained(k->keeper, model);
}

static void on_client_gone(void *arg, int client)
{
    sh_model_keeper *k = arg;
    for (int i = 0; i < k->count; i++) {
        if (k->views[client].busy[i]) client_use(k, client, i, false);
        k->views[client].owes[i] = false;
    }
}

static bool keep_take(sh_model_keeper *k, int model, const cJSON *line)
{
    double seconds = 0;
    sh_err err;
    if (sh_json_double(line, "seconds", "keep", -1e9, 1e9, &seconds, &err) != SH_OK) return false;
    sh_keeper_keep(k->keeper, model, seconds < 0 ? SH_KEEP_FOREVER : (int64_t)(seconds * 1000));
    state_tell(k, model);
    return true;
}

/* Its ranks are well, but no request can use it: its tokenizer is missing, for example. */
static bool fail_take(sh_model_keeper *k, int model, const cJSON *line)
{
    const char *why = sh_json_text(line, "why");
    if (why != NULL) sh_keeper_fail(k->keeper, model, why, now_ms());
    return why != NULL;
}

static bool order_take(sh_model_keeper *k, int client, const char *what, int model,
                       const cJSON *line, sh_buf *out)
{
    if (strcmp(what, "keep") == 0) return keep_take(k, model, line);
    if (strcmp(what, "fail") == 0) return fail_take(k, model, line);
    if (strcmp(what, "want") == 0) {
        sh_keeper_want(k->keeper, model, now_ms());
        state_write(k, model, out);
    } else if (strcmp(what, "busy") == 0 || strcmp(what, "idle") == 0) {
        client_use(k, client, model, what[0] == 'b');
    } else if (strcmp(what, "drained") == 0) {
        k->views[client].owes[model] = false;
    } else {
        return false;
    }
    return true;
}

static bool on_line(void *arg, int client, sh_str text, sh_buf *out)
{
    sh_model_keeper *k = arg;
    cJSON *line = NULL;
    sh_err err;
    if (sh_json_parse(text, "a client of the models", &line, &err) != SH_OK) {
        SH_LOGW("%s", err.text);
        return false;
    }
    const char *what = sh_json_text(line, "do"), *name = sh_json_text(line, "model");
    int model = name == NULL ? -1 : model_find(k, name);
    bool fine = what != NULL && name != NULL;
    if (fine && model >= 0) /* else it has just been removed */
        fine = order_take(k, client, what, model, line, out);
    cJSON_Delete(line);
    return fine;
}

void sh_model_keeper_poll(void *arg)
{
    sh_model_keeper *k = arg;
    sh_keeper_clients_poll(k->clients);
    scan_again(k);
    if (k->hosts != NULL) sh_model_hosts_poll(k->hosts);
    for (int i = 0; i < k->count; i++)
        if (sh_keeper_model(k->keeper, i) != NULL) group_poll(k, i);
    sh_keeper_tick(k->keeper, now_ms());
    for (int i = 0; i < k->count; i++)
        if (sh_keeper_model(k->keeper, i) != NULL) drained_check(k, i);
    sh_keeper_clients_flush(k->clients);
}

/* ---- beginning and end ---- */

sh_status sh_models_refuse(const char *where, sh_err *err)
{
    return sh_err_set(err, SH_ERR_UNSUPPORTED,
                      "--models-dir starts and stops ranks as models are needed, which cannot be "
                      "done %s",
                      where);
}

sh_status sh_models_memory(const sh_settings *s, double *out, sh_err *err)
{
    *out = 0.9 * (double)sh_memory_total();
    if (s->memory == NULL || sh_str_to_bytes(sh_str_of(s->memory), out)) return SH_OK;
    return sh_err_set(err, SH_ERR_INPUT,
                      "--memory: '%s' is not allowed; with --models-dir it takes one size, such as "
                      "16G",
                      s->memory);
}

/* Where workers find the keeper: where ranks would find rank 0. Empty: there are none. */
sh_status sh_models_address(const sh_settings *s, char out[SH_ADDR_HOST_MAX + 8], int *hosts,
                            sh_err *err)
{
    sh_hostfile *file = NULL;
    sh_addr_list first = {0};
    *hosts = 0;
    const char *given = s->join != NULL ? s->join : s->coordinator;
    snprintf(out, SH_ADDR_HOST_MAX + 8, "%s", given == NULL ? "" : given);
    if (s->hostfile == NULL) return SH_OK;
    sh_status status = sh_hostfile_load(s->hostfile, &file, err);
    if (status == SH_OK) *hosts = file->count;
    if (status == SH_OK && given == NULL && file->count > 1)
        status = sh_hostfile_addresses(file, 0, SH_HOSTFILE_PORT, &first, err);
    if (status == SH_OK && first.count > 0)
        snprintf(out, SH_ADDR_HOST_MAX + 8, "%s", first.text[0]);
    sh_hostfile_free(file);
    return status;
}

/* Waits for workers, if the ranks are to be on several hosts. */
static sh_status hosts_open(sh_model_keeper *k, sh_err *err)
{
    const sh_settings *s = k->args->settings;
    char address[SH_ADDR_HOST_MAX + 8];
    sh_model_hosts_hooks hooks = {on_came, on_went, on_said, k};
    sh_status status = sh_models_address(s, address, &k->expected, err);
    if (status != SH_OK || address[0] == '\0') return status;
    if (s->hostfile == NULL && sh_options_given(k->args->options, "ranks"))
        k->expected = (int)s->ranks;
    k->ranks = 1;
    return sh_model_hosts_open(address, s->token, s->insecure, &hooks, &k->hosts, err);
}

/* The model of --model, if it is one of --models-dir: by its folder, or by the file that describes
 * it. */
static int standing_find(const sh_model_keeper *k, const char *real, bool described)
{
    int found = -1;
    for (int i = 0; i < k->count && found < 0; i++) {
        const group *g = &k->groups[i];
        if ((g->definition != NULL) != described) continue;
        char *other = realpath(described ? g->definition : g->dir, NULL);
        if (other != NULL && strcmp(real, other) == 0) found = i;
        free(other);
    }
    return found;
}

static sh_status standing_name(const sh_settings *s, const char *real, char **out, sh_err *err)
{
    sh_definition d;
    const char *last = strrchr(real, '/') + 1;
    bool described = s->model_name == NULL && sh_definition_is_file(s->model);
    if (!described) {
        *out = sh_strdup(s->model_name != NULL ? s->model_name : last);
        return SH_OK;
    }
    sh_status status = sh_definition_load(s->model, &d, err);
    if (status == SH_OK) *out = sh_strdup(d.name);
    sh_definition_reset(&d);
    return status;
}

/* One that is not in --models-dir. */
static sh_status standing_new(sh_model_keeper *k, const char *real, bool described, sh_err *err)
{
    const sh_settings *s = k->args->settings;
    char *name = NULL;
    sh_status status = standing_name(s, real, &name, err);
    if (status == SH_OK && model_find(k, name) >= 0)
        status = sh_err_set(err, SH_ERR_INPUT,
                            "--model: %s has another model '%s'; give a --model-name",
                            s->models_dir, name);
    if (status == SH_OK) k->standing = model_add(k, name, real, described ? real : NULL);
    free(name);
    return status;
}

/* --model may name a folder of --models-dir, or any other. */
static sh_status standing_add(sh_model_keeper *k, sh_err *err)
{
    const sh_settings *s = k->args->settings;
    char *real = s->model == NULL ? NULL : realpath(s->model, NULL);
    sh_status status = SH_OK;
    if (s->model == NULL) return SH_OK;
    if (real == NULL) return sh_err_sys(err, "%s", s->model);
    bool described = sh_definition_is_file(s->model);
    k->standing = standing_find(k, real, described);
    if (k->standing < 0) status = standing_new(k, real, described, err);
    free(real);
    if (status == SH_OK) sh_keeper_want(k->keeper, k->standing, now_ms());
    return status;
}

/* A name that is mistyped would be noticed late. */
static sh_status pinned_want(sh_model_keeper *k, sh_err *err)
{
    sh_str rest = sh_str_of(k->args->settings->pin), one;
    while (sh_str_cut(&rest, ',', &one)) {
        char *name = sh_str_dup(sh_str_trim(one));
        int model = model_find(k, name);
        if (model < 0)
            sh_err_set(err, SH_ERR_NOT_FOUND, "--pin: there is no model '%s' in %s", name,
                       k->args->settings->models_dir);
        free(name);
        if (model < 0) return err->status;
        sh_keeper_want(k->keeper, model, now_ms());
    }
    return SH_OK;
}

sh_status sh_model_keeper_open(const sh_command_args *args, const char *program, const char *folder,
                               int ranks, sh_children *children, sh_model_keeper **out, sh_err *err)
{
    const sh_settings *s = args->settings;
    int64_t keep_ms;
    double limit = 0;
    sh_status status = sh_duration_parse(s->keep_alive, &keep_ms, err);
    if (status != SH_OK) return sh_err_prefix(err, "--keep-alive");
    status = sh_models_memory(s, &limit, err);
    if (status != SH_OK) return status;
    sh_model_keeper *k = sh_alloc(sizeof(*k));
    *k = (sh_model_keeper){.args = args,
                           .program = program,
                           .folder = folder,
                           .ranks = ranks,
                           .children = children,
                           .standing = -1,
                           .path = sh_path_join(folder, "models.sock")};
    sh_keeper_clients_hooks clients = {on_client, on_line, on_client_gone, k};
    sh_keeper_hooks hooks = {measure, start, stop, changed, k};
    k->keeper = sh_keeper_create(&hooks, keep_ms);
    k->memory = limit;
    sh_keeper_set_host(k->keeper, 0, "this host", limit);
    status = sh_keeper_clients_open(k->path, &clients, &k->clients, err);
    if (status == SH_OK) status = hosts_open(k, err);
    if (status == SH_OK) status = scan(k, err);
    if (status == SH_OK) status = standing_add(k, err);
    if (status == SH_OK) status = pinned_want(k, err);
    if (status != SH_OK) {
        sh_model_keeper_close(k);
        return status;
    }
    *out = k;
    return SH_OK;
}

const char *sh_model_keeper_socket(const sh_model_keeper *k)
{
    return k->path;
}

void sh_model_keeper_close(sh_model_keeper *k)
{
    if (k == NULL) return;
    sh_keeper_clients_close(k->clients);
    for (int i = 0; i < SH_KEEPER_CLIENTS_MAX; i++) {
        free(k->views[i].busy);
        free(k->views[i].owes);
    }
    for (int i = 0; i < k->count; i++) {
        group_clear(&k->groups[i]);
        texts_free(&k->groups[i]);
    }
    sh_model_hosts_close(k->hosts);
    free(k->groups);
    free(k->path);
    sh_buf_reset(&k->problems);
    sh_keeper_free(k->keeper);
    free(k);
}
