/* Sums numbers over all ranks of a group. Start it on several hosts, or several times on this one:
 *
 *     shoal launch --hostfile hosts.json -- ./all_reduce
 *     shoal launch --ranks 3 -- ./all_reduce 1000000
 *     mpirun -n 3 ./all_reduce
 *
 * The argument is how many numbers each rank has. */
#include <shoal.h>
#include <stdio.h>
#include <stdlib.h>

/* Each rank contributes its rank + 1, so the sum of 3 ranks is 6. */
static int sum(shoal_group *group, size_t count, shoal_error *err)
{
    int rank = shoal_group_rank(group), size = shoal_group_size(group);
    float *values = malloc(count * sizeof(*values));
    int64_t largest = rank;
    if (values == NULL) return 1;
    for (size_t i = 0; i < count; i++) values[i] = (float)(rank + 1);
    int failed = shoal_all_reduce_f32(group, values, count, err) != SHOAL_OK ||
                 shoal_all_reduce_i64(group, &largest, 1, SHOAL_MAX, err) != SHOAL_OK;
    if (!failed)
        printf("rank %d of %d: the sum is %g, the last rank is %lld\n", rank, size,
               (double)values[count - 1], (long long)largest);
    free(values);
    return failed;
}

int main(int argc, char **argv)
{
    shoal_error err;
    shoal_group *group;
    long count = argc > 1 ? atol(argv[1]) : 1000;
    if (count < 1 || count > 100000000) {
        fprintf(stderr, "usage: all_reduce [COUNT], from 1 to 100000000\n");
        return 2;
    }
    if (shoal_group_open(NULL, &group, &err) != SHOAL_OK) {
        fprintf(stderr, "all_reduce: %s\n", err.text);
        return 1;
    }
    int failed = sum(group, (size_t)count, &err);
    if (failed) fprintf(stderr, "all_reduce: %s\n", err.text);
    shoal_group_close(group);
    return failed;
}
