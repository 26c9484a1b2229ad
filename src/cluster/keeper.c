/* Every change of state goes through enter(), which reports it. The queue is a number in each
 * model; there are too few of them for anything better. Only the first of the queue may take
 * memory: a large model must not wait forever while small ones slip past it. */
#include "cluster/keeper.h"

#include "base/alloc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    FRESH_MS = 10000, /* for whoever wanted a model to begin using it */
    RETRY_FIRST_MS = 5000,
    RETRY_MAX_MS = 60000,
};

typedef struct {
    char name[64];
    double limit;
} host;

struct sh_keeper {
    sh_keeper_hooks hooks;
    int64_t keep_ms;
    uint64_t turns;
    host hosts[SH_KEEPER_HOSTS_MAX];
    sh_kept_model **models; /* NULL: free */
    int count;
};

const char *sh_kept_state_name(sh_kept_state state)
{
    static const char *const names[] = {
        [SH_KEPT_ABSENT] = "absent",     [SH_KEPT_QUEUED] = "queued",
        [SH_KEPT_LOADING] = "loading",   [SH_KEPT_READY] = "ready",
        [SH_KEPT_DRAINING] = "draining", [SH_KEPT_STOPPING] = "stopping",
        [SH_KEPT_FAILED] = "failed",
    };
    return names[state];
}

sh_keeper *sh_keeper_create(const sh_keeper_hooks *hooks, int64_t keep_ms)
{
    sh_keeper *k = sh_alloc(sizeof(*k));
    k->hooks = *hooks;
    k->keep_ms = keep_ms;
    return k;
}

static void model_free(sh_kept_model *m)
{
    if (m != NULL) free(m->name);
    free(m);
}

void sh_keeper_free(sh_keeper *k)
{
    if (k == NULL) return;
    for (int i = 0; i < k->count; i++) model_free(k->models[i]);
    free(k->models);
    free(k);
}

void sh_keeper_set_host(sh_keeper *k, int number, const char *name, double limit)
{
    SH_ASSERT(number >= 0 && number < SH_KEEPER_HOSTS_MAX);
    snprintf(k->hosts[number].name, sizeof(k->hosts[number].name), "%s", name);
    k->hosts[number].limit = limit;
}

int sh_keeper_add(sh_keeper *k, const char *name, bool pinned)
{
    int i = 0;
    while (i < k->count && k->models[i] != NULL) i++;
    if (i == k->count) {
        k->models = sh_realloc_array(k->models, (size_t)k->count + 1, sizeof(*k->models));
        k->count++;
    }
    k->models[i] = sh_alloc(sizeof(**k->models));
    *k->models[i] = (sh_kept_model){
        .name = sh_strdup(name), .pinned = pinned, .keep_ms = k->keep_ms};
    return i;
}

static sh_kept_model *model_of(const sh_keeper *k, int model)
{
    SH_ASSERT(model >= 0 && model < k->count && k->models[model] != NULL);
    return k->models[model];
}

bool sh_keeper_remove(sh_keeper *k, int model)
{
    const sh_kept_model *m = model_of(k, model);
    if (m->state != SH_KEPT_ABSENT && m->state != SH_KEPT_FAILED) return false;
    model_free(k->models[model]);
    k->models[model] = NULL;
    return true;
}

int sh_keeper_count(const sh_keeper *k)
{
    return k->count;
}

const sh_kept_model *sh_keeper_model(const sh_keeper *k, int model)
{
    return model >= 0 && model < k->count ? k->models[model] : NULL;
}

static void enter(sh_keeper *k, int model, sh_kept_state state)
{
    k->models[model]->state = state;
    k->hooks.changed(k->hooks.arg, model);
}

static void queue_enter(sh_keeper *k, int model)
{
    sh_kept_model *m = k->models[model];
    m->turn = ++k->turns;
    m->wanted = false;
    m->why[0] = '\0';
    memset(m->need, 0, sizeof(m->need));
    enter(k, model, SH_KEPT_QUEUED);
}

void sh_keeper_want(sh_keeper *k, int model, int64_t now_ms)
{
    sh_kept_model *m = model_of(k, model);
    m->used_ms = now_ms;
    if (m->state == SH_KEPT_ABSENT || (m->state == SH_KEPT_FAILED && now_ms >= m->retry_ms))
        queue_enter(k, model);
    else if (m->state == SH_KEPT_DRAINING || m->state == SH_KEPT_STOPPING)
        m->wanted = m->why[0] == '\0'; /* one that goes because it failed is not tried at once */
}

void sh_keeper_use(sh_keeper *k, int model, bool begun, int64_t now_ms)
{
    sh_kept_model *m = model_of(k, model);
    m->users += begun ? 1 : -1;
    SH_ASSERT(m->users >= 0);
    m->used_ms = now_ms;
    m->fresh = false;
}

void sh_keeper_keep(sh_keeper *k, int model, int64_t keep_ms)
{
    model_of(k, model)->keep_ms = keep_ms;
}

void sh_keeper_up(sh_keeper *k, int model, int64_t now_ms)
{
    sh_kept_model *m = model_of(k, model);
    if (m->state != SH_KEPT_LOADING) return;
    m->failures = 0;
    m->used_ms = now_ms;
    m->fresh = true;
    enter(k, model, SH_KEPT_READY);
}

void sh_keeper_drained(sh_keeper *k, int model)
{
    if (model_of(k, model)->state != SH_KEPT_DRAINING) return;
    enter(k, model, SH_KEPT_STOPPING);
    k->hooks.stop(k->hooks.arg, model);
}

/* The pause grows with every failure in a row. */
static void failure_note(sh_kept_model *m, const char *why, int64_t now_ms)
{
    int64_t pause = RETRY_FIRST_MS;
    for (int i = 0; i < m->failures && pause < RETRY_MAX_MS; i++) pause *= 2;
    m->failures++;
    m->retry_ms = now_ms + (pause < RETRY_MAX_MS ? pause : RETRY_MAX_MS);
    m->wanted = false;
    snprintf(m->why, sizeof(m->why), "%s", why);
}

void sh_keeper_fail(sh_keeper *k, int model, const char *why, int64_t now_ms)
{
    sh_kept_model *m = model_of(k, model);
    if (m->state != SH_KEPT_LOADING && m->state != SH_KEPT_READY && m->state != SH_KEPT_DRAINING)
        return;
    failure_note(m, why, now_ms);
    enter(k, model, SH_KEPT_STOPPING);
    k->hooks.stop(k->hooks.arg, model);
}

void sh_keeper_gone(sh_keeper *k, int model, int64_t now_ms)
{
    sh_kept_model *m = model_of(k, model);
    m->keep_ms = k->keep_ms;
    m->used_ms = now_ms;
    enter(k, model, m->why[0] != '\0' ? SH_KEPT_FAILED : SH_KEPT_ABSENT);
    if (m->wanted) queue_enter(k, model);
}

static bool is_loaded(const sh_kept_model *m)
{
    return m->state == SH_KEPT_LOADING || m->state == SH_KEPT_READY ||
           m->state == SH_KEPT_DRAINING || m->state == SH_KEPT_STOPPING;
}

static bool is_going(const sh_kept_model *m)
{
    return m->state == SH_KEPT_DRAINING || m->state == SH_KEPT_STOPPING;
}

static bool counts_now(const sh_kept_model *m)
{
    return is_loaded(m);
}

static bool counts_soon(const sh_kept_model *m)
{
    return is_loaded(m) && !is_going(m);
}

static bool counts_always(const sh_kept_model *m)
{
    return is_loaded(m) && !is_going(m) && m->pinned;
}

/* The host that lacks most memory for the model, beside the models that count; -1: it fits. */
static int host_lacking(const sh_keeper *k, const sh_kept_model *wanted,
                        bool (*counts)(const sh_kept_model *), double *missing)
{
    int worst = -1;
    *missing = 0;
    for (int h = 0; h < SH_KEEPER_HOSTS_MAX; h++) {
        double sum = wanted->need[h];
        for (int i = 0; i < k->count; i++)
            if (k->models[i] != NULL && counts(k->models[i])) sum += k->models[i]->need[h];
        if (wanted->need[h] <= 0 || sum - k->hosts[h].limit <= *missing) continue;
        worst = h;
        *missing = sum - k->hosts[h].limit;
    }
    return worst;
}

static bool goes_before(const sh_kept_model *a, const sh_kept_model *b)
{
    if ((a->users == 0) != (b->users == 0)) return a->users == 0;
    return a->used_ms < b->used_ms;
}

/* Which model has to make room; -1: none can. */
static int victim_choose(const sh_keeper *k, int64_t now_ms)
{
    int chosen = -1;
    for (int i = 0; i < k->count; i++) {
        const sh_kept_model *m = k->models[i];
        if (m == NULL || m->state != SH_KEPT_READY || m->pinned) continue;
        if (m->fresh && now_ms - m->used_ms < FRESH_MS) continue;
        if (chosen < 0 || goes_before(m, k->models[chosen])) chosen = i;
    }
    return chosen;
}

static void refuse(sh_keeper *k, int model, const char *why, int64_t now_ms)
{
    failure_note(k->models[model], why, now_ms);
    enter(k, model, SH_KEPT_FAILED);
}

/* It would not fit if every model that may go were gone. */
static void refuse_size(sh_keeper *k, int model, int h, double missing, int64_t now_ms)
{
    char why[SH_ERR_TEXT_MAX];
    const sh_kept_model *m = k->models[model];
    double mib = 1024.0 * 1024.0, alone = m->need[h] - k->hosts[h].limit;
    const char *beside = missing > alone ? " beside the models that are pinned" : "";
    snprintf(why, sizeof(why),
             "it does not fit: %s has %.0f MiB for models (--memory), and it needs %.0f MiB "
             "there%s; %.0f MiB are missing",
             k->hosts[h].name, k->hosts[h].limit / mib, m->need[h] / mib, beside, missing / mib);
    refuse(k, model, why, now_ms);
    k->models[model]->retry_ms = now_ms; /* asking costs nothing */
}

static void load(sh_keeper *k, int model, int64_t now_ms)
{
    sh_err err;
    if (k->hooks.start(k->hooks.arg, model, &err) == SH_OK)
        enter(k, model, SH_KEPT_LOADING);
    else
        refuse(k, model, err.text, now_ms);
}

static int queue_first(const sh_keeper *k)
{
    int first = -1;
    for (int i = 0; i < k->count; i++) {
        const sh_kept_model *m = k->models[i];
        if (m == NULL || m->state != SH_KEPT_QUEUED) continue;
        if (first < 0 || m->turn < k->models[first]->turn) first = i;
    }
    return first;
}

/* Takes one step for the first of the queue. False: it has to wait. */
static bool queue_step(sh_keeper *k, int model, int64_t now_ms)
{
    sh_kept_model *m = k->models[model];
    double missing;
    sh_err err;
    sh_status status = k->hooks.measure(k->hooks.arg, model, m->need, &err);
    if (status == SH_AGAIN) {
        bool said = strcmp(m->why, err.text) == 0;
        snprintf(m->why, sizeof(m->why), "%s", err.text);
        if (!said) enter(k, model, SH_KEPT_QUEUED);
        return false;
    }
    m->why[0] = '\0';
    if (status != SH_OK) {
        refuse(k, model, err.text, now_ms);
        return true;
    }
    int h = host_lacking(k, m, counts_always, &missing);
    if (h >= 0) {
        refuse_size(k, model, h, missing, now_ms);
        return true;
    }
    if (host_lacking(k, m, counts_now, &missing) < 0) {
        load(k, model, now_ms);
        return true;
    }
    if (host_lacking(k, m, counts_soon, &missing) < 0) return false;
    int victim = victim_choose(k, now_ms);
    if (victim >= 0) enter(k, victim, SH_KEPT_DRAINING);
    return victim >= 0;
}

static void idle_drain(sh_keeper *k, int64_t now_ms)
{
    for (int i = 0; i < k->count; i++) {
        const sh_kept_model *m = k->models[i];
        if (m == NULL || m->state != SH_KEPT_READY || m->pinned || m->users > 0) continue;
        int64_t idle = now_ms - m->used_ms, may = m->keep_ms;
        if (m->fresh && may < FRESH_MS) may = FRESH_MS;
        if (m->keep_ms != SH_KEEP_FOREVER && idle >= may) enter(k, i, SH_KEPT_DRAINING);
    }
}

void sh_keeper_tick(sh_keeper *k, int64_t now_ms)
{
    int first;
    idle_drain(k, now_ms);
    while ((first = queue_first(k)) >= 0 && queue_step(k, first, now_ms)) continue;
}
