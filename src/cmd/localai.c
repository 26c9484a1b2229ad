/* shoal localai: a backend of LocalAI, which decides over gRPC what model is served.
 *
 * This process supervises two others. One is the API in its gRPC form, which is there from the
 * start and holds no secret of the cluster. The other is a `shoal serve` without an API, which
 * supervises the ranks of the model that LocalAI asked for; it comes and goes. What the API wants
 * is read from a socket between the two (api/model_host.h) and checked here: a process that talks
 * to strangers may only choose among the settings below.
 *
 * Both get the settings of this command through the environment, and their own as flags, which win.
 * A model that does not start is the model's trouble: the reason, the last line of its output that
 * says one, goes to whoever called LoadModel. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "cluster/children.h"
#include "cmd/command.h"
#include "cmd/support/role.h"
#include "http/listeners.h"
#include "net/addr.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { STOP_EXTRA_MS = 5000, LINE_MAX_BYTES = 8192, ARGS_MAX = 32, NO_CHILD = -1 };

/* What LoadModel may set, by the names of flags of `serve`. */
static const char *const settable[] = {"model",   "hostfile", "backend",    "ranks",
                                       "context", "pooling",  "draft-model"};

typedef struct {
    const sh_command_args *args;
    sh_children *children;
    char *program;
    char *folder, *socket; /* of the engine */
    sh_listeners listeners;
    char host[SH_ADDR_HOST_MAX];
    int ends[2]; /* of the socket to the API: ours, and the API's */
    sh_buf in;
    int added; /* children so far */

    /* The model. */
    int child;     /* NO_CHILD: there is none */
    pid_t pid;     /* 0: it is between two lives */
    bool stopping; /* it was asked to end */
    sh_deadline kill_at;
    cJSON *next; /* what to start when it has ended; NULL: nothing */
    bool frees;  /* or to report that it has */
    sh_err why;  /* what it said last about an error; status SH_OK: nothing */
} backend;

/* ---- what the API hears ---- */

static void state_send(const backend *b, const char *state, const char *why)
{
    cJSON *line = cJSON_CreateObject();
    cJSON_AddStringToObject(line, "state", state);
    if (why != NULL) cJSON_AddStringToObject(line, "why", why);
    char *text = cJSON_PrintUnformatted(line);
    sh_buf out = {0};
    sh_buf_addf(&out, "%s\n", text);
    if (send(b->ends[0], out.ptr, out.len, MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)out.len)
        SH_LOGE("localai: the API does not read what its supervisor reports");
    sh_buf_reset(&out);
    cJSON_free(text);
    cJSON_Delete(line);
}

/* ---- starting processes ---- */

typedef struct {
    uint64_t command;
    char **list;
    size_t count;
} env_list;

static void env_add(env_list *env, char *entry)
{
    env->list = sh_realloc_array(env->list, env->count + 2, sizeof(*env->list));
    env->list[env->count++] = entry;
    env->list[env->count] = NULL;
}

static void env_add_row(void *arg, const sh_option *row, const char *text)
{
    env_list *env = arg;
    sh_buf name = {0};
    if ((row->commands & env->command) == 0) return;
    sh_option_env_name(&sh_option_rows, row, &name);
    env_add(env, sh_asprintf("%s=%s", name.ptr, text));
    sh_buf_reset(&name);
}

/* The settings of this command that the other one takes, without secrets that are not its own. */
static char **env_for(const backend *b, uint64_t command, char *const *more)
{
    env_list env = {.command = command};
    sh_options_each_given(b->args->options, env_add_row, &env);
    for (; *more != NULL; more++) env_add(&env, sh_strdup(*more));
    char **all = sh_role_env(command, env.list);
    sh_role_env_free(env.list);
    return all;
}

static sh_status child_add(backend *b, const sh_child_spec *spec, int *child, sh_err *err)
{
    *child = b->added++; /* before it is started: hooks ask for it */
    return sh_children_add(b->children, spec, err);
}

static char *listen_setting(const sh_listeners *listeners)
{
    sh_buf text = {0};
    for (int i = 0; i < listeners->count; i++)
        sh_buf_addf(&text, "%s%d", i == 0 ? "SHOAL_GRPC_FDS=" : ",", listeners->fds[i]);
    return text.ptr;
}

static sh_status api_start(backend *b, sh_err *err)
{
    char *socket = sh_asprintf("SHOAL_SOCKET=%s", b->socket),
         *control = sh_asprintf("SHOAL_MODEL_FD=%d", b->ends[1]),
         *host = sh_asprintf("SHOAL_HOST=%s", b->host), *listen = listen_setting(&b->listeners);
    char **env = env_for(b, FOR(api), (char *[]){socket, control, host, listen, NULL});
    int keep[SH_LISTENERS_MAX + 2] = {b->ends[1]}, child;
    memcpy(keep + 1, b->listeners.fds, sizeof(b->listeners.fds));
    sh_child_spec spec = {.name = "api",
                          .argv = (char *[]){b->program, "api", NULL},
                          .env = env,
                          .policy = SH_CHILD_SERVICE,
                          .keep_fds = keep};
    sh_status status = child_add(b, &spec, &child, err);
    sh_role_env_free(env);
    free(socket);
    free(control);
    free(host);
    free(listen);
    return status;
}

static sh_status model_start(backend *b, const cJSON *settings, sh_err *err)
{
    char *argv[ARGS_MAX] = {b->program, "serve"}, *flags[SH_COUNT_OF(settable)];
    char *socket = sh_asprintf("SHOAL_SOCKET=%s", b->socket);
    char **env = env_for(b, FOR(serve), (char *[]){socket, "SHOAL_PART=ranks", NULL});
    int count = 2, used = 0;
    bool placed = sh_json_text(settings, "hostfile") != NULL || b->args->settings->hostfile != NULL;
    if (placed) argv[count++] = "--rank=0"; /* of the file */
    for (size_t i = 0; i < SH_COUNT_OF(settable); i++) {
        const char *value = sh_json_text(settings, settable[i]);
        if (value == NULL) continue;
        flags[used] = sh_asprintf("--%s=%s", settable[i], value);
        argv[count++] = flags[used++];
    }
    sh_child_spec spec = {
        .name = "model", .argv = argv, .env = env, .policy = SH_CHILD_ADDED_AGENT, .capture = true};
    b->why.status = SH_OK;
    b->stopping = false;
    sh_status status = child_add(b, &spec, &b->child, err);
    if (status != SH_OK) b->child = NO_CHILD;
    for (int i = 0; i < used; i++) free(flags[i]);
    sh_role_env_free(env);
    free(socket);
    return status;
}

/* ---- what the API asks for ---- */

static void model_stop(backend *b)
{
    if (b->child == NO_CHILD || b->stopping) return;
    b->stopping = true;
    b->kill_at = sh_deadline_in_ms(b->args->settings->grace * 1000 + STOP_EXTRA_MS);
    if (b->pid != 0) kill(b->pid, SIGTERM);
}

static void order_take(backend *b, sh_str text)
{
    cJSON *line = NULL;
    sh_err err;
    if (sh_json_parse(text, "api", &line, &err) != SH_OK) {
        SH_LOGW("localai: %s", err.text);
        return;
    }
    const char *what = sh_json_text(line, "do");
    bool load = what != NULL && strcmp(what, "load") == 0;
    cJSON_Delete(b->next);
    b->next = load ? cJSON_DetachItemFromObjectCaseSensitive(line, "settings") : NULL;
    b->frees = !load;
    model_stop(b);
    cJSON_Delete(line);
}

static void orders_read(backend *b)
{
    char bytes[4096];
    const char *end;
    ssize_t got = recv(b->ends[0], bytes, sizeof(bytes), MSG_DONTWAIT);
    if (got > 0) sh_buf_add(&b->in, bytes, (size_t)got);
    while (b->in.len > 0 && (end = memchr(b->in.ptr, '\n', b->in.len)) != NULL) {
        sh_str line = {b->in.ptr, (size_t)(end - b->in.ptr)};
        order_take(b, line);
        sh_buf_drop_front(&b->in, line.len + 1);
    }
    if (b->in.len > LINE_MAX_BYTES) sh_buf_clear(&b->in);
}

/* ---- hooks of the children ---- */

static void on_line(void *arg, int child, sh_str line)
{
    backend *b = arg;
    static const char mark[] = "shoal: ", hint[] = "shoal: see `shoal help";
    (void)child; /* only the model's output is captured */
    dprintf(STDERR_FILENO, "%.*s\n", (int)line.len, line.ptr);
    if (!sh_str_starts(line, SH_STR(mark)) || sh_str_starts(line, SH_STR(hint))) return;
    sh_err_set(&b->why, SH_ERR_INPUT, "%.*s", (int)(line.len - strlen(mark)),
               line.ptr + strlen(mark));
}

static void on_started(void *arg, int child, pid_t pid)
{
    backend *b = arg;
    if (child != b->child) return;
    b->pid = pid;
    if (b->stopping) kill(pid, SIGTERM); /* it was asked to end between two lives */
}

/* A model that ends by itself, other than by a crash, will not be served again. */
static void on_ended(void *arg, int child, const char *how, bool restarts)
{
    backend *b = arg;
    bool asked = (child == b->child && b->stopping) || strcmp(how, "ended with code 0") == 0;
    const char *name = child == b->child ? "the model" : "the API";
    if (!asked) SH_LOGW("%s %s%s", name, how, restarts ? "; restarting it" : "");
    if (child != b->child) return;
    b->pid = 0;
    if (restarts) return;
    b->child = NO_CHILD;
    if (!asked) state_send(b, "failed", b->why.status == SH_OK ? how : b->why.text);
}

static void next_begin(backend *b)
{
    sh_err err;
    cJSON *settings = b->next;
    b->next = NULL;
    if (settings != NULL && model_start(b, settings, &err) != SH_OK)
        state_send(b, "failed", err.text);
    else if (settings != NULL)
        state_send(b, "started", NULL);
    else if (b->frees)
        state_send(b, "freed", NULL);
    b->frees = false;
    cJSON_Delete(settings);
}

static void on_polled(void *arg)
{
    backend *b = arg;
    orders_read(b);
    if (b->child == NO_CHILD) {
        next_begin(b);
    } else if (b->stopping && sh_deadline_passed(b->kill_at) && b->pid != 0) {
        SH_LOGW("the model does not end; killing it");
        kill(-b->pid, SIGKILL);
        b->kill_at = SH_DEADLINE_NEVER;
    }
}

/* ---- the command ---- */

static sh_status backend_init(backend *b, const sh_command_args *args, sh_err *err)
{
    const sh_settings *s = args->settings;
    uint16_t port;
    b->args = args;
    b->child = NO_CHILD;
    b->ends[0] = b->ends[1] = -1;
    sh_status status = sh_role_program(args->line, &b->program, err);
    if (status == SH_OK) status = sh_addr_split(s->addr, b->host, &port, err);
    if (status == SH_OK) status = sh_listeners_open(b->host, port, &b->listeners, err);
    if (status != SH_OK) return status;
    b->folder = sh_path_join(s->runtime_dir != NULL ? s->runtime_dir : "/tmp", "shoal-XXXXXX");
    if (mkdtemp(b->folder) == NULL) return sh_err_sys(err, "make a folder, %s", b->folder);
    b->socket = sh_path_join(b->folder, "engine.sock");
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, b->ends) != 0) return sh_err_sys(err, "socketpair");
    for (int i = 0; i < 2; i++) fcntl(b->ends[i], F_SETFD, FD_CLOEXEC);
    return SH_OK;
}

static void backend_reset(backend *b)
{
    sh_listeners_close(&b->listeners);
    for (int i = 0; i < 2; i++)
        if (b->ends[i] >= 0) close(b->ends[i]);
    if (b->socket != NULL) unlink(b->socket);
    if (b->folder != NULL) rmdir(b->folder);
    cJSON_Delete(b->next);
    sh_buf_reset(&b->in);
    free(b->socket);
    free(b->folder);
    free(b->program);
}

static int localai_run(const sh_command_args *args)
{
    const sh_settings *s = args->settings;
    backend b = {0};
    sh_err err;
    int code = SH_EXIT_OK;
    sh_children_hooks hooks = {
        .line = on_line, .started = on_started, .ended = on_ended, .polled = on_polled, .arg = &b};
    sh_status status = backend_init(&b, args, &err);
    if (status == SH_OK) {
        b.children = sh_children_create();
        sh_children_set_hooks(b.children, &hooks);
        status = api_start(&b, &err);
        if (status == SH_OK) code = sh_children_run(b.children, s->grace * 1000 + STOP_EXTRA_MS);
        sh_children_free(b.children);
    }
    backend_reset(&b);
    return status == SH_OK ? code : sh_command_fail(&err);
}

const sh_command sh_command_localai = {
    SH_COMMAND_NAMED(localai),
    .summary = "be a backend of LocalAI, over gRPC",
    .details = "Waits for LocalAI to call LoadModel, then serves that model to it, on this machine "
               "or with the ranks of a hostfile. See docs/localai.md.",
    .run = localai_run,
};
