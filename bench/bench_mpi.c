/* Times an all-reduce of an MPI library, for comparison with `shoal linktest`.
 *
 *   mpicc.openmpi -O2 -o build/bench_mpi bench/bench_mpi.c
 *   mpirun.openmpi -n 2 --bind-to none --mca btl tcp,self --mca btl_tcp_if_include lo
 * build/bench_mpi 16384 2000
 *
 * Prints the median of ROUNDS MPI_Allreduce calls on BYTES of floats, in microseconds, as measured
 * by the slowest rank. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    int rank, count = (argc > 1 ? atoi(argv[1]) : 16384) / (int)sizeof(float);
    int rounds = argc > 2 ? atoi(argv[2]) : 2000;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    float *x = calloc((size_t)count, sizeof(*x)), *sum = calloc((size_t)count, sizeof(*sum));
    double *took = calloc((size_t)rounds, sizeof(*took));
    if (x == NULL || sum == NULL || took == NULL) MPI_Abort(MPI_COMM_WORLD, 1);
    for (int i = -rounds / 10; i < rounds; i++) {
        double start = MPI_Wtime();
        MPI_Allreduce(x, sum, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        if (i >= 0) took[i] = MPI_Wtime() - start;
    }
    qsort(took, (size_t)rounds, sizeof(*took), by_value);
    double median = took[rounds / 2] * 1e6, slowest;
    MPI_Reduce(&median, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("%zu bytes: all-reduce %.2f us\n", (size_t)count * sizeof(float), slowest);
    MPI_Finalize();
    return 0;
}
