#include "cmd/support/pull_view.h"

#include "base/clock.h"
#include "cmd/support/progress.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { BAR_WIDTH = 24 };
static const int64_t SECOND_NS = 1000000000;
static const int64_t SAMPLE_NS = 500000000, TERMINAL_NS = 200000000;
static const int64_t LINE_FIRST_NS = 2000000000, LINE_MAX_NS = 8000000000;

void sh_pull_view_init(sh_pull_view *view, const sh_settings *settings, const char *name)
{
    *view = (sh_pull_view){.settings = settings, .name = name, .terminal = isatty(STDERR_FILENO)};
}

int sh_pull_view_percent(const sh_pull_view *view)
{
    return view->percent;
}

/* Never 100 before the end. */
static int percent_of(const sh_fetch_progress *p)
{
    if (p->total == 0 || p->done >= p->total) return 100;
    return (int)((double)p->done * 100 / (double)p->total);
}

static void left_text(const sh_fetch_progress *p, double rate, char *out, size_t cap)
{
    double left = rate > 0 ? (double)(p->total - p->done) / rate : INFINITY;
    long long s = left < 1e7 ? (long long)left : -1;
    if (s < 0)
        snprintf(out, cap, "?");
    else if (s >= 3600)
        snprintf(out, cap, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(out, cap, "%lld:%02lld", s / 60, s % 60);
}

void sh_pull_view_text(const sh_fetch_progress *p, double rate, char *out, size_t cap)
{
    char left[32];
    double unit = p->total >= 1000000000 ? 1e9 : 1e6;
    int len = snprintf(out, cap, "%d %%, %.1f of %.1f %s", percent_of(p), (double)p->done / unit,
                       (double)p->total / unit, unit == 1e9 ? "GB" : "MB");
    if (len < 0 || (size_t)len >= cap) return;
    left_text(p, rate, left, sizeof(left));
    if (p->checking != NULL)
        snprintf(out + len, cap - (size_t)len, ", checking what is here of %s", p->checking);
    else if (p->waiting != NULL)
        snprintf(out + len, cap - (size_t)len, ", %s", p->waiting);
    else if (rate > 0)
        snprintf(out + len, cap - (size_t)len, ", %.1f MB/s, %s left", rate / 1e6, left);
}

/* Over the samples in the ring: long enough for a steady figure, short enough to notice a change.
 */
static double rate_of(sh_pull_view *v, const sh_fetch_progress *p, int64_t now)
{
    if (now >= v->sample_ns) {
        v->sample[v->sampled++ % SH_PULL_VIEW_SAMPLES].ns = now;
        v->sample[(v->sampled - 1) % SH_PULL_VIEW_SAMPLES].done = p->received;
        v->sample_ns = now + SAMPLE_NS;
    }
    int first = v->sampled > SH_PULL_VIEW_SAMPLES ? v->sampled - SH_PULL_VIEW_SAMPLES : 0;
    int64_t began = v->sample[first % SH_PULL_VIEW_SAMPLES].ns;
    int64_t bytes = p->received - v->sample[first % SH_PULL_VIEW_SAMPLES].done;
    return now > began ? (double)bytes * (double)SECOND_NS / (double)(now - began) : 0;
}

static void bar_draw(sh_pull_view *v, const char *text)
{
    char bar[BAR_WIDTH + 1] = {0};
    memset(bar, ' ', BAR_WIDTH);
    memset(bar, '#', (size_t)(v->percent * BAR_WIDTH / 100));
    fprintf(stderr, "\r\033[K%s [%s] %s", v->name, bar, text);
    v->drawn = true;
}

/* A long download does not need as many lines as a short one. */
static int64_t next_pause(sh_pull_view *v)
{
    if (v->terminal) return TERMINAL_NS;
    v->line_ns = v->line_ns == 0 ? LINE_FIRST_NS : v->line_ns * 2;
    if (v->line_ns > LINE_MAX_NS) v->line_ns = LINE_MAX_NS;
    return v->line_ns;
}

void sh_pull_view_update(void *ctx, const sh_fetch_progress *progress)
{
    sh_pull_view *v = ctx;
    int64_t now = sh_clock_ns();
    char text[160], state[80];
    double rate = rate_of(v, progress, now);
    v->percent = percent_of(progress);
    v->total = progress->total;
    if (now < v->next_ns) return;
    v->next_ns = now + next_pause(v);
    sh_pull_view_text(progress, rate, text, sizeof(text));
    if (v->terminal)
        bar_draw(v, text);
    else
        fprintf(stderr, "pull %s: %s\n", v->name, text);
    snprintf(state, sizeof(state), "downloading %d %%", v->percent);
    sh_progress(v->settings, state);
}

/* Says nothing if there was nothing to do. */
void sh_pull_view_end(sh_pull_view *view, bool complete)
{
    if (view->drawn) fprintf(stderr, "\r\033[K");
    if (complete && view->next_ns > 0)
        fprintf(stderr, "pull %s: complete, %.1f MB\n", view->name, (double)view->total / 1e6);
}
