/* shoal pull: downloads a model by name. */
#include "base/str.h"
#include "cmd/command.h"
#include "cmd/support/model_find.h"
#include "cmd/support/model_pull.h"
#include "store/cache.h"

#include <stdio.h>
#include <stdlib.h>

/* Without a network the best there is: it is here already, or it is not. */
static sh_status find_offline(const sh_settings *s, const char *text, char **dir, sh_err *err)
{
    sh_settings mine = *s;
    mine.model = text;
    return sh_model_obtain(&mine, dir, err);
}

static int pull_run(const sh_command_args *args)
{
    const sh_settings *s = args->settings;
    sh_repo_name name;
    char *dir = NULL;
    sh_err err;
    if (args->argc != 1) {
        fprintf(stderr, "shoal: usage: shoal pull ORG/NAME[@REVISION]\n");
        return SH_EXIT_USAGE;
    }
    if (!sh_repo_name_parse(args->argv[0], &name) || !sh_repo_name_is_full(&name)) {
        fprintf(stderr,
                "shoal: '%s' is not the name of a model on the hub: ORG/NAME, or "
                "ORG/NAME@REVISION with a branch, tag or commit\n",
                args->argv[0]);
        return SH_EXIT_USAGE;
    }
    sh_status status = s->offline ? find_offline(s, args->argv[0], &dir, &err)
                                  : sh_model_pull(s, &name, &dir, &err);
    if (status != SH_OK) return sh_command_fail(&err);
    puts(dir);
    free(dir);
    return SH_EXIT_OK;
}

const sh_command sh_command_pull = {
    SH_COMMAND_NAMED(pull),
    .arguments = "ORG/NAME[@REVISION]",
    .args_max = 1,
    .summary = "download a model from the Hugging Face hub",
    .details =
        "Downloads what is needed of a model into the Hugging Face cache, where other tools "
        "find it too, and prints its folder. Only what is missing is fetched, and every file "
        "is checked against its digest. After Ctrl-C or a failure the same command goes on. "
        "Private and gated models need HF_TOKEN.",
    .run = pull_run,
};
