/* ranks.h - helpers for tests of real groups: ranks as processes on loopback, rank 0 in the test.
 */
#ifndef SH_TESTS_ENGINE_RANKS_H
#define SH_TESTS_ENGINE_RANKS_H

#include "engine/engine.h"
#include "net/cluster_token.h"
#include "net/sock.h"

#include "test.h"
#include "unit/fenced.h"

/* A port that is free now; rank 0 starts to listen on it at once. */
static inline int listen_somewhere(char text[SH_ADDR_TEXT_MAX])
{
    sh_err err;
    sh_addr addr;
    int fd = -1;
    CHECK_OK(sh_addr_parse("127.0.0.1:0", &addr, &err), err);
    CHECK_OK(sh_sock_listen(&addr, &fd, &err), err);
    CHECK_OK(sh_sock_local(fd, &addr, &err), err);
    sh_addr_format(&addr, text);
    return fd;
}

static inline sh_group_opts group_opts(int rank, int size, const char *where, int fd,
                                       const char *token)
{
    sh_group_opts opts;
    sh_group_opts_init(&opts);
    opts.mesh.rank = rank;
    opts.mesh.size = size;
    opts.mesh.coordinator = where;
    opts.mesh.listen_fd = rank == 0 ? fd : -1;
    opts.mesh.token = token;
    opts.mesh.join_ms = 20000;
    return opts;
}

/* Submits the request the way a client does, packed into a frame and unpacked again. */
static inline void engine_ask(sh_engine *engine, const sh_sequence_spec *q)
{
    sh_buf bytes = {0};
    sh_submit_message request;
    sh_engine_msg_frame frame;
    sh_err err;
    sh_engine_msg_put_submit(&bytes, q);
    CHECK_OK(sh_engine_msg_next(&bytes, &frame, &err), err);
    CHECK_OK(sh_engine_msg_get_submit(frame.payload, &request, &err), err);
    assert_int_equal(sh_engine_submit(engine, 1, &request), SH_OK);
    sh_buf_reset(&bytes);
}

#endif
