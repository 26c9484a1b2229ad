/* arena.h - memory that lives and dies together.
 *
 * One arena serves one lifetime (a request, a parsed file): pieces are taken from it and never
 * freed alone; sh_arena_reset frees them all at once. Zero is a valid empty arena.
 *
 * Threads: an arena has one owner. */
#ifndef SH_BASE_ARENA_H
#define SH_BASE_ARENA_H

#include "base/str.h"

#include <stddef.h>

typedef struct sh_arena_block sh_arena_block;

typedef struct {
    sh_arena_block *head;
    size_t used;      /* bytes handed out, for bounds on untrusted work */
    size_t next_size; /* size of the next block; grows as the arena does */
} sh_arena;

/* Zeroed memory, aligned for any type. */
void *sh_arena_alloc(sh_arena *arena, size_t size);
void *sh_arena_array(sh_arena *arena, size_t count, size_t size); /* dies on overflow */
sh_str sh_arena_str(sh_arena *arena, sh_str text);                /* a copy with a closing zero */
void sh_arena_reset(sh_arena *arena);

#endif
