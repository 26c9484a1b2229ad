/* line_editor.h - reads a line from the terminal, with editing, history and multi-line paste.
 *
 * The usual keys of shells work (arrows, Home, End, Ctrl-A/E/K/R/U/W/L, up and down for history).
 * If stdin is not a terminal it is a plain read. The terminal is in raw mode only while a line is
 * read.
 *
 * Threads: one owner. */
#ifndef SH_CMD_SUPPORT_LINE_EDITOR_H
#define SH_CMD_SUPPORT_LINE_EDITOR_H

#include "base/buf.h"

typedef enum {
    SH_LINE_TEXT,      /* a line, possibly empty */
    SH_LINE_INTERRUPT, /* Ctrl-C */
    SH_LINE_END,       /* Ctrl-D on an empty line, or the end of the input */
} sh_line_editor_result;

typedef struct sh_line_editor sh_line_editor;

/* The history is read from this file, and written to it after each line, so that no way to end the
 * program costs it; NULL: not kept. */
sh_line_editor *sh_line_editor_create(const char *history_path);
void sh_line_editor_free(sh_line_editor *line);

/* Shows the prompt (ASCII only) and stores the line in *out, without the line break. */
sh_line_editor_result sh_line_editor_read(sh_line_editor *line, const char *prompt, sh_buf *out);

#endif
