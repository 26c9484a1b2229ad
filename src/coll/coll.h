/* coll.h - collective and point-to-point operations of a group.
 *
 * All ranks of the group call the same operation with the same sizes; sh_coll_send and sh_coll_recv
 * involve two ranks. A call returns when this rank's part is complete and its memory can be reused.
 * On an error the group has failed (see coll/group.h) and the outputs are undefined.
 *
 * Threads: the owner of the group. */
#ifndef SH_COLL_COLL_H
#define SH_COLL_COLL_H

#include "base/buf.h"
#include "base/clock.h"
#include "coll/group.h"
#include "kernels/codec.h"

/* Numbers to be summed, wherever they are. Ranks exchange them as blocks of a layout
 * (kernels/codec.h); the owner of the numbers converts and adds them, `coll` only moves the bytes.
 */
typedef struct {
    void *ctx;
    /* Where the encoding of a block lies, if the numbers can be sent and received in place; NULL if
     * not, for all blocks alike. */
    void *(*at)(void *ctx, size_t block);
    void (*encode)(void *ctx, size_t first, size_t end, void *wire);
    /* Sets blocks [first, end) to the sum of `count` encoded parts, added in order. With `sum`,
     * also writes the encoding of the sum there, and rounds the numbers to what it says. */
    void (*fold)(void *ctx, size_t first, size_t end, const void *const *parts, int count,
                 void *sum);
    void (*decode)(void *ctx, size_t first, size_t end, const void *wire);
    void *staging; /* SH_STAGING_LEN bytes for what is in transit; NULL: the group's own */
} sh_numbers;

/* The numbers become the sum over all ranks, added in rank order at every size: the same bits on
 * all ranks, however long the vector is. */
SH_MUST_CHECK sh_status sh_coll_sum(sh_group *group, const sh_layout *layout,
                                    const sh_numbers *numbers, sh_err *err);

/* The same for x [rows, cols] in host memory. With bf16 or int8 every rank's part is rounded before
 * it is added, this rank's own too, and the sum is rounded once more. */
SH_MUST_CHECK sh_status sh_coll_allreduce(sh_group *group, float *x, size_t rows, size_t cols,
                                          sh_codec codec, sh_err *err);

/* all = the blocks of all ranks, in order; lens[r] is the length of rank r's. `mine` may be this
 * rank's block inside `all`. */
SH_MUST_CHECK sh_status sh_coll_allgather(sh_group *group, const void *mine, const size_t *lens,
                                          void *all, sh_err *err);

/* The same, but only rank `root` gets the result; others pass NULL for all. */
SH_MUST_CHECK sh_status sh_coll_gather(sh_group *group, int root, const void *mine,
                                       const size_t *lens, void *all, sh_err *err);

/* Copies data of rank `root` to all ranks. */
SH_MUST_CHECK sh_status sh_coll_broadcast(sh_group *group, int root, void *data, size_t len,
                                          sh_err *err);

/* The same if only the root knows the length: the others get buf filled with at most max_len bytes.
 * The deadline is the caller's, since ranks may have to wait for work without a limit. */
SH_MUST_CHECK sh_status sh_coll_broadcast_buf(sh_group *group, int root, sh_buf *buf,
                                              size_t max_len, sh_deadline deadline, sh_err *err);

/* Returns when all ranks have called it. */
SH_MUST_CHECK sh_status sh_coll_barrier(sh_group *group, sh_err *err);

SH_MUST_CHECK sh_status sh_coll_send(sh_group *group, int to, const void *data, size_t len,
                                     sh_err *err);
SH_MUST_CHECK sh_status sh_coll_recv(sh_group *group, int from, void *data, size_t len,
                                     sh_err *err);

/* Posts a receive for the next message of `from`, ahead of time. It is received during any
 * operation of this rank in the group from now on, so that `from` never waits for a rank that waits
 * for it. Messages arrive in the order in which they were posted; `data` must stay valid until this
 * one has arrived or the group is closed. The result identifies it for the functions below. */
uint64_t sh_coll_expect(sh_group *group, int from, void *data, size_t len);
bool sh_coll_has_come(const sh_group *group, int from, uint64_t message);
SH_MUST_CHECK sh_status sh_coll_await(sh_group *group, int from, uint64_t message, sh_err *err);

#endif
