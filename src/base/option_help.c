/* Pages generated from the option table: --help of a command, and the reference in Markdown. */
#include "base/option.h"

#include <string.h>

enum { HELP_COLUMN = 28, WIDTH = 96 };

/* Appends the text, which starts at `column`, wrapped at WIDTH. */
static void wrap(sh_str text, size_t column, sh_buf *out)
{
    size_t at = column;
    sh_str word;
    while (sh_str_cut(&text, ' ', &word)) {
        if (at > column && at + 1 + word.len > WIDTH) {
            sh_buf_addf(out, "\n%*s", (int)column, "");
            at = column;
        } else if (at > column) {
            sh_buf_add_char(out, ' ');
            at++;
        }
        sh_buf_add_str(out, word);
        at += word.len;
    }
    sh_buf_add_char(out, '\n');
}

void sh_option_range(const sh_option *row, sh_buf *out)
{
    if (row->type == SH_OPT_CHOICE) sh_buf_addf(out, " (%s)", row->choices);
    if (row->fallback != NULL && row->type != SH_OPT_BOOL) sh_buf_addf(out, " [%s]", row->fallback);
    if (row->type == SH_OPT_BOOL && row->fallback != NULL && strcmp(row->fallback, "true") == 0)
        sh_buf_addf(out, " [on; --no-%s]", sh_option_flag(row));
}

static void row_help(const sh_option *row, sh_buf *out)
{
    sh_buf left = {0}, right = {0};
    sh_buf_add_text(&left, "  ");
    if (row->letter != 0) sh_buf_addf(&left, "-%c, ", row->letter);
    sh_buf_addf(&left, "--%s%s%s", sh_option_flag(row), row->value_name == NULL ? "" : " ",
                row->value_name == NULL ? "" : row->value_name);
    sh_buf_add_text(&right, row->help);
    sh_option_range(row, &right);
    sh_buf_add_str(out, sh_buf_str(&left));
    if (left.len + 2 > HELP_COLUMN)
        sh_buf_addf(out, "\n%*s", HELP_COLUMN, "");
    else
        sh_buf_addf(out, "%*s", (int)(HELP_COLUMN - left.len), "");
    wrap(sh_buf_str(&right), HELP_COLUMN, out);
    sh_buf_reset(&left);
    sh_buf_reset(&right);
}

/* A heading is written before the first flag below it, so that a section of which a command has
 * none does not show. */
int sh_options_help(const sh_option_table *table, uint64_t command, bool all, sh_buf *out)
{
    const char *heading = "Flags";
    int left_out = 0;
    for (size_t i = 0; i < table->count; i++) {
        const sh_option *row = &table->rows[i];
        if (row->section != NULL) heading = row->section;
        if ((row->commands & command) == 0) continue;
        if (row->hidden && !all) {
            left_out++;
            continue;
        }
        if (heading != NULL) sh_buf_addf(out, "\n%s:\n", heading);
        heading = NULL;
        row_help(row, out);
    }
    return left_out;
}

static void markdown_allowed(const sh_option *row, sh_buf *out)
{
    switch (row->type) {
    case SH_OPT_BOOL: sh_buf_add_text(out, "true, false"); break;
    case SH_OPT_INT: sh_buf_addf(out, "%.0f to %.0f", row->min, row->max); break;
    case SH_OPT_FLOAT: sh_buf_addf(out, "%g to %g", row->min, row->max); break;
    case SH_OPT_SIZE: sh_buf_add_text(out, "bytes: 512M, 1.5G"); break;
    case SH_OPT_STRING: sh_buf_add_text(out, "text"); break;
    case SH_OPT_PATH: sh_buf_add_text(out, "path"); break;
    case SH_OPT_MODEL: sh_buf_add_text(out, "path or name"); break;
    case SH_OPT_SECRET: sh_buf_add_text(out, "text, never shown"); break;
    case SH_OPT_CHOICE:
        for (const char *p = row->choices; *p != '\0'; p++)
            if (*p == '|')
                sh_buf_add_text(out, ", ");
            else
                sh_buf_add_char(out, *p);
    }
}

void sh_options_markdown(const sh_option_table *table, sh_buf *out)
{
    sh_buf_add_text(out, "| flag | environment | allowed | default | meaning |\n"
                         "|---|---|---|---|---|\n");
    for (size_t i = 0; i < table->count; i++) {
        const sh_option *row = &table->rows[i];
        sh_buf_addf(out, "| `--%s`", sh_option_flag(row));
        if (row->also != NULL) sh_buf_addf(out, ", `--%s`", row->also);
        sh_buf_add_text(out, " | `");
        sh_option_env_name(table, row, out);
        sh_buf_add_char(out, '`');
        sh_str rest = sh_str_of(row->aliases), alias;
        while (sh_str_cut(&rest, ' ', &alias)) {
            sh_buf_add_text(out, ", `");
            sh_buf_add_str(out, alias);
            sh_buf_add_char(out, '`');
        }
        sh_buf_add_text(out, " | ");
        markdown_allowed(row, out);
        sh_buf_addf(out, " | %s | %s |\n", row->fallback == NULL ? "" : row->fallback, row->help);
    }
}
