/* shoal monitor: a live view of a running server in the terminal. It polls the metrics that the
 * dashboard uses and redraws; when the server goes away it keeps trying. */
#include "base/clock.h"
#include "base/json.h"
#include "cmd/support/api_call.h"
#include "cmd/support/cluster.h"
#include "cmd/support/monitor_view.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { COLUMNS = 100, ROWS = 0, TICK_MS = 50, WAIT_MS = 3000 };

static volatile sig_atomic_t stopped, resized;

static void on_stop(int signal)
{
    (void)signal;
    stopped = 1;
}

static void on_resize(int signal)
{
    (void)signal;
    resized = 1;
}

static void handlers_set(void)
{
    struct sigaction stop = {.sa_handler = on_stop}, resize = {.sa_handler = on_resize};
    sigaction(SIGINT, &stop, NULL);
    sigaction(SIGTERM, &stop, NULL);
    sigaction(SIGWINCH, &resize, NULL);
}

static sh_status fetch_directly(const sh_command_args *args, const char *path, sh_buf *body,
                                sh_err *err)
{
    int code = 0;
    const char *base = sh_options_given(args->options, "url") ? args->settings->url : NULL;
    sh_status status = sh_api_call(args->settings, base, path, NULL, WAIT_MS, &code, body, err);
    if (status == SH_OK && (code == 401 || code == 403))
        status = sh_err_set(err, SH_ERR_AUTH, "the server requires an API key: --api-key");
    else if (status == SH_OK && code != 200)
        status = sh_err_set(err, SH_ERR_INPUT, "%s returned HTTP status %d", path, code);
    return status;
}

/* The launched cluster is looked for each time: it may be launched, or move, while we watch. */
static sh_status fetch(const sh_command_args *args, const char *path, cJSON **out, sh_err *err)
{
    sh_buf body = {0};
    cJSON *record = NULL;
    sh_status status = SH_OK;
    if (!sh_options_given(args->options, "url")) status = sh_cluster_find(args, &record, err);
    if (status == SH_OK)
        status = record == NULL ? fetch_directly(args, path, &body, err)
                                : sh_cluster_call(record, args->settings, path, NULL, &body, err);
    if (status == SH_OK) status = sh_json_parse(sh_buf_str(&body), path, out, err);
    cJSON_Delete(record);
    sh_buf_reset(&body);
    return status;
}

/* One row is left free: writing to the last one would scroll the screen. */
static void terminal_size(int *columns, int *rows)
{
    struct winsize size;
    *columns = COLUMNS;
    *rows = ROWS;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return;
    *columns = size.ws_col;
    *rows = size.ws_row > 2 ? size.ws_row - 1 : 1;
}

/* Only the snapshot is required; without the recent requests the view is just shorter. */
static sh_status frame_make(const sh_command_args *args, sh_buf *frame, sh_err *err)
{
    cJSON *snapshot = NULL, *recent = NULL;
    int columns, rows;
    sh_err ignored;
    terminal_size(&columns, &rows);
    sh_status status = fetch(args, "/metrics/snapshot", &snapshot, err);
    if (status != SH_OK) return status;
    if (fetch(args, "/requests/recent?n=10", &recent, &ignored) != SH_OK) recent = NULL;
    sh_monitor_view_draw(snapshot, recent, columns, rows, frame);
    cJSON_Delete(snapshot);
    cJSON_Delete(recent);
    return SH_OK;
}

static int print_once(const sh_command_args *args)
{
    sh_buf frame = {0};
    sh_err err;
    sh_status status = frame_make(args, &frame, &err);
    if (status == SH_OK) fwrite(frame.ptr, 1, frame.len, stdout);
    sh_buf_reset(&frame);
    return status == SH_OK ? SH_EXIT_OK : sh_command_fail(&err);
}

/* Moves the cursor home, writes each line and erases the rest of it, then erases everything below.
 * Clearing the screen first would flicker. */
static void show(const sh_buf *frame)
{
    sh_buf out = {0};
    sh_str rest = sh_buf_str(frame), text;
    sh_buf_add_text(&out, "\033[H");
    while (sh_str_cut(&rest, '\n', &text)) {
        sh_buf_add_str(&out, text);
        sh_buf_add_text(&out, "\033[K\r\n");
    }
    sh_buf_add_text(&out, "\033[J");
    fwrite(out.ptr, 1, out.len, stdout);
    fflush(stdout);
    sh_buf_reset(&out);
}

/* In short naps, so that Ctrl-C and a resize take effect at once. */
static void sleep_until(sh_deadline next)
{
    while (!stopped && !resized && !sh_deadline_passed(next)) sh_sleep_ms(TICK_MS);
}

/* Uses the terminal's alternate screen without a cursor, and restores both at the end. */
static int watch(const sh_command_args *args)
{
    handlers_set();
    fputs("\033[?1049h\033[?25l", stdout);
    while (!stopped) {
        sh_buf frame = {0};
        sh_err err;
        resized = 0;
        if (frame_make(args, &frame, &err) != SH_OK) {
            sh_buf_reset(&frame);
            sh_buf_addf(&frame, "%s\nwaiting for the server; Ctrl-C exits\n", err.text);
        }
        if (!stopped) show(&frame);
        sh_buf_reset(&frame);
        sleep_until(sh_deadline_in_ms((int64_t)(args->settings->interval * 1000)));
    }
    fputs("\033[?25h\033[?1049l", stdout);
    fflush(stdout);
    return SH_EXIT_OK;
}

static int monitor_run(const sh_command_args *args)
{
    return args->settings->once || !isatty(STDOUT_FILENO) ? print_once(args) : watch(args);
}

const sh_command sh_command_monitor = {
    SH_COMMAND_NAMED(monitor),
    .summary = "watch a running server in the terminal",
    .details = "Without --url, --host and --port it shows the launched cluster, wherever its API "
               "runs, or else the server on this machine.",
    .run = monitor_run,
};
