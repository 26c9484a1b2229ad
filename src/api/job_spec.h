/* job_spec.h - the one internal request that every dialect becomes.
 *
 * A dialect reads its own JSON into this struct; all behind it (prompt, engine, answer) sees
 * nothing else. What it points to lives in its arena or in the parsed body, which it owns, and goes
 * with sh_job_spec_reset.
 *
 * Threads: a request has one owner at a time; it is filled by one thread and used by another. */
#ifndef SH_API_JOB_SPEC_H
#define SH_API_JOB_SPEC_H

#include "base/arena.h"
#include "base/json.h"

#include <stdbool.h>
#include <stdint.h>

enum { SH_CHOICES_MAX = 128 };

typedef enum { SH_TOOLS_AUTO, SH_TOOLS_NONE, SH_TOOLS_REQUIRED, SH_TOOLS_NAMED } sh_tool_choice;

/* Text, or ids when text.ptr is NULL. */
typedef struct {
    sh_str text;
    const int32_t *ids;
    size_t id_count;
} sh_prompt;

typedef struct {
    sh_arena arena;
    cJSON *json; /* the body */

    const char *model; /* NULL: whichever is served */
    bool chat;

    /* chat: shaped as templates expect them, all inside json */
    cJSON *messages;
    cJSON *tools;     /* NULL: none */
    cJSON *variables; /* of the template; NULL: none */
    sh_tool_choice tool_choice;
    const char *tool_name; /* that is to be called, if only one can be; else NULL */
    bool parallel_calls;

    /* not chat */
    sh_prompt *prompts;
    size_t prompt_count;
    bool echo;

    /* how to draw; NAN or -1: as the model's own settings say */
    double temperature, top_p, min_p;
    int64_t top_k;
    double repetition_penalty, presence_penalty, frequency_penalty;
    int64_t repetition_window;
    int64_t seed; /* -1: any */
    const int32_t *bias_ids;
    const float *bias;
    int bias_count;

    /* when to end */
    int64_t n;
    int64_t max_tokens; /* 0: the server's default */
    int64_t min_tokens;
    bool ignore_eos;
    const sh_str *stops;
    size_t stop_count;
    const int32_t *stop_ids;
    int stop_id_count;
    double timeout_s; /* 0: the engine's */

    /* what to report */
    bool logprobs;
    int64_t top_logprobs;
    bool token_ids;
    bool stream;
    bool include_usage;
    const char *conversation_id; /* NULL: not given */
} sh_job_spec;

/* Zero is a valid empty spec. */
void sh_job_spec_reset(sh_job_spec *spec);

#endif
