/* ids.h - a growable array of token ids.
 *
 * All zeros is a valid empty list: `sh_ids ids = {0};`. The owner calls sh_ids_reset() to free it.
 *
 * Threads: a list has one owner. */
#ifndef SH_TEXT_IDS_H
#define SH_TEXT_IDS_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
    int32_t *ptr;
    size_t len;
    size_t cap;
} sh_ids;

void sh_ids_reset(sh_ids *ids); /* frees; the list is empty and usable again */
void sh_ids_add(sh_ids *ids, int32_t id);
void sh_ids_add_all(sh_ids *ids, const int32_t *more, size_t count);

#endif
