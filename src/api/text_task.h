/* text_task.h - requests that need the model's text side and not the engine.
 *
 * The request is answered by one pure function from the parsed body to the body of the reply. It
 * runs on the loop, or on the worker's thread if the body is long: on the loop, a few megabytes
 * would stall every stream for seconds.
 *
 * Threads: started from the loop; `convert` may run on the worker and uses only its arguments. */
#ifndef SH_API_TEXT_TASK_H
#define SH_API_TEXT_TASK_H

#include "api/api_internal.h"

typedef struct sh_text_task sh_text_task;

typedef bool (*sh_text_convert)(const sh_text_task *t, cJSON *body, sh_buf *out, sh_api_error *err);

/* The fields of this body, where they depend on it. */
typedef const sh_field_table *(*sh_text_fields)(const cJSON *body);

struct sh_text_task {
    sh_api *api;
    const sh_job_format *format; /* of the body; or NULL */
    const sh_field_table *fields;
    sh_text_fields fields_of; /* or NULL */
    sh_http_request *req;     /* NULL: the client is gone */
    atomic_bool gone;         /* the same, readable by the worker, which can then skip its work */
    sh_model_waiter turn;     /* for its model, which is known once the body was parsed */
    sh_served_model *served;
    sh_str body;
    char *body_copy; /* for the worker */
    cJSON *json;     /* the body, parsed */
    size_t values;   /* in it */
    sh_text_convert convert;
    bool refused;
    sh_api_error error;
    sh_buf out;
    sh_buf ignored; /* fields that have no effect, see sh_fields_unknown */
};

/* Replies with what `convert` makes of the body; fields_of may be NULL: those of the endpoint. */
void sh_text_task_start(sh_http_request *req, sh_api *api, sh_text_fields fields_of,
                        sh_text_convert convert);

#endif
