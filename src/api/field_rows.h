/* field_rows.h - rows of field tables that mean the same in every dialect.
 *
 * What a dialect reads starts with its sh_job_spec, so a row has one offset for all of them. A
 * dialect with another range or default for a name has its own row.
 *
 * Threads: constants. */
#ifndef SH_API_FIELD_ROWS_H
#define SH_API_FIELD_ROWS_H

#include "api/field.h"
#include "api/job_spec.h"
#include "engine/engine_client.h"

#include <stddef.h>

#define SH_STARTS_WITH_SPEC(type)                                                                  \
    _Static_assert(offsetof(type, spec) == 0, "shared rows are offsets into the spec")

#define SH_WITHIN(...) .min = SH_MIN_OF(__VA_ARGS__), .max = SH_MAX_OF(__VA_ARGS__)

#define SH_ROW_TEMPERATURE                                                                         \
    {                                                                                              \
        .name = "temperature", .type = SH_FIELD_NUMBER, SH_WITHIN(SH_BOUNDS_TEMPERATURE),          \
        .meaning = "Randomness of the choice; 0 always takes the likeliest token. Default: the "   \
                   "server's setting, else the model's own, else 1.",                              \
        .offset = offsetof(sh_job_spec, temperature)                                               \
    }
#define SH_ROW_TOP_P                                                                               \
    {                                                                                              \
        .name = "top_p", .type = SH_FIELD_NUMBER, SH_WITHIN(SH_BOUNDS_TOP_P),                      \
        .meaning = "Choose among the likeliest tokens that together reach this probability. "      \
                   "Default: the server's setting, else the model's own, else 1.",                 \
        .offset = offsetof(sh_job_spec, top_p)                                                     \
    }
#define SH_ROW_TOP_K                                                                               \
    {                                                                                              \
        .name = "top_k", .type = SH_FIELD_INT, SH_WITHIN(SH_BOUNDS_TOP_K),                         \
        .meaning = "Choose among this many of the likeliest tokens; 0: all. Default: the "         \
                   "server's setting, else the model's own, else all.",                            \
        .offset = offsetof(sh_job_spec, top_k)                                                     \
    }
#define SH_ROW_MIN_P                                                                               \
    {                                                                                              \
        .name = "min_p", .type = SH_FIELD_NUMBER, SH_WITHIN(SH_BOUNDS_MIN_P),                      \
        .meaning =                                                                                 \
            "Leave out tokens whose probability is below this fraction of the likeliest's. "       \
            "Default: the server's setting, else 0.",                                              \
        .offset = offsetof(sh_job_spec, min_p)                                                     \
    }
#define SH_ROW_PRESENCE_PENALTY                                                                    \
    {                                                                                              \
        .name = "presence_penalty", .type = SH_FIELD_NUMBER,                                       \
        SH_WITHIN(SH_BOUNDS_PRESENCE_PENALTY), .fallback = "0",                                    \
        .meaning = "Lowers the logits of tokens that the answer already contains.",                \
        .offset = offsetof(sh_job_spec, presence_penalty)                                          \
    }
#define SH_ROW_FREQUENCY_PENALTY                                                                   \
    {                                                                                              \
        .name = "frequency_penalty", .type = SH_FIELD_NUMBER,                                      \
        SH_WITHIN(SH_BOUNDS_FREQUENCY_PENALTY), .fallback = "0",                                   \
        .meaning = "Lowers the logits of tokens by how often the answer contains them.",           \
        .offset = offsetof(sh_job_spec, frequency_penalty)                                         \
    }
#define SH_ROW_SEED                                                                                \
    {                                                                                              \
        .name = "seed", .type = SH_FIELD_INT, .min = -1, .max = SH_SEED_MAX, .fallback = "-1",     \
        .meaning = "The same seed gives the same answer; -1: the server's, else a random one.",    \
        .offset = offsetof(sh_job_spec, seed)                                                      \
    }
#define SH_ROW_STREAM                                                                              \
    {                                                                                              \
        .name = "stream", .type = SH_FIELD_BOOL, .fallback = "false",                              \
        .meaning = "Send the answer as server-sent events while it is generated.",                 \
        .offset = offsetof(sh_job_spec, stream)                                                    \
    }
#define SH_ROW_DIMENSIONS                                                                          \
    {                                                                                              \
        .name = "dimensions", .type = SH_FIELD_INT, .min = 1, .max = 1 << 20,                      \
        .meaning =                                                                                 \
            "Shorten vectors to so many numbers; only for models whose config.json allows it.",    \
        .offset = offsetof(sh_job_spec, dimensions)                                                \
    }

#endif
