/* response_store.h - answers that clients may refer to later, by id.
 *
 * Each owner (an API key, or an address where no key is required) sees only its own. A response
 * knows the one that it continues, so a conversation is a chain of responses; a conversation id is
 * a name for the newest response of a chain. Everything is kept in memory, as JSON text, within
 * bounds on count and bytes for each owner and for all of them; the oldest is dropped first.
 *
 * Threads: every function from any thread; there is a lock. */
#ifndef SH_API_RESPONSE_STORE_H
#define SH_API_RESPONSE_STORE_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    size_t count, bytes; /* for each owner */
    size_t bytes_max;    /* for all of them */
} sh_response_limits;

typedef struct sh_response_store sh_response_store;

/* All are copied. Lists are JSON arrays of items. */
typedef struct {
    const char *id;
    const char *previous;     /* the response that it continues; or NULL */
    const char *conversation; /* whose newest response it becomes; or NULL */
    sh_str response;          /* JSON, as the client got it */
    sh_str input, output;     /* lists */
} sh_stored_response;

typedef enum { SH_STORED_RESPONSE, SH_STORED_INPUT, SH_STORED_OUTPUT } sh_stored_part;

sh_response_store *sh_response_store_create(sh_response_limits limits);
void sh_response_store_free(sh_response_store *store);

/* Replaces a response of the same owner and id. */
void sh_response_store_put(sh_response_store *store, uint64_t owner,
                           const sh_stored_response *response);

/* Appends a part of a response; false if there is no such response. */
bool sh_response_store_get(sh_response_store *store, uint64_t owner, const char *id,
                           sh_stored_part part, sh_buf *out);
bool sh_response_store_delete(sh_response_store *store, uint64_t owner, const char *id);

/* Appends a list of all items of the response and of those that it continues, oldest first. If one
 * is not there, returns false, and `out` is the id of the one that is missing. */
bool sh_response_store_history(sh_response_store *store, uint64_t owner, const char *id,
                               sh_buf *out);

/* Appends the id of the newest response of a conversation; false if there is none. */
bool sh_response_store_latest(sh_response_store *store, uint64_t owner, const char *conversation,
                              sh_buf *out);

#endif
