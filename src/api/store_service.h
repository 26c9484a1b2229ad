/* store_service.h - asks another process to download or delete models.
 *
 * The API is confined: it cannot write files, connect to other machines or run programs. What
 * changes the models on disk is done by a process outside of the sandbox, at the other end of a
 * socket (cmd/support/store_process.c). Both send lines of JSON:
 *
 *   {"id":1,"do":"pull","model":"ORG/NAME"}        also "delete"; "stop" ends the one with that id
 *   {"id":2,"do":"list","model":""}                the models on disk
 *   {"id":1,"total":1000,"completed":10}           any number of times
 *   {"id":2,"model":{...}}                         one of them, as in the reply of the API
 *   {"id":1,"done":true}                           or with "error" and an HTTP status in "code"
 *
 * Threads: the loop's. */
#ifndef SH_API_STORE_SERVICE_H
#define SH_API_STORE_SERVICE_H

#include "base/json.h"
#include "http/loop.h"

typedef struct sh_store_service sh_store_service;
typedef struct sh_store_request sh_store_request;

/* Receives each line about a request; after the one with "done", or NULL if the other process has
 * ended, nothing follows and the request is freed. */
typedef void (*sh_store_fn)(void *arg, const cJSON *line);

/* The caller owns fd, which must outlive it. */
sh_store_service *sh_store_service_create(sh_loop *loop, int fd);
void sh_store_service_free(sh_store_service *service);

/* `what`: as above. NULL if the other process is gone or does not read. */
sh_store_request *sh_store_service_ask(sh_store_service *service, const char *what,
                                       const char *model, sh_store_fn fn, void *arg);

/* Stops it; fn is not called any more. */
void sh_store_request_forget(sh_store_request *request);

#endif
