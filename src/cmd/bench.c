/* shoal bench: chooses the benchmark by the first argument. */
#include "cmd/bench.h"

#include <stdio.h>
#include <string.h>

static int bench_run(const sh_command_args *args)
{
    if (args->argc == 0) return sh_bench_model(args);
    if (strcmp(args->argv[0], "text") == 0) return sh_bench_text(args);
    if (strcmp(args->argv[0], "serve") == 0) return sh_bench_serve(args);
    fprintf(stderr, "shoal: bench takes --model DIR, or text, or serve\n");
    return SH_EXIT_USAGE;
}

const sh_command sh_command_bench = {
    SH_COMMAND_NAMED(bench),
    .arguments = "[text|serve]",
    .args_max = 1,
    .summary = "benchmark a model on this machine, the text layer, or a server",
    .details = "With --model: tokens per second for a prompt and for an answer, as llama-bench "
               "reports them, next to the memory bandwidth and arithmetic rate that this machine "
               "reaches at best. `bench text`: loading a tokenizer, encoding prose and hostile "
               "input, decoding. `bench serve`: sends many requests at once to a running server "
               "(random prompts of --prompt ids, answers of --generate tokens, --rounds per "
               "connection) and prints tokens per second, time to first token and inter-token gaps "
               "as CSV. Any server with OpenAI's /v1/completions works.",
    .run = bench_run,
};
