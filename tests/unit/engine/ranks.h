/* ranks.h - helpers for tests of real groups: ranks as processes on loopback, rank 0 in the test.
 */
#ifndef SH_TESTS_ENGINE_RANKS_H
#define SH_TESTS_ENGINE_RANKS_H

#include "base/clock.h"
#include "engine/engine.h"
#include "net/cluster_token.h"
#include "net/sock.h"

#include "test.h"
#include "unit/fenced.h"

#include <stdio.h>
#include <unistd.h>

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

/* Runs a rank until it is told to stop, and ends its process: with 0 if all went well. */
static inline void rank_run(const sh_model_group_opts *with, const sh_group_opts *own)
{
    sh_err err;
    sh_model_group *model_group = NULL;
    sh_group *group = NULL;
    sh_model_group_opts opts = *with;
    if (opts.draws == 0) opts.draws = sh_engine_draws(opts.slots);
    sh_status status = sh_model_group_open(&opts, &model_group, &err);
    if (status == SH_OK) status = sh_group_open(own, &group, &err);
    if (status == SH_OK) status = sh_model_group_join(model_group, group, &err);
    if (status == SH_OK) status = sh_model_group_work(model_group, &err);
    if (status != SH_OK) fprintf(stderr, "rank %d: %s\n", own->mesh.rank, err.text);
    if (group != NULL) sh_group_close(group); /* tells the others, unlike an exit */
    sh_model_group_close(model_group);
    _exit(status == SH_OK ? 0 : 1);
}

/* The same in a process of its own. */
static inline pid_t rank_start(const sh_model_group_opts *with, const sh_group_opts *own)
{
    pid_t pid = fork();
    if (pid == 0) rank_run(with, own);
    return pid;
}

/* Joins again and again with what it has, as `shoal worker` does, until it is told to stop. */
static inline void rank_run_again(sh_model_group *model_group, const sh_group_opts *own,
                                  int limit_ms)
{
    sh_err err;
    sh_deadline give_up = sh_deadline_in_ms(limit_ms);
    while (!sh_deadline_passed(give_up)) {
        sh_group *group = NULL;
        sh_status status = sh_group_open(own, &group, &err);
        if (status == SH_OK) status = sh_model_group_join(model_group, group, &err);
        if (status == SH_OK) status = sh_model_group_work(model_group, &err);
        if (group != NULL) sh_group_close(group);
        if (status == SH_OK) _exit(0);
    }
    _exit(1);
}

static inline void await_state(sh_engine *engine, bool ready, int limit_ms)
{
    sh_deadline limit = sh_deadline_in_ms(limit_ms);
    while (sh_engine_info_of(engine).ready != ready && !sh_deadline_passed(limit)) sh_sleep_ms(2);
    assert_int_equal(sh_engine_info_of(engine).ready, ready);
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
