/* shoal bench: of a model, of the text layer, or of a server. */
#include "cmd/bench.h"

#include <stdio.h>
#include <string.h>

int sh_cmd_bench(const sh_command_args *args)
{
    if (args->argc == 0) return sh_bench_model(args);
    if (strcmp(args->argv[0], "text") == 0) return sh_bench_text(args);
    if (strcmp(args->argv[0], "serve") == 0) return sh_bench_serve(args);
    fprintf(stderr, "shoal: bench takes --model DIR, or text, or serve\n");
    return SH_EXIT_USAGE;
}
