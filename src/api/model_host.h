/* model_host.h - the API's side of the socket to a supervisor that starts and stops models.
 *
 * The API is sandboxed and starts nothing. It asks, and the supervisor checks what it is asked for:
 * lines of JSON, {"do":"load","settings":{...}} with texts by the names of flags, or {"do":"free"}.
 * The answers are {"state":"started"}, when nothing of the model before is left and the new one is
 * starting, {"state":"failed","why":"..."} when it cannot be served, and {"state":"freed"}.
 *
 * This is for one model at a time, and whoever calls the API decides which (LocalAI). Where several
 * are loaded and unloaded by themselves, that is a keeper's work: cmd/support/model_keeper.h, with
 * its decisions in cluster/keeper.h.
 *
 * Threads: the loop's. */
#ifndef SH_API_MODEL_HOST_H
#define SH_API_MODEL_HOST_H

#include "base/json.h"
#include "http/loop.h"

typedef struct sh_model_host sh_model_host;

/* state: as above, or "gone" if the supervisor is; why: "" unless it failed. */
typedef void (*sh_model_host_fn)(void *arg, const char *state, const char *why);

/* fd stays the caller's. */
sh_model_host *sh_model_host_create(sh_loop *loop, int fd, sh_model_host_fn fn, void *arg);
void sh_model_host_free(sh_model_host *host);

/* Another process takes over: what the supervisor says is for that one. */
void sh_model_host_leave(sh_model_host *host);

/* False: nobody reads. settings: borrowed; NULL asks to free the model. */
bool sh_model_host_ask(sh_model_host *host, const cJSON *settings);

#endif
