/* Findings quote text that other machines sent. It ends up on a terminal and in JSON, so it is made
 * harmless once, on the way in: see keep(). */
#include "cluster/findings.h"

#include "base/alloc.h"
#include "base/terminal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_MAX = 1024 };

static const char *const level_names[] = {"ok", "warning", "failure"};

const char *sh_finding_level_name(sh_finding_level level)
{
    return level_names[level];
}

void sh_findings_reset(sh_findings *report)
{
    sh_arena_reset(&report->arena);
    free(report->finding);
    *report = (sh_findings){0};
}

/* A copy in the arena without control characters (no terminal escapes) and in valid UTF-8. */
static const char *keep(sh_findings *report, const char *text)
{
    char *copy = (char *)(uintptr_t)sh_arena_str(&report->arena, sh_str_of(text)).ptr;
    for (char *p = copy; *p != '\0'; p++)
        if ((unsigned char)*p < ' ' || *p == 0x7f) *p = '?';
    for (size_t len = strlen(copy), ok; (ok = sh_utf8_valid_prefix(copy, len)) < len;)
        copy[ok] = '?';
    return copy;
}

void sh_findings_add(sh_findings *report, sh_finding_level level, const char *check,
                     const char *subject, const char *advice, const char *fmt, ...)
{
    char text[TEXT_MAX];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    if (report->count == report->cap) {
        report->cap = report->cap == 0 ? 32 : report->cap * 2;
        report->finding = sh_realloc_array(report->finding, (size_t)report->cap,
                                           sizeof(*report->finding));
    }
    report->finding[report->count++] = (sh_finding){
        .level = level,
        .check = keep(report, check),
        .subject = keep(report, subject),
        .text = keep(report, text),
        .advice = advice == NULL ? NULL : keep(report, advice),
    };
}

sh_finding_level sh_findings_worst(const sh_findings *report)
{
    sh_finding_level worst = SH_FINDING_OK;
    for (int i = 0; i < report->count; i++)
        if (report->finding[i].level > worst) worst = report->finding[i].level;
    return worst;
}

int sh_findings_count(const sh_findings *report, sh_finding_level level)
{
    int count = 0;
    for (int i = 0; i < report->count; i++) count += report->finding[i].level == level;
    return count;
}

/* Two passes: columns are as wide as their widest entry. The subject column disappears when no
 * finding has a subject. Advice on a finding that is ok would only be noise. */
void sh_findings_text(const sh_findings *report, bool color, sh_buf *out)
{
    static const sh_hue hues[] = {SH_HUE_GREEN, SH_HUE_YELLOW, SH_HUE_RED};
    int check_len = 0, subject_len = 0;
    for (int i = 0; i < report->count; i++) {
        int check = (int)strlen(report->finding[i].check);
        int subject = (int)strlen(report->finding[i].subject);
        if (check > check_len) check_len = check;
        if (subject > subject_len) subject_len = subject;
    }
    for (int i = 0; i < report->count; i++) {
        const sh_finding *f = &report->finding[i];
        sh_buf_addf(out, "%s%-7s%s  %-*s  ", sh_terminal_hue(color, hues[f->level]),
                    level_names[f->level], sh_terminal_hue(color, SH_HUE_NONE), check_len,
                    f->check);
        if (subject_len > 0) sh_buf_addf(out, "%-*s  ", subject_len, f->subject);
        sh_buf_addf(out, "%s\n", f->text);
        if (f->advice != NULL && f->level != SH_FINDING_OK)
            sh_buf_addf(out, "%9s%*s-> %s\n", "",
                        check_len + 2 + (subject_len > 0 ? subject_len + 2 : 0), "", f->advice);
    }
}

cJSON *sh_findings_json(const sh_findings *report)
{
    cJSON *list = cJSON_CreateArray();
    for (int i = 0; i < report->count; i++) {
        const sh_finding *f = &report->finding[i];
        cJSON *item = cJSON_CreateObject();
        cJSON_AddStringToObject(item, "level", level_names[f->level]);
        cJSON_AddStringToObject(item, "check", f->check);
        cJSON_AddStringToObject(item, "subject", f->subject);
        cJSON_AddStringToObject(item, "text", f->text);
        if (f->advice != NULL) cJSON_AddStringToObject(item, "advice", f->advice);
        cJSON_AddItemToArray(list, item);
    }
    return list;
}
