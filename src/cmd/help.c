#include "cmd/command.h"

#include "base/version.h"

#include <stdio.h>
#include <string.h>

static void overview(sh_buf *out)
{
    sh_buf_addf(out,
                "Shoal %s: one large language model on several machines.\n\n"
                "Usage: shoal COMMAND [FLAGS] [ARGUMENTS]\n\nCommands:\n",
                sh_version());
    for (size_t i = 0; i < sh_command_count; i++)
        sh_buf_addf(out, "  %-12s %s\n", sh_commands[i].name, sh_commands[i].summary);
    sh_buf_add_text(
        out, "\n`shoal help COMMAND` tells all about one. `shoal --version` prints the version.\n"
             "Exit codes: 0 done, 1 failed, 2 wrong usage, 3 a rank was lost, 130 interrupted.\n");
}

static void page(const sh_command *cmd, sh_buf *out)
{
    sh_buf_addf(out, "shoal %s: %s\n\nUsage: shoal %s [FLAGS]%s%s\n", cmd->name, cmd->summary,
                cmd->name, cmd->arguments[0] == '\0' ? "" : " ", cmd->arguments);
    if (cmd->details != NULL) sh_buf_addf(out, "\n%s\n", cmd->details);
    sh_buf_add_text(out, "\nFlags:\n");
    sh_options_help(&sh_option_rows, cmd->bit, out);
}

static void reference(sh_buf *out)
{
    sh_buf_add_text(
        out,
        "# Settings\n\nMade from the option table by `make docs`; a test compares them.\n\n"
        "Each setting is a flag of the commands that use it, an environment variable, a line\n"
        "`NAME=value` of `.env`, and a line `name = value` of the file that `--config` names.\n"
        "The first of these that has it wins, in that order. A `.env` that nobody named must be\n"
        "ours, and sets nothing that can run code ([security](security.md)).\n\n## Commands\n\n"
        "| command | does |\n|---|---|\n");
    for (size_t i = 0; i < sh_command_count; i++)
        sh_buf_addf(out, "| `shoal %s` | %s |\n", sh_commands[i].name, sh_commands[i].summary);
    sh_buf_add_text(out, "\n## Flags and variables\n\n");
    sh_options_markdown(&sh_option_rows, out);
}

int sh_cmd_help(const sh_command_args *args)
{
    sh_buf out = {0};
    int code = SH_EXIT_OK;
    if (args->settings->markdown) {
        reference(&out);
    } else if (args->argc == 0) {
        overview(&out);
    } else {
        const sh_command *found = NULL;
        for (size_t i = 0; i < sh_command_count; i++)
            if (strcmp(sh_commands[i].name, args->argv[0]) == 0) found = &sh_commands[i];
        if (found != NULL)
            page(found, &out);
        else {
            fprintf(stderr, "shoal: there is no command '%s'\n", args->argv[0]);
            code = SH_EXIT_USAGE;
        }
    }
    fwrite(sh_buf_str(&out).ptr, 1, out.len, stdout);
    sh_buf_reset(&out);
    return code;
}
