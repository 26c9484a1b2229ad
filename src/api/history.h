/* history.h - the most recent requests, and statistics over them.
 *
 * A ring of finished requests, without any text of prompts or answers. Sums are over all time,
 * percentiles over what the ring holds. Refused requests are counted, but are not part of any
 * speed, time or rate.
 *
 * Threads: the loop's. */
#ifndef SH_API_HISTORY_H
#define SH_API_HISTORY_H

#include "api/answer.h"
#include "api/json_writer.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum {
    SH_OUTCOME_OK,
    SH_OUTCOME_ERROR,
    SH_OUTCOME_TIMEOUT,
    SH_OUTCOME_CANCELLED,
    SH_OUTCOME_REFUSED, /* never run: a bad request, no key, a full queue, no engine */
} sh_outcome;
enum { SH_OUTCOME_COUNT = 5 };

/* "ok", "error", ... */
const char *sh_outcome_name(sh_outcome outcome);

typedef struct {
    char id[72];
    int64_t time_us;  /* of arrival, Unix time */
    const char *kind; /* constant: "chat", "completion" */
    char model[96];
    char key[65]; /* name of the API key, or "" */
    sh_outcome outcome;
    int http_status;
    sh_answer_finish finish;
    bool stream;
    int prompt_tokens;
    int cached_tokens;
    int generated_tokens;
    int max_tokens;
    double wall_s;
    double queue_s;
    double first_token_s; /* 0: there was none */
    double prefill_s;
    double decode_s;
    char error[160];
} sh_record;

/* Generated tokens per second of decoding; 0 when there was none. */
double sh_record_rate(const sh_record *record);

void sh_record_write(const sh_record *record, const char *key, sh_json_writer *w);

typedef struct sh_history sh_history;

sh_history *sh_history_create(int cap);
void sh_history_free(sh_history *history);
void sh_history_add(sh_history *history, const sh_record *record);

/* Counts a request that was refused before it was read. It gets no record, so that clients without
 * a key cannot push the records of others out of the ring. */
void sh_history_count_refused(sh_history *history, int http_status);

/* The newest `count` records, newest first, as the members of GET /requests/recent. */
void sh_history_write_recent(const sh_history *history, int count, sh_json_writer *w);
void sh_history_write_stats(const sh_history *history, sh_json_writer *w);

/* Sums and the last minute, as members of GET /metrics/snapshot. */
void sh_history_write_snapshot(const sh_history *history, int64_t now_us, sh_json_writer *w);

int64_t sh_history_total(const sh_history *history);

/* The newest record of an answer; NULL if there is none. Valid until the next is added. */
const sh_record *sh_history_last(const sh_history *history);

#endif
