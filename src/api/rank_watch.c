/* A rank is away when the group goes on without it ("missing"), or when the group is lost and the
 * reason names it. If the reason names none, all ranks count as away but rank 0, which is the one
 * that reports. A group that re-forms by plan has lost nobody. */
#include "api/rank_watch.h"

#include "base/alloc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS_MAX = 64, HOST_MAX = 256 }; /* as many as a group may have, and a name of DNS */

typedef struct {
    bool seen;
    int64_t since_us; /* when it went away; 0: it is online */
    char host[HOST_MAX];
} rank_row;

struct sh_rank_watch {
    rank_row rank[RANKS_MAX];
};

sh_rank_watch *sh_rank_watch_create(void)
{
    return sh_alloc(sizeof(sh_rank_watch));
}

void sh_rank_watch_free(sh_rank_watch *watch)
{
    free(watch);
}

/* -1: no number of a rank. */
static int rank_number(const cJSON *item)
{
    if (!cJSON_IsNumber(item) || item->valuedouble < 0 || item->valuedouble >= RANKS_MAX) return -1;
    return (int)item->valuedouble;
}

static void hosts_take(sh_rank_watch *watch, const cJSON *stats)
{
    const cJSON *ranks = cJSON_GetObjectItemCaseSensitive(stats, "ranks"), *rank;
    cJSON_ArrayForEach(rank, ranks)
    {
        int number = rank_number(cJSON_GetObjectItemCaseSensitive(rank, "rank"));
        const char *host = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(rank, "host"));
        if (number < 0) continue;
        watch->rank[number].seen = true;
        if (host != NULL) snprintf(watch->rank[number].host, HOST_MAX, "%s", host);
    }
}

/* The rank that a reason such as "rank 1 (b:7001): connection closed" names; else -1. */
static int rank_named(const char *reason)
{
    for (const char *at = strstr(reason, "rank "); at != NULL; at = strstr(at + 1, "rank ")) {
        char *end;
        long number = strtol(at + 5, &end, 10);
        if (end != at + 5 && number >= 0 && number < RANKS_MAX) return (int)number;
    }
    return -1;
}

static void lost_mark(const cJSON *stats, bool away[RANKS_MAX])
{
    const char *why = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(stats, "lost"));
    static const char planned[] = "the group re-forms";
    if (cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(stats, "ready"))) return;
    if (why == NULL || strncmp(why, planned, sizeof(planned) - 1) == 0) return;
    int named = rank_named(why);
    for (int i = 1; i < RANKS_MAX; i++) away[i] = away[i] || named < 0 || named == i;
    if (named == 0) away[0] = true;
}

/* Ranks that left the group for good are no longer reported, and are forgotten. */
static void leavers_forget(sh_rank_watch *watch, const cJSON *stats, const bool away[RANKS_MAX])
{
    const cJSON *ranks = cJSON_GetObjectItemCaseSensitive(stats, "ranks"), *rank;
    bool reported[RANKS_MAX] = {false};
    cJSON_ArrayForEach(rank, ranks)
    {
        int number = rank_number(cJSON_GetObjectItemCaseSensitive(rank, "rank"));
        if (number >= 0) reported[number] = true;
    }
    for (int i = 0; i < RANKS_MAX; i++)
        if (!reported[i] && !away[i]) watch->rank[i] = (rank_row){0};
}

void sh_rank_watch_take(sh_rank_watch *watch, int64_t now_us, const cJSON *stats)
{
    const cJSON *number;
    bool away[RANKS_MAX] = {false};
    hosts_take(watch, stats);
    if (stats == NULL) memset(away, true, sizeof(away));
    cJSON_ArrayForEach(number, cJSON_GetObjectItemCaseSensitive(stats, "missing"))
    {
        int i = rank_number(number);
        if (i >= 0) away[i] = watch->rank[i].seen = true;
    }
    if (stats != NULL) {
        lost_mark(stats, away);
        leavers_forget(watch, stats, away);
    }
    for (int i = 0; i < RANKS_MAX; i++) {
        rank_row *row = &watch->rank[i];
        if (!row->seen || !away[i])
            row->since_us = 0;
        else if (row->since_us == 0)
            row->since_us = now_us;
    }
}

void sh_rank_watch_write(const sh_rank_watch *watch, const char *key, sh_json_writer *w)
{
    sh_write_begin(w, key, '[');
    for (int i = 0; watch != NULL && i < RANKS_MAX; i++) {
        const rank_row *row = &watch->rank[i];
        if (row->since_us == 0) continue;
        sh_write_begin(w, NULL, '{');
        sh_write_int(w, "rank", i);
        sh_write_text(w, "host", row->host[0] == '\0' ? NULL : row->host);
        sh_write_fixed(w, "since", (double)row->since_us * 1e-6, 3);
        sh_write_end(w, '}');
    }
    sh_write_end(w, ']');
}
