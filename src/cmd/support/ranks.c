/* From settings to a group of ranks.
 *
 * The same facts (size, own addresses, address of rank 0) can come from several sources. They are
 * applied in order of increasing precedence: settings and device matrix, then the hostfile, then
 * --listen and --coordinator, then MPI for what is still unknown. check_place makes sure at the end
 * that the result is complete, so that a missing setting is an error message and not a timeout.
 *
 * The backend is the one of --backend, else that of the hostfile; a device matrix without either
 * means jaccl, since that is how MLX's launcher starts the ranks of that backend. */
#include "cmd/support/ranks.h"

#include "base/hash.h"
#include "base/log.h"
#include "base/system.h"
#include "cluster/node_id.h"
#include "cluster/rendezvous.h"
#include "cmd/support/p2p.h"
#include "cmd/support/rdma_library.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LEAVE_MS = 10000 };

/* MPI can be initialized only once per process: it is opened on first use and left at the end. */
static sh_mpi *mpi;

/* The files that describe a group; NULL for those that were not given. */
typedef struct {
    sh_hostfile *hosts;  /* --hostfile */
    sh_hostfile *matrix; /* --ibv-devices */
    sh_buf matrix_from;  /* where that setting came from, for errors */
} group_files;

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

sh_status sh_ranks_check_backend(const char *name, const char *from, sh_err *err)
{
    const sh_backend *backend = sh_backend_find(name);
    if (backend == NULL)
        return sh_err_set(err, SH_ERR_INPUT, "'%s' (%s) is not a backend; use --backend ring", name,
                          from);
    if (sh_backend_is_built_in(backend)) return SH_OK;
    return sh_err_set(err, SH_ERR_UNSUPPORTED,
                      "backend '%s' (%s) is not built into this program; use --backend ring", name,
                      from);
}

static sh_status files_load(group_files *files, const sh_command_args *args, sh_err *err)
{
    const sh_settings *s = args->settings;
    sh_status status = SH_OK;
    sh_options_origin(args->options, "ibv-devices", &files->matrix_from);
    if (s->hostfile != NULL) status = sh_hostfile_load(s->hostfile, &files->hosts, err);
    if (status == SH_OK && s->ibv_devices != NULL)
        status = sh_hostfile_load_matrix(s->ibv_devices, files->matrix_from.ptr, &files->matrix,
                                         err);
    return status;
}

static void files_reset(group_files *files)
{
    sh_hostfile_free(files->hosts);
    sh_hostfile_free(files->matrix);
    sh_buf_reset(&files->matrix_from);
}

/* A rank that was started by hand in jaccl's way: only the matrix gives the size of its group. To
 * serve alone because a variable is missing would be a surprise, so that is an error. */
static sh_status matrix_world(const sh_command_args *args, const sh_hostfile *matrix, int *size,
                              sh_err *err)
{
    if (matrix == NULL || given(args, "ranks")) return SH_OK;
    if (matrix->count > 1 && !given(args, "rank") && args->settings->coordinator == NULL)
        return sh_err_set(err, SH_ERR_INPUT,
                          "--ibv-devices is for one of %d ranks: say which with --rank (MLX_RANK), "
                          "and where rank 0 is with --coordinator (MLX_JACCL_COORDINATOR)",
                          matrix->count);
    *size = matrix->count;
    return SH_OK;
}

/* A rank that is added to a running group gets everything from rank 0. */
static sh_status check_join(const sh_command_args *args, sh_err *err)
{
    static const char *const others[] = {"hostfile", "ranks", "coordinator", "ibv-devices"};
    for (size_t i = 0; i < SH_COUNT_OF(others); i++)
        if (given(args, others[i]))
            return sh_err_set(err, SH_ERR_INPUT,
                              "--join and --%s: a rank is added to a group, or one of its start",
                              others[i]);
    return SH_OK;
}

static sh_status world_of(const sh_command_args *args, const group_files *files, int *size,
                          sh_err *err)
{
    *size = (int)args->settings->ranks;
    if (args->settings->join != NULL) {
        *size = 0;
        return check_join(args, err);
    }
    if (files->hosts == NULL && files->matrix == NULL && !given(args, "ranks") &&
        args->settings->coordinator != NULL)
        return sh_err_set(err, SH_ERR_INPUT,
                          "--coordinator (MLX_JACCL_COORDINATOR) is for a group, but nothing says "
                          "how many ranks it has; give --ranks, --hostfile or --ibv-devices");
    if (files->hosts == NULL) return matrix_world(args, files->matrix, size, err);
    *size = files->hosts->count;
    return SH_OK;
}

sh_status sh_ranks_world(const sh_command_args *args, int *size, sh_err *err)
{
    group_files files = {0};
    sh_status status = files_load(&files, args, err);
    if (status == SH_OK) status = world_of(args, &files, size, err);
    files_reset(&files);
    return status;
}

static sh_status backend_choose(const sh_command_args *args, const group_files *files,
                                const sh_backend **out, sh_err *err)
{
    const sh_settings *s = args->settings;
    const char *name = s->backend, *from = "--backend";
    if (!given(args, "backend") && files->hosts != NULL && files->hosts->backend[0] != '\0') {
        name = files->hosts->backend;
        from = s->hostfile;
    } else if (!given(args, "backend") && files->matrix != NULL) {
        name = s->jaccl_ring ? "jaccl-ring" : "jaccl";
        from = files->matrix_from.ptr;
    }
    *out = sh_backend_find(name);
    return sh_ranks_check_backend(name, from, err);
}

/* A backend has its own transport; in the ring --transport selects one, or auto. */
static void use_backend(sh_mesh_opts *mesh, const sh_backend *backend, const char *transport)
{
    mesh->wanted = sh_backend_transport(backend);
    if (mesh->wanted == NULL) mesh->wanted = sh_transport_find(sh_transports, transport);
}

/* Which devices reach which rank: from the matrix, else from the hostfile. Without either, any
 * active device will do. */
static sh_status check_devices(const sh_mesh_opts *mesh, const group_files *files,
                               const sh_backend *backend, sh_err *err)
{
    const sh_hostfile *source = files->matrix != NULL ? files->matrix : files->hosts;
    if (source == NULL || !sh_hostfile_has_devices(source)) return SH_OK;
    if (source->count != mesh->size)
        return sh_err_set(err, SH_ERR_INPUT, "%s: devices of %d ranks, but the group has %d",
                          source->where, source->count, mesh->size);
    if (backend->devices != SH_DEVICES_NOWHERE)
        return sh_hostfile_check_devices(source, backend, err);
    if (mesh->rank == 0 && sh_backend_is_built_in(sh_backend_find("jaccl")))
        SH_LOGI("%s names RDMA devices; --backend jaccl would use them", source->where);
    return SH_OK;
}

/* Takes the addresses of this rank and of rank 0 from the file. */
static sh_status use_hostfile(sh_ranks *ranks, const sh_command_args *args, const sh_hostfile *file,
                              sh_err *err)
{
    const sh_settings *s = args->settings;
    sh_mesh_opts *mesh = &ranks->opts.mesh;
    sh_addr_list first = {0};
    sh_status status = SH_OK;
    if (file->count > 1 && !given(args, "rank"))
        return sh_err_set(err, SH_ERR_INPUT,
                          "--hostfile needs --rank, to say which of its %d hosts this is",
                          file->count);
    if (given(args, "ranks") && s->ranks != file->count)
        return sh_err_set(err, SH_ERR_INPUT, "--ranks is %d, but %s has %d hosts", (int)s->ranks,
                          s->hostfile, file->count);
    if (mesh->rank >= file->count)
        return sh_err_set(err, SH_ERR_INPUT, "--rank is %d, but %s has %d hosts", mesh->rank,
                          s->hostfile, file->count);
    if (file->count == 1) return SH_OK;
    status = sh_hostfile_addresses(file, mesh->rank, SH_HOSTFILE_PORT, &ranks->listen, err);
    if (status == SH_OK) status = sh_hostfile_addresses(file, 0, SH_HOSTFILE_PORT, &first, err);
    if (status != SH_OK) return status;
    snprintf(ranks->coordinator, sizeof(ranks->coordinator), "%s", first.text[0]);
    if (first.count > mesh->lanes) mesh->lanes = first.count;
    return SH_OK;
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
    if (ranks->opts.mesh.size > 0 && ranks->opts.mesh.rank >= ranks->opts.mesh.size)
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
    mesh->listen_fd = (int)s->coordinator_fd;
    mesh->token = s->token;
    mesh->insecure = s->insecure;
    mesh->plain_data = s->plain_data;
    mesh->join_ms = (int)s->join_timeout * 1000;
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

/* The library opens the devices that the matrix, or else the hostfile, names for this rank. */
static sh_status use_rdma(sh_ranks *ranks, const group_files *files, const sh_backend *backend,
                          sh_err *err)
{
    sh_mesh_opts *mesh = &ranks->opts.mesh;
    return sh_rdma_library_open(files->matrix != NULL ? files->matrix : files->hosts, mesh->rank,
                                backend->devices == SH_DEVICES_NEIGHBOURS, &mesh->library, err);
}

/* After a failure other ranks may never arrive, so MPI is left without waiting for them. */
void sh_ranks_leave(bool all_well)
{
    sh_mpi_close(mpi, all_well ? LEAVE_MS : 0);
    mpi = NULL;
    sh_rdma_library_close();
}

/* Ranks that find each other by a token. */
static sh_status use_p2p(sh_ranks *ranks, const sh_settings *s, const group_files *files,
                         const sh_backend *backend, sh_err *err)
{
    if (backend->own_launcher)
        return sh_err_set(err, SH_ERR_INPUT,
                          "--p2p and --backend %s: its launcher places the ranks", s->backend);
    sh_status status = sh_p2p_use(ranks, s, err);
    if (status == SH_OK && backend->devices != SH_DEVICES_NOWHERE)
        status = use_rdma(ranks, files, backend, err);
    return status;
}

/* What files and settings say about the group, in order of increasing precedence. */
static sh_status group_describe(sh_ranks *ranks, const sh_command_args *args, group_files *files,
                                sh_err *err)
{
    const sh_settings *s = args->settings;
    sh_mesh_opts *mesh = &ranks->opts.mesh;
    const sh_backend *backend;
    sh_status status = files_load(files, args, err);
    if (status == SH_OK) status = backend_choose(args, files, &backend, err);
    if (status == SH_OK) status = world_of(args, files, &mesh->size, err);
    if (status != SH_OK) return status;
    use_backend(mesh, backend, s->transport);
    ranks->grows = s->p2p && mesh->rank == 0;
    if (s->p2p) return use_p2p(ranks, s, files, backend, err);
    if (files->hosts != NULL) status = use_hostfile(ranks, args, files->hosts, err);
    if (status == SH_OK) status = check_devices(mesh, files, backend, err);
    if (status == SH_OK && s->listen != NULL) status = use_listen(ranks, s->listen, err);
    if (s->coordinator != NULL || s->join != NULL)
        snprintf(ranks->coordinator, sizeof(ranks->coordinator), "%s",
                 s->join != NULL ? s->join : s->coordinator);
    else if (s->ctrl_host != NULL && s->hostfile == NULL) /* a hostfile has rank 0's address */
        snprintf(ranks->coordinator, sizeof(ranks->coordinator),
                 strchr(s->ctrl_host, ':') != NULL ? "[%s]:%d" : "%s:%d", s->ctrl_host,
                 (int)s->ctrl_port);
    if (status == SH_OK && backend->own_launcher) status = use_mpi(ranks, s, err);
    if (status == SH_OK) status = check_place(ranks, err);
    ranks->grows = mesh->size == 1 && s->coordinator != NULL;
    if (status == SH_OK && s->join != NULL && !given(args, "rank")) mesh->rank = SH_RANK_ANY;
    if (status == SH_OK && backend->devices != SH_DEVICES_NOWHERE && mesh->size != 1)
        status = use_rdma(ranks, files, backend, err);
    return status;
}

/* A rank without a number keeps the one that it gets, by the id of its machine, or by the name that
 * its agent gives it in all its lives; without either it has one life. */
static sh_status use_node(sh_mesh_opts *mesh, const sh_settings *s, sh_err *err)
{
    sh_random(&mesh->life, sizeof(mesh->life));
    if (s->node_file != NULL) return sh_node_id_read(s->node_file, mesh->node, err);
    if (s->node == NULL) return sh_random_bytes(mesh->node, sizeof(mesh->node), err);
    sh_key128 id = sh_hash128((sh_key128){7, 8}, s->node, strlen(s->node));
    memcpy(mesh->node, &id, sizeof(mesh->node));
    return SH_OK;
}

sh_status sh_ranks_init(sh_ranks *ranks, const sh_command_args *args, sh_err *err)
{
    const sh_settings *s = args->settings;
    sh_mesh_opts *mesh = &ranks->opts.mesh;
    group_files files = {0};
    memset(ranks, 0, sizeof(*ranks));
    sh_group_opts_init(&ranks->opts);
    use_settings(ranks, s);
    sh_status status = group_describe(ranks, args, &files, err);
    files_reset(&files);
    if (status != SH_OK) return status;
    mesh->coordinator = ranks->coordinator;
    mesh->listen_count = ranks->listen.count;
    for (int i = 0; i < ranks->listen.count; i++) mesh->listen[i] = ranks->listen.text[i];
    if (s->sockets > 0) mesh->lanes = (int)s->sockets;
    if (mesh->size != 1 && mesh->rank != SH_RANK_ANY) sh_log_set_rank(mesh->rank);
    return use_node(mesh, s, err);
}

bool sh_ranks_form_group(const sh_ranks *ranks)
{
    return ranks->opts.mesh.size != 1 || ranks->grows;
}
