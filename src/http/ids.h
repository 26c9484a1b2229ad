/* ids.h - the ids of requests.
 *
 * Threads: an sh_http_ids has one owner. */
#ifndef SH_HTTP_IDS_H
#define SH_HTTP_IDS_H

#include "base/status.h"
#include "http/carrier.h"

#include <stdint.h>

typedef struct {
    uint64_t base; /* random, so that ids differ between runs */
    uint64_t count;
} sh_http_ids;

SH_MUST_CHECK sh_status sh_http_ids_init(sh_http_ids *ids, sh_err *err);
void sh_http_ids_next(sh_http_ids *ids, char out[SH_HTTP_ID_MAX + 1]);

#endif
