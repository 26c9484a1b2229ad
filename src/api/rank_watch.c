/* A rank is away when the group goes on without it ("missing"), or was lost with it
 * ("lost_ranks"). */
#include "api/rank_watch.h"

#include "base/alloc.h"
#include "engine/engine_client.h"

#include <stdio.h>
#include <stdlib.h>

enum { RANKS_MAX = SH_ENGINE_RANKS_MAX, HOST_MAX = 256 }; /* a name of DNS */

_Static_assert(RANKS_MAX <= 64, "a bit for each number");

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

uint64_t sh_rank_set_read(const cJSON *list)
{
    uint64_t ranks = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, list)
    {
        int number = rank_number(item);
        if (number >= 0) ranks |= UINT64_C(1) << number;
    }
    return ranks;
}

/* Notes the hosts of the ranks that are reported, and returns these. */
static uint64_t reports_take(sh_rank_watch *watch, const cJSON *stats)
{
    const cJSON *ranks = cJSON_GetObjectItemCaseSensitive(stats, "ranks"), *rank;
    uint64_t reported = 0;
    cJSON_ArrayForEach(rank, ranks)
    {
        int number = rank_number(cJSON_GetObjectItemCaseSensitive(rank, "rank"));
        const char *host = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(rank, "host"));
        if (number < 0) continue;
        reported |= UINT64_C(1) << number;
        watch->rank[number].seen = true;
        if (host != NULL) snprintf(watch->rank[number].host, HOST_MAX, "%s", host);
    }
    return reported;
}

void sh_rank_watch_take(sh_rank_watch *watch, int64_t now_us, const cJSON *stats)
{
    uint64_t reported = reports_take(watch, stats);
    uint64_t missing = sh_rank_set_read(cJSON_GetObjectItemCaseSensitive(stats, "missing"));
    uint64_t lost = sh_rank_set_read(cJSON_GetObjectItemCaseSensitive(stats, "lost_ranks"));
    uint64_t away = stats == NULL ? UINT64_MAX : missing | lost;
    for (int i = 0; i < RANKS_MAX; i++) {
        rank_row *row = &watch->rank[i];
        bool is_away = (away >> i & 1) != 0;
        if ((missing >> i & 1) != 0) row->seen = true;
        /* One that left the group for good is no longer reported, and is forgotten. */
        if (!is_away && (reported >> i & 1) == 0) *row = (rank_row){0};
        if (!row->seen || !is_away)
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
