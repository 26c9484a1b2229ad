/* Lines are built on the stack and written with one write(): no lock, no allocation, and ranks that
 * share a terminal or a file do not split each other's lines. */
#include "base/log.h"

#include "base/clock.h"
#include "base/str.h"
#include "base/terminal.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LINE_MAX_LEN = 2048 };

static atomic_int log_level = SH_LOG_INFO;
static atomic_int log_rank = -1;
static sh_log_sink log_sink;
static void *log_sink_ctx;

void sh_log_set_level(sh_log_level level)
{
    atomic_store_explicit(&log_level, (int)level, memory_order_relaxed);
}

bool sh_log_enabled(sh_log_level level)
{
    return (int)level <= atomic_load_explicit(&log_level, memory_order_relaxed);
}

void sh_log_set_rank(int rank)
{
    atomic_store_explicit(&log_rank, rank, memory_order_relaxed);
}

void sh_log_set_sink(sh_log_sink sink, void *ctx)
{
    log_sink = sink;
    log_sink_ctx = ctx;
}

/* stderr may become a file later (--log-file), so this is asked for each line that has a colour:
 * they are rare. */
static bool has_color(sh_hue hue)
{
    return hue != SH_HUE_NONE && sh_terminal_has_color(STDERR_FILENO);
}

static size_t line_start(char *line, size_t cap, sh_log_level level)
{
    static const char *const names[] = {"error", "warn", "info", "debug"};
    static const sh_hue hues[] = {SH_HUE_RED, SH_HUE_YELLOW, SH_HUE_NONE, SH_HUE_NONE};
    bool color = has_color(hues[level]);
    int64_t now_us = sh_clock_unix_us();
    time_t seconds = (time_t)(now_us / 1000000);
    struct tm tm;
    localtime_r(&seconds, &tm);
    int rank = atomic_load_explicit(&log_rank, memory_order_relaxed);
    char who[24] = "";
    if (rank >= 0) snprintf(who, sizeof(who), " [rank %d]", rank);
    /* Another process may have drawn a bar on this terminal: the line takes its place. */
    int len = snprintf(line, cap, "%s%02d:%02d:%02d.%03d %s%s%s%s ",
                       sh_terminal_clear_line(STDERR_FILENO), tm.tm_hour, tm.tm_min, tm.tm_sec,
                       (int)(now_us / 1000 % 1000), sh_terminal_hue(color, hues[level]),
                       names[level], sh_terminal_hue(color, SH_HUE_NONE), who);
    return (size_t)len;
}

void sh_log(sh_log_level level, const char *fmt, ...)
{
    if (!sh_log_enabled(level)) return;
    char line[LINE_MAX_LEN];
    size_t len = log_sink != NULL ? 0 : line_start(line, sizeof(line), level);
    va_list args;
    va_start(args, fmt);
    int rest = vsnprintf(line + len, sizeof(line) - len - 1, fmt, args);
    va_end(args);
    if (rest < 0) return;
    size_t end = len + (size_t)rest;
    if (end > sizeof(line) - 2) end = sizeof(line) - 2;
    /* Texts from peers and files must not forge lines or send escape sequences to a terminal. */
    for (size_t i = len; i < end; i++)
        if ((unsigned char)line[i] < 0x20) line[i] = ' ';
    if (log_sink != NULL) {
        line[end] = '\0';
        log_sink(log_sink_ctx, level, line);
        return;
    }
    line[end] = '\n';
    ssize_t written = write(STDERR_FILENO, line, end + 1);
    (void)written; /* there is nowhere to report a failure of the log itself */
}
