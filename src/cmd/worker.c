/* shoal worker: keeps one rank other than rank 0 running on its host.
 *
 * The rank is a child process with this same command line and SHOAL_PART=engine, as in `shoal
 * serve`. It is restarted when it crashes, killed when it is frozen, and replaced on SIGUSR2. The
 * first signal to stop is passed on as the wish to leave the group: the rank ends with 0 once the
 * others go on without it, however long that takes. A second signal does not wait. */
#include "base/alloc.h"
#include "cluster/backend.h"
#include "cluster/children.h"
#include "cluster/launcher_env.h"
#include "cmd/command.h"
#include "cmd/support/model_keeper.h"
#include "cmd/support/model_worker.h"
#include "cmd/support/p2p.h"
#include "cmd/support/progress.h"
#include "cmd/support/role.h"
#include "net/cluster_token.h"
#include "net/transport.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* mpirun and srun want to be the parents of their ranks, and a group over MPI has one life. --rank
 * means that the user does the launcher's work. */
static sh_status runs_alone(const sh_command_args *args, bool *alone, sh_err *err)
{
    sh_launcher_env world;
    const sh_transport *asked = sh_backend_transport(sh_backend_find(args->settings->backend));
    bool placed = sh_options_source(args->options, "rank") == SH_FROM_FLAG;
    sh_status status = sh_launcher_env_read(&world, err);
    if (status == SH_OK) *alone = (world.size > 1 && !placed) || (asked != NULL && asked->one_life);
    return status;
}

/* A name for a rank that has no number: by it rank 0 knows a restarted one again. */
static char *node_setting(const sh_settings *s)
{
    char made[SH_CLUSTER_TOKEN_LEN + 1];
    sh_cluster_token_make(made);
    return sh_asprintf("SHOAL_NODE=%s", s->node != NULL ? s->node : made);
}

static sh_status rank_add(sh_children *children, const sh_command_args *args, sh_err *err)
{
    const sh_settings *s = args->settings;
    char *program = NULL;
    sh_status status = sh_role_program(args->line, &program, err);
    if (status != SH_OK) return status;
    const char *named = s->model_given != NULL ? s->model_given : s->model;
    char *model = named == NULL ? NULL : sh_asprintf("SHOAL_MODEL=%s", named);
    char *node = node_setting(s);
    uint64_t role = strcmp(s->shares_from, "hub") == 0 ? ROLE_HUB_RANK : ROLE_RANK;
    char **env = sh_role_env(role, (char *[]){"SHOAL_PART=engine", node, model, NULL});
    char **argv = sh_role_argv(role, program, args->line);
    sh_child_spec spec = {.name = "rank", .argv = argv, .env = env, .policy = SH_CHILD_RANK};
    status = sh_children_add(children, &spec, err);
    sh_role_env_free(env);
    free(argv);
    free(node);
    free(model);
    free(program);
    return status;
}

static int supervise(const sh_command_args *args)
{
    const sh_settings *s = args->settings;
    sh_err err;
    sh_children *children = sh_children_create();
    sh_children_hooks hooks = sh_progress_hooks(s);
    sh_children_set_hooks(children, &hooks);
    sh_children_set_frozen(children, s->frozen_after * 1000);
    sh_children_set_patient(children);
    sh_children_set_notify(children, true);
    sh_status status = rank_add(children, args, &err);
    int code = status == SH_OK ? sh_children_run(children, 0) : sh_command_fail(&err);
    sh_children_free(children);
    return code;
}

/* A rank that finds its server by a token, and gets its number there. */
static int seek_and_work(const sh_command_args *args)
{
    sh_settings settings = *args->settings;
    sh_command_args mine = *args;
    sh_err err;
    settings.p2p = true;
    settings.rank = SH_RANK_ANY;
    mine.settings = &settings;
    if (strcmp(settings.part, "engine") == 0) return sh_command_engine.run(&mine);
    sh_status status = sh_p2p_prepare_worker(&mine, &err);
    return status == SH_OK ? supervise(&mine) : sh_command_fail(&err);
}

/* Users of LocalAI name what kind of worker they want. */
static bool is_kind(const sh_command_args *args, const char *kind)
{
    return args->argc == 1 && strcmp(args->argv[0], kind) == 0;
}

static int worker_run(const sh_command_args *args)
{
    const sh_settings *s = args->settings;
    bool by_token = s->p2p || is_kind(args, "p2p-mlx"), localai = is_kind(args, "mlx-distributed");
    bool alone = false;
    sh_err err;
    if (args->argc == 1 && !by_token && !localai) {
        sh_err_set(&err, SH_ERR_INPUT,
                   "'%s' is not a kind of worker; there are p2p-mlx and mlx-distributed",
                   args->argv[0]);
        return sh_command_fail(&err);
    }
    if (by_token) return seek_and_work(args);
    if (localai && s->rank == 0 && s->join == NULL) return sh_command_localai.run(args);
    sh_status status = runs_alone(args, &alone, &err);
    if (status == SH_OK && s->rank == 0 && s->join == NULL)
        status = sh_err_set(&err, SH_ERR_INPUT,
                            "a worker is rank 1 or higher (rank 0 is `shoal serve`): give --rank R "
                            "with --hostfile or --coordinator, or --join, or --p2p");
    if (status == SH_OK && alone && s->models_dir != NULL)
        status = sh_models_refuse("under mpirun or srun, or with --backend mpi", &err);
    if (status != SH_OK) return sh_command_fail(&err);
    if (s->models_dir != NULL && strcmp(s->part, "engine") != 0) return sh_model_worker_run(args);
    return alone || strcmp(s->part, "engine") == 0 ? sh_command_engine.run(args) : supervise(args);
}

const sh_command sh_command_worker = {
    SH_COMMAND_NAMED(worker),
    .arguments = "[p2p-mlx|mlx-distributed]",
    .args_max = 1,
    .summary = "keep one of the ranks other than rank 0 running",
    .details = "Start workers in any order, on any machine. Without --model a worker gets its "
               "share of the model from rank 0 or the hub (--shares-from), and keeps it "
               "(--shard-cache). It rejoins on its own after the group is lost, and restarts its "
               "rank when that crashes or freezes. Ctrl-C asks the group to go on without it, a "
               "second one does not wait for that; SIGUSR2 replaces the rank by a new process. "
               "With --models-dir it runs ranks of several models, as the server says. `worker "
               "p2p-mlx`, as LocalAI calls it, and --p2p find the server by the token in TOKEN, as "
               "`shoal join` does; `worker mlx-distributed` is what its users type for a rank of a "
               "hostfile.",
    .run = worker_run,
};
