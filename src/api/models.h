/* models.h - the models that the API serves: a table with a row for each.
 *
 * With --model there is one row, and its engine is there for as long as the API. With --models-dir
 * the rows come from the keeper of models (cmd/support/model_keeper.h), which loads a model when it
 * is wanted and unloads it when its memory is needed. A row has an engine, a replay and a text side
 * while its model is loaded. Requests for a model that is not loaded wait in its row.
 *
 * Threads: the loop's. */
#ifndef SH_API_MODELS_H
#define SH_API_MODELS_H

#include "api/engine_conn.h"
#include "api/error.h"
#include "api/rank_watch.h"
#include "api/replay.h"
#include "api/served_model.h"
#include "api/timeline.h"
#include "base/clock.h"

#include <cjson/cJSON.h>

typedef struct sh_api sh_api;
typedef struct sh_models sh_models;
typedef struct sh_api_model sh_api_model;
typedef struct sh_model_waiter sh_model_waiter;

/* As the keeper names them; a row of --model is always READY. */
typedef enum {
    SH_MODEL_ABSENT,
    SH_MODEL_LOADING, /* or waiting for memory */
    SH_MODEL_READY,
    SH_MODEL_DRAINING, /* takes no new requests; those that run may finish */
    SH_MODEL_STOPPING, /* its processes are ending */
    SH_MODEL_FAILED,
} sh_model_state;

struct sh_api_model {
    sh_api *api;
    sh_api_model *next;
    char *name; /* NULL: that of `served` */
    char *dir;
    char *definition; /* the file with its defaults for requests, or NULL */
    char *socket;
    sh_model_state state;
    char why[SH_ERR_TEXT_MAX]; /* it failed, or has no text side */
    bool pinned;
    bool unlisted;     /* its folder is gone */
    int64_t bytes;     /* of memory, when loaded; 0: not known */
    int64_t keep_s;    /* how long it may be idle; below 0: forever */
    int64_t created_s; /* when it was listed */
    int64_t used_us;   /* last use, of the clock of records; 0: none */

    sh_timeline *timeline; /* NULL until it was loaded for the first time */
    char *linked;          /* the socket that `conn` is for */
    sh_engine_conn *conn;  /* NULL, like what follows, while it is not loaded */
    sh_replay *replay;
    sh_rank_watch *watch;
    sh_served_model *served; /* NULL until the engine is connected */
    cJSON *stats;            /* the engine's latest, or NULL */
    sh_buf stats_text;
    sh_buf ranks_text; /* "ranks" of the stats as text, since /health is polled often */

    int active; /* requests that use it */
    bool used;  /* since the keeper was told of it last */
    bool told_busy, drained;
    sh_model_waiter *waiters;
};

/* One request that needs a model. Zero it before use. */
struct sh_model_waiter {
    sh_api_model *model; /* set by sh_models_find */
    bool uses;           /* between sh_model_use and sh_model_release */
    bool waits;
    sh_model_waiter *prev, *next;
    sh_deadline deadline;
    /* The model can be used now, or *error says why not. */
    void (*go)(void *arg, const sh_api_error *error);
    void *arg;
};

/* With opts->keeper_path: connects to it; without: makes the row of --model. */
SH_MUST_CHECK sh_status sh_models_open(sh_api *api, sh_err *err);
void sh_models_close(sh_api *api); /* after all jobs have ended */

/* The row of a name; NULL, "default" and "default_model" stand for the default. NULL with an
 * error. */
sh_api_model *sh_models_find(const sh_api *api, const char *name, sh_api_error *err);
/* Whether a name is this model's. */
bool sh_model_is(const sh_api_model *model, const char *name);
/* Whether the key of this name, "" for none, may use it; else *err says so. */
bool sh_model_is_allowed(const sh_api_model *model, const char *key_name, sh_api_error *err);

/* True: w->go will be called, once, unless sh_model_release comes first. False: the model can be
 * used at once. */
bool sh_model_wait(sh_api_model *model, sh_model_waiter *waiter);
/* From here on the model is not unloaded, until the release. */
void sh_model_use(sh_api_model *model, sh_model_waiter *waiter);
void sh_model_release(sh_model_waiter *waiter); /* also ends a wait */
void sh_models_expire(sh_api *api);             /* waits and held sequences; about once a second */
void sh_models_sample(sh_api *api);             /* for the plots; once a second */
void sh_models_stop(sh_api *api);

/* The only model of the table is unloaded, and its engine will not come back. */
void sh_models_drop(sh_api *api, const char *why);

/* How long the model may be idle; seconds below 0: forever. */
void sh_model_keep(sh_api_model *model, double seconds);

/* Whether models come and go, and whether the first list of them is complete. */
bool sh_models_several(const sh_api *api);
bool sh_models_listed(const sh_api *api);

/* The row that status pages show where they have room for one: never NULL. */
const sh_api_model *sh_models_main(const sh_api *api);
/* All rows that clients see, sorted by name: the first, the next. */
const sh_api_model *sh_models_first(const sh_api *api);
const sh_api_model *sh_models_next(const sh_api_model *model);

const char *sh_model_name(const sh_api_model *model);       /* NULL: not known yet */
const char *sh_model_state_name(const sh_api_model *model); /* as clients see it */
int64_t sh_model_created_s(const sh_api_model *model);
const sh_engine_info *sh_model_info(const sh_api_model *model); /* NULL: not connected */
/* Whether a request could be computed now; else *err says why not. */
bool sh_model_ready(const sh_api_model *model, sh_api_error *err);
int sh_model_running(const sh_api_model *model);
sh_replay_stats sh_model_replay_stats(const sh_api_model *model);
/* A top-level number of the engine's stats, or `fallback`. */
double sh_model_stat(const sh_api_model *model, const char *path, double fallback);
/* Asks the engines for new stats; false: there is none. */
bool sh_models_refresh(const sh_api *api);

#endif
