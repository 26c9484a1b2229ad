/* Growth doubles the capacity, so adding ids one by one is linear overall. */
#include "text/ids.h"

#include "base/alloc.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_CAP = 64 };

void sh_ids_reset(sh_ids *ids)
{
    free(ids->ptr);
    *ids = (sh_ids){0};
}

static void reserve(sh_ids *ids, size_t extra)
{
    if (ids->cap - ids->len >= extra) return;
    size_t cap = ids->cap == 0 ? FIRST_CAP : ids->cap * 2;
    if (cap < ids->len + extra) cap = ids->len + extra;
    ids->ptr = sh_realloc_array(ids->ptr, cap, sizeof(*ids->ptr));
    ids->cap = cap;
}

void sh_ids_add(sh_ids *ids, int32_t id)
{
    if (ids->len == ids->cap) reserve(ids, 1);
    ids->ptr[ids->len++] = id;
}

void sh_ids_add_all(sh_ids *ids, const int32_t *more, size_t count)
{
    if (count == 0) return;
    reserve(ids, count);
    memcpy(ids->ptr + ids->len, more, count * sizeof(*more));
    ids->len += count;
}
