/* Groups of the library. A wrong argument is an error of the caller alone, found before anything is
 * sent: the group itself goes on. */
#include "base/alloc.h"
#include "cmd/support/ranks.h"
#include "coll/coll.h"
#include "lib/lib_internal.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Groups of the library and ranks of a server that have the same token still refuse each other. */
static const char GROUP_NAME[] = "libshoal";

struct shoal_group {
    sh_group *group;
    bool owns_library;
};

/* MPI and the RDMA devices belong to the process, and so to one group at a time. */
static atomic_bool library_taken;

static sh_status library_take(sh_err *err)
{
    bool free_one = false;
    if (atomic_compare_exchange_strong(&library_taken, &free_one, true)) return SH_OK;
    return sh_err_set(err, SH_ERR_CONFLICT,
                      "another group of this process is open over MPI or RDMA; only one can be");
}

static void library_leave(void)
{
    sh_ranks_leave(true);
    atomic_store(&library_taken, false);
}

static sh_status join(sh_lib_args *args, shoal_group *out, sh_err *err)
{
    sh_ranks ranks;
    sh_status status = sh_lib_args_find_place(args, err);
    if (status == SH_OK) status = sh_ranks_init(&ranks, &args->args, err);
    if (status == SH_OK && ranks.opts.mesh.library != NULL) {
        status = library_take(err);
        out->owns_library = status == SH_OK;
    }
    if (status != SH_OK) return status;
    ranks.opts.mesh.group = GROUP_NAME;
    return sh_group_open(&ranks.opts, &out->group, err);
}

shoal_status shoal_group_open(const shoal_settings *settings, shoal_group **out, shoal_error *error)
{
    sh_err err;
    sh_lib_args args;
    shoal_group *group = sh_alloc(sizeof(*group));
    sh_status status = sh_lib_args_init(&args, settings, &err);
    if (status == SH_OK) status = join(&args, group, &err);
    sh_lib_args_reset(&args);
    if (status == SH_OK)
        *out = group;
    else
        shoal_group_close(group);
    return sh_lib_result(status, &err, error);
}

void shoal_group_close(shoal_group *group)
{
    if (group == NULL) return;
    if (group->group != NULL) sh_group_close(group->group);
    if (group->owns_library) library_leave();
    free(group);
}

int shoal_group_rank(const shoal_group *group)
{
    return sh_group_rank(group->group);
}

int shoal_group_size(const shoal_group *group)
{
    return sh_group_size(group->group);
}

shoal_status shoal_group_set_timeout(shoal_group *group, int64_t ms, shoal_error *error)
{
    sh_err err;
    sh_status status = SH_OK;
    if (ms < 0 || ms > INT32_MAX)
        status = sh_err_set(&err, SH_ERR_INPUT, "a timeout of %lld ms: must be 0 to %d",
                            (long long)ms, INT32_MAX);
    else
        sh_group_set_op_ms(group->group, (int)ms);
    return sh_lib_result(status, &err, error);
}

static sh_status rank_check(const shoal_group *group, int rank, const char *what, sh_err *err)
{
    int size = sh_group_size(group->group);
    if (rank >= 0 && rank < size) return SH_OK;
    return sh_err_set(err, SH_ERR_INPUT, "%s rank %d: must be 0 to %d", what, rank, size - 1);
}

static sh_status other_check(const shoal_group *group, int rank, const char *what, sh_err *err)
{
    sh_status status = rank_check(group, rank, what, err);
    if (status == SH_OK && rank == sh_group_rank(group->group))
        status = sh_err_set(err, SH_ERR_INPUT, "%s rank %d: that is this rank itself", what, rank);
    return status;
}

static sh_status memory_check(const void *memory, size_t count, size_t each, sh_err *err)
{
    if (memory == NULL && count > 0)
        return sh_err_set(err, SH_ERR_INPUT, "the memory is NULL, but not empty");
    if (count > (size_t)PTRDIFF_MAX / each)
        return sh_err_set(err, SH_ERR_INPUT, "%zu values are more than memory can hold", count);
    return SH_OK;
}

shoal_status shoal_barrier(shoal_group *group, shoal_error *error)
{
    sh_err err;
    return sh_lib_result(sh_coll_barrier(group->group, &err), &err, error);
}

shoal_status shoal_broadcast(shoal_group *group, int root, void *data, size_t len,
                             shoal_error *error)
{
    sh_err err;
    sh_status status = rank_check(group, root, "broadcast from", &err);
    if (status == SH_OK) status = memory_check(data, len, 1, &err);
    if (status == SH_OK) status = sh_coll_broadcast(group->group, root, data, len, &err);
    return sh_lib_result(status, &err, error);
}

shoal_status shoal_broadcast_i64(shoal_group *group, int root, int64_t *values, size_t count,
                                 shoal_error *error)
{
    sh_err err;
    sh_status status = memory_check(values, count, sizeof(*values), &err);
    if (status != SH_OK) return sh_lib_result(status, &err, error);
    return shoal_broadcast(group, root, values, count * sizeof(*values), error);
}

shoal_status shoal_all_reduce_f32(shoal_group *group, float *values, size_t count,
                                  shoal_error *error)
{
    sh_err err;
    sh_status status = memory_check(values, count, sizeof(*values), &err);
    if (status == SH_OK && count > 0)
        status = sh_coll_allreduce(group->group, values, 1, count, SH_CODEC_F32, &err);
    return sh_lib_result(status, &err, error);
}

/* Integers travel as pairs of 32-bit numbers, in the layout of f32: its blocks of 32 hold 16 of
 * them, and `coll` only moves the bytes. */
enum { BLOCK_INTS = SH_CODEC_BLOCK * sizeof(float) / sizeof(int64_t) };

typedef struct {
    int64_t *values;
    size_t count;
    shoal_reduction reduction;
} int_vector;

static void *ints_at(void *ctx, size_t block)
{
    return ((int_vector *)ctx)->values + block * BLOCK_INTS;
}

static int64_t combine(shoal_reduction reduction, int64_t a, int64_t b)
{
    if (reduction == SHOAL_MAX) return a > b ? a : b;
    return (int64_t)((uint64_t)a + (uint64_t)b); /* wraps around */
}

/* Parts lie wherever they arrived, aligned or not. `sum` is for what cannot be sent in place. */
static void ints_fold(void *ctx, size_t first, size_t end, const void *const *parts, int count,
                      void *sum)
{
    const int_vector *v = ctx;
    size_t from = first * BLOCK_INTS, to = end * BLOCK_INTS;
    if (to > v->count) to = v->count;
    (void)sum;
    for (size_t i = from; i < to; i++) {
        int64_t all, one;
        memcpy(&all, (const char *)parts[0] + (i - from) * sizeof(all), sizeof(all));
        for (int k = 1; k < count; k++) {
            memcpy(&one, (const char *)parts[k] + (i - from) * sizeof(one), sizeof(one));
            all = combine(v->reduction, all, one);
        }
        v->values[i] = all;
    }
}

shoal_status shoal_all_reduce_i64(shoal_group *group, int64_t *values, size_t count,
                                  shoal_reduction reduction, shoal_error *error)
{
    sh_err err;
    int_vector ints = {values, count, reduction};
    sh_numbers numbers = {.ctx = &ints, .at = ints_at, .fold = ints_fold};
    sh_status status = memory_check(values, count, sizeof(*values), &err);
    if (status == SH_OK && reduction != SHOAL_SUM && reduction != SHOAL_MAX)
        status = sh_err_set(&err, SH_ERR_INPUT, "%d is not a reduction", (int)reduction);
    sh_layout layout = sh_layout_of(SH_CODEC_F32, 1, count * 2);
    if (status == SH_OK && count > 0) status = sh_coll_sum(group->group, &layout, &numbers, &err);
    return sh_lib_result(status, &err, error);
}

shoal_status shoal_all_gather(shoal_group *group, const void *mine, size_t len, void *all,
                              shoal_error *error)
{
    sh_err err;
    size_t lens[SH_RANKS_MAX];
    sh_status status = memory_check(mine, len, SH_RANKS_MAX, &err);
    if (status == SH_OK) status = memory_check(all, len, SH_RANKS_MAX, &err);
    for (int r = 0; r < sh_group_size(group->group); r++) lens[r] = len;
    if (status == SH_OK) status = sh_coll_allgather(group->group, mine, lens, all, &err);
    return sh_lib_result(status, &err, error);
}

shoal_status shoal_send(shoal_group *group, int to, const void *data, size_t len,
                        shoal_error *error)
{
    sh_err err;
    sh_status status = other_check(group, to, "send to", &err);
    if (status == SH_OK) status = memory_check(data, len, 1, &err);
    if (status == SH_OK) status = sh_coll_send(group->group, to, data, len, &err);
    return sh_lib_result(status, &err, error);
}

shoal_status shoal_receive(shoal_group *group, int from, void *data, size_t len, shoal_error *error)
{
    sh_err err;
    sh_status status = other_check(group, from, "receive from", &err);
    if (status == SH_OK) status = memory_check(data, len, 1, &err);
    if (status == SH_OK) status = sh_coll_recv(group->group, from, data, len, &err);
    return sh_lib_result(status, &err, error);
}
