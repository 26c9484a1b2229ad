/* admit.h - whether a request is let in, as soon as its head is there.
 *
 * For this layer alone.
 *
 * Threads: the loop's. */
#ifndef SH_HTTP_ADMIT_H
#define SH_HTTP_ADMIT_H

#include "http/conn.h"

/* Finds the route and looks at the key; status 0 when the request may come in. */
sh_http_refusal sh_http_admit(sh_http_request *req);

/* A refusal whose sentence lives as long as the request. */
sh_http_refusal sh_http_refusal_of(sh_http_request *req, int status, const char *fmt, ...)
    SH_PRINTF(3, 4);

#endif
