/* Turns what mpirun or srun export into settings. They go through the environment and the ordinary
 * option parser, so that they are checked, shown by --print-config, and inherited like any other
 * setting. */
#include "cmd/support/launcher_settings.h"

#include "base/alloc.h"
#include "cluster/backend.h"
#include "cluster/launcher_env.h"
#include "cluster/rendezvous.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

enum { LEAVE_MS = 10000 };

/* Where settings go. */
typedef struct {
    sh_options *options;
    bool inherited; /* also by the processes that this one starts */
} target;

static sh_status setting_export(const target *to, const char *name, const char *value, sh_err *err)
{
    if (to->inherited) setenv(name, value, 1);
    char *pair = sh_asprintf("%s=%s", name, value);
    sh_status status = sh_options_parse_env(to->options, (char *[]){pair, NULL}, err);
    free(pair);
    return status;
}

static sh_status number_export(const target *to, const char *name, int value, sh_err *err)
{
    char text[16];
    snprintf(text, sizeof(text), "%d", value);
    return setting_export(to, name, text, err);
}

/* On many systems a machine's own name resolves to loopback, which other machines cannot reach. If
 * so, rank 0 listens on all addresses. */
static sh_status listen_everywhere(const target *to, const sh_launcher_env *world, sh_err *err)
{
    sh_addr addr;
    int count;
    char text[32];
    sh_status status = sh_addr_resolve(world->coordinator, 1, &addr, &count, err);
    if (status != SH_OK || !sh_addr_is_loopback(&addr)) return status;
    snprintf(text, sizeof(text), "0.0.0.0:%d", sh_addr_port(&addr));
    return setting_export(to, "SHOAL_LISTEN", text, err);
}

/* Slurm exports enough for every rank to compute the address of rank 0 on its own. */
static sh_status coordinator_from_slurm(const target *to, const sh_launcher_env *world, sh_err *err)
{
    sh_status status = setting_export(to, "SHOAL_COORDINATOR", world->coordinator, err);
    if (status == SH_OK && world->rank == 0 && !world->one_host &&
        !sh_options_given(to->options, "listen"))
        status = listen_everywhere(to, world, err);
    return status;
}

/* MPI is used only to find rank 0 and is left again at once: the ring can form again after a rank
 * was lost, MPI cannot. */
static sh_status coordinator_from_mpi(const target *to, const sh_settings *s, sh_err *err)
{
    sh_mpi *mpi;
    sh_rendezvous met;
    sh_status status = sh_mpi_open(s->mpi_library, NULL, &mpi, err);
    if (status != SH_OK)
        return sh_err_prefix(err, "mpirun does not say where rank 0 is (--coordinator or "
                                  "--hostfile would)");
    status = sh_rendezvous_run(mpi, s->token, (int)s->join_timeout * 1000, &met, err);
    sh_mpi_close(mpi, status == SH_OK ? LEAVE_MS : 0);
    if (status != SH_OK) return status;
    status = setting_export(to, "SHOAL_COORDINATOR", met.coordinator, err);
    if (status == SH_OK && s->token == NULL)
        status = setting_export(to, "SHOAL_TOKEN", met.token, err);
    if (status == SH_OK && met.fd >= 0)
        status = number_export(to, "SHOAL_COORDINATOR_FD", met.fd, err);
    return status;
}

/* Asks the kernel for SIGTERM when mpirun dies. If Open MPI's mpirun gets two signals to stop
 * within five seconds (`timeout` sends one to it and one to its process group), it exits at once
 * and leaves its ranks running. */
static void end_with_launcher(void)
{
#ifdef __linux__
    prctl(PR_SET_PDEATHSIG, SIGTERM);
#endif
}

/* --rank means that the user does the launcher's work. With --backend mpi the ranks meet later, on
 * the MPI that they keep (support/ranks.c). */
sh_status sh_launcher_settings_adopt(sh_options *options, const sh_settings *s, bool own_process,
                                     sh_err *err)
{
    const target all = {options, own_process}, *to = &all;
    sh_launcher_env world;
    if (sh_options_given(options, "rank")) return SH_OK;
    sh_status status = sh_launcher_env_read(&world, err);
    if (status != SH_OK || world.size == 1) return status;
    if (own_process) end_with_launcher();
    if (sh_options_given(options, "ranks") && s->ranks != world.size)
        return sh_err_set(err, SH_ERR_INPUT, "--ranks is %lld, but %d ranks were launched",
                          (long long)s->ranks, world.size);
    status = number_export(to, "SHOAL_RANK", world.rank, err);
    if (status == SH_OK && !sh_options_given(options, "ranks"))
        status = number_export(to, "SHOAL_RANKS", world.size, err);
    if (status != SH_OK || s->hostfile != NULL || s->coordinator != NULL || s->ctrl_host != NULL ||
        sh_backend_find(s->backend)->own_launcher)
        return status;
    return world.launcher == SH_LAUNCHER_SLURM ? coordinator_from_slurm(to, &world, err)
                                               : coordinator_from_mpi(to, s, err);
}
