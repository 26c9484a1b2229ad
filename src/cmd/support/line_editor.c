/* libedit does the editing; ~/.editrc can change its keys. What is added here:
 *
 * - Pasted lines stay together: the terminal marks pasted text (bracketed paste), and what is
 *   marked is put into the line as it is, line breaks included.
 * - Ctrl-C arrives as a key, since it ends the line instead of the program.
 * - The text is UTF-8 in every locale, because the models' text is. */
#include "cmd/support/line_editor.h"

#include "base/alloc.h"
#include "base/log.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <histedit.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PASTE_ON "\x1b[?2004h"
#define PASTE_OFF "\x1b[?2004l"
#define PASTE_END "\x1b[201~"

enum { HISTORY_MAX = 500, PASTE_MAX = 1 << 20 };

struct sh_line_editor {
    EditLine *edit; /* NULL: the input is not a terminal */
    History *history;
    char *history_path; /* or NULL */
    const char *prompt;
    bool interrupted;
    bool unkept; /* it was said that the history cannot be written */
};

static sh_line_editor *self_of(EditLine *edit)
{
    void *self = NULL;
    el_get(edit, EL_CLIENTDATA, &self);
    return self;
}

static char *on_prompt(EditLine *edit)
{
    return (char *)(uintptr_t)self_of(edit)->prompt;
}

static unsigned char on_interrupt(EditLine *edit, int key)
{
    (void)key;
    self_of(edit)->interrupted = true;
    return CC_EOF;
}

/* Reads pasted text up to its end mark. False: it is too long; what was read of it is of no use.
 * Terminals send the Enter key's carriage return for a line break. */
static bool paste_read(EditLine *edit, sh_buf *text)
{
    const size_t end = strlen(PASTE_END);
    bool ended = false, fits = true;
    wchar_t c;
    while (!ended && el_wgetc(edit, &c) == 1) {
        if (c != 0) sh_buf_add_utf8(text, c == '\r' ? '\n' : (uint32_t)c);
        ended = text->len >= end && memcmp(text->ptr + text->len - end, PASTE_END, end) == 0;
        if (ended || text->len < PASTE_MAX + end) continue;
        fits = false; /* the end mark is still looked for, or the rest would be keys */
        memmove(text->ptr, text->ptr + text->len - end, end);
        text->len = end;
    }
    if (ended) text->len -= end;
    return fits;
}

static unsigned char on_paste(EditLine *edit, int key)
{
    sh_buf text = {0};
    (void)key;
    if (!paste_read(edit, &text)) {
        sh_buf_reset(&text);
        printf("\nthe pasted text is longer than %d MiB, and was dropped\n", PASTE_MAX >> 20);
        fflush(stdout);
        return CC_REDISPLAY;
    }
    if (text.ptr != NULL) text.ptr[text.len] = '\0';
    int failed = text.len > 0 ? el_insertstr(edit, text.ptr) : 0;
    sh_buf_reset(&text);
    return failed != 0 ? CC_ERROR : CC_REFRESH;
}

static void keys_bind(EditLine *edit)
{
    static const char *const keys[][2] = {
        {"^C", "shoal-interrupt"},     {"\x1b[200~", "shoal-paste"},
        {"^R", "em-inc-search-prev"},  {"^U", "vi-kill-line-prev"},
        {"^W", "ed-delete-prev-word"}, {"\x1b[3~", "ed-delete-next-char"},
        {"\x1b[H", "ed-move-to-beg"},  {"\x1b[F", "ed-move-to-end"},
        {"\x1b[1~", "ed-move-to-beg"}, {"\x1b[4~", "ed-move-to-end"},
        {"\x1b[1;5C", "em-next-word"}, {"\x1b[1;5D", "ed-prev-word"},
    };
    el_set(edit, EL_ADDFN, "shoal-interrupt", "End the line without using it", on_interrupt);
    el_set(edit, EL_ADDFN, "shoal-paste", "Insert pasted text as it is", on_paste);
    for (size_t i = 0; i < SH_COUNT_OF(keys); i++)
        el_set(edit, EL_BIND, keys[i][0], keys[i][1], NULL);
}

static void locale_set(void)
{
    setlocale(LC_CTYPE, "");
    if (MB_CUR_MAX == 1 && setlocale(LC_CTYPE, "C.UTF-8") == NULL)
        setlocale(LC_CTYPE, "en_US.UTF-8");
}

static History *history_open(const char *path)
{
    HistEvent event;
    History *past = history_init();
    history(past, &event, H_SETSIZE, HISTORY_MAX);
    history(past, &event, H_SETUNIQUE, 1);
    if (path != NULL) history(past, &event, H_LOAD, path);
    return past;
}

sh_line_editor *sh_line_editor_create(const char *history_path)
{
    sh_line_editor *line = sh_alloc(sizeof(*line));
    if (!isatty(STDIN_FILENO)) return line;
    locale_set();
    line->edit = el_init("shoal", stdin, stdout, stderr);
    if (line->edit == NULL) return line;
    line->history_path = history_path == NULL ? NULL : sh_strdup(history_path);
    line->history = history_open(history_path);
    el_set(line->edit, EL_CLIENTDATA, line);
    el_set(line->edit, EL_PROMPT, on_prompt);
    el_set(line->edit, EL_HIST, history, line->history);
    el_set(line->edit, EL_EDITOR, "emacs");
    el_set(line->edit, EL_SETTY, "-d", "-isig", NULL);
    keys_bind(line->edit);
    el_source(line->edit, NULL);
    return line;
}

static bool history_write(History *past, const char *path)
{
    HistEvent event;
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
    if (file == NULL) {
        if (fd >= 0) close(fd);
        return false;
    }
    bool fine = history(past, &event, H_SAVE_FP, file) >= 0 && fflush(file) == 0;
    return fclose(file) == 0 && fine;
}

/* Beside the old one first: a full disk must not cost the history that is there. */
static void history_save(sh_line_editor *line)
{
    char *draft = sh_asprintf("%s.new", line->history_path);
    if (!history_write(line->history, draft) || rename(draft, line->history_path) != 0) {
        if (!line->unkept)
            SH_LOGW("%s: the history cannot be kept: %s", line->history_path, strerror(errno));
        line->unkept = true;
        unlink(draft);
    }
    free(draft);
}

void sh_line_editor_free(sh_line_editor *line)
{
    if (line == NULL) return;
    if (line->edit != NULL) el_end(line->edit);
    if (line->history != NULL) history_end(line->history);
    free(line->history_path);
    free(line);
}

/* For input from a file or a pipe. */
static sh_line_editor_result read_plain(sh_buf *out)
{
    char *text = NULL;
    size_t cap = 0;
    ssize_t len;
    do {
        clearerr(stdin);
        errno = 0;
        len = getline(&text, &cap, stdin);
    } while (len < 0 && errno == EINTR); /* Ctrl-C stops answers; there is none now */
    if (len > 0 && text[len - 1] == '\n') len--;
    if (len > 0) sh_buf_add(out, text, (size_t)len);
    free(text);
    return len < 0 ? SH_LINE_END : SH_LINE_TEXT;
}

sh_line_editor_result sh_line_editor_read(sh_line_editor *line, const char *prompt, sh_buf *out)
{
    int len = 0;
    sh_buf_clear(out);
    if (line->edit == NULL) return read_plain(out);
    line->prompt = prompt;
    line->interrupted = false;
    fputs(PASTE_ON, stdout);
    fflush(stdout);
    const char *text = el_gets(line->edit, &len);
    fputs(text == NULL ? PASTE_OFF "\n" : PASTE_OFF, stdout);
    fflush(stdout);
    if (line->interrupted) return SH_LINE_INTERRUPT;
    if (text == NULL || len <= 0) return SH_LINE_END;
    if (text[len - 1] == '\n') len--;
    sh_buf_add(out, text, (size_t)len);
    HistEvent event;
    if (len > 0) history(line->history, &event, H_ENTER, out->ptr);
    if (len > 0 && line->history_path != NULL) history_save(line);
    return SH_LINE_TEXT;
}
