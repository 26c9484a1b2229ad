/* line_editor.h - reads a line from a person: editing, the lines before it, pasted text of many
 * lines.
 *
 * On a terminal the keys of most shells work (arrows, Home, End, Ctrl-A/E/K/U/W/L, up and down
 * through what was typed before); elsewhere it is a plain read. The terminal is raw only while a
 * line is read.
 *
 * Threads: one owner. */
#ifndef SH_CMD_SUPPORT_LINE_EDITOR_H
#define SH_CMD_SUPPORT_LINE_EDITOR_H

#include "base/buf.h"

typedef enum {
    SH_LINE_TEXT,      /* a line, perhaps empty */
    SH_LINE_INTERRUPT, /* Ctrl-C */
    SH_LINE_END,       /* Ctrl-D on an empty line, or the end of the input */
} sh_line_editor_result;

typedef struct sh_line_editor sh_line_editor;

sh_line_editor *sh_line_editor_create(void);
void sh_line_editor_free(sh_line_editor *line);

/* Shows the prompt (plain ASCII) and puts the line into *out, without its end. */
sh_line_editor_result sh_line_editor_read(sh_line_editor *line, const char *prompt, sh_buf *out);

#endif
