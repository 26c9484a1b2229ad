#include "engine/mask_table.h"

#include "base/alloc.h"

#include <stdlib.h>

struct entry {
    sh_mask_key key; /* constraint 0: empty */
    uint64_t used;   /* the turn in which it was used last */
};

struct sh_mask_table {
    struct entry *entries;
    int count;
    uint64_t turn;
};

sh_mask_table *sh_mask_table_create(int count)
{
    sh_mask_table *t = sh_alloc(sizeof(*t));
    t->entries = sh_alloc_array((size_t)count, sizeof(*t->entries));
    t->count = count;
    return t;
}

void sh_mask_table_free(sh_mask_table *t)
{
    if (t == NULL) return;
    free(t->entries);
    free(t);
}

void sh_mask_table_turn(sh_mask_table *t)
{
    t->turn++;
}

static bool equal(const sh_mask_key *a, const sh_mask_key *b)
{
    return a->constraint == b->constraint && a->text == b->text && a->ends == b->ends;
}

int sh_mask_table_number(sh_mask_table *t, const sh_mask_key *key, bool *send)
{
    int at = 0;
    *send = true;
    for (int i = 0; i < t->count && *send; i++) {
        if (equal(&t->entries[i].key, key)) *send = false;
        if (!*send || t->entries[i].used < t->entries[at].used) at = i;
    }
    SH_ASSERT(!*send || t->entries[at].used < t->turn);
    t->entries[at] = (struct entry){*key, t->turn};
    return at + 1;
}

void sh_mask_table_rename(sh_mask_table *t, int number, const sh_mask_key *key)
{
    t->entries[number - 1].key = key == NULL ? (sh_mask_key){0} : *key;
}
