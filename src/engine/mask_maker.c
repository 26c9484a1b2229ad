#include "engine/mask_maker.h"

#include "base/alloc.h"
#include "base/thread.h"

#include <pthread.h>
#include <stdlib.h>

typedef enum { IDLE, READY, TAKEN, QUIT } work_state; /* READY: nobody has begun */

struct sh_mask_maker {
    sh_mask_order *orders; /* of whoever does the work while it is TAKEN, else of the owner */
    int count, max;
    bool threaded; /* there is a thread */
    pthread_t thread;
    pthread_mutex_t lock; /* guards `state` only */
    pthread_cond_t changed;
    work_state state;
};

sh_mask_maker *sh_mask_maker_create(int max)
{
    sh_mask_maker *m = sh_alloc(sizeof(*m));
    m->orders = sh_alloc_array((size_t)max, sizeof(*m->orders));
    m->max = max;
    pthread_mutex_init(&m->lock, NULL);
    pthread_cond_init(&m->changed, NULL);
    return m;
}

static void set_state(sh_mask_maker *m, work_state to)
{
    pthread_mutex_lock(&m->lock);
    m->state = to;
    pthread_cond_broadcast(&m->changed);
    pthread_mutex_unlock(&m->lock);
}

void sh_mask_maker_clear(sh_mask_maker *m)
{
    for (int i = 0; i < m->count; i++) free(m->orders[i].err);
    m->count = 0;
}

void sh_mask_maker_free(sh_mask_maker *m)
{
    if (m == NULL) return;
    set_state(m, QUIT);
    if (m->threaded) pthread_join(m->thread, NULL);
    sh_mask_maker_clear(m);
    pthread_cond_destroy(&m->changed);
    pthread_mutex_destroy(&m->lock);
    free(m->orders);
    free(m);
}

static void make(sh_mask_order *o)
{
    sh_mask mask;
    sh_err err;
    if (sh_constraint_mask(o->constraint, o->state, o->may_end, &mask, &err) == SH_OK) {
        sh_constraint_mask_bits(o->constraint, &mask, o->bits);
        o->key = mask.key;
        return;
    }
    sh_constraint_all_bits(o->constraint, o->bits);
    o->err = sh_alloc(sizeof(*o->err));
    *o->err = err;
}

static void make_all(sh_mask_maker *m)
{
    for (int i = 0; i < m->count; i++) make(&m->orders[i]);
}

static void *maker_thread(void *arg)
{
    sh_mask_maker *m = arg;
    pthread_mutex_lock(&m->lock);
    while (m->state != QUIT) {
        if (m->state != READY) {
            pthread_cond_wait(&m->changed, &m->lock);
            continue;
        }
        m->state = TAKEN;
        pthread_mutex_unlock(&m->lock);
        make_all(m);
        pthread_mutex_lock(&m->lock);
        m->state = IDLE;
        pthread_cond_broadcast(&m->changed);
    }
    pthread_mutex_unlock(&m->lock);
    return NULL;
}

sh_mask_order *sh_mask_maker_add(sh_mask_maker *m)
{
    SH_ASSERT(m->count < m->max);
    sh_mask_order *o = &m->orders[m->count++];
    *o = (sh_mask_order){0};
    return o;
}

bool sh_mask_maker_start(sh_mask_maker *m)
{
    if (m->count == 0) return false;
    if (!m->threaded) m->threaded = sh_thread_start(&m->thread, maker_thread, m) == 0;
    set_state(m, READY);
    return true;
}

sh_mask_order *sh_mask_maker_wait(sh_mask_maker *m, int *count)
{
    pthread_mutex_lock(&m->lock);
    bool mine = m->state == READY;
    if (mine) m->state = IDLE;
    while (m->state == TAKEN) pthread_cond_wait(&m->changed, &m->lock);
    pthread_mutex_unlock(&m->lock);
    if (mine) make_all(m);
    *count = m->count;
    return m->orders;
}
