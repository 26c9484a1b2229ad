/* findings.h - results of a check: what was examined, what was found, what to do about it.
 *
 * A report collects findings in order and prints them as a table or as JSON. Texts are copied.
 *
 * Threads: a report has one owner. */
#ifndef SH_CLUSTER_FINDINGS_H
#define SH_CLUSTER_FINDINGS_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/json.h"

typedef enum { SH_FINDING_OK, SH_FINDING_WARN, SH_FINDING_FAIL } sh_finding_level;

typedef struct {
    sh_finding_level level;
    const char *check;   /* "ssh", "memory" */
    const char *subject; /* a host, "a - b" for a pair, or "" */
    const char *text;
    const char *advice; /* what to do, or NULL */
} sh_finding;

typedef struct {
    sh_arena arena;
    sh_finding *finding; /* [count] */
    int count, cap;
} sh_findings; /* all zeros: an empty report */

void sh_findings_reset(sh_findings *report);

/* advice may be NULL. Control characters become '?': texts may come from another host. */
void sh_findings_add(sh_findings *report, sh_finding_level level, const char *check,
                     const char *subject, const char *advice, const char *fmt, ...) SH_PRINTF(6, 7);

/* The worst level; OK when empty. */
sh_finding_level sh_findings_worst(const sh_findings *report);
int sh_findings_count(const sh_findings *report, sh_finding_level level);

/* One line per finding; its advice, if any, follows on a line of its own. With `color` the level
 * has one. */
void sh_findings_text(const sh_findings *report, bool color, sh_buf *out);

/* An array of {level, check, subject, text, advice}; owned by the caller. */
cJSON *sh_findings_json(const sh_findings *report);

const char *sh_finding_level_name(sh_finding_level level);

#endif
