/* shoal serve: starts and supervises what a server needs, the ranks of the engine and the API in
 * front of them.
 *
 * Each part is this same command line with SHOAL_PART in the environment, so all parts see the same
 * settings, except for secrets that are not theirs (support/role.h). API and engine are separate
 * processes so that the API can be restarted without loading the model again, and so that the
 * process that parses requests of strangers holds no cluster token. */
#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include "base/system.h"
#include "base/version.h"
#include "cluster/launcher_env.h"
#include "cluster/local_ranks.h"
#include "cmd/support/cluster_control.h"
#include "cmd/support/demo.h"
#include "cmd/support/model_keeper.h"
#include "cmd/support/p2p.h"
#include "cmd/support/progress.h"
#include "cmd/support/ranks.h"
#include "cmd/support/role.h"
#include "http/listeners.h"
#include "model/config.h"
#include "net/transport.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DEMO_RANKS = 2, STOP_EXTRA_MS = 5000 };
_Static_assert((int)SH_EXIT_PEER == (int)SH_CHILD_EXIT_PEERS_MISSING,
               "the supervisor knows this exit code");

struct server {
    const sh_command_args *args;
    char *program;
    char *model; /* NULL: several, of which a keeper takes care */
    sh_model_keeper *keeper;
    sh_cluster_control *control; /* NULL: there is no API */
    char *folder; /* of the socket, made here and removed at the end; NULL: the user's */
    char *socket;
    sh_listeners listeners; /* of the API; open here, so that they outlive it */
    int ranks;
};

/* The model to serve, owned by the caller: the demo model unless one was given. A given one is
 * passed on as given; the parts resolve it themselves, to the same folder. */
static sh_status model_find(const sh_settings *s, const char *program, char **out, sh_err *err)
{
    /* A wrong path is reported here, before anything is started. */
    if (s->model != NULL && sh_config_check_folder(s->model, err) != SH_OK) return err->status;
    char *model = s->model != NULL ? sh_strdup(s->model_given) : sh_demo_find(program);
    if (model == NULL)
        return sh_err_set(err, SH_ERR_NOT_FOUND,
                          "the demo model was not found; name a model with --model DIR");
    *out = model;
    return SH_OK;
}

/* A predictable socket name could be taken by somebody else first. So the socket gets a folder of
 * its own, with a random name and mode 0700. */
static sh_status socket_place(struct server *v, const sh_settings *s, sh_err *err)
{
    if (s->socket != NULL) {
        v->socket = sh_strdup(s->socket);
        return SH_OK;
    }
    char *folder = sh_path_join(s->runtime_dir != NULL ? s->runtime_dir : "/tmp", "shoal-XXXXXX");
    if (mkdtemp(folder) == NULL) {
        sh_err_sys(err, "make a folder for the socket, %s", folder);
        free(folder);
        return err->status;
    }
    v->folder = folder;
    v->socket = sh_path_join(folder, "engine.sock");
    return SH_OK;
}

/* Several models: their processes come and go, so they must be able to. */
static sh_status several_check(const sh_command_args *args, sh_err *err)
{
    const sh_settings *s = args->settings;
    const sh_transport *asked = sh_backend_transport(sh_backend_find(s->backend));
    sh_launcher_env world;
    sh_status status = sh_launcher_env_read(&world, err);
    if (status != SH_OK) return status;
    if (world.size > 1) return sh_models_refuse("under mpirun or srun", err);
    if (asked != NULL && asked->one_life) return sh_models_refuse("with --backend mpi", err);
    if (s->socket != NULL)
        return sh_err_set(err, SH_ERR_INPUT,
                          "--socket is for one engine; with --models-dir every model has one of "
                          "its own");
    return SH_OK;
}

/* The API belongs to the parent (localai.c). */
static bool ranks_only(const sh_settings *s)
{
    return strcmp(s->part, "ranks") == 0;
}

/* Settings that only several models have a use for. */
static void single_warn(const sh_command_args *args)
{
    static const char *const names[] = {"keep-alive", "pin", "memory"};
    for (size_t i = 0; i < SH_COUNT_OF(names); i++)
        if (sh_options_given(args->options, names[i]))
            SH_LOGW("--%s has no effect without --models-dir", names[i]);
}

static sh_status server_init(struct server *v, const sh_command_args *args, sh_err *err)
{
    const sh_settings *s = args->settings;
    v->args = args;
    sh_status status = sh_p2p_check(args, err);
    if (status == SH_OK) status = sh_role_program(args->line, &v->program, err);
    if (status == SH_OK && s->models_dir != NULL) status = several_check(args, err);
    if (s->models_dir == NULL) single_warn(args);
    if (status == SH_OK && s->models_dir == NULL)
        status = model_find(s, v->program, &v->model, err);
    v->ranks = (int)s->ranks;
    if (status == SH_OK && s->models_dir == NULL) status = sh_ranks_world(args, &v->ranks, err);
    if (status != SH_OK) return status;
    if (v->model != NULL && s->model == NULL && !s->p2p &&
        !sh_options_given(args->options, "ranks") && s->hostfile == NULL)
        v->ranks = DEMO_RANKS;
    if (!ranks_only(s)) status = sh_listeners_open(s->host, (int)s->port, &v->listeners, err);
    if (status == SH_OK && !ranks_only(s)) status = sh_cluster_control_open(s, &v->control, err);
    return status == SH_OK ? socket_place(v, s, err) : status;
}

static void server_reset(struct server *v)
{
    sh_model_keeper_close(v->keeper);
    sh_cluster_control_close(v->control);
    sh_listeners_close(&v->listeners);
    if (v->socket != NULL) unlink(v->socket);
    if (v->folder != NULL) rmdir(v->folder);
    free(v->folder);
    free(v->program);
    free(v->model);
    free(v->socket);
}

static char *listen_setting(const sh_listeners *listeners)
{
    sh_buf text = {0};
    for (int i = 0; i < listeners->count; i++)
        sh_buf_addf(&text, "%s%d", i == 0 ? "SHOAL_LISTEN_FDS=" : ",", listeners->fds[i]);
    return text.ptr;
}

/* The ranks of the one model. */
static sh_status ranks_start(const struct server *v, sh_children *children, sh_err *err)
{
    const sh_settings *s = v->args->settings;
    char *model = sh_asprintf("SHOAL_MODEL=%s", v->model);
    char *socket = sh_asprintf("SHOAL_SOCKET=%s", v->socket);
    char **env = sh_role_env(ROLE_RANK, (char *[]){model, socket, "SHOAL_PART=engine", NULL});
    char **argv = sh_role_argv(ROLE_RANK, v->program, v->args->line);
    bool local = s->hostfile == NULL && s->coordinator == NULL && v->ranks > 1 &&
                 !sh_options_given(v->args->options, "rank");
    const sh_transport *asked = sh_backend_transport(sh_backend_find(s->backend));
    bool forms_again = asked == NULL || !asked->one_life;
    sh_local_ranks_spec ranks = {.argv = argv,
                                 .ranks = v->ranks,
                                 .token = s->token,
                                 .policy = SH_CHILD_LOCAL_RANK,
                                 .env = env};
    sh_child_spec engine = {.name = "engine",
                            .argv = argv,
                            .env = env,
                            .policy = forms_again ? SH_CHILD_RANK : SH_CHILD_TASK,
                            .keep_fds = (int[]){(int)s->coordinator_fd, 0}};
    int fd;
    sh_status status = local ? sh_local_ranks_add(children, &ranks, &fd, NULL, err)
                             : sh_children_add(children, &engine, err);
    sh_role_env_free(env);
    free(argv);
    free(model);
    free(socket);
    return status;
}

static sh_status api_start(const struct server *v, sh_children *children, sh_err *err)
{
    char *model = v->model == NULL ? NULL : sh_asprintf("SHOAL_MODEL=%s", v->model);
    char *socket = sh_asprintf("SHOAL_SOCKET=%s",
                               v->keeper == NULL ? v->socket : sh_model_keeper_socket(v->keeper));
    char *listen = listen_setting(&v->listeners);
    char *control = sh_asprintf("SHOAL_CONTROL_FD=%d", sh_cluster_control_fd(v->control));
    char **env = sh_role_env(ROLE_API,
                             (char *[]){socket, listen, control, "SHOAL_PART=api", model, NULL});
    int fds[SH_LISTENERS_MAX + 2] = {sh_cluster_control_fd(v->control)};
    memcpy(fds + 1, v->listeners.fds, sizeof(int) * (size_t)v->listeners.count);
    char **argv = sh_role_argv(ROLE_API, v->program, v->args->line);
    sh_child_spec api = {
        .name = "api", .argv = argv, .env = env, .policy = SH_CHILD_SERVICE, .keep_fds = fds};
    sh_status status = sh_children_add(children, &api, err);
    sh_role_env_free(env);
    free(argv);
    free(model);
    free(socket);
    free(control);
    free(listen);
    return status;
}

static void on_polled(void *arg)
{
    const struct server *v = arg;
    if (v->keeper != NULL) sh_model_keeper_poll(v->keeper);
    if (v->control != NULL) sh_cluster_control_poll(v->control);
}

static sh_status parts_start(struct server *v, sh_children *children, sh_err *err)
{
    sh_status status = v->model != NULL ? ranks_start(v, children, err)
                                        : sh_model_keeper_open(v->args, v->program, v->folder,
                                                               v->ranks, children, &v->keeper, err);
    bool has_api = !ranks_only(v->args->settings);
    return status == SH_OK && has_api ? api_start(v, children, err) : status;
}

static int supervise(const sh_command_args *args)
{
    const sh_settings *s = args->settings;
    struct server v = {0};
    sh_err err;
    int code = SH_EXIT_OK;
    sh_status status = server_init(&v, args, &err);
    if (status == SH_OK) status = sh_ranks_check_backend(s->backend, "--backend", &err);
    if (status == SH_OK) {
        printf("Shoal %s: %s%s on %d rank%s\n", sh_version(),
               v.model == NULL ? "the models of " : "", v.model == NULL ? s->models_dir : v.model,
               v.ranks, v.ranks == 1 ? "" : "s");
        fflush(stdout);
        if (s->p2p) status = sh_p2p_prepare_server(args, &err);
    }
    if (status == SH_OK) {
        sh_children *children = sh_children_create();
        sh_children_hooks hooks = sh_progress_hooks(s);
        hooks.polled = on_polled;
        hooks.arg = &v;
        sh_children_set_hooks(children, &hooks);
        sh_children_set_frozen(children, s->frozen_after * 1000);
        sh_children_set_notify(children, false);
        status = parts_start(&v, children, &err);
        if (status == SH_OK) code = sh_children_run(children, s->grace * 1000 + STOP_EXTRA_MS);
        sh_children_free(children);
    }
    server_reset(&v);
    return status == SH_OK ? code : sh_command_fail(&err);
}

/* With --rank above 0 (other machines, mpirun, srun) the same command runs a worker. */
static int work(const sh_command_args *args)
{
    sh_settings settings = *args->settings;
    sh_command_args mine = *args;
    char *program = NULL, *model = NULL;
    sh_err err;
    if (args->settings->models_dir != NULL) return sh_command_worker.run(args);
    sh_status status = sh_program_path(&program, &err);
    if (status == SH_OK) status = model_find(args->settings, program, &model, &err);
    settings.model = model;
    mine.settings = &settings;
    int code = status == SH_OK ? sh_command_worker.run(&mine) : sh_command_fail(&err);
    free(program);
    free(model);
    return code;
}

static int serve_run(const sh_command_args *args)
{
    const sh_settings *s = args->settings;
    if (strcmp(s->part, "engine") == 0) return sh_command_engine.run(args);
    if (strcmp(s->part, "api") == 0) return sh_command_api.run(args);
    if (s->rank > 0) return work(args);
    return supervise(args);
}

const sh_command sh_command_serve = {
    SH_COMMAND_NAMED(serve),
    .summary = "serve a model: OpenAI API and dashboard on one port",
    .details = "Without --model it serves the demo model on two local ranks, with --models-dir all "
               "models of a folder, each when it is asked for. It starts the ranks "
               "and the API, restarts whatever crashes, and stops cleanly on Ctrl-C.",
    .run = serve_run,
};
