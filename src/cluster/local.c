#include "cluster/local.h"

#include "base/alloc.h"
#include "cluster/children.h"
#include "net/sock.h"
#include "net/token.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    LINGER_MS = 5000, /* more than a silent rank needs to be noticed */
    GRACE_MS = 5000,
    VARS = 6,
};

static sh_status listen_local(int *fd, char text[SH_ADDR_TEXT_MAX], sh_err *err)
{
    sh_addr addr;
    sh_status status = sh_addr_parse("127.0.0.1:0", &addr, err);
    if (status == SH_OK) status = sh_sock_listen(&addr, fd, err);
    if (status != SH_OK) return status;
    status = sh_sock_local(*fd, &addr, err);
    if (status == SH_OK && fcntl(*fd, F_SETFD, 0) < 0) status = sh_err_sys(err, "descriptor");
    sh_addr_format(&addr, text);
    if (status != SH_OK) sh_sock_close(*fd);
    return status;
}

typedef struct {
    char *const *argv;
    int ranks;
    const char *token;
    char coordinator[SH_ADDR_TEXT_MAX];
} job;

/* fd: the listening socket, for rank 0; -1 for others. */
static sh_status start_rank(sh_children *children, const job *j, int rank, int fd, sh_err *err)
{
    char name[16];
    snprintf(name, sizeof(name), "rank %d", rank);
    char *env[VARS + 1] = {sh_asprintf("SHOAL_RANK=%d", rank),
                           sh_asprintf("SHOAL_RANKS=%d", j->ranks),
                           sh_asprintf("SHOAL_COORDINATOR=%s", j->coordinator),
                           sh_asprintf("SHOAL_TOKEN=%s", j->token),
                           sh_asprintf("SHOAL_PLAIN_DATA=true"),
                           fd < 0 ? NULL : sh_asprintf("SHOAL_COORDINATOR_FD=%d", fd)};
    sh_child_spec spec = {.name = name, .argv = j->argv, .env = env, .prefix = rank > 0};
    sh_status status = sh_children_add(children, &spec, err);
    for (int i = 0; i < VARS; i++) free(env[i]);
    return status;
}

sh_status sh_local_run(char *const *argv, int ranks, const char *token, int *code, sh_err *err)
{
    char made[SH_TOKEN_LEN + 1];
    job j = {.argv = argv, .ranks = ranks, .token = token};
    int fd;
    if (token == NULL) {
        sh_token_make(made);
        j.token = made;
    }
    sh_status status = listen_local(&fd, j.coordinator, err);
    if (status != SH_OK) return status;
    sh_children *children = sh_children_create();
    sh_children_set_linger(children, LINGER_MS);
    status = start_rank(children, &j, 0, fd, err);
    sh_sock_close(fd); /* rank 0 has it now; the others must not */
    for (int rank = 1; rank < ranks && status == SH_OK; rank++)
        status = start_rank(children, &j, rank, -1, err);
    if (status == SH_OK) *code = sh_children_run(children, GRACE_MS);
    sh_children_free(children);
    return status;
}
