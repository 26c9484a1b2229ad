/* arena.h - allocations that share one lifetime.
 *
 * One arena serves one lifetime (a request, a parsed file): allocations are never freed
 * individually; sh_arena_reset frees all of them at once. Zero is a valid empty arena.
 *
 * Threads: an arena has one owner. */
#ifndef SH_BASE_ARENA_H
#define SH_BASE_ARENA_H

#include "base/str.h"

#include <stddef.h>

typedef struct sh_arena_block sh_arena_block;

typedef struct {
    sh_arena_block *head;
    size_t used;      /* bytes handed out, so that callers can bound untrusted work */
    size_t next_size; /* size of the next block; doubles up to a limit */
} sh_arena;

/* Zeroed memory, aligned for any type. */
void *sh_arena_alloc(sh_arena *arena, size_t size);
void *sh_arena_array(sh_arena *arena, size_t count, size_t size); /* aborts on overflow */
sh_str sh_arena_str(sh_arena *arena, sh_str text);                /* a zero-terminated copy */
void sh_arena_reset(sh_arena *arena);

#endif
