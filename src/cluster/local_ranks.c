#include "cluster/local_ranks.h"

#include "base/alloc.h"
#include "net/cluster_token.h"
#include "net/sock.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    LINGER_MS = 5000, /* longer than it takes to notice a silent rank */
    GRACE_MS = 5000,
    VARS = 6, /* of each rank's own */
};

static sh_status listen_local(int *fd, char text[SH_ADDR_TEXT_MAX], sh_err *err)
{
    sh_addr addr;
    sh_status status = sh_addr_parse("127.0.0.1:0", &addr, err);
    if (status == SH_OK) status = sh_sock_listen(&addr, fd, err);
    if (status != SH_OK) return status;
    status = sh_sock_local(*fd, &addr, err);
    sh_addr_format(&addr, text);
    if (status != SH_OK) sh_sock_close(*fd);
    return status;
}

/* The output of rank 0 is that of the program, unless several models would be mixed up in it. */
static sh_status start_rank(sh_children *children, const sh_local_ranks_spec *spec,
                            const char *coordinator, int rank, int fd, sh_err *err)
{
    char name[96];
    size_t more = 0, count = 0;
    while (spec->env != NULL && spec->env[more] != NULL) more++;
    char **env = sh_alloc_array(VARS + more + 1, sizeof(*env));
    env[count++] = sh_asprintf("SHOAL_RANK=%d", rank);
    env[count++] = sh_asprintf("SHOAL_RANKS=%d", spec->ranks);
    env[count++] = sh_asprintf("SHOAL_COORDINATOR=%s", coordinator);
    env[count++] = sh_asprintf("SHOAL_TOKEN=%s", spec->token);
    env[count++] = sh_asprintf("SHOAL_PLAIN_DATA=true");
    if (rank == 0) env[count++] = sh_asprintf("SHOAL_COORDINATOR_FD=%d", fd);
    size_t own = count;
    for (size_t i = 0; i < more; i++) env[count++] = spec->env[i];
    snprintf(name, sizeof(name), "%.64s%srank %d", spec->model == NULL ? "" : spec->model,
             spec->model == NULL ? "" : " ", rank);
    sh_child_spec child = {.name = name,
                           .argv = spec->argv,
                           .env = env,
                           .policy = spec->policy,
                           .keep_fds = (int[]){rank == 0 ? fd : 0, 0},
                           .capture = rank > 0 || spec->alike || spec->model != NULL,
                           .no_input = spec->alike};
    sh_status status = sh_children_add(children, &child, err);
    for (size_t i = 0; i < own; i++) free(env[i]);
    free(env);
    return status;
}

sh_status sh_local_ranks_add(sh_children *children, const sh_local_ranks_spec *spec, int *fd,
                             int *places, sh_err *err)
{
    char made[SH_CLUSTER_TOKEN_LEN + 1], coordinator[SH_ADDR_TEXT_MAX];
    sh_local_ranks_spec with = *spec;
    if (with.token == NULL) {
        sh_cluster_token_make(made);
        with.token = made;
    }
    sh_status status = listen_local(fd, coordinator, err);
    for (int rank = 0; rank < spec->ranks && status == SH_OK; rank++) {
        status = start_rank(children, &with, coordinator, rank, *fd, err);
        if (places != NULL) places[rank] = sh_children_last(children);
    }
    return status;
}

sh_status sh_local_ranks_run(const sh_local_ranks_spec *spec, int *code, sh_err *err)
{
    sh_children *children = sh_children_create();
    int fd;
    sh_children_set_linger(children, LINGER_MS);
    sh_status status = sh_local_ranks_add(children, spec, &fd, NULL, err);
    if (status == SH_OK) *code = sh_children_run(children, GRACE_MS);
    sh_children_free(children);
    return status;
}
