/* shoal completion: completion scripts, generated from the tables of commands and options. They
 * offer what `shoal help` and `shoal help COMMAND` show: nothing internal or rarely needed. */
#include "cmd/help.h"

#include <stdio.h>
#include <string.h>

static bool takes(const sh_command *cmd, const sh_option *row)
{
    return (row->commands & cmd->bit) != 0 && !row->hidden;
}

static void flags_of(const sh_command *cmd, const char *between, sh_buf *out)
{
    for (size_t i = 0; i < sh_option_rows.count; i++) {
        const sh_option *row = &sh_option_rows.rows[i];
        if (takes(cmd, row)) sh_buf_addf(out, "--%s%s", sh_option_flag(row), between);
    }
}

static void names(sh_buf *out)
{
    for (int i = 0; i < SH_COMMAND_COUNT; i++)
        if (!sh_help_hides(sh_commands[i])) sh_buf_addf(out, "%s ", sh_commands[i]->name);
}

/* Falls back to file names where no word matches. */
static void bash(sh_buf *out)
{
    sh_buf_add_text(out, "_shoal() {\n  local cur=${COMP_WORDS[COMP_CWORD]} words\n"
                         "  if [ \"$COMP_CWORD\" = 1 ]; then words=\"");
    names(out);
    sh_buf_add_text(out, "--version --help\"\n  else case ${COMP_WORDS[1]} in\n");
    for (int i = 0; i < SH_COMMAND_COUNT; i++) {
        if (sh_help_hides(sh_commands[i])) continue;
        sh_buf_addf(out, "    %s) words=\"", sh_commands[i]->name);
        flags_of(sh_commands[i], " ", out);
        if (strcmp(sh_commands[i]->name, "help") == 0) names(out);
        sh_buf_add_text(out, "\";;\n");
    }
    sh_buf_add_text(out, "  esac; fi\n  COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
                         "  [ ${#COMPREPLY[@]} != 0 ] || COMPREPLY=($(compgen -f -- \"$cur\"))\n}\n"
                         "complete -F _shoal shoal\n");
}

/* zsh can run bash completions. */
static void zsh(sh_buf *out)
{
    sh_buf_add_text(out, "autoload -U +X bashcompinit && bashcompinit\n");
    bash(out);
}

/* Inside single quotes fish knows two escapes, \' and \\. */
static void fish_quoted(const char *text, sh_buf *out)
{
    sh_buf_add_char(out, '\'');
    for (; *text != '\0'; text++) {
        if (*text == '\'' || *text == '\\') sh_buf_add_char(out, '\\');
        sh_buf_add_char(out, *text);
    }
    sh_buf_add_char(out, '\'');
}

/* fish wants one line per flag and shows descriptions. */
static void fish(sh_buf *out)
{
    for (int i = 0; i < SH_COMMAND_COUNT; i++) {
        const sh_command *cmd = sh_commands[i];
        if (sh_help_hides(cmd)) continue;
        sh_buf_addf(out, "complete -c shoal -n __fish_use_subcommand -a %s -d ", cmd->name);
        fish_quoted(cmd->summary, out);
        sh_buf_add_char(out, '\n');
        for (size_t j = 0; j < sh_option_rows.count; j++) {
            const sh_option *row = &sh_option_rows.rows[j];
            if (takes(cmd, row))
                sh_buf_addf(out, "complete -c shoal -n '__fish_seen_subcommand_from %s' -l %s\n",
                            cmd->name, sh_option_flag(row));
        }
    }
}

static int completion_run(const sh_command_args *args)
{
    static const struct {
        const char *shell;
        void (*write)(sh_buf *out);
    } shells[] = {{"bash", bash}, {"zsh", zsh}, {"fish", fish}};

    for (size_t i = 0; args->argc == 1 && i < SH_COUNT_OF(shells); i++) {
        if (strcmp(args->argv[0], shells[i].shell) != 0) continue;
        sh_buf out = {0};
        shells[i].write(&out);
        fwrite(out.ptr, 1, out.len, stdout);
        sh_buf_reset(&out);
        return SH_EXIT_OK;
    }
    fprintf(stderr, "shoal: completion takes one of bash, zsh, fish\n");
    return SH_EXIT_USAGE;
}

const sh_command sh_command_completion = {
    SH_COMMAND_NAMED(completion),
    .arguments = "bash|zsh|fish",
    .args_max = 1,
    .summary = "print a shell script that completes commands and flags",
    .details = "For bash: source <(shoal completion bash)",
    .run = completion_run,
};
