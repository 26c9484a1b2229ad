/* shoal serve: starts and supervises what a server needs, the ranks of the engine and the API in
 * front of them.
 *
 * Each part is this same command line with SHOAL_PART in the environment, so all parts see the same
 * settings, except for secrets that are not theirs (support/role.h). API and engine are separate
 * processes so that the API can be restarted without loading the model again, and so that the
 * process that parses requests of strangers holds no cluster token. */
#include "base/alloc.h"
#include "base/file.h"
#include "base/system.h"
#include "base/version.h"
#include "cluster/local_ranks.h"
#include "cmd/support/demo.h"
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
    char *model;
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

static sh_status server_init(struct server *v, const sh_command_args *args, sh_err *err)
{
    const sh_settings *s = args->settings;
    v->args = args;
    sh_status status = sh_role_program(args->line, &v->program, err);
    if (status == SH_OK) status = model_find(s, v->program, &v->model, err);
    if (status == SH_OK) status = sh_ranks_world(args, &v->ranks, err);
    if (status != SH_OK) return status;
    if (s->model == NULL && !sh_options_given(args->options, "ranks") && s->hostfile == NULL)
        v->ranks = DEMO_RANKS;
    status = sh_listeners_open(s->host, (int)s->port, &v->listeners, err);
    return status == SH_OK ? socket_place(v, s, err) : status;
}

static void server_reset(struct server *v)
{
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

static sh_status parts_start(const struct server *v, sh_children *children, sh_err *err)
{
    const sh_settings *s = v->args->settings;
    char *model = sh_asprintf("SHOAL_MODEL=%s", v->model);
    char *socket = sh_asprintf("SHOAL_SOCKET=%s", v->socket);
    char *listen = listen_setting(&v->listeners);
    char **engine_env = sh_role_env(ROLE_RANK,
                                    (char *[]){model, socket, "SHOAL_PART=engine", NULL}),
         **api_env = sh_role_env(ROLE_API,
                                 (char *[]){model, socket, listen, "SHOAL_PART=api", NULL});
    char **engine_argv = sh_role_argv(ROLE_RANK, v->program, v->args->line),
         **api_argv = sh_role_argv(ROLE_API, v->program, v->args->line);
    bool local = s->hostfile == NULL && s->coordinator == NULL && v->ranks > 1 &&
                 !sh_options_given(v->args->options, "rank");
    const sh_transport *asked = sh_backend_transport(sh_backend_find(s->backend));
    bool forms_again = asked == NULL || !asked->one_life;
    sh_local_ranks_spec ranks = {.argv = engine_argv,
                                 .ranks = v->ranks,
                                 .token = s->token,
                                 .restart = true,
                                 .env = engine_env};
    sh_child_spec engine = {.name = "engine",
                            .argv = engine_argv,
                            .env = engine_env,
                            .policy = forms_again ? SH_CHILD_RANK : SH_CHILD_TASK,
                            .keep_fds = (int[]){(int)s->coordinator_fd, 0}};
    sh_child_spec api = {.name = "api",
                         .argv = api_argv,
                         .env = api_env,
                         .policy = SH_CHILD_SERVICE,
                         .keep_fds = v->listeners.fds};
    sh_status status = local ? sh_local_ranks_add(children, &ranks, err)
                             : sh_children_add(children, &engine, err);
    if (status == SH_OK) status = sh_children_add(children, &api, err);
    sh_role_env_free(engine_env);
    sh_role_env_free(api_env);
    free(engine_argv);
    free(api_argv);
    free(model);
    free(socket);
    free(listen);
    return status;
}

static int supervise(const sh_command_args *args)
{
    const sh_settings *s = args->settings;
    struct server v = {0};
    sh_err err;
    int code = SH_EXIT_OK;
    sh_status status = server_init(&v, args, &err);
    if (status == SH_OK) {
        printf("Shoal %s: %s on %d rank%s\n", sh_version(), v.model, v.ranks,
               v.ranks == 1 ? "" : "s");
        fflush(stdout);
        sh_children *children = sh_children_create();
        sh_children_hooks hooks = sh_progress_hooks(s);
        sh_children_set_hooks(children, &hooks);
        sh_children_set_frozen(children, s->frozen_after * 1000);
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
    .details = "Without --model it serves the demo model on two local ranks. It starts the ranks "
               "and the API, restarts whatever crashes, and stops cleanly on Ctrl-C.",
    .run = serve_run,
};
