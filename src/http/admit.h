/* admit.h - decides whether to accept a request, as soon as its head is complete.
 *
 * Private to this layer.
 *
 * Threads: the loop's. */
#ifndef SH_HTTP_ADMIT_H
#define SH_HTTP_ADMIT_H

#include "http/conn.h"

/* Finds the route and checks the key; status 0 if the request is accepted. */
sh_http_refusal sh_http_admit(sh_http_request *req);

/* A refusal whose text lives as long as the request. */
sh_http_refusal sh_http_refusal_of(sh_http_request *req, int status, const char *fmt, ...)
    SH_PRINTF(3, 4);

#endif
