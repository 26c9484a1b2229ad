/* ranks.h - the ranks of a group as threads of one test program.
 *
 * ranks_run starts `size` threads; each fills in its own options for one group and runs the body. A
 * test asserts in its own thread, on what the bodies left behind, since cmocka cannot fail from
 * another. */
#ifndef SH_TESTS_UNIT_RANKS_H
#define SH_TESTS_UNIT_RANKS_H

#include "net/mesh.h"
#include "net/sock.h"

#include "test.h"

#include <pthread.h>

typedef struct {
    int rank;
    int size;
    char coordinator[SH_ADDR_TEXT_MAX];
    int listen_fd; /* of rank 0 */
    void *arg;
    sh_err err; /* what the body left */
    sh_status status;
} ranks_one;

typedef void (*ranks_body)(ranks_one *one);

static const char RANKS_TOKEN[] = "0123456789abcdef0123456789abcdef";

/* A listening loopback socket: rank 0 has its address before the others start. */
static inline int ranks_listen(char text[SH_ADDR_TEXT_MAX])
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

static inline sh_mesh_opts ranks_opts(const ranks_one *one)
{
    sh_mesh_opts opts;
    sh_mesh_opts_init(&opts);
    opts.rank = one->rank;
    opts.size = one->size;
    opts.coordinator = one->coordinator;
    opts.listen_fd = one->rank == 0 ? one->listen_fd : -1;
    opts.join_ms = 20000;
    return opts;
}

typedef struct {
    ranks_one *one;
    ranks_body body;
} ranks_start;

static inline void *ranks_thread(void *arg)
{
    ranks_start *start = arg;
    start->body(start->one);
    return NULL;
}

/* `count` bodies, usually `size`; out has room for them. */
static inline void ranks_run(int size, int count, ranks_body body, void *arg, ranks_one *out)
{
    pthread_t thread[SH_RANKS_MAX];
    ranks_start start[SH_RANKS_MAX];
    char text[SH_ADDR_TEXT_MAX];
    int fd = ranks_listen(text);
    for (int i = 0; i < count; i++) {
        out[i] = (ranks_one){.rank = i, .size = size, .listen_fd = fd, .arg = arg};
        memcpy(out[i].coordinator, text, sizeof(text));
        start[i] = (ranks_start){&out[i], body};
        assert_int_equal(pthread_create(&thread[i], NULL, ranks_thread, &start[i]), 0);
    }
    for (int i = 0; i < count; i++) pthread_join(thread[i], NULL);
}

#endif
