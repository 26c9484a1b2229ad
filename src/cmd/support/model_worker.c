#include "cmd/support/model_worker.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/version.h"
#include "cluster/children.h"
#include "cluster/hostfile.h"
#include "cluster/model_link.h"
#include "cmd/support/model_keeper.h"
#include "cmd/support/progress.h"
#include "cmd/support/role.h"
#include "net/cluster_token.h"
#include "net/connector.h"
#include "net/shm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HANDSHAKE_MS = 10000, STOP_EXTRA_MS = 5000 };

/* A rank of a model. */
typedef struct {
    uint64_t load;
    int place; /* among the children; -1: it has ended */
    bool up;   /* and the keeper knows */
    bool used;
} load;

typedef struct {
    const sh_command_args *args;
    char *program;
    char *listen; /* --listen for its ranks, or NULL */
    double memory;
    char address[SH_ADDR_HOST_MAX + 8];
    sh_hello hello;
    sh_tls *tls;
    sh_connector connector;
    sh_model_link link;
    sh_children *children;
    load *loads;
    size_t count;
} worker;

static void tell(worker *w, sh_model_message_kind kind, uint64_t number, const char *text)
{
    sh_model_message m = {.kind = kind, .load = number};
    snprintf(m.text, sizeof(m.text), "%s", text);
    sh_model_link_send(&w->link, &m);
}

static void host_tell(worker *w)
{
    sh_model_message m = {.kind = SH_MODEL_HOST, .memory = w->memory};
    if (gethostname(m.text, sizeof(m.text) - 1) != 0) snprintf(m.text, sizeof(m.text), "a worker");
    sh_model_link_send(&w->link, &m);
}

static bool is_model(const char *dir)
{
    char *config = sh_path_join(dir, "config.json");
    bool is = sh_file_exists(config);
    free(config);
    return is;
}

/* Where the model is on this host; NULL: nowhere. A name that leads out of the folder is not taken
 * from anybody. */
static char *model_dir(const sh_settings *s, const sh_model_message *m)
{
    char *own = sh_path_join(s->models_dir, m->name);
    if (strstr(m->name, "..") == NULL && m->name[0] != '/' && is_model(own)) return own;
    free(own);
    return m->dir[0] == '/' && is_model(m->dir) ? sh_strdup(m->dir) : NULL;
}

/* The address of rank 0 of the model: that of the keeper, with another port. */
static sh_status rank0_address(const worker *w, uint16_t port, char out[SH_ADDR_HOST_MAX + 8],
                               sh_err *err)
{
    char host[SH_ADDR_HOST_MAX];
    uint16_t ignored;
    sh_status status = sh_addr_split(w->address, host, &ignored, err);
    if (status == SH_OK)
        snprintf(out, SH_ADDR_HOST_MAX + 8, strchr(host, ':') != NULL ? "[%s]:%u" : "%s:%u", host,
                 port);
    return status;
}

static sh_status rank_start(worker *w, const sh_model_message *m, sh_err *err)
{
    const sh_settings *s = w->args->settings;
    char at[SH_ADDR_HOST_MAX + 8], rank[16], ranks[16], tokens[24], title[96];
    sh_status status = rank0_address(w, m->port, at, err);
    if (status != SH_OK) return status;
    char *dir = model_dir(s, m);
    snprintf(rank, sizeof(rank), "%u", m->rank);
    snprintf(ranks, sizeof(ranks), "%u", m->ranks);
    snprintf(tokens, sizeof(tokens), "%llu", (unsigned long long)m->kv_tokens);
    snprintf(title, sizeof(title), "%.64s rank %u", m->name, m->rank);
    const char *more[20] = {s->join != NULL ? "--join" : "--coordinator",
                            at,
                            "--rank",
                            rank,
                            "--kv-tokens",
                            tokens,
                            "--no-progress"};
    size_t count = 7;
    if (s->join == NULL) more[count++] = "--ranks";
    if (s->join == NULL) more[count++] = ranks;
    if (dir != NULL) more[count++] = "--model";
    if (dir != NULL) more[count++] = dir;
    if (w->listen != NULL) more[count++] = "--listen";
    if (w->listen != NULL) more[count++] = w->listen;
    char **env = sh_role_env(ROLE_RANK, (char *[]){"SHOAL_PART=engine", NULL});
    char **argv = sh_role_argv_add(sh_role_argv(ROLE_RANK, w->program, w->args->line), more);
    sh_child_spec child = {
        .name = title, .argv = argv, .env = env, .policy = SH_CHILD_MODEL_RANK, .capture = true};
    status = sh_children_add(w->children, &child, err);
    sh_role_env_free(env);
    free(argv);
    free(dir);
    return status;
}

static load *load_find(const worker *w, uint64_t number)
{
    for (size_t i = 0; i < w->count; i++)
        if (w->loads[i].used && w->loads[i].load == number) return &w->loads[i];
    return NULL;
}

static load *load_add(worker *w)
{
    for (size_t i = 0; i < w->count; i++)
        if (!w->loads[i].used) return &w->loads[i];
    w->loads = sh_realloc_array(w->loads, w->count + 1, sizeof(*w->loads));
    return &w->loads[w->count++];
}

static void start(worker *w, const sh_model_message *m)
{
    sh_err err;
    if (load_find(w, m->load) != NULL) return;
    if (rank_start(w, m, &err) != SH_OK) {
        tell(w, SH_MODEL_GONE, m->load, err.text);
        return;
    }
    SH_LOGI("loading the model '%s' as rank %u of %u", m->name, m->rank, m->ranks);
    *load_add(w) = (load){.load = m->load, .place = sh_children_last(w->children), .used = true};
}

static void stop(worker *w, const load *l)
{
    if (l->place >= 0)
        sh_children_stop(w->children, l->place, w->args->settings->grace * 1000 + STOP_EXTRA_MS);
}

static void message_take(worker *w, const sh_model_message *m)
{
    const load *l = load_find(w, m->load);
    if (m->kind == SH_MODEL_START)
        start(w, m);
    else if (m->kind == SH_MODEL_STOP && l != NULL)
        stop(w, l);
    else if (m->kind == SH_MODEL_STOP)
        tell(w, SH_MODEL_GONE, m->load, "it had ended");
}

static void load_poll(worker *w, load *l)
{
    sh_child_state state = sh_children_state(w->children, l->place);
    bool up = state == SH_CHILD_UP;
    if (up && !l->up) tell(w, SH_MODEL_UP, l->load, "");
    if (up) l->up = true;
    if (state != SH_CHILD_GONE) return;
    tell(w, SH_MODEL_GONE, l->load, sh_children_reason(w->children, l->place));
    sh_children_stop(w->children, l->place, 0); /* its place is free */
    l->used = false;
}

/* Without the keeper nobody knows what to do with the ranks, and it starts them anew. */
static void link_lose(worker *w, const char *why)
{
    SH_LOGW("the server is gone: %s; waiting for it", why);
    sh_model_link_close(&w->link);
    for (size_t i = 0; i < w->count; i++)
        if (w->loads[i].used) stop(w, &w->loads[i]);
    sh_connector_init(&w->connector, w->address, w->tls, &w->hello, HANDSHAKE_MS);
}

static void link_poll(worker *w)
{
    sh_model_message m;
    sh_err err;
    sh_status status;
    while ((status = sh_model_link_step(&w->link, &m, &err)) == SH_OK) message_take(w, &m);
    if (status < 0) link_lose(w, err.text);
}

/* Ranks of an earlier connection must have ended before the keeper is told that there are none. */
static void connect_poll(worker *w)
{
    sh_err err;
    for (size_t i = 0; i < w->count; i++)
        if (w->loads[i].used) return;
    sh_status status = sh_connector_step(&w->connector, &err);
    if (status == SH_AGAIN) return;
    if (status != SH_OK) {
        sh_children_give_up(w->children, sh_command_fail(&err));
        return;
    }
    sh_model_link_open(&w->link, sh_connector_take(&w->connector));
    SH_LOGI("connected to the server at %s", w->address);
    sh_progress(w->args->settings, "ready");
    host_tell(w);
}

static void on_polled(void *arg)
{
    worker *w = arg;
    if (w->link.conn != NULL)
        link_poll(w);
    else
        connect_poll(w);
    for (size_t i = 0; i < w->count; i++)
        if (w->loads[i].used) load_poll(w, &w->loads[i]);
}

/* The addresses of this rank in the hostfile, each with a port of the system's choice: several
 * ranks share them. */
static sh_status listen_find(worker *w, sh_err *err)
{
    const sh_settings *s = w->args->settings;
    sh_hostfile *file = NULL;
    sh_addr_list list = {0};
    sh_buf text = {0};
    if (s->hostfile == NULL || s->join != NULL) return SH_OK;
    sh_status status = sh_hostfile_load(s->hostfile, &file, err);
    if (status == SH_OK)
        status = sh_hostfile_addresses(file, (int)s->rank, SH_HOSTFILE_PORT, &list, err);
    for (int i = 0; i < list.count && status == SH_OK; i++) {
        char host[SH_ADDR_HOST_MAX];
        uint16_t port;
        status = sh_addr_split(list.text[i], host, &port, err);
        sh_buf_addf(&text, strchr(host, ':') != NULL ? "%s[%s]:0" : "%s%s:0", i == 0 ? "" : ",",
                    host);
    }
    sh_hostfile_free(file);
    if (status == SH_OK && text.len > 0) w->listen = sh_buf_take(&text);
    sh_buf_reset(&text);
    return status;
}

/* A worker that comes back is known by its node. */
static void hello_fill(worker *w)
{
    const sh_settings *s = w->args->settings;
    w->hello = (sh_hello){.protocol = SH_PEER_PROTOCOL,
                          .rank = s->join != NULL ? SH_RANK_ANY : (uint32_t)s->rank,
                          .use = SH_USE_MODELS};
    snprintf(w->hello.version, sizeof(w->hello.version), "%s", sh_version());
    sh_host_id(w->hello.host);
    if (s->node != NULL) {
        sh_key128 id = sh_hash128((sh_key128){7, 8}, s->node, strlen(s->node));
        memcpy(w->hello.node, &id, sizeof(w->hello.node));
    } else {
        sh_random(w->hello.node, sizeof(w->hello.node));
    }
}

static sh_status worker_init(worker *w, sh_err *err)
{
    const sh_settings *s = w->args->settings;
    int hosts;
    sh_status status = sh_role_program(w->args->line, &w->program, err);
    if (status == SH_OK) status = sh_models_memory(s, &w->memory, err);
    if (status == SH_OK) status = sh_models_address(s, w->address, &hosts, err);
    if (status == SH_OK) status = listen_find(w, err);
    if (status == SH_OK && w->address[0] == '\0')
        status = sh_err_set(err, SH_ERR_INPUT,
                            "a worker needs --join, --coordinator or --hostfile, to find the "
                            "server");
    if (status == SH_OK && s->token != NULL) {
        status = sh_cluster_token_check(s->token, err);
        if (status == SH_OK) status = sh_tls_create(s->token, &w->tls, err);
    }
    hello_fill(w);
    sh_connector_init(&w->connector, w->address, w->tls, &w->hello, HANDSHAKE_MS);
    return status;
}

int sh_model_worker_run(const sh_command_args *args)
{
    const sh_settings *s = args->settings;
    worker w = {.args = args};
    sh_err err;
    int code = SH_EXIT_OK;
    sh_status status = worker_init(&w, &err);
    if (status == SH_OK) {
        sh_children_hooks hooks = {.polled = on_polled, .arg = &w};
        w.children = sh_children_create();
        sh_children_set_hooks(w.children, &hooks);
        sh_children_set_frozen(w.children, s->frozen_after * 1000);
        sh_children_set_standing(w.children);
        code = sh_children_run(w.children, s->grace * 1000 + STOP_EXTRA_MS);
        sh_children_free(w.children);
    }
    sh_connector_reset(&w.connector);
    sh_model_link_close(&w.link);
    sh_tls_free(w.tls);
    free(w.loads);
    free(w.listen);
    free(w.program);
    return status == SH_OK ? code : sh_command_fail(&err);
}
