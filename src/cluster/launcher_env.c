/* Reads the variables that mpirun and srun export. A launcher counts only if both its rank and its
 * size are set: a Slurm batch script, for one, has the rank alone. */
#include "cluster/launcher_env.h"

#include "base/str.h"
#include "net/peer_messages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Below the ephemeral ports of Linux (32768 and up). Job numbers are spread by PORT_STEP, so that
 * the steps of one job and the next jobs do not get the same port. */
enum { PORT_FIRST = 20000, PORT_COUNT = 12000, PORT_STEP = 31 };

typedef struct {
    sh_launcher_kind launcher;
    const char *rank;
    const char *size;
    const char *local_size; /* ranks on this machine; NULL: use `nodes` */
    const char *nodes;
} launcher_row;

/* The order matters: mpirun inside a Slurm job sets its own variables in addition to Slurm's. A
 * Slurm batch script also has SLURM_PROCID, but not the size of a step. */
static const launcher_row LAUNCHERS[] = {
    {SH_LAUNCHER_MPI, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE",
     NULL},
    {SH_LAUNCHER_SLURM, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", NULL, "SLURM_STEP_NUM_NODES"},
    {SH_LAUNCHER_MPI, "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", NULL},
};

static sh_status number_of(const char *name, int64_t min, int64_t max, int64_t *out, sh_err *err)
{
    const char *text = getenv(name);
    if (text == NULL || !sh_str_to_int(sh_str_of(text), out) || *out < min || *out > max)
        return sh_err_set(err, SH_ERR_INPUT, "%s is '%s', not a number from %lld to %lld", name,
                          text == NULL ? "" : text, (long long)min, (long long)max);
    return SH_OK;
}

sh_status sh_nodelist_first(const char *list, char out[SH_ADDR_HOST_MAX], sh_err *err)
{
    size_t len = 0;
    bool open = false, skip = false, bad = false;
    for (const char *c = list; *c != '\0' && (open || *c != ','); c++) {
        if (*c == '[' || *c == ']') {
            bad = bad || open == (*c == '[');
            open = *c == '[';
            skip = false;
        } else if (open && (*c == '-' || *c == ',')) {
            skip = true; /* only the first number of a bracket counts; ignore the rest */
        } else if (!skip && len + 1 < SH_ADDR_HOST_MAX) {
            out[len++] = *c;
        }
    }
    out[len] = '\0';
    if (len == 0 || open || bad)
        return sh_err_set(err, SH_ERR_INPUT, "'%s' is not a node list such as node[01-03,7]", list);
    return SH_OK;
}

/* Rank 0 runs on the first node of the step, so every rank can compute its address alone. */
static sh_status slurm_coordinator(sh_launcher_env *world, sh_err *err)
{
    char host[SH_ADDR_HOST_MAX] = "127.0.0.1";
    int64_t job = 0, step = 0;
    const char *list = getenv("SLURM_STEP_NODELIST");
    if (list == NULL) list = getenv("SLURM_JOB_NODELIST");
    sh_status status = number_of("SLURM_JOB_ID", 0, UINT32_MAX, &job, err);
    if (status == SH_OK) status = number_of("SLURM_STEP_ID", 0, UINT32_MAX, &step, err);
    if (status == SH_OK && !world->one_host)
        status = sh_nodelist_first(list == NULL ? "" : list, host, err);
    if (status != SH_OK) return status;
    snprintf(world->coordinator, sizeof(world->coordinator), "%s:%d", host,
             PORT_FIRST + (int)((job * PORT_STEP + step) % PORT_COUNT));
    return SH_OK;
}

sh_status sh_launcher_env_read(sh_launcher_env *out, sh_err *err)
{
    const launcher_row *row = NULL;
    for (size_t i = 0; i < SH_COUNT_OF(LAUNCHERS) && row == NULL; i++)
        if (getenv(LAUNCHERS[i].rank) != NULL && getenv(LAUNCHERS[i].size) != NULL)
            row = &LAUNCHERS[i];
    sh_launcher_env world = {.size = 1, .one_host = true};
    if (row != NULL) {
        int64_t rank = 0, size = 0, many = 0;
        sh_status status = number_of(row->size, 1, SH_RANKS_MAX, &size, err);
        if (status == SH_OK) status = number_of(row->rank, 0, size - 1, &rank, err);
        const char *hosts = row->nodes != NULL ? row->nodes : row->local_size;
        if (status == SH_OK && getenv(hosts) != NULL)
            status = number_of(hosts, 1, INT32_MAX, &many, err);
        world = (sh_launcher_env){.launcher = row->launcher,
                                  .rank = (int)rank,
                                  .size = (int)size,
                                  .one_host = many == (row->nodes != NULL ? 1 : size)};
        if (status == SH_OK && row->launcher == SH_LAUNCHER_SLURM)
            status = slurm_coordinator(&world, err);
        if (status != SH_OK) return status;
    }
    *out = world;
    return SH_OK;
}
