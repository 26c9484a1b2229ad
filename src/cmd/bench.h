/* bench.h - the benchmarks of `shoal bench`, one function each; cmd/bench.c chooses.
 *
 * They print their results on standard output and return an exit code.
 *
 * Threads: one measurement at a time. */
#ifndef SH_CMD_BENCH_H
#define SH_CMD_BENCH_H

#include "cmd/command.h"

int sh_bench_model(const sh_command_args *args);

/* Tokenizers: loading, encoding, decoding, hostile input. */
int sh_bench_text(const sh_command_args *args);

/* A server under load, Shoal or any other. */
int sh_bench_serve(const sh_command_args *args);

#endif
