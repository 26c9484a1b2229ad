/* A small line editor, without readline or curses. It assumes a terminal that understands the
 * common ANSI escape sequences.
 *
 * The line is always drawn in one row: the part around the cursor that fits, redrawn completely
 * after each key. So nothing has to be known about wrapping or about where earlier output ended.
 * Line breaks from pasted text are kept in the line and shown as a sign. The terminal marks pasted
 * text (bracketed paste), which is how a pasted line break is told from the Enter key.
 *
 * The text is UTF-8; the cursor is a byte offset that is always at the start of a character. */
#include "cmd/support/line_editor.h"

#include "base/alloc.h"
#include "base/str.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>
#include <utf8proc.h>

enum { HISTORY_MAX = 500, WIDTH_DEFAULT = 80, WIDTH_MIN = 20, LINE_MAX_LEN = 1 << 20 };

/* Keys that send more than one byte get numbers above those of bytes. */
enum {
    KEY_END_OF_INPUT = -1,
    KEY_CTRL_A = 1,
    KEY_CTRL_B = 2,
    KEY_CTRL_C = 3,
    KEY_CTRL_D = 4,
    KEY_CTRL_E = 5,
    KEY_CTRL_F = 6,
    KEY_BACK = 8,
    KEY_CTRL_K = 11,
    KEY_CTRL_L = 12,
    KEY_CTRL_N = 14,
    KEY_CTRL_P = 16,
    KEY_CTRL_U = 21,
    KEY_CTRL_W = 23,
    KEY_ESCAPE = 27,
    KEY_DELETE_BACK = 127,
    KEY_UP = 1000,
    KEY_DOWN,
    KEY_LEFT,
    KEY_RIGHT,
    KEY_HOME,
    KEY_END,
    KEY_DELETE,
    KEY_PASTE_BEGIN,
    KEY_PASTE_END,
    KEY_UNKNOWN,
};

struct sh_line_editor {
    char **history;
    int history_count;
    int history_at; /* the entry that is shown; history_count: the new line */
    bool pasting;
    sh_buf text;
    size_t cursor; /* byte in text, between characters */
    char *draft;   /* the new line, saved while a history entry is shown */
    const char *prompt;
};

sh_line_editor *sh_line_editor_create(void)
{
    return sh_alloc(sizeof(sh_line_editor));
}

void sh_line_editor_free(sh_line_editor *line)
{
    if (line == NULL) return;
    for (int i = 0; i < line->history_count; i++) free(line->history[i]);
    free(line->history);
    free(line->draft);
    sh_buf_reset(&line->text);
    free(line);
}

/* Restarted after a signal (SIGWINCH, say). */
static int read_byte(void)
{
    unsigned char byte;
    ssize_t count;
    do {
        count = read(STDIN_FILENO, &byte, 1);
    } while (count < 0 && errno == EINTR);
    return count == 1 ? byte : KEY_END_OF_INPUT;
}

/* "ESC [ number ~" */
static int numbered_key(int number)
{
    switch (number) {
    case 1:
    case 7: return KEY_HOME;
    case 4:
    case 8: return KEY_END;
    case 3: return KEY_DELETE;
    case 200: return KEY_PASTE_BEGIN;
    case 201: return KEY_PASTE_END;
    default: return KEY_UNKNOWN;
    }
}

/* Reads what follows ESC: "[A", "OH", "[3~", ... Modifiers ("[1;5C" for Ctrl-Right) are skipped. */
static int escape_key(void)
{
    int kind = read_byte();
    if (kind != '[' && kind != 'O') return KEY_UNKNOWN;
    int number = 0, byte = read_byte();
    for (; byte >= '0' && byte <= '9'; byte = read_byte())
        number = (number * 10 + byte - '0') % 1000;
    while (byte == ';' || (byte >= '0' && byte <= '9')) byte = read_byte();
    switch (byte) {
    case 'A': return KEY_UP;
    case 'B': return KEY_DOWN;
    case 'C': return KEY_RIGHT;
    case 'D': return KEY_LEFT;
    case 'H': return KEY_HOME;
    case 'F': return KEY_END;
    case '~': return numbered_key(number);
    default: return KEY_UNKNOWN;
    }
}

/* The start of the character before `at`: skips UTF-8 continuation bytes. */
static size_t char_before(const sh_buf *text, size_t at)
{
    if (at == 0) return 0;
    do {
        at--;
    } while (at > 0 && ((unsigned char)text->ptr[at] & 0xc0) == 0x80);
    return at;
}

static size_t char_after(const sh_buf *text, size_t at)
{
    if (at >= text->len) return text->len;
    do {
        at++;
    } while (at < text->len && ((unsigned char)text->ptr[at] & 0xc0) == 0x80);
    return at;
}

/* Columns of the character at `at`, and its length in bytes; a line break is shown as one sign. */
static int char_width(const sh_buf *text, size_t at, size_t *len)
{
    uint32_t code = 0;
    int bytes = sh_utf8_decode(text->ptr + at, text->len - at, &code);
    *len = bytes > 0 ? (size_t)bytes : 1;
    int width = bytes > 0 ? utf8proc_charwidth((utf8proc_int32_t)code) : 1;
    return code < 0x20 ? 1 : width;
}

static int width_of(const sh_buf *text, size_t from, size_t to)
{
    int width = 0;
    size_t len;
    for (size_t at = from; at < to; at += len) width += char_width(text, at, &len);
    return width;
}

static int terminal_width(void)
{
    struct winsize size;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col < WIDTH_MIN)
        return WIDTH_DEFAULT;
    return size.ws_col;
}

/* Draws the part of the text around the cursor that fits into one row. */
static void redraw(const sh_line_editor *l)
{
    sh_buf out = {0};
    int space = terminal_width() - (int)strlen(l->prompt) - 1, used = 0;
    size_t first = l->cursor, end = l->cursor, len;
    while (first > 0 && width_of(&l->text, char_before(&l->text, first), l->cursor) < space)
        first = char_before(&l->text, first);
    for (end = first; end < l->text.len; end += len) {
        used += char_width(&l->text, end, &len);
        if (used > space) break;
    }
    sh_buf_addf(&out, "\r%s", l->prompt);
    for (size_t at = first; at < end; at++) {
        if (l->text.ptr[at] == '\n')
            sh_buf_add_text(&out, "\xe2\x86\xb5");
        else
            sh_buf_add_char(&out, l->text.ptr[at]);
    }
    int column = (int)strlen(l->prompt) + width_of(&l->text, first, l->cursor);
    sh_buf_addf(&out, "\x1b[K\r\x1b[%dC", column);
    fwrite(out.ptr, 1, out.len, stdout);
    fflush(stdout);
    sh_buf_reset(&out);
}

/* Appends first to make the buffer grow, then moves the tail and writes at the cursor. */
static void insert(sh_line_editor *l, const char *bytes, size_t len)
{
    if (l->text.len + len > LINE_MAX_LEN) return;
    sh_buf_add(&l->text, bytes, len);
    memmove(l->text.ptr + l->cursor + len, l->text.ptr + l->cursor, l->text.len - len - l->cursor);
    memcpy(l->text.ptr + l->cursor, bytes, len);
    l->cursor += len;
}

static void erase(sh_line_editor *l, size_t from, size_t to)
{
    memmove(l->text.ptr + from, l->text.ptr + to, l->text.len - to);
    l->text.len -= to - from;
    if (l->text.ptr != NULL) l->text.ptr[l->text.len] = '\0';
    l->cursor = from;
}

/* Reads the remaining bytes of a character by its first byte, and inserts it if it is valid. */
static void insert_char(sh_line_editor *l, int first)
{
    char bytes[4] = {(char)first};
    int len = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc0 ? 2 : 1;
    for (int i = 1; i < len; i++) {
        int byte = read_byte();
        if (byte < 0) return;
        bytes[i] = (char)byte;
    }
    if (sh_utf8_valid(bytes, (size_t)len)) insert(l, bytes, (size_t)len);
}

/* The line being typed is saved when the user leaves it for the history, and comes back below the
 * newest entry. Edits of a history entry are not kept. */
static void show_history(sh_line_editor *l, int step)
{
    int to = l->history_at + step;
    if (to < 0 || to > l->history_count) return;
    if (l->history_at == l->history_count) {
        free(l->draft);
        l->draft = sh_str_dup(sh_buf_str(&l->text));
    }
    l->history_at = to;
    sh_buf_clear(&l->text);
    sh_buf_add_text(&l->text, to == l->history_count ? l->draft : l->history[to]);
    l->cursor = l->text.len;
}

static size_t word_start(const sh_line_editor *l)
{
    size_t at = l->cursor;
    while (at > 0 && l->text.ptr[at - 1] == ' ') at--;
    while (at > 0 && l->text.ptr[at - 1] != ' ') at--;
    return at;
}

static void edit(sh_line_editor *l, int key)
{
    switch (key) {
    case KEY_CTRL_A:
    case KEY_HOME: l->cursor = 0; break;
    case KEY_CTRL_E:
    case KEY_END: l->cursor = l->text.len; break;
    case KEY_CTRL_B:
    case KEY_LEFT: l->cursor = char_before(&l->text, l->cursor); break;
    case KEY_CTRL_F:
    case KEY_RIGHT: l->cursor = char_after(&l->text, l->cursor); break;
    case KEY_BACK:
    case KEY_DELETE_BACK: erase(l, char_before(&l->text, l->cursor), l->cursor); break;
    case KEY_CTRL_D:
    case KEY_DELETE: {
        size_t from = l->cursor;
        erase(l, from, char_after(&l->text, from));
        break;
    }
    case KEY_CTRL_K: erase(l, l->cursor, l->text.len); break;
    case KEY_CTRL_U: erase(l, 0, l->cursor); break;
    case KEY_CTRL_W: erase(l, word_start(l), l->cursor); break;
    case KEY_CTRL_L: fputs("\x1b[H\x1b[2J", stdout); break;
    case KEY_CTRL_P:
    case KEY_UP: show_history(l, -1); break;
    case KEY_CTRL_N:
    case KEY_DOWN: show_history(l, 1); break;
    case KEY_PASTE_BEGIN: l->pasting = true; break;
    case KEY_PASTE_END: l->pasting = false; break;
    default:
        if (key == '\t' || (key >= ' ' && key < 256)) insert_char(l, key);
    }
}

/* Empty lines and repetitions of the last entry are not added to the history. */
static void remember(sh_line_editor *l)
{
    bool same = l->history_count > 0 &&
                sh_str_is(sh_buf_str(&l->text), l->history[l->history_count - 1]);
    if (l->text.len == 0 || same) return;
    if (l->history_count == HISTORY_MAX) {
        free(l->history[0]);
        memmove(l->history, l->history + 1, (HISTORY_MAX - 1) * sizeof(*l->history));
        l->history_count--;
    }
    l->history = sh_realloc_array(l->history, (size_t)l->history_count + 1, sizeof(*l->history));
    l->history[l->history_count++] = sh_str_dup(sh_buf_str(&l->text));
}

/* Ctrl-C arrives as a byte: signals from the keyboard are off in raw mode. */
static sh_line_editor_result read_keys(sh_line_editor *l)
{
    for (;;) {
        redraw(l);
        int key = read_byte();
        if (key == KEY_ESCAPE) key = escape_key();
        if ((key == '\r' || key == '\n') && l->pasting)
            insert(l, "\n", 1);
        else if (key == '\r' || key == '\n')
            return SH_LINE_TEXT;
        else if (key == KEY_CTRL_C)
            return SH_LINE_INTERRUPT;
        else if (key == KEY_END_OF_INPUT || (key == KEY_CTRL_D && l->text.len == 0))
            return SH_LINE_END;
        else
            edit(l, key);
    }
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

/* Output processing (OPOST) stays on; only input is raw. "\x1b[?2004h" turns bracketed paste on. */
sh_line_editor_result sh_line_editor_read(sh_line_editor *l, const char *prompt, sh_buf *out)
{
    struct termios before, raw;
    sh_buf_clear(out);
    if (!isatty(STDIN_FILENO) || tcgetattr(STDIN_FILENO, &before) != 0) return read_plain(out);
    raw = before;
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO | ISIG | IEXTEN);
    raw.c_iflag &= ~(tcflag_t)(ICRNL | IXON);
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
    fputs("\x1b[?2004h", stdout);
    l->prompt = prompt;
    l->history_at = l->history_count;
    l->pasting = false;
    l->cursor = 0;
    sh_buf_clear(&l->text);
    sh_line_editor_result result = read_keys(l);
    fputs("\x1b[?2004l\r\n", stdout);
    fflush(stdout);
    tcsetattr(STDIN_FILENO, TCSADRAIN, &before);
    if (result == SH_LINE_TEXT) {
        remember(l);
        sh_buf_add_str(out, sh_buf_str(&l->text));
    }
    return result;
}
