/* From settings to a group of ranks.
 *
 * The same facts (size, own addresses, address of rank 0) can come from several sources. They are
 * applied in order of increasing precedence: settings and device matrix, then the hostfile, then
 * --listen and --coordinator, then MPI for what is still unknown. check_place makes sure at the end
 * that the result is complete, so that a missing setting is an error message and not a timeout. */
#include "cmd/support/ranks.h"

#include "base/log.h"
#include "base/system.h"
#include "cluster/local_ranks.h"
#include "cluster/rendezvous.h"
#include "cmd/support/role.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LEAVE_MS = 10000 };

/* MPI can be initialized only once per process: it is opened on first use and left at the end. */
static sh_mpi *mpi;

static bool given(const sh_command_args *args, const char *name)
{
    return sh_options_given(args->options, name);
}

/* --ranks alone means "here"; with a rank, a hostfile or a coordinator this process is a member. */
bool sh_ranks_must_spawn(const sh_command_args *args)
{
    return args->settings->ranks > 1 && !given(args, "rank") && args->settings->hostfile == NULL &&
           args->settings->coordinator == NULL;
}

/* The token is checked here, so that a bad one is reported once and not by every rank. */
static sh_status spawn(const sh_command_args *args, int *code, sh_err *err)
{
    const sh_settings *s = args->settings;
    sh_status status = s->token == NULL ? SH_OK : sh_cluster_token_check(s->token, err);
    if (status != SH_OK) return status;
    char *program;
    status = sh_program_path(&program, err);
    if (status != SH_OK) return status;
    char **argv = sh_role_argv(ROLE_RANK, program, args->line),
         **env = sh_role_env(ROLE_RANK, NULL);
    sh_local_ranks_spec spec = {
        .argv = argv, .ranks = (int)s->ranks, .token = s->token, .env = env};
    status = sh_local_ranks_run(&spec, code, err);
    sh_role_env_free(env);
    free(argv);
    free(program);
    return status;
}

int sh_ranks_spawn(const sh_command_args *args)
{
    sh_err err;
    int code = SH_EXIT_OK;
    return spawn(args, &code, &err) == SH_OK ? code : sh_command_fail(&err);
}

sh_status sh_ranks_check_backend(const char *name, const char *from, sh_err *err)
{
    static const char *const ring[] = {"", "ring", "any"};
    for (size_t i = 0; i < SH_COUNT_OF(ring); i++)
        if (strcmp(name, ring[i]) == 0) return SH_OK;
    if (sh_transport_find_backend(sh_transports, name) != NULL) return SH_OK;
    return sh_err_set(err, SH_ERR_UNSUPPORTED,
                      "backend '%s' (%s) is not built into this program; use --backend ring", name,
                      from);
}

/* A rank that was started by hand in jaccl's way: only the device matrix gives the size of its
 * group. That backend is not built in, and to serve alone instead would be a surprise, so it is an
 * error unless --backend says otherwise. */
static sh_status devices_world(const sh_command_args *args, int *size, sh_err *err)
{
    const sh_settings *s = args->settings;
    sh_hostfile *file = NULL;
    sh_buf from = {0};
    if (s->ibv_devices == NULL || s->hostfile != NULL || given(args, "ranks") ||
        (!given(args, "rank") && s->coordinator == NULL))
        return SH_OK;
    sh_status status = sh_hostfile_load(s->ibv_devices, &file, err);
    if (status != SH_OK) return status;
    sh_options_origin(args->options, "ibv-devices", &from);
    if (given(args, "backend"))
        *size = file->count;
    else
        status = sh_err_set(err, SH_ERR_UNSUPPORTED,
                            "%s (%s) asks for the jaccl backend between %d ranks, which is not "
                            "built into this program; --backend ring forms the group over TCP",
                            s->ibv_devices, from.ptr, file->count);
    sh_buf_reset(&from);
    sh_hostfile_free(file);
    return status;
}

sh_status sh_ranks_world(const sh_command_args *args, int *size, sh_err *err)
{
    sh_hostfile *file = NULL;
    *size = (int)args->settings->ranks;
    if (args->settings->hostfile == NULL) return devices_world(args, size, err);
    sh_status status = sh_hostfile_load(args->settings->hostfile, &file, err);
    if (status == SH_OK) *size = file->count;
    sh_hostfile_free(file);
    return status;
}

/* A backend has its own transport; in the ring --transport selects one, or auto. */
static void use_backend(sh_mesh_opts *mesh, const char *backend, const char *transport)
{
    mesh->wanted = sh_transport_find_backend(sh_transports, backend);
    if (mesh->wanted == NULL) mesh->wanted = sh_transport_find(sh_transports, transport);
}

/* Takes the addresses of this rank and of rank 0 from the file. */
static sh_status use_hostfile(sh_ranks *ranks, const sh_command_args *args, sh_err *err)
{
    const sh_settings *s = args->settings;
    sh_mesh_opts *mesh = &ranks->opts.mesh;
    sh_hostfile *file;
    sh_addr_list first = {0};
    sh_status status = sh_hostfile_load(s->hostfile, &file, err);
    if (status != SH_OK) return status;
    mesh->size = file->count;
    if (!given(args, "backend")) {
        status = sh_ranks_check_backend(file->backend, s->hostfile, err);
        use_backend(mesh, file->backend, s->transport);
    }
    if (status == SH_OK && file->count > 1 && !given(args, "rank"))
        status = sh_err_set(err, SH_ERR_INPUT,
                            "--hostfile needs --rank, to say which of its %d hosts this is",
                            file->count);
    if (status == SH_OK && given(args, "ranks") && s->ranks != file->count)
        status = sh_err_set(err, SH_ERR_INPUT, "--ranks is %d, but %s has %d hosts", (int)s->ranks,
                            s->hostfile, file->count);
    if (status == SH_OK && mesh->rank >= file->count)
        status = sh_err_set(err, SH_ERR_INPUT, "--rank is %d, but %s has %d hosts", mesh->rank,
                            s->hostfile, file->count);
    if (status == SH_OK && file->count > 1)
        status = sh_hostfile_addresses(file, mesh->rank, SH_HOSTFILE_PORT, &ranks->listen, err);
    if (status == SH_OK && file->count > 1)
        status = sh_hostfile_addresses(file, 0, SH_HOSTFILE_PORT, &first, err);
    if (status == SH_OK && file->count > 1) {
        snprintf(ranks->coordinator, sizeof(ranks->coordinator), "%s", first.text[0]);
        if (first.count > mesh->lanes) mesh->lanes = first.count;
    }
    sh_hostfile_free(file);
    return status;
}

/* --listen replaces the addresses of the hostfile for this rank. */
static sh_status use_listen(sh_ranks *ranks, const char *text, sh_err *err)
{
    sh_str rest = sh_str_of(text);
    sh_str part;
    ranks->listen.count = 0;
    while (sh_str_cut(&rest, ',', &part)) {
        if (part.len >= SH_ADDR_TEXT_MAX || ranks->listen.count == SH_LANES_MAX)
            return sh_err_set(err, SH_ERR_INPUT,
                              "--listen '%s': too long, or more than %d addresses", text,
                              SH_LANES_MAX);
        snprintf(ranks->listen.text[ranks->listen.count++], SH_ADDR_TEXT_MAX, "%.*s", (int)part.len,
                 part.ptr);
    }
    return SH_OK;
}

/* Checks that rank, size and the address of rank 0 are known. A hostfile that lists only a rank's
 * neighbours has an address with port 0 ("198.51.100.1:0") for the others. */
static sh_status check_place(const sh_ranks *ranks, sh_err *err)
{
    char host[SH_ADDR_HOST_MAX];
    uint16_t port;
    if (ranks->opts.mesh.rank >= ranks->opts.mesh.size)
        return sh_err_set(err, SH_ERR_INPUT,
                          "--rank is %d in a group of %d; set the size with --ranks or --hostfile",
                          ranks->opts.mesh.rank, ranks->opts.mesh.size);
    if (ranks->opts.mesh.size == 1 || ranks->opts.mesh.listen_fd >= 0) return SH_OK;
    if (ranks->coordinator[0] == '\0')
        return sh_err_set(err, SH_ERR_INPUT,
                          "--rank needs --coordinator or --hostfile, to find rank 0");
    sh_status status = sh_addr_split(ranks->coordinator, host, &port, err);
    if (status == SH_OK && port == 0)
        return sh_err_set(err, SH_ERR_INPUT,
                          "rank 0 has no port in '%s'; give its address with --coordinator",
                          ranks->coordinator);
    return status;
}

static void use_settings(sh_ranks *ranks, const sh_settings *s)
{
    sh_mesh_opts *mesh = &ranks->opts.mesh;
    mesh->rank = (int)s->rank;
    mesh->size = (int)s->ranks;
    mesh->listen_fd = (int)s->coordinator_fd;
    mesh->token = s->token;
    mesh->insecure = s->insecure;
    mesh->plain_data = s->plain_data;
    mesh->join_ms = (int)s->join_timeout * 1000;
    use_backend(mesh, s->backend, s->transport);
    ranks->opts.silence_ms = (int)s->peer_timeout_ms;
    ranks->opts.op_ms = (int)s->op_timeout * 1000;
    ranks->opts.spin_us = (int)s->spin_us;
    ranks->wire = strcmp(s->wire, "bf16") == 0   ? SH_CODEC_BF16
                  : strcmp(s->wire, "int8") == 0 ? SH_CODEC_INT8
                                                 : SH_CODEC_F32;
}

/* MPI must agree on rank and size. If the address of rank 0 is not set, the ranks agree on one
 * through MPI. */
static sh_status use_mpi(sh_ranks *ranks, const sh_settings *s, sh_err *err)
{
    sh_mesh_opts *mesh = &ranks->opts.mesh;
    sh_rendezvous met = {.fd = -1};
    sh_status status = mpi != NULL ? SH_OK : sh_mpi_open(s->mpi_library, NULL, &mpi, err);
    if (status != SH_OK) return status;
    if (sh_mpi_size(mpi) != mesh->size || sh_mpi_rank(mpi) != mesh->rank)
        return sh_err_set(err, SH_ERR_INPUT,
                          "--backend mpi: %s says rank %d of %d where rank %d of %d is expected; "
                          "start the ranks with its mpirun, or with srun --mpi=pmix or pmi2",
                          sh_mpi_family(mpi), sh_mpi_rank(mpi), sh_mpi_size(mpi), mesh->rank,
                          mesh->size);
    mesh->library = mpi;
    if (ranks->coordinator[0] != '\0' || mesh->size == 1) return SH_OK;
    status = sh_rendezvous_run(mpi, s->token, mesh->join_ms, &met, err);
    if (status != SH_OK) return status;
    snprintf(ranks->coordinator, sizeof(ranks->coordinator), "%s", met.coordinator);
    snprintf(ranks->token, sizeof(ranks->token), "%s", met.token);
    mesh->token = ranks->token;
    mesh->listen_fd = met.fd;
    return SH_OK;
}

/* After a failure other ranks may never arrive, so MPI is left without waiting for them. */
void sh_ranks_leave(bool all_well)
{
    sh_mpi_close(mpi, all_well ? LEAVE_MS : 0);
    mpi = NULL;
}

sh_status sh_ranks_init(sh_ranks *ranks, const sh_command_args *args, sh_err *err)
{
    const sh_settings *s = args->settings;
    sh_mesh_opts *mesh = &ranks->opts.mesh;
    memset(ranks, 0, sizeof(*ranks));
    sh_group_opts_init(&ranks->opts);
    use_settings(ranks, s);
    sh_status status = sh_ranks_check_backend(s->backend, "--backend", err);
    if (status == SH_OK) status = devices_world(args, &mesh->size, err);
    if (status == SH_OK && s->hostfile != NULL) status = use_hostfile(ranks, args, err);
    if (status == SH_OK && s->listen != NULL) status = use_listen(ranks, s->listen, err);
    if (s->coordinator != NULL)
        snprintf(ranks->coordinator, sizeof(ranks->coordinator), "%s", s->coordinator);
    else if (s->ctrl_host != NULL && s->hostfile == NULL) /* a hostfile has rank 0's address */
        snprintf(ranks->coordinator, sizeof(ranks->coordinator),
                 strchr(s->ctrl_host, ':') != NULL ? "[%s]:%d" : "%s:%d", s->ctrl_host,
                 (int)s->ctrl_port);
    if (status == SH_OK && mesh->wanted == &sh_transport_mpi) status = use_mpi(ranks, s, err);
    if (status == SH_OK) status = check_place(ranks, err);
    if (status != SH_OK) return status;
    mesh->coordinator = ranks->coordinator;
    mesh->listen_count = ranks->listen.count;
    for (int i = 0; i < ranks->listen.count; i++) mesh->listen[i] = ranks->listen.text[i];
    if (s->sockets > 0) mesh->lanes = (int)s->sockets;
    if (mesh->size > 1) sh_log_set_rank(mesh->rank);
    return SH_OK;
}
