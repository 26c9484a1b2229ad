/* form_cache.h - grammars of earlier requests, by what they were made from.
 *
 * Applications send the same schema with every request, and compiling it takes longer than reading
 * it. A grammar is kept as it is sent to the engine. The least recently used ones go when there are
 * too many.
 *
 * Threads: every function may be called from any thread. */
#ifndef SH_API_FORM_CACHE_H
#define SH_API_FORM_CACHE_H

#include "base/buf.h"
#include "base/hash.h"

enum { SH_FORM_CACHE_ENTRIES = 128, SH_FORM_CACHE_BYTES = 32 << 20 };

typedef struct sh_form_cache sh_form_cache;

SH_MUST_CHECK sh_status sh_form_cache_create(sh_form_cache **out, sh_err *err);
void sh_form_cache_free(sh_form_cache *cache);

/* The key of what a grammar is made from; nobody outside can construct two with the same one. */
sh_key128 sh_form_cache_key(const sh_form_cache *cache, sh_str source);

/* Appends the grammar; false if it is not there. */
bool sh_form_cache_get(sh_form_cache *cache, sh_key128 key, sh_buf *out);
void sh_form_cache_put(sh_form_cache *cache, sh_key128 key, sh_str grammar);

#endif
