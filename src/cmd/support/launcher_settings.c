#include "cmd/support/launcher_settings.h"

#include "base/alloc.h"
#include "cluster/launcher_env.h"
#include "cluster/rendezvous.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

enum { LEAVE_MS = 10000 };

/* For this process and for those that it starts. */
static sh_status tell(sh_options *options, const char *name, const char *value, sh_err *err)
{
    setenv(name, value, 1);
    char *pair = sh_asprintf("%s=%s", name, value);
    sh_status status = sh_options_parse_env(options, (char *[]){pair, NULL}, err);
    free(pair);
    return status;
}

static sh_status tell_number(sh_options *options, const char *name, int value, sh_err *err)
{
    char text[16];
    snprintf(text, sizeof(text), "%d", value);
    return tell(options, name, text, err);
}

/* On many systems a machine's own name leads to its loopback, where no other machine gets in. */
static sh_status listen_everywhere(sh_options *options, const sh_launcher_env *world, sh_err *err)
{
    sh_addr addr;
    int count;
    char text[32];
    sh_status status = sh_addr_resolve(world->coordinator, 1, &addr, &count, err);
    if (status != SH_OK || !sh_addr_is_loopback(&addr)) return status;
    snprintf(text, sizeof(text), "0.0.0.0:%d", sh_addr_port(&addr));
    return tell(options, "SHOAL_LISTEN", text, err);
}

static sh_status meet_by_slurm(sh_options *options, const sh_launcher_env *world, sh_err *err)
{
    sh_status status = tell(options, "SHOAL_COORDINATOR", world->coordinator, err);
    if (status == SH_OK && world->rank == 0 && !world->one_host &&
        !sh_options_given(options, "listen"))
        status = listen_everywhere(options, world, err);
    return status;
}

/* MPI is only asked where rank 0 is, and left again: the ring forms anew when a rank was lost, and
 * MPI could not. */
static sh_status meet_by_mpi(sh_options *options, const sh_settings *s, sh_err *err)
{
    sh_mpi *mpi;
    sh_rendezvous met;
    sh_status status = sh_mpi_open(s->mpi_library, NULL, &mpi, err);
    if (status != SH_OK)
        return sh_err_prefix(err, "mpirun does not say where rank 0 is, and --coordinator or "
                                  "--hostfile would");
    status = sh_rendezvous_hold(mpi, s->token, (int)s->join_timeout * 1000, &met, err);
    sh_mpi_close(mpi, status == SH_OK ? LEAVE_MS : 0);
    if (status != SH_OK) return status;
    status = tell(options, "SHOAL_COORDINATOR", met.coordinator, err);
    if (status == SH_OK && s->token == NULL) status = tell(options, "SHOAL_TOKEN", met.token, err);
    if (status == SH_OK && met.fd >= 0)
        status = tell_number(options, "SHOAL_COORDINATOR_FD", met.fd, err);
    return status;
}

/* Open MPI's mpirun that is asked to end twice within five seconds (by `timeout`, say, which tells
 * it and its process group) goes at once and leaves its ranks running. */
static void end_with_launcher(void)
{
#ifdef __linux__
    prctl(PR_SET_PDEATHSIG, SIGTERM);
#endif
}

sh_status sh_launcher_settings_adopt(sh_options *options, const sh_settings *s, sh_err *err)
{
    sh_launcher_env world;
    if (sh_options_given(options, "rank")) return SH_OK;
    sh_status status = sh_launcher_env_read(&world, err);
    if (status != SH_OK || world.size == 1) return status;
    end_with_launcher();
    if (sh_options_given(options, "ranks") && s->ranks != world.size)
        return sh_err_set(err, SH_ERR_INPUT, "--ranks is %lld, but %d were launched",
                          (long long)s->ranks, world.size);
    status = tell_number(options, "SHOAL_RANK", world.rank, err);
    if (status == SH_OK && !sh_options_given(options, "ranks"))
        status = tell_number(options, "SHOAL_RANKS", world.size, err);
    if (status != SH_OK || s->hostfile != NULL || s->coordinator != NULL || s->ctrl_host != NULL ||
        strcmp(s->backend, "mpi") == 0)
        return status;
    return world.launcher == SH_LAUNCHER_SLURM ? meet_by_slurm(options, &world, err)
                                               : meet_by_mpi(options, s, err);
}
