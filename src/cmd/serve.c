/* shoal serve: starts and watches everything that a server needs: the ranks of the engine and the
 * API in front.
 *
 * Each part is this same command line with --part in the environment, so that all parts see the
 * same settings. */
#include "base/alloc.h"
#include "base/version.h"
#include "cluster/local.h"
#include "cmd/demo.h"
#include "cmd/ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DEMO_RANKS = 2, STOP_EXTRA_MS = 5000 };

struct server {
    const sh_command_args *args;
    char *program;
    char **argv;
    char *model;
    char *socket;
    int ranks;
};

/* The model that is served, owned by the caller: the demo model unless another was given. That one
 * as it was given: the parts look for it themselves and find the same. */
static sh_status model_find(const sh_settings *s, const char *program, char **out, sh_err *err)
{
    char *model = s->model != NULL ? sh_strdup(s->model_given) : sh_demo_find(program);
    if (model == NULL)
        return sh_err_set(err, SH_ERR_NOT_FOUND,
                          "the demo model is not here; --model DIR names another");
    *out = model;
    return SH_OK;
}

static char *socket_path(const sh_settings *s)
{
    const char *dir = s->runtime_dir != NULL ? s->runtime_dir : "/tmp";
    return s->socket != NULL ? sh_strdup(s->socket)
                             : sh_asprintf("%s/shoal-%ld.sock", dir, (long)getpid());
}

static sh_status server_init(struct server *v, const sh_command_args *args, sh_err *err)
{
    const sh_settings *s = args->settings;
    v->args = args;
    sh_status status = sh_program_path(&v->program, err);
    if (status == SH_OK) status = model_find(s, v->program, &v->model, err);
    if (status != SH_OK) return status;
    v->ranks = (int)s->ranks;
    if (s->model == NULL && !sh_options_given(args->options, "ranks") && s->hostfile == NULL)
        v->ranks = DEMO_RANKS;
    v->socket = socket_path(s);
    size_t count = 0;
    while (args->line[count] != NULL) count++;
    v->argv = sh_alloc_array(count + 1, sizeof(*v->argv));
    for (size_t i = 1; i < count; i++) v->argv[i] = args->line[i];
    v->argv[0] = v->program;
    return SH_OK;
}

static void server_reset(struct server *v)
{
    free(v->program);
    free(v->argv);
    free(v->model);
    free(v->socket);
}

static sh_status parts_start(const struct server *v, sh_children *children, sh_err *err)
{
    const sh_settings *s = v->args->settings;
    char *model = sh_asprintf("SHOAL_MODEL=%s", v->model);
    char *socket = sh_asprintf("SHOAL_SOCKET=%s", v->socket);
    char *engine_env[] = {model, socket, "SHOAL_PART=engine", NULL};
    char *api_env[] = {model, socket, "SHOAL_PART=api", NULL};
    bool local = s->hostfile == NULL && s->coordinator == NULL && v->ranks > 1 &&
                 !sh_options_given(v->args->options, "rank");
    bool forms_again = strcmp(s->backend, "mpi") != 0; /* otherwise the job ends with a rank */
    sh_local_spec ranks = {
        .argv = v->argv, .ranks = v->ranks, .token = s->token, .restart = true, .env = engine_env};
    sh_child_spec engine = {.name = "engine",
                            .argv = v->argv,
                            .env = engine_env,
                            .restart = forms_again,
                            .waits_code = SH_EXIT_PEER,
                            .tells = true,
                            .keep_fd = (int)s->coordinator_fd};
    sh_child_spec api = {
        .name = "api", .argv = v->argv, .env = api_env, .restart = true, .reloads = true};
    sh_status status = local ? sh_local_add(children, &ranks, err)
                             : sh_children_add(children, &engine, err);
    if (status == SH_OK) status = sh_children_add(children, &api, err);
    free(model);
    free(socket);
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
        status = parts_start(&v, children, &err);
        if (status == SH_OK) code = sh_children_run(children, s->grace * 1000 + STOP_EXTRA_MS);
        sh_children_free(children);
        unlink(v.socket);
    }
    server_reset(&v);
    return status == SH_OK ? code : sh_command_fail(&err);
}

/* On other machines, and under mpirun or srun, the same command is a worker. */
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
    int code = status == SH_OK ? sh_cmd_worker(&mine) : sh_command_fail(&err);
    free(program);
    free(model);
    return code;
}

int sh_cmd_serve(const sh_command_args *args)
{
    const sh_settings *s = args->settings;
    if (strcmp(s->part, "engine") == 0) return sh_cmd_engine(args);
    if (strcmp(s->part, "api") == 0) return sh_cmd_api(args);
    if (s->rank > 0) return work(args);
    return supervise(args);
}
