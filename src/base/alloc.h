/* alloc.h - memory for small control blocks.
 *
 * These never return NULL: when the system has no memory for a control block, the process
 * dies with a message, and its peers see that as any other crash. Large memory (weights, KV)
 * comes from sh_mem_map, which fails with a status. Free with free().
 *
 * Threads: safe from anywhere. */
#ifndef SH_BASE_ALLOC_H
#define SH_BASE_ALLOC_H

#include "base/status.h"

#include <stddef.h>

/* Zeroed memory; size 0 gives a pointer that may be freed. */
void *sh_alloc(size_t size);

/* Zeroed memory for count elements; dies on overflow as it dies without memory. */
void *sh_alloc_array(size_t count, size_t size);

/* New bytes are not zeroed. */
void *sh_realloc_array(void *ptr, size_t count, size_t size);

char *sh_strdup(const char *text);
char *sh_strndup(const char *text, size_t len);

/* printf into a new string, owned by the caller. */
char *sh_asprintf(const char *fmt, ...) SH_PRINTF(1, 2);

/* Page-aligned zeroed memory straight from the system, for weights, KV and scratch; `what` names it
 * in the error. Asks for huge pages where the system offers them. Released by sh_mem_unmap. */
SH_MUST_CHECK sh_status sh_mem_map(size_t size, const char *what, void **out, sh_err *err);
void sh_mem_unmap(void *ptr, size_t size);

#endif
