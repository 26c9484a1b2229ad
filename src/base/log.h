/* log.h - logging to stderr, one line per message: time, level, rank, text. A program that has this
 * code as a library gets the texts through a sink instead.
 *
 * Code that detects an error either logs it or returns it, never both. Prompts, answers, keys and
 * tokens are never logged. A line is written with a single write(), so lines of several ranks do
 * not interleave.
 *
 * Threads: safe from anywhere; set level, rank and sink before threads start. */
#ifndef SH_BASE_LOG_H
#define SH_BASE_LOG_H

#include "base/status.h"

#include <stdbool.h>

typedef enum { SH_LOG_ERROR, SH_LOG_WARN, SH_LOG_INFO, SH_LOG_DEBUG } sh_log_level;

void sh_log_set_level(sh_log_level level);
bool sh_log_enabled(sh_log_level level);

/* The rank shown in each line; -1, the initial value, shows none. */
void sh_log_set_rank(int rank);

/* Gets every line that the level lets through, without time, level, rank and line break; on the
 * thread that logs it. NULL, the initial value: stderr. */
typedef void (*sh_log_sink)(void *ctx, sh_log_level level, const char *text);
void sh_log_set_sink(sh_log_sink sink, void *ctx);

void sh_log(sh_log_level level, const char *fmt, ...) SH_PRINTF(2, 3);

#define SH_LOGE(...) sh_log(SH_LOG_ERROR, __VA_ARGS__)
#define SH_LOGW(...) sh_log(SH_LOG_WARN, __VA_ARGS__)
#define SH_LOGI(...) sh_log(SH_LOG_INFO, __VA_ARGS__)
#define SH_LOGD(...) sh_log(SH_LOG_DEBUG, __VA_ARGS__)

#endif
