/* A chain of blocks, newest first. Only the newest is allocated from: what is left in an older
 * block is wasted, which doubling block sizes keep small. Blocks come zeroed from sh_alloc and
 * memory is never reused before a reset, so allocations are zeroed for free. */
#include "base/arena.h"

#include "base/alloc.h"

#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_BLOCK = 4 << 10, LAST_BLOCK = 1 << 20 };

struct sh_arena_block {
    sh_arena_block *next;
    size_t used;
    size_t cap;
    alignas(max_align_t) char data[];
};

/* Doubling stops at LAST_BLOCK; a larger request gets a block of its own size. */
static sh_arena_block *block_add(sh_arena *arena, size_t least)
{
    size_t size = arena->next_size == 0 ? FIRST_BLOCK : arena->next_size;
    if (size < LAST_BLOCK) arena->next_size = size * 2;
    if (size < least) size = least;
    sh_arena_block *block = sh_alloc(sizeof(*block) + size);
    block->cap = size;
    block->next = arena->head;
    arena->head = block;
    return block;
}

void *sh_arena_alloc(sh_arena *arena, size_t size)
{
    const size_t align = alignof(max_align_t);
    SH_ASSERT(size < SIZE_MAX / 2);
    size = (size + align - 1) / align * align;
    sh_arena_block *block = arena->head;
    if (block == NULL || block->cap - block->used < size) block = block_add(arena, size);
    void *ptr = block->data + block->used;
    block->used += size;
    arena->used += size;
    return ptr;
}

void *sh_arena_array(sh_arena *arena, size_t count, size_t size)
{
    size_t total;
    SH_ASSERT(!__builtin_mul_overflow(count, size, &total));
    return sh_arena_alloc(arena, total);
}

sh_str sh_arena_str(sh_arena *arena, sh_str text)
{
    char *copy = sh_arena_alloc(arena, text.len + 1);
    if (text.len > 0) memcpy(copy, text.ptr, text.len);
    return (sh_str){copy, text.len};
}

void sh_arena_reset(sh_arena *arena)
{
    for (sh_arena_block *block = arena->head; block != NULL;) {
        sh_arena_block *next = block->next;
        free(block);
        block = next;
    }
    *arena = (sh_arena){0};
}
