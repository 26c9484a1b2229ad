/* One step of a model group: rank 0 broadcasts the plan, hidden states move from stage to stage,
 * and the ranks of the last stage send rank 0 summaries of their logits, from which it picks
 * tokens.
 *
 * Every rank handles rank 0's messages in the order in which they were sent, and answers in that
 * order. That is the whole protocol: no answer names the step it belongs to, so a step that reads
 * one answer too few or too many would misread all that follow. Two guards turn such a bug (or a
 * broken machine) into an error instead of wrong text: the fingerprint of the batch state, compared
 * before a rank runs a plan, and the hash of the final hidden states, compared when rank 0 finishes
 * the step.
 *
 * Receive buffers for the steps in flight are rings indexed by step % stages, since at most
 * `stages` steps are in flight at once. */
#include "engine/model_group_internal.h"

#include "base/clock.h"
#include "engine/rank_messages.h"

#include <inttypes.h>
#include <string.h>

enum { PLAN_MAX = 64 << 20 };

static int stage_of(const sh_model_group *mg)
{
    return mg->rank / mg->tensor;
}

static bool last_stage(const sh_model_group *mg)
{
    return stage_of(mg) == mg->stages - 1;
}

static double since(int64_t start_ns)
{
    return (double)(sh_clock_ns() - start_ns) * 1e-9;
}

void sh_model_group_counted(sh_model_group *mg, sh_traffic what, size_t bytes, int64_t start_ns)
{
    sh_traffic_cost *t = &mg->times.traffic[what];
    t->calls++;
    t->bytes += bytes;
    t->seconds += since(start_ns);
}

static sh_status send_to(sh_model_group *mg, sh_traffic what, int to, const void *data,
                         size_t bytes, sh_err *err)
{
    int64_t start = sh_clock_ns();
    sh_status status = sh_coll_send(mg->group, to, data, bytes, err);
    sh_model_group_counted(mg, what, bytes, start);
    return status;
}

static sh_status recv_from(sh_model_group *mg, sh_traffic what, int from, void *data, size_t bytes,
                           sh_err *err)
{
    int64_t start = sh_clock_ns();
    sh_status status = sh_coll_recv(mg->group, from, data, bytes, err);
    sh_model_group_counted(mg, what, bytes, start);
    return status;
}

/* An unusually long plan has moved the buffer: register it again. */
static sh_status message_register(sh_model_group *mg, sh_err *err)
{
    sh_group_unregister_memory(mg->group, mg->message_registered);
    mg->message_registered = mg->message.ptr;
    return sh_group_register_memory(mg->group, mg->message.ptr, mg->message.cap, err);
}

/* On rank 0 sends mg->message to all ranks, on the others receives it. There is no deadline: an
 * idle group may wait for the next request indefinitely, and lost ranks are noticed by the group.
 */
static sh_status message_broadcast(sh_model_group *mg, sh_err *err)
{
    int64_t start = sh_clock_ns();
    sh_status status = SH_OK;
    if (mg->rank == 0 && mg->message.ptr != mg->message_registered)
        status = message_register(mg, err);
    if (status == SH_OK)
        status = sh_coll_broadcast_buf(mg->group, 0, &mg->message, PLAN_MAX, SH_DEADLINE_NEVER,
                                       err);
    sh_model_group_counted(mg, SH_TRAFFIC_PLAN, mg->message.len, start);
    return status;
}

static size_t hidden_bytes(const sh_model_group *mg, int tokens)
{
    return (size_t)tokens * (size_t)mg->config.hidden * sizeof(float);
}

static sh_status hidden_recv(sh_model_group *mg, int tokens, sh_err *err)
{
    sh_status status = recv_from(mg, SH_TRAFFIC_HANDOVER, mg->rank - mg->tensor, mg->hidden,
                                 hidden_bytes(mg, tokens), err);
    if (status == SH_OK)
        mg->dev->ops->write_rows(mg->dev, sh_model_hidden(mg->model), tokens, mg->config.hidden,
                                 mg->hidden);
    return status;
}

static sh_status hidden_send(sh_model_group *mg, int tokens, sh_err *err)
{
    mg->dev->ops->read_rows(mg->dev, sh_model_hidden(mg->model), 0, tokens, mg->config.hidden,
                            mg->hidden);
    return send_to(mg, SH_TRAFFIC_HANDOVER, mg->rank + mg->tensor, mg->hidden,
                   hidden_bytes(mg, tokens), err);
}

/* Whether a rank draws, and so needs the masks. */
static bool draws(const sh_model_group *mg, int rank)
{
    return rank / mg->tensor == mg->stages - 1 && mg->shards[rank].vocab.count > 0;
}

/* Rank 0: waits until the masks of a plan are made, and sends them to the other ranks that draw. An
 * sh_mask_feed. */
static sh_status masks_send(void *ctx, sh_step_plan *plan, sh_err *err)
{
    sh_model_group *mg = ctx;
    sh_status status = SH_OK;
    mg->masks_step = plan->step;
    sh_step_masks_await(plan);
    if (mg->group == NULL) return SH_OK;
    sh_buf_clear(&mg->masks);
    sh_step_masks_pack(plan, &mg->masks);
    for (int i = 1; i < mg->size && status == SH_OK; i++)
        if (draws(mg, i))
            status = send_to(mg, SH_TRAFFIC_PLAN, i, mg->masks.ptr, mg->masks.len, err);
    return status;
}

/* The other side of masks_send. */
static sh_status masks_recv(void *ctx, sh_step_plan *plan, sh_err *err)
{
    sh_model_group *mg = ctx;
    size_t len = sh_step_masks_bytes(plan);
    sh_buf_clear(&mg->masks);
    sh_buf_reserve(&mg->masks, len);
    sh_status status = recv_from(mg, SH_TRAFFIC_PLAN, 0, mg->masks.ptr, len, err);
    return status == SH_OK ? sh_step_masks_unpack((sh_str){mg->masks.ptr, len}, plan, err) : status;
}

/* Runs this rank's part of a plan that was applied: input from the stage before, output to the
 * stage after. compute_s excludes the sums, which the forward pass waits for. */
static sh_status stage_run(sh_model_group *mg, sh_step_plan *plan, sh_err *err)
{
    sh_mask_feed feed = {mg->rank == 0 ? masks_send : masks_recv, mg};
    sh_status status = SH_OK;
    if (stage_of(mg) > 0) status = hidden_recv(mg, plan->token_count, err);
    if (status != SH_OK) return status;
    double summing = mg->times.traffic[SH_TRAFFIC_SUM].seconds,
           forward = sh_rank_forward_s(mg->self);
    status = sh_rank_run(mg->self, plan, &feed, err);
    mg->times.compute_s += sh_rank_forward_s(mg->self) - forward -
                           (mg->times.traffic[SH_TRAFFIC_SUM].seconds - summing);
    mg->times.steps++;
    mg->times.tokens += (uint64_t)plan->token_count;
    if (status == SH_OK && !last_stage(mg)) status = hidden_send(mg, plan->token_count, err);
    return status;
}

/* Bytes of the vectors that a plan completes, in the message of the rank that makes them: the
 * first of the last stage. */
static size_t vectors_bytes(const sh_model_group *mg, const sh_step_plan *plan, int tensor_rank)
{
    if (tensor_rank != 0) return 0;
    return (size_t)sh_step_plan_vectors(plan) * (size_t)mg->config.hidden * sizeof(float);
}

/* Likewise of the outputs that a plan asks for. */
static size_t outputs_bytes(const sh_model_group *mg, const sh_step_plan *plan, int tensor_rank)
{
    return tensor_rank == 0 && plan->outputs ? hidden_bytes(mg, plan->token_count) : 0;
}

/* Bytes of the message with the summaries of a plan's draws, preceded by a hash and followed by
 * vectors and outputs. Both ends compute it from the plan, so the message needs no length. */
static size_t summaries_bytes(const sh_model_group *mg, const sh_step_plan *plan, int tensor_rank)
{
    size_t bytes = sizeof(uint64_t);
    for (int i = 0; i < plan->draw_count; i++)
        bytes += sh_logits_summary_bytes(&plan->draws[i].draw);
    return bytes + vectors_bytes(mg, plan, tensor_rank) + outputs_bytes(mg, plan, tensor_rank);
}

static sh_status summaries_send(sh_model_group *mg, const sh_step_plan *plan, sh_err *err)
{
    const sh_logits_summary *summaries = sh_rank_summaries(mg->self, plan->step);
    sh_buf_clear(&mg->outgoing);
    sh_put_uint(&mg->outgoing, sh_rank_hash(mg->self, plan->step), 8);
    for (int i = 0; i < plan->draw_count; i++)
        sh_logits_summary_pack(&summaries[i], &plan->draws[i].draw, &mg->outgoing);
    sh_buf_add(&mg->outgoing, sh_rank_vectors(mg->self, plan->step),
               vectors_bytes(mg, plan, mg->rank % mg->tensor));
    sh_buf_add(&mg->outgoing, sh_rank_outputs(mg->self, plan->step),
               outputs_bytes(mg, plan, mg->rank % mg->tensor));
    return send_to(mg, SH_TRAFFIC_SUMMARIES, 0, mg->outgoing.ptr, mg->outgoing.len, err);
}

/* Applies a plan to this rank's batch state. Rank 0 stamps the resulting fingerprint on the plan;
 * on other ranks a different fingerprint is an error. */
static sh_status plan_apply(sh_model_group *mg, sh_step_plan *plan, sh_err *err)
{
    uint64_t mine;
    sh_status status = sh_rank_apply(mg->self, plan, &mine, err);
    if (status == SH_OK && mg->rank == 0) plan->fingerprint = mine;
    if (status == SH_OK && mine == plan->fingerprint) return SH_OK;
    mg->kv_epoch = 0; /* what the steps before have written cannot be trusted either */
    if (status != SH_OK) return status;
    return sh_err_set(err, SH_ERR_GROUP,
                      "step %" PRIu64
                      ": the batch state of rank %d differs from rank 0's (%016" PRIx64
                      ", not %016" PRIx64 ")",
                      plan->step, sh_model_group_number(mg, mg->rank), mine, plan->fingerprint);
}

/* Index of the receive buffer for the summaries that tensor rank t of the last stage sends. */
static size_t incoming_index(const sh_model_group *mg, uint64_t step, int t)
{
    return (size_t)(step % (uint64_t)mg->stages) * (size_t)mg->tensor + (size_t)t;
}

static char *incoming_at(const sh_model_group *mg, uint64_t step, int t)
{
    return mg->incoming + incoming_index(mg, step, t) * mg->incoming_cap;
}

/* Posts the receives for the summaries of a step from the ranks of the last stage. */
static void incoming_expect(sh_model_group *mg, const sh_step_plan *plan)
{
    int first = (mg->stages - 1) * mg->tensor;
    for (int t = 0; t < mg->tensor; t++)
        if (first + t != mg->rank)
            mg->incoming_due[incoming_index(mg, plan->step, t)] = sh_coll_expect(
                mg->group, first + t, incoming_at(mg, plan->step, t), summaries_bytes(mg, plan, t));
}

/* A pipeline is a ring: rank 0 sends hidden states to the next stage while the last stage sends it
 * the summaries of an earlier step. If each had to finish sending before it received, they could
 * deadlock, so rank 0 posts the receives before it runs the step. Without a pipeline the ranks
 * reach their summaries only after the sums of the step, and the receives are posted when the step
 * is finished. */
static bool incoming_comes_early(const sh_model_group *mg)
{
    return mg->group != NULL && mg->stages > 1;
}

static sh_status step_begin(sh_model_group *mg, sh_step_plan *plan, sh_err *err)
{
    plan->step = ++mg->step;
    mg->begun[plan->step % (uint64_t)mg->stages] = plan;
    if (incoming_comes_early(mg)) incoming_expect(mg, plan);
    sh_status status = plan_apply(mg, plan, err);
    if (status == SH_OK && mg->group != NULL) {
        sh_buf_clear(&mg->message);
        sh_step_plan_pack(plan, &mg->message);
        status = message_broadcast(mg, err);
    }
    if (status == SH_OK) status = stage_run(mg, plan, err);
    /* A rank 0 that does not draw was not asked for the masks. */
    if (status == SH_OK && plan->mask_count > 0 && mg->masks_step != plan->step)
        status = masks_send(mg, plan, err);
    sh_step_masks_await(plan); /* also after an error: then whoever makes them must stop */
    return status;
}

sh_status sh_model_group_begin(sh_model_group *mg, sh_step_plan *plan, sh_err *err)
{
    int64_t start = sh_clock_ns();
    sh_status status = step_begin(mg, plan, err);
    mg->times.step_s += since(start);
    return status;
}

/* Waits for the summaries of all steps up to this one that have not been received yet. */
static sh_status incoming_recv(sh_model_group *mg, uint64_t upto, sh_err *err)
{
    int first = (mg->stages - 1) * mg->tensor;
    for (; mg->incoming_step < upto; mg->incoming_step++) {
        uint64_t step = mg->incoming_step + 1;
        const sh_step_plan *plan = mg->begun[step % (uint64_t)mg->stages];
        if (!incoming_comes_early(mg)) incoming_expect(mg, plan);
        for (int t = 0; t < mg->tensor; t++) {
            if (first + t == mg->rank) continue;
            int64_t start = sh_clock_ns();
            sh_status status = sh_coll_await(mg->group, first + t,
                                             mg->incoming_due[incoming_index(mg, step, t)], err);
            sh_model_group_counted(mg, SH_TRAFFIC_SUMMARIES, summaries_bytes(mg, plan, t), start);
            if (status != SH_OK) return status;
        }
    }
    return SH_OK;
}

/* Ranks that share the last stage must have computed the same hidden states. */
static sh_status hashes_check(sh_model_group *mg, const sh_step_plan *plan, sh_err *err)
{
    uint64_t want = 0;
    int first = (mg->stages - 1) * mg->tensor;
    for (int t = 0; t < mg->tensor; t++) {
        uint64_t hash = sh_rank_hash(mg->self, plan->step);
        if (first + t != mg->rank) {
            sh_reader r = sh_reader_of((sh_str){incoming_at(mg, plan->step, t), sizeof(hash)});
            hash = sh_get_uint(&r, 8);
        }
        if (t == 0) want = hash;
        if (hash == want) continue;
        sh_err_set(err, SH_ERR_GROUP,
                   "step %" PRIu64 ": ranks %d and %d computed different hidden states (%016" PRIx64
                   ", %016" PRIx64 ")",
                   plan->step, sh_model_group_number(mg, first),
                   sh_model_group_number(mg, first + t), want, hash);
        mg->kv_epoch = 0; /* whatever made them differ may be in the KV: no rank keeps it */
        sh_group_fail(mg->group, err->text);
        return err->status;
    }
    return SH_OK;
}

static sh_status summary_read(const sh_model_group *mg, const char *at, const sh_draw *draw,
                              int from, sh_logits_summary *out, sh_err *err)
{
    sh_reader r = sh_reader_of((sh_str){at, sh_logits_summary_bytes(draw)});
    sh_logits_summary_unpack(&r, draw, mg->shards[from].vocab, out);
    if (!r.failed) return SH_OK;
    return sh_err_set(err, SH_ERR_GROUP, "rank %d sent an invalid logits summary",
                      sh_model_group_number(mg, from));
}

/* Picks a token for each draw. Where the candidates in the summaries cannot settle the draw, the
 * whole row is fetched. */
static sh_status picks_make(sh_model_group *mg, const sh_step_plan *plan, sh_pick *picks,
                            sh_err *err)
{
    int first = (mg->stages - 1) * mg->tensor;
    size_t at = sizeof(uint64_t);
    for (int i = 0; i < plan->draw_count; i++) {
        const sh_draw *draw = &plan->draws[i].draw;
        sh_status status = SH_OK;
        for (int t = 0; t < mg->tensor && status == SH_OK; t++) {
            if (first + t == mg->rank)
                mg->summaries[t] = sh_rank_summaries(mg->self, plan->step)[i];
            else
                status = summary_read(mg, incoming_at(mg, plan->step, t) + at, draw, first + t,
                                      &mg->summaries[t], err);
        }
        if (status != SH_OK) return status;
        at += sh_logits_summary_bytes(draw);
        if (sh_pick_join(draw, mg->summaries, mg->tensor, &picks[i]) == SH_OK) continue;
        status = sh_model_group_row(mg, plan, i, mg->row, err);
        if (status != SH_OK) return status;
        sh_pick_whole(draw, mg->row, mg->config.vocab, mg->sorted, &picks[i]);
    }
    return SH_OK;
}

/* Vectors follow the summaries in the message, or are here. */
static void vectors_take(sh_model_group *mg, const sh_step_plan *plan)
{
    size_t bytes = vectors_bytes(mg, plan, 0);
    const void *from = sh_rank_vectors(mg->self, plan->step);
    if (bytes == 0) return;
    if (mg->stages > 1)
        from = incoming_at(mg, plan->step, 0) + summaries_bytes(mg, plan, 0) -
               outputs_bytes(mg, plan, 0) - bytes;
    memcpy(mg->vectors, from, bytes);
}

const float *sh_model_group_vectors(const sh_model_group *mg)
{
    return mg->vectors;
}

const void *sh_model_group_outputs(const sh_model_group *mg, const sh_step_plan *plan)
{
    if (mg->stages == 1) return sh_rank_outputs(mg->self, plan->step);
    return incoming_at(mg, plan->step, 0) + summaries_bytes(mg, plan, 0) -
           outputs_bytes(mg, plan, 0);
}

static sh_status step_finish(sh_model_group *mg, const sh_step_plan *plan, sh_pick *picks,
                             sh_err *err)
{
    if (mg->group != NULL) {
        sh_status status = incoming_recv(mg, plan->step, err);
        if (status == SH_OK) status = hashes_check(mg, plan, err);
        if (status != SH_OK) return status;
    }
    vectors_take(mg, plan);
    return picks_make(mg, plan, picks, err);
}

sh_status sh_model_group_finish(sh_model_group *mg, const sh_step_plan *plan, sh_pick *picks,
                                sh_err *err)
{
    int64_t start = sh_clock_ns();
    sh_status status = step_finish(mg, plan, picks, err);
    mg->times.step_s += since(start);
    return status;
}

sh_status sh_model_group_row(sh_model_group *mg, const sh_step_plan *plan, int draw, float *out,
                             sh_err *err)
{
    int first = (mg->stages - 1) * mg->tensor;
    if (mg->group != NULL) {
        /* The ranks answer in order, so the summaries of all steps in flight come first. */
        sh_status status = incoming_recv(mg, mg->step, err);
        if (status != SH_OK) return status;
        sh_step_plan_clear(mg->plan);
        mg->plan->kind = SH_STEP_ROWS;
        mg->plan->step = plan->step;
        mg->plan->tokens[mg->plan->token_count++] = draw;
        sh_buf_clear(&mg->message);
        sh_step_plan_pack(mg->plan, &mg->message);
        status = message_broadcast(mg, err);
        if (status != SH_OK) return status;
    }
    for (int t = 0; t < mg->tensor; t++) {
        sh_range part = mg->shards[first + t].vocab;
        size_t bytes = (size_t)part.count * sizeof(float);
        sh_status status = SH_OK;
        if (first + t == mg->rank) {
            bool kept = sh_rank_read_row(mg->self, plan->step, draw, out + part.first);
            SH_ASSERT(kept); /* rank 0 asks before it begins another step */
        } else
            status = recv_from(mg, SH_TRAFFIC_SUMMARIES, first + t, out + part.first, bytes, err);
        if (status != SH_OK) return status;
    }
    return SH_OK;
}

/* Sends a plan that consists of its kind only. */
static sh_status command_broadcast(sh_model_group *mg, sh_step_kind kind, sh_err *err)
{
    if (mg->group == NULL) return SH_OK;
    sh_step_plan_clear(mg->plan);
    mg->plan->kind = kind;
    sh_buf_clear(&mg->message);
    sh_step_plan_pack(mg->plan, &mg->message);
    return message_broadcast(mg, err);
}

sh_status sh_model_group_stop(sh_model_group *mg, sh_err *err)
{
    return command_broadcast(mg, SH_STEP_STOP, err);
}

static void report_fill(const sh_model_group *mg, sh_rank_report *out)
{
    sh_model_memory m = sh_model_memory_used(mg->model);
    *out = (sh_rank_report){.weights = (int64_t)m.weights,
                            .kv = (int64_t)m.kv,
                            .scratch = (int64_t)m.scratch,
                            .compute_s = mg->times.compute_s,
                            .own_s = mg->times.step_s - mg->times.compute_s,
                            .steps = mg->times.steps,
                            .tokens = mg->times.tokens};
    for (int i = 0; i < SH_TRAFFICS; i++) {
        out->traffic[i] = mg->times.traffic[i];
        if (mg->rank == 0 || i != SH_TRAFFIC_PLAN) out->own_s -= out->traffic[i].seconds;
    }
    /* The broadcast that requests a report counts as plan traffic but not as step time. */
    if (out->own_s < 0) out->own_s = 0;
    sh_rank_report_fill(out);
}

static sh_status report_send(sh_model_group *mg, sh_err *err)
{
    sh_rank_report mine;
    report_fill(mg, &mine);
    sh_buf_clear(&mg->outgoing);
    sh_rank_report_pack(&mine, &mg->outgoing);
    return sh_coll_send(mg->group, 0, mg->outgoing.ptr, mg->outgoing.len, err);
}

sh_status sh_model_group_ask_reports(sh_model_group *mg, sh_err *err)
{
    SH_ASSERT(!mg->reports_asked);
    sh_status status = command_broadcast(mg, SH_STEP_REPORT, err);
    if (status != SH_OK) return status;
    for (int i = 1; i < mg->size; i++)
        mg->reports_due[i] = sh_coll_expect(
            mg->group, i, mg->reports + (size_t)i * SH_RANK_REPORT_BYTES, SH_RANK_REPORT_BYTES);
    mg->reports_asked = true;
    return SH_OK;
}

bool sh_model_group_reports_ready(const sh_model_group *mg)
{
    for (int i = 1; i < mg->size && mg->reports_asked; i++)
        if (!sh_coll_has_come(mg->group, i, mg->reports_due[i])) return false;
    return mg->reports_asked;
}

sh_status sh_model_group_take_reports(sh_model_group *mg, sh_rank_report *out, sh_err *err)
{
    SH_ASSERT(mg->reports_asked);
    report_fill(mg, &out[0]);
    for (int i = 1; i < mg->size; i++) {
        sh_status status = sh_coll_await(mg->group, i, mg->reports_due[i], err);
        sh_reader r = sh_reader_of(
            (sh_str){mg->reports + (size_t)i * SH_RANK_REPORT_BYTES, SH_RANK_REPORT_BYTES});
        if (status == SH_OK) sh_rank_report_unpack(&r, &out[i]);
        if (status == SH_OK) status = sh_get_end(&r, "the report of a rank", err);
        if (status != SH_OK) return status;
    }
    mg->reports_asked = false;
    sh_balance_add(&mg->balance, out);
    return SH_OK;
}

static sh_status rows_send(sh_model_group *mg, const sh_step_plan *plan, sh_err *err)
{
    if (!last_stage(mg)) return SH_OK;
    for (int i = 0; i < plan->token_count; i++) {
        int draw = plan->tokens[i];
        if (draw >= mg->limits.draws || !sh_rank_read_row(mg->self, plan->step, draw, mg->row))
            return sh_err_set(err, SH_ERR_GROUP,
                              "rank 0 requested row %d of step %" PRIu64
                              ", which is no longer kept",
                              draw, plan->step);
        size_t bytes = (size_t)mg->shards[mg->rank].vocab.count * sizeof(float);
        sh_status status = send_to(mg, SH_TRAFFIC_SUMMARIES, 0, mg->row, bytes, err);
        if (status != SH_OK) return status;
    }
    return SH_OK;
}

static sh_status plan_work(sh_model_group *mg, sh_err *err)
{
    int64_t start = sh_clock_ns();
    sh_status status;
    if (mg->plan->kind == SH_STEP_REPORT) return report_send(mg, err);
    if (mg->plan->kind == SH_STEP_ROWS) {
        status = rows_send(mg, mg->plan, err);
    } else {
        status = plan_apply(mg, mg->plan, err);
        if (status == SH_OK) status = stage_run(mg, mg->plan, err);
        if (status == SH_OK && last_stage(mg)) status = summaries_send(mg, mg->plan, err);
    }
    mg->times.step_s += since(start);
    return status;
}

sh_status sh_model_group_work(sh_model_group *mg, sh_err *err)
{
    for (;;) {
        sh_buf_clear(&mg->message);
        sh_status status = message_broadcast(mg, err);
        if (status != SH_OK) return status;
        status = sh_step_plan_unpack(sh_buf_str(&mg->message), mg->plan, err);
        if (status == SH_OK && mg->plan->kind == SH_STEP_STOP) return SH_OK;
        if (status == SH_OK) status = plan_work(mg, err);
        if (status == SH_OK) continue;
        sh_group_fail(mg->group, err->text); /* no effect if the group has failed already */
        return status;
    }
}
