/* shoal bench: picks the measurement. */
#include "cmd/bench.h"

#include <string.h>

static const struct {
    const char *name;
    int (*run)(const sh_command_args *args);
} benches[] = {
    {"text", sh_bench_text},
};

int sh_cmd_bench(const sh_command_args *args)
{
    sh_err err;
    const char *name = args->argc > 0 ? args->argv[0] : "";
    for (size_t i = 0; i < SH_COUNT_OF(benches); i++)
        if (strcmp(benches[i].name, name) == 0) return benches[i].run(args);
    sh_err_set(&err, SH_ERR_INPUT, "bench needs the name of a measurement: text");
    sh_command_fail(&err);
    return SH_EXIT_USAGE;
}
