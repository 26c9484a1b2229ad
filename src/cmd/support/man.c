/* Pages for man(1) in its macro package, man(7). They have no date: the same sources give the same
 * bytes on any day. */
#include "cmd/support/man.h"

#include "base/version.h"

#include <ctype.h>

/* Appends text as roff shows it: a backslash starts an escape, a plain '-' may become a hyphen,
 * and a line that begins with '.' or '\'' is a request. */
static void roff(const char *text, sh_buf *out)
{
    bool starts_line = true;
    for (; *text != '\0'; text++) {
        if (starts_line && (*text == '.' || *text == '\'')) sh_buf_add_text(out, "\\&");
        starts_line = *text == '\n';
        if (starts_line)
            sh_buf_add_text(out, "\n.br\n");
        else if (*text == '\\')
            sh_buf_add_text(out, "\\e");
        else if (*text == '-')
            sh_buf_add_text(out, "\\-");
        else
            sh_buf_add_char(out, *text);
        if (*text == '|' || *text == '/') sh_buf_add_text(out, "\\:"); /* a line may break here */
    }
}

static void title(const char *name, const char *summary, sh_buf *out)
{
    sh_buf_add_text(out, ".TH SHOAL");
    if (name != NULL) sh_buf_add_char(out, '-');
    for (const char *p = name; p != NULL && *p != '\0'; p++)
        sh_buf_add_char(out, (char)toupper((unsigned char)*p));
    sh_buf_addf(out, " 1 \"\" \"Shoal %s\" \"User Commands\"\n.ad l\n.nh\n.SH NAME\nshoal%s%s \\- ",
                sh_version(), name == NULL ? "" : "\\-", name == NULL ? "" : name);
    roff(summary, out);
    sh_buf_add_char(out, '\n');
}

/* ".TP", the flag in bold with its value in italics, and the paragraph of its help. */
static void option_add(const sh_option *row, sh_buf *out)
{
    sh_buf text = {0};
    sh_buf_add_text(out, ".TP\n");
    if (row->letter != 0) sh_buf_addf(out, "\\fB\\-%c\\fR, ", row->letter);
    sh_buf_add_text(out, "\\fB\\-\\-");
    roff(sh_option_flag(row), out);
    sh_buf_add_text(out, "\\fR");
    if (row->value_name != NULL) {
        sh_buf_add_text(out, " \\fI");
        roff(row->value_name, out);
        sh_buf_add_text(out, "\\fR");
    }
    sh_buf_add_text(&text, row->help);
    sh_option_range(row, &text);
    sh_buf_add_text(&text, ". Variable: ");
    sh_option_env_name(&sh_option_rows, row, &text);
    sh_buf_add_char(&text, '.');
    sh_buf_add_char(out, '\n');
    roff(text.ptr, out);
    sh_buf_add_char(out, '\n');
    sh_buf_reset(&text);
}

static void exit_codes(sh_buf *out)
{
    sh_buf_add_text(out, ".SH EXIT STATUS\n"
                         "0 success, 1 failure, 2 usage error, 3 a rank was lost, 130 "
                         "interrupted.\n");
}

void sh_man_page(const sh_command *cmd, sh_buf *out)
{
    title(cmd->name, cmd->summary, out);
    sh_buf_addf(out, ".SH SYNOPSIS\n\\fBshoal %s\\fR [\\fIFLAGS\\fR]", cmd->name);
    if (cmd->arguments != NULL) {
        sh_buf_add_char(out, ' ');
        roff(cmd->arguments, out);
    }
    sh_buf_add_char(out, '\n');
    if (cmd->details != NULL) {
        sh_buf_add_text(out, ".SH DESCRIPTION\n");
        roff(cmd->details, out);
        sh_buf_add_char(out, '\n');
    }
    sh_buf_add_text(out, ".SH OPTIONS\n");
    for (size_t i = 0; i < sh_option_rows.count; i++)
        if ((sh_option_rows.rows[i].commands & cmd->bit) != 0)
            option_add(&sh_option_rows.rows[i], out);
    exit_codes(out);
    sh_buf_add_text(out, ".SH SEE ALSO\n.BR shoal (1)\n");
}

void sh_man_overview(sh_buf *out)
{
    title(NULL, "serve one large language model on several machines", out);
    sh_buf_add_text(out, ".SH SYNOPSIS\n\\fBshoal\\fR \\fICOMMAND\\fR [\\fIFLAGS\\fR] "
                         "[\\fIARGUMENTS\\fR]\n"
                         ".SH DESCRIPTION\n"
                         "Splits a model over the memory of several machines and serves it through "
                         "one API that clients of OpenAI, Anthropic and Ollama can use.\n"
                         "Without flags, \\fBshoal serve\\fR serves a small demo model at "
                         "http://127.0.0.1:8100.\n"
                         ".SH COMMANDS\nEach has a page of its own: "
                         "\\fBman shoal\\-serve\\fR.\n");
    for (int i = 0; i < SH_COMMAND_COUNT; i++) {
        sh_buf_addf(out, ".TP\n.B %s\n", sh_commands[i]->name);
        roff(sh_commands[i]->summary, out);
        sh_buf_add_char(out, '\n');
    }
    sh_buf_add_text(out,
                    ".SH SETTINGS\n"
                    "Each setting is a flag of the commands that use it, an environment "
                    "variable, a line NAME=value in a file named with \\fB\\-\\-env\\-file\\fR "
                    "(or in \\fI.env\\fR), and a line name = value in the file of "
                    "\\fB\\-\\-config\\fR. If several of them set it, the first in this order "
                    "wins.\n");
    exit_codes(out);
}
