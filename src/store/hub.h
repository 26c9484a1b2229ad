/* hub.h - HTTP requests to a hub, any number at once, and what their failures mean.
 *
 * A request is started and later handed back by sh_hub_wait, with a status: SH_OK, SH_AGAIN if
 * another try may help, or an error. Callers retry, all by the same rule (sh_hub_retry).
 *
 * Redirects are followed here, one by one: the token goes to the hub itself, never to another host,
 * and never over plain HTTP to another machine.
 *
 * Threads: a hub and its requests are used by one thread at a time. The first sh_hub_open must come
 * before other threads start. */
#ifndef SH_STORE_HUB_H
#define SH_STORE_HUB_H

#include "base/buf.h"
#include "base/clock.h"
#include "base/status.h"
#include "store/repo_name.h"

#include <stdbool.h>
#include <stdint.h>

#define SH_HUB_ENDPOINT "https://huggingface.co"

typedef struct {
    const char *endpoint;     /* "https://huggingface.co", or a mirror */
    const char *token;        /* or NULL */
    const sh_repo_name *name; /* the model that all requests are about */
    int64_t timeout_ms;       /* to connect, and without receiving a byte */
} sh_hub_opts;

typedef struct {
    long code;           /* HTTP status; 0: none arrived */
    char error_code[64]; /* X-Error-Code, such as GatedRepo */
    char commit[64];     /* X-Repo-Commit */
    char etag[160];      /* X-Linked-Etag, else ETag; without quotes */
    int64_t retry_after; /* in seconds; -1: not given */
    int64_t range_first; /* of Content-Range; -1: none */
    int64_t range_total;
    char *location; /* owned by the request */
} sh_hub_reply;

typedef struct sh_hub sh_hub;
typedef struct sh_hub_request sh_hub_request;

struct sh_hub_request {
    /* Set by the caller. */
    char *url;          /* owned by the request; changes with redirects */
    bool locate;        /* only find out where a file is: stops at a redirect to another host */
    int64_t first, end; /* range of bytes to ask for; end 0: everything */
    bool (*data)(sh_hub_request *request, sh_str bytes); /* gets the body of a 2xx. False ends the
                                                            request; `status` and `err` say why */
    void *ctx;

    /* Set once it is handed back. */
    sh_status status;
    sh_err err;
    int64_t wait_ms; /* SH_AGAIN: how long the server asks to wait; -1: it does not say */
    bool denied;     /* another host refused: the address of the file has expired */
    sh_hub_reply reply;

    struct sh_hub_call *call; /* internal */
};

SH_MUST_CHECK sh_status sh_hub_open(const sh_hub_opts *opts, sh_hub **out, sh_err *err);
void sh_hub_close(sh_hub *hub);

/* URLs, owned by the caller: the description of the revision, and a file of a commit. */
char *sh_hub_listing_url(const sh_hub *hub);
char *sh_hub_file_url(const sh_hub *hub, const char *commit, const char *path);

/* The page of the model, for people; owned by the caller. */
char *sh_hub_page(const sh_hub *hub);

/* The request must stay where it is until it is handed back, or stopped. */
void sh_hub_start(sh_hub *hub, sh_hub_request *request);
void sh_hub_stop(sh_hub *hub, sh_hub_request *request);

/* The next request that has ended; NULL if none did within wait_ms. */
sh_hub_request *sh_hub_wait(sh_hub *hub, int wait_ms);

/* A request has ended with SH_AGAIN, and may be started again at *until; each pause is twice as
 * long as the last one, unless the server says how long to wait. False if it was tried often
 * enough: `failures` counts since the last byte, and so does `patience`, which ends SH_HUB_PATIENCE
 * timeouts after it; a wait that the server asked for extends it. */
enum { SH_HUB_PATIENCE = 6 };
bool sh_hub_retry(const sh_hub_request *request, int *failures, sh_deadline *patience,
                  sh_deadline *until);

/* Frees what a request owns; stops it first. */
void sh_hub_request_reset(sh_hub *hub, sh_hub_request *request);

/* One header line of a reply, "Name: value". */
void sh_hub_header(sh_hub_reply *reply, sh_str line);

#endif
