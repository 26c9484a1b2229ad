/* A model that is loaded within a second or two is not worth a line. */
#include "cmd/support/load_view.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BAR_WIDTH = 12, LOOK_MS = 200, LINE_FIRST_MS = 2000, LINE_MAX_MS = 8000, TEXT_MAX = 2048 };

struct sh_load_view {
    sh_load_board *board;
    pthread_t thread;
    atomic_bool stop;
    bool terminal, drawn;
    int line_ms; /* the pause before the next line; 0: nobody is loading */
    sh_deadline line_at;
};

void sh_load_view_bars(const sh_load_row *rows, int count, char *out, size_t cap)
{
    size_t len = 0;
    out[0] = '\0';
    for (int i = 0; i < count && len < cap; i++) {
        char bar[BAR_WIDTH + 1] = {0};
        int percent = sh_load_percent(&rows[i].load);
        memset(bar, ' ', BAR_WIDTH);
        memset(bar, '#', (size_t)(percent * BAR_WIDTH / 100));
        len += (size_t)snprintf(out + len, cap - len, "%srank %d [%s] %d %% %.1f MB/s",
                                i > 0 ? "  " : "", rows[i].rank, bar, percent, rows[i].rate * 1e-6);
    }
}

static void erase(sh_load_view *view)
{
    if (view->drawn) fprintf(stderr, "\r\033[K");
    view->drawn = false;
}

static void show_bars(sh_load_view *view)
{
    char text[TEXT_MAX];
    sh_load_row rows[SH_RANKS_MAX];
    sh_load_view_bars(rows, sh_load_board_rows(view->board, rows), text, sizeof(text));
    erase(view);
    if (text[0] == '\0') return;
    fprintf(stderr, "\r\033[K%s", text);
    view->drawn = true;
}

/* A long load does not need as many lines as a short one. */
static void show_line(sh_load_view *view)
{
    char text[TEXT_MAX];
    sh_load_board_text(view->board, text, sizeof(text));
    bool first = view->line_ms == 0;
    if (text[0] == '\0') {
        view->line_ms = 0;
        return;
    }
    if (!first && !sh_deadline_passed(view->line_at)) return;
    if (!first) SH_LOGI("loading: %s", text);
    view->line_ms = first ? LINE_FIRST_MS : 2 * view->line_ms;
    if (view->line_ms > LINE_MAX_MS) view->line_ms = LINE_MAX_MS;
    view->line_at = sh_deadline_in_ms(view->line_ms);
}

static void *view_run(void *arg)
{
    sh_load_view *view = arg;
    while (!atomic_load(&view->stop)) {
        if (view->terminal)
            show_bars(view);
        else
            show_line(view);
        sh_sleep_ms(LOOK_MS);
    }
    erase(view);
    return NULL;
}

sh_status sh_load_view_start(sh_load_board *board, sh_load_view **out, sh_err *err)
{
    sh_load_view *view = sh_alloc(sizeof(*view));
    view->board = board;
    view->terminal = isatty(STDERR_FILENO);
    if (pthread_create(&view->thread, NULL, view_run, view) != 0) {
        free(view);
        return sh_err_set(err, SH_ERR_SYSTEM, "cannot start the thread that shows loading");
    }
    *out = view;
    return SH_OK;
}

void sh_load_view_stop(sh_load_view *view)
{
    if (view == NULL) return;
    atomic_store(&view->stop, true);
    pthread_join(view->thread, NULL);
    free(view);
}
