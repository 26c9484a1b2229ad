/* shoal help: the overview, the page of a command, the same for man(1), and the reference page
 * docs/options.md, all generated from the tables of commands and options. */
#include "cmd/help.h"

#include "base/version.h"
#include "cmd/support/man.h"

#include <stdio.h>
#include <string.h>

enum { HELP_COLUMNS = 79 };

/* The sections of the overview. A command in none of them is listed after them, so that a new one
 * cannot be forgotten; what only other parts of the program start is shown with --all. */
static const struct {
    const char *title, *names; /* separated by spaces */
    bool hidden;
} sections[] = {
    {"Serve a model", "serve worker join launch localai", false},
    {"Use a model", "chat generate call monitor", false},
    {"Control a launched cluster", "status logs restart stop", false},
    {"Prepare hosts", "hosts doctor bootstrap token linktest", false},
    {"Models", "models pull info plan synth", false},
    {"Measure and examine", "bench tokenize template logits fingerprint config", false},
    {"Internal", "engine api agent probe", true},
    {"More", "", false},
};

enum { SECTION_MORE = SH_COUNT_OF(sections) - 1 };

static size_t section_of(const sh_command *cmd)
{
    for (size_t i = 0; i < SECTION_MORE; i++) {
        sh_str rest = sh_str_of(sections[i].names), name;
        while (sh_str_cut(&rest, ' ', &name))
            if (sh_str_is(name, cmd->name)) return i;
    }
    return SECTION_MORE;
}

bool sh_help_hides(const sh_command *cmd)
{
    return sections[section_of(cmd)].hidden;
}

static void section_print(size_t section, sh_buf *out)
{
    sh_buf_addf(out, "\n%s:\n", sections[section].title);
    for (int i = 0; i < SH_COMMAND_COUNT; i++)
        if (section_of(sh_commands[i]) == section)
            sh_buf_addf(out, "  %-12s %s\n", sh_commands[i]->name, sh_commands[i]->summary);
}

static void overview(bool all, sh_buf *out)
{
    sh_buf_addf(out,
                "Shoal %s: one large language model on several machines.\n\n"
                "Usage: shoal COMMAND [FLAGS] [ARGUMENTS]\n",
                sh_version());
    for (size_t i = 0; i < SH_COUNT_OF(sections); i++)
        if (all || !sections[i].hidden) section_print(i, out);
    sh_buf_add_text(
        out,
        "\n`shoal help COMMAND` describes one in full. `shoal --version` prints the version.\n"
        "Exit codes: 0 success, 1 failure, 2 usage error, 3 a rank was lost, 130 interrupted.\n");
}

/* Appends the text with its own line breaks, and breaks lines at spaces where they would get too
 * long for a terminal. */
static void wrapped(const char *text, sh_buf *out)
{
    int column = 0;
    for (size_t len; *text != '\0'; text += len) {
        len = strcspn(text + 1, " \n") + 1; /* a space or newline, if any, and the word after it */
        bool breaks = *text == '\n' || (*text == ' ' && column + (int)len > HELP_COLUMNS);
        if (breaks) column = -1; /* the separator itself becomes the line break */
        if (breaks) sh_buf_add_char(out, '\n');
        sh_buf_add(out, text + breaks, len - breaks);
        column += (int)len;
    }
    sh_buf_add_char(out, '\n');
}

/* `shoal help COMMAND` and `shoal COMMAND --help`. */
static void page(const sh_command *cmd, bool all, sh_buf *out)
{
    sh_buf_addf(out, "shoal %s: %s\n\nUsage: shoal %s [FLAGS]%s%s\n", cmd->name, cmd->summary,
                cmd->name, cmd->arguments == NULL ? "" : " ",
                cmd->arguments == NULL ? "" : cmd->arguments);
    if (cmd->details != NULL) {
        sh_buf_add_char(out, '\n');
        wrapped(cmd->details, out);
    }
    int hidden = sh_options_help(&sh_option_rows, cmd->bit, all, out);
    if (hidden > 0)
        sh_buf_addf(out, "\n`shoal help %s --all` shows %d more flag%s.\n", cmd->name, hidden,
                    hidden == 1 ? "" : "s");
}

static void reference(sh_buf *out)
{
    sh_buf_add_text(
        out,
        "# Settings\n\nGenerated from the option table by `make docs`; a test compares the two.\n\n"
        "Each setting is a flag of the commands that use it, an environment variable, a line\n"
        "`NAME=value` in `.env`, and a line `name = value` in the file given by `--config`. If\n"
        "several of them set it, the first in this order wins. A `.env` that was not named with\n"
        "`--env-file` must belong to you, and cannot set anything that runs code\n"
        "([security](security.md)). Paths in a file are relative to the file's folder, others to\n"
        "the working directory; a model in a file is taken as a path if it begins with `./` or\n"
        "`../`, or is one from the working directory.\n\n## Commands\n\n"
        "| command | does |\n|---|---|\n");
    for (int i = 0; i < SH_COMMAND_COUNT; i++)
        sh_buf_addf(out, "| `shoal %s` | %s |\n", sh_commands[i]->name, sh_commands[i]->summary);
    sh_buf_add_text(out, "\n## Flags and variables\n\n");
    sh_options_markdown(&sh_option_rows, out);
}

static int help_run(const sh_command_args *args)
{
    const sh_settings *s = args->settings;
    const sh_command *found = args->argc == 0 ? NULL : sh_command_find(args->argv[0]);
    sh_buf out = {0};
    if (args->argc > 0 && found == NULL) return sh_command_unknown(args->argv[0]);
    if (s->markdown)
        reference(&out);
    else if (found == NULL && s->man)
        sh_man_overview(&out);
    else if (found == NULL)
        overview(s->help_all, &out);
    else if (s->man)
        sh_man_page(found, &out);
    else
        page(found, s->help_all, &out);
    fwrite(sh_buf_str(&out).ptr, 1, out.len, stdout);
    sh_buf_reset(&out);
    return SH_EXIT_OK;
}

const sh_command sh_command_help = {
    SH_COMMAND_NAMED(help), .arguments = "[COMMAND]",
    .args_max = 1,          .summary = "show the list of commands, or everything about one",
    .run = help_run,
};
