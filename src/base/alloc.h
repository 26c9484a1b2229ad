/* alloc.h - memory for small control blocks.
 *
 * These never return NULL: if a control block cannot be allocated, the process aborts with a
 * message, and its peers handle that like any other crash. Large memory (weights, KV) comes from
 * sh_mem_map, which returns a status. Free with free().
 *
 * Threads: safe from anywhere. */
#ifndef SH_BASE_ALLOC_H
#define SH_BASE_ALLOC_H

#include "base/status.h"

#include <stddef.h>

/* Zeroed memory; size 0 gives a valid pointer that can be freed. */
void *sh_alloc(size_t size);

/* Zeroed memory for count elements; overflow aborts just as running out of memory does. */
void *sh_alloc_array(size_t count, size_t size);

/* Unlike the above, added bytes are not zeroed. */
void *sh_realloc_array(void *ptr, size_t count, size_t size);

char *sh_strdup(const char *text);
char *sh_strndup(const char *text, size_t len);

/* printf into a new string, owned by the caller. */
char *sh_asprintf(const char *fmt, ...) SH_PRINTF(1, 2);

/* Page-aligned zeroed memory straight from the kernel, for weights, KV and scratch; `what` names it
 * in the error. Asks for transparent huge pages where available. Release with sh_mem_unmap. */
SH_MUST_CHECK sh_status sh_mem_map(size_t size, const char *what, void **out, sh_err *err);
void sh_mem_unmap(void *ptr, size_t size);

#endif
