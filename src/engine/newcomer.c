/* A rank that comes to a group that runs loads its share before it joins.
 *
 * While it does, the group goes on without it. So it cannot take part in the decision on shares;
 * rank 0 makes that decision ahead of time, for its members as they were measured at the last join
 * and for the newcomer as it describes itself, and says it to the newcomer alone, with all terms
 * that a shard depends on. The newcomer loads, and then joins like any rank that has been in the
 * group before: it remembers shares for exactly these members, and nobody else does, so they are
 * elected (shares.h), and every rank finds most of its shard loaded.
 *
 * If the group changes in the meantime, its epoch does too, and the plan no longer holds. The
 * newcomer learns that when it tries to join, gets another plan and loads what is missing. One that
 * has been a member and remembers shares for these members keeps to them, as its disk has that
 * shard.
 *
 * A plan is: identity of the model, epoch, number, terms, and shares as in a file. */
#include "engine/model_group_internal.h"

#include "base/alloc.h"
#include "base/log.h"
#include "base/pack.h"
#include "net/tls.h"

#include <stdlib.h>
#include <string.h>

enum { VISIT_MS = 60000 };

/* ---- rank 0 ---- */

/* A rank that asks for a plan. */
typedef struct {
    int number; /* SH_RANK_ANY: none yet */
    uint8_t node[SH_NODE_ID_LEN];
    sh_rank_offer offer;
} newcomer;

static sh_status newcomer_unpack(sh_str said, newcomer *out, sh_err *err)
{
    sh_reader r = sh_reader_of(said);
    out->number = (int)sh_get_uint(&r, 4);
    const void *node = sh_get_array(&r, SH_NODE_ID_LEN, 1);
    if (node != NULL) memcpy(out->node, node, SH_NODE_ID_LEN);
    sh_rank_offer_unpack(&r, &out->offer);
    if (out->number < 1 || out->number > SH_RANK_ANY) r.failed = true;
    return sh_get_end(&r, "the offer of a rank that is to come in", err);
}

/* The members of the group with the newcomer among them, in the order of their numbers. */
static sh_status members_with(const sh_model_group *mg, const sh_rank_offer *one,
                              sh_rank_offer *out, sh_err *err)
{
    int count = mg->shares.count, at = 0;
    if (count >= SH_RANKS_MAX)
        return sh_err_set(err, SH_ERR_LIMIT, "a group has at most %d ranks", SH_RANKS_MAX);
    while (at < count && mg->shares.members[at].member < one->member) at++;
    if (at < count && mg->shares.members[at].member == one->member)
        return sh_err_set(err, SH_ERR_GROUP, "there is a rank %d in the group", one->member);
    memcpy(out, mg->shares.members, (size_t)at * sizeof(*out));
    out[at] = *one;
    memcpy(out + at + 1, mg->shares.members + at, (size_t)(count - at) * sizeof(*out));
    /* A rank that is alone has not been measured: there was nobody to compare it with. */
    if (count == 1) out[0].resources.speed = mg->dev->ops->read_speed(mg->dev);
    return SH_OK;
}

static bool split_for(const sh_model_group *mg, const sh_rank_offer *members, int count,
                      double *shares)
{
    for (int i = 0; i < count; i++) {
        if (mg->opts.split == NULL || members[i].member >= mg->opts.split_count) return false;
        shares[i] = mg->opts.split[members[i].member];
    }
    return true;
}

/* The terms of a group of `size`. */
static sh_status terms_for(sh_model_group *mg, int size, uint8_t out[SH_TERMS_LEN], sh_err *err)
{
    int now[3] = {mg->size, mg->tensor, mg->stages};
    mg->size = size;
    sh_status status = sh_model_group_choose_grid(mg, err);
    if (status == SH_OK) sh_model_group_terms_pack(mg, out);
    mg->size = now[0];
    mg->tensor = now[1];
    mg->stages = now[2];
    return status;
}

static sh_status plan_make(sh_model_group *mg, uint64_t epoch, const newcomer *n, sh_buf *out,
                           sh_err *err)
{
    sh_rank_offer members[SH_RANKS_MAX], one = n->offer;
    double shares[SH_RANKS_MAX];
    uint8_t terms[SH_TERMS_LEN];
    int count = mg->shares.count + 1;
    sh_shares decided = {.number = mg->shares.number + 1, .count = count, members, shares};
    one.member = n->number;
    sh_status status = members_with(mg, &one, members, err);
    if (status == SH_OK) status = terms_for(mg, count, terms, err);
    if (status == SH_OK && !split_for(mg, members, count, shares))
        status = sh_shares_decide(members, count, (double)mg->identity.weight_bytes, shares, err);
    if (status != SH_OK) return status;
    sh_buf_add(out, mg->identity.id, SH_IDENTITY_LEN);
    sh_put_uint(out, epoch, 8);
    sh_put_uint(out, (uint64_t)n->number, 4);
    sh_buf_add(out, terms, sizeof(terms));
    sh_shares_pack(&decided, out);
    return SH_OK;
}

void sh_model_group_answer_newcomers(sh_model_group *mg, const sh_group *group, sh_roster *roster)
{
    sh_buf said = {0}, plan = {0};
    newcomer n = {.number = 0};
    sh_err err;
    if (mg->server == NULL || !sh_share_server_plan_asked(mg->server, &said)) return;
    sh_status status = newcomer_unpack(sh_buf_str(&said), &n, &err);
    if (status == SH_OK && n.number == SH_RANK_ANY) n.number = sh_roster_assign(roster, n.node);
    if (status == SH_OK && n.number < 1)
        status = sh_err_set(&err, SH_ERR_LIMIT, "a group has at most %d ranks", SH_RANKS_MAX);
    if (status == SH_OK) status = plan_make(mg, sh_group_epoch(group), &n, &plan, &err);
    if (status == SH_OK)
        SH_LOGI("rank %d on %s loads its share, to come in", n.number, n.offer.host);
    sh_share_server_plan_answer(mg->server, sh_buf_str(&plan), status == SH_OK ? NULL : &err);
    sh_buf_reset(&said);
    sh_buf_reset(&plan);
}

/* ---- the newcomer ---- */

typedef struct {
    sh_mesh_opts mesh;
    sh_tls *tls;
} visit;

static sh_status visit_open(void *ctx, int index, sh_stream *out, sh_err *err)
{
    const visit *v = ctx;
    (void)index;
    return sh_mesh_visit(&v->mesh, v->tls, sh_deadline_in_ms(VISIT_MS), out, err);
}

typedef struct {
    const uint8_t *id, *terms; /* in the bytes of the plan */
    uint64_t epoch;
    int number;
    sh_shares shares;
} plan;

static sh_status plan_unpack(sh_str bytes, plan *out, sh_err *err)
{
    sh_reader r = sh_reader_of(bytes);
    out->id = sh_get_array(&r, SH_IDENTITY_LEN, 1);
    out->epoch = sh_get_uint(&r, 8);
    out->number = (int)sh_get_uint(&r, 4);
    out->terms = sh_get_array(&r, SH_TERMS_LEN, 1);
    if (r.failed || out->epoch == 0 || out->number < 1 || out->number >= SH_RANKS_MAX)
        return sh_err_set(err, SH_ERR_PEER, "rank 0 sent bytes that are not a plan");
    size_t used = SH_IDENTITY_LEN + 8 + 4 + SH_TERMS_LEN;
    return sh_shares_unpack((sh_str){bytes.ptr + used, bytes.len - used}, &out->shares, err);
}

static sh_status plan_ask(sh_model_group *mg, visit *v, sh_buf *out, sh_err *err)
{
    sh_share_link link = {v, visit_open, -1};
    sh_rank_offer offer = sh_model_group_offer(mg, true);
    sh_buf said = {0};
    sh_put_uint(&said, (uint64_t)v->mesh.rank, 4);
    sh_buf_add(&said, v->mesh.node, SH_NODE_ID_LEN);
    sh_rank_offer_pack(&offer, &said);
    sh_share_client *client = sh_share_client_create(&link);
    sh_status status = sh_share_client_plan(client, sh_buf_str(&said), out, err);
    sh_share_client_free(client);
    sh_buf_reset(&said);
    return status;
}

/* This rank among the members. */
static sh_status place_find(sh_model_group *mg, const plan *p, sh_err *err)
{
    mg->size = p->shares.count;
    for (mg->rank = 0; mg->rank < mg->size; mg->rank++)
        if (p->shares.members[mg->rank].member == p->number) break;
    if (mg->rank > 0 && mg->rank < mg->size) return SH_OK;
    return sh_err_set(err, SH_ERR_PEER, "rank 0 sent a plan without rank %d", p->number);
}

/* Shares for these members that this rank remembers are those that its disk has. */
static void shares_choose(sh_model_group *mg, const plan *p)
{
    const sh_shares *s = &p->shares;
    if (sh_shares_are_for(&mg->shares, s->members, s->count) &&
        sh_shares_fit_now(&mg->shares, s->members, (double)mg->identity.weight_bytes))
        return;
    sh_shares_keep(&mg->shares, s->number, s->members, s->shares, s->count);
    mg->shares_read = true;
}

static sh_status plan_follow(sh_model_group *mg, visit *v, const plan *p, sh_err *err)
{
    sh_share_link link = {v, visit_open, -1};
    sh_status status = SH_OK;
    if (mg->opts.model_dir == NULL)
        status = sh_model_group_obtain(mg, &link, p->id, p->number, err);
    if (status == SH_OK) status = place_find(mg, p, err);
    if (status == SH_OK) status = sh_model_group_terms_take(mg, p->terms, err);
    if (status != SH_OK) return status;
    shares_choose(mg, p);
    status = sh_model_group_cut(mg, mg->shares.shares, err);
    return status == SH_OK ? sh_model_group_load_shard(mg, err) : status;
}

sh_status sh_model_group_prepare(sh_model_group *mg, const sh_group_opts *opts, int *number,
                                 uint64_t *epoch, sh_err *err)
{
    visit v = {.mesh = opts->mesh};
    plan p = {.number = 0};
    sh_buf bytes = {0};
    sh_status status = SH_OK;
    sh_model_group_leave(mg);
    if (v.mesh.token != NULL) status = sh_tls_create(v.mesh.token, &v.tls, err);
    if (status == SH_OK) status = plan_ask(mg, &v, &bytes, err);
    if (status == SH_OK) status = plan_unpack(sh_buf_str(&bytes), &p, err);
    if (status == SH_OK) {
        v.mesh.rank = mg->number = p.number;
        status = plan_follow(mg, &v, &p, err);
        sh_model_group_share_end(mg);
        sh_model_group_loaded(mg, 0, 0);
    }
    if (status == SH_OK) {
        *number = p.number;
        *epoch = p.epoch;
    }
    sh_model_group_leave(mg);
    mg->number = 0;
    sh_shares_reset(&p.shares);
    sh_buf_reset(&bytes);
    sh_tls_free(v.tls);
    return status;
}
