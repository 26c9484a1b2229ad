/* pull_view.h - shows a download: a bar on a terminal, a line every few seconds elsewhere, and the
 * state of a rank for the process that started it (progress.h).
 *
 * Threads: the main thread. */
#ifndef SH_CMD_SUPPORT_PULL_VIEW_H
#define SH_CMD_SUPPORT_PULL_VIEW_H

#include "cmd/support/settings.h"
#include "store/fetch.h"

enum { SH_PULL_VIEW_SAMPLES = 16 };

typedef struct {
    const sh_settings *settings;
    const char *name;
    bool terminal, drawn;
    int64_t next_ns;   /* when to show something again */
    int64_t line_ns;   /* the pause between the last two lines */
    int64_t sample_ns; /* when to take the next sample */
    struct {
        int64_t ns, done;
    } sample[SH_PULL_VIEW_SAMPLES]; /* a ring, for the rate of the last seconds */
    int sampled;
    int percent;
    int64_t total; /* bytes */
} sh_pull_view;

/* `name` is borrowed. */
void sh_pull_view_init(sh_pull_view *view, const sh_settings *settings, const char *name);

/* The callback of a download; ctx is the view. */
void sh_pull_view_update(void *ctx, const sh_fetch_progress *progress);

/* Removes the bar, and says so if all is here now. */
void sh_pull_view_end(sh_pull_view *view, bool complete);

int sh_pull_view_percent(const sh_pull_view *view);

/* "34 %, 1.2 of 3.5 GB, 45.1 MB/s, 0:51 left", or what it waits for. rate: bytes a second. */
void sh_pull_view_text(const sh_fetch_progress *progress, double rate, char *out, size_t cap);

#endif
