/* One step of a crew: the plan to all, the hidden states from stage to stage, the scans to rank 0.
 */
#include "engine/crew_parts.h"

#include "base/clock.h"
#include "engine/rank_messages.h"

#include <inttypes.h>
#include <string.h>

enum { PLAN_MAX = 64 << 20 };

static int stage_of(const sh_crew *c)
{
    return c->rank / c->tensor;
}

static bool last_stage(const sh_crew *c)
{
    return stage_of(c) == c->stages - 1;
}

static double since(int64_t start_ns)
{
    return (double)(sh_clock_ns() - start_ns) * 1e-9;
}

void sh_crew_counted(sh_crew *c, sh_traffic what, size_t bytes, int64_t start_ns)
{
    sh_traffic_cost *t = &c->times.traffic[what];
    t->calls++;
    t->bytes += bytes;
    t->seconds += since(start_ns);
}

static sh_status send_to(sh_crew *c, sh_traffic what, int to, const void *data, size_t bytes,
                         sh_err *err)
{
    int64_t start = sh_clock_ns();
    sh_status status = sh_coll_send(c->group, to, data, bytes, err);
    sh_crew_counted(c, what, bytes, start);
    return status;
}

static sh_status recv_from(sh_crew *c, sh_traffic what, int from, void *data, size_t bytes,
                           sh_err *err)
{
    int64_t start = sh_clock_ns();
    sh_status status = sh_coll_recv(c->group, from, data, bytes, err);
    sh_crew_counted(c, what, bytes, start);
    return status;
}

/* The message of rank 0 to all. */
static sh_status message_share(sh_crew *c, sh_err *err)
{
    int64_t start = sh_clock_ns();
    sh_status status = sh_coll_broadcast_buf(c->group, 0, &c->message, PLAN_MAX, SH_DEADLINE_NEVER,
                                             err);
    sh_crew_counted(c, SH_TRAFFIC_PLAN, c->message.len, start);
    return status;
}

static sh_status hidden_recv(sh_crew *c, size_t bytes, sh_err *err)
{
    sh_status status = recv_from(c, SH_TRAFFIC_HANDOVER, c->rank - c->tensor, c->hidden, bytes,
                                 err);
    if (status == SH_OK) c->dev->ops->upload(c->dev, sh_model_hidden(c->model), c->hidden, bytes);
    return status;
}

static sh_status hidden_send(sh_crew *c, size_t bytes, sh_err *err)
{
    c->dev->ops->download(c->dev, c->hidden, sh_model_hidden(c->model), bytes);
    return send_to(c, SH_TRAFFIC_HANDOVER, c->rank + c->tensor, c->hidden, bytes, err);
}

/* This rank's part of a plan that was applied. */
static sh_status stage_run(sh_crew *c, const sh_step_plan *plan, sh_err *err)
{
    size_t bytes = (size_t)plan->token_count * (size_t)c->config.hidden * sizeof(float);
    sh_status status = SH_OK;
    if (stage_of(c) > 0) status = hidden_recv(c, bytes, err);
    if (status != SH_OK) return status;
    double summing = c->times.traffic[SH_TRAFFIC_SUM].seconds, forward = sh_rank_forward_s(c->self);
    status = sh_rank_run(c->self, plan, err);
    c->times.compute_s += sh_rank_forward_s(c->self) - forward -
                          (c->times.traffic[SH_TRAFFIC_SUM].seconds - summing);
    c->times.steps++;
    c->times.tokens += (uint64_t)plan->token_count;
    if (status == SH_OK && !last_stage(c)) status = hidden_send(c, bytes, err);
    return status;
}

/* Bytes of the scans of a plan's draws, a hash in front. */
static size_t scans_bytes(const sh_step_plan *plan)
{
    size_t bytes = sizeof(uint64_t);
    for (int i = 0; i < plan->draw_count; i++) bytes += sh_scan_bytes(&plan->draws[i].draw);
    return bytes;
}

static sh_status scans_send(sh_crew *c, const sh_step_plan *plan, sh_err *err)
{
    const sh_scan *scans = sh_rank_scans(c->self, plan->step);
    sh_buf_clear(&c->outgoing);
    sh_put_uint(&c->outgoing, sh_rank_hash(c->self, plan->step), 8);
    for (int i = 0; i < plan->draw_count; i++)
        sh_scan_pack(&scans[i], &plan->draws[i].draw, &c->outgoing);
    return send_to(c, SH_TRAFFIC_SCANS, 0, c->outgoing.ptr, c->outgoing.len, err);
}

/* What rank 0 and a worker do alike with a plan: come to the state that it names, or say what
 * differs. */
static sh_status plan_apply(sh_crew *c, sh_step_plan *plan, sh_err *err)
{
    uint64_t mine;
    sh_status status = sh_rank_apply(c->self, plan, &mine, err);
    if (status != SH_OK) return status;
    if (c->rank == 0) plan->fingerprint = mine;
    if (mine == plan->fingerprint) return SH_OK;
    return sh_err_set(err, SH_ERR_GROUP,
                      "step %" PRIu64
                      ": the batch state of rank %d differs from rank 0's (%016" PRIx64
                      ", not %016" PRIx64 ")",
                      plan->step, c->rank, mine, plan->fingerprint);
}

/* Where the scans of a step from tensor rank t of the last stage lie. */
static size_t part_index(const sh_crew *c, uint64_t step, int t)
{
    return (size_t)(step % (uint64_t)c->stages) * (size_t)c->tensor + (size_t)t;
}

static char *part_of(const sh_crew *c, uint64_t step, int t)
{
    return c->parts + part_index(c, step, t) * c->parts_cap;
}

/* Asks the ranks of the last stage for the scans of a step. */
static void parts_expect(sh_crew *c, const sh_step_plan *plan)
{
    int first = (c->stages - 1) * c->tensor;
    for (int t = 0; t < c->tensor; t++)
        if (first + t != c->rank)
            c->parts_due[part_index(c, plan->step, t)] = sh_coll_expect(
                c->group, first + t, part_of(c, plan->step, t), scans_bytes(plan));
}

/* A pipeline is a circle: rank 0 hands hidden states on while the last stage sends it the scans of
 * an earlier step, and neither may have to wait until the other has finished sending. So rank 0
 * takes scans in whatever it does. Ranks that share all layers come to their scans only after the
 * sums of the step; there they are asked for when the step is finished. */
static bool parts_come_early(const sh_crew *c)
{
    return c->group != NULL && c->stages > 1;
}

static sh_status step_begin(sh_crew *c, sh_step_plan *plan, sh_err *err)
{
    plan->step = ++c->step;
    c->begun[plan->step % (uint64_t)c->stages] = plan;
    if (parts_come_early(c)) parts_expect(c, plan);
    sh_status status = plan_apply(c, plan, err);
    if (status == SH_OK && c->group != NULL) {
        sh_buf_clear(&c->message);
        sh_step_pack(plan, &c->message);
        status = message_share(c, err);
    }
    return status == SH_OK ? stage_run(c, plan, err) : status;
}

sh_status sh_crew_begin(sh_crew *c, sh_step_plan *plan, sh_err *err)
{
    int64_t start = sh_clock_ns();
    sh_status status = step_begin(c, plan, err);
    c->times.step_s += since(start);
    return status;
}

/* Takes in the scans of all steps up to this one that have not come yet. */
static sh_status parts_recv(sh_crew *c, uint64_t upto, sh_err *err)
{
    int first = (c->stages - 1) * c->tensor;
    for (; c->parts_step < upto; c->parts_step++) {
        uint64_t step = c->parts_step + 1;
        const sh_step_plan *plan = c->begun[step % (uint64_t)c->stages];
        if (!parts_come_early(c)) parts_expect(c, plan);
        for (int t = 0; t < c->tensor; t++) {
            if (first + t == c->rank) continue;
            int64_t start = sh_clock_ns();
            sh_status status = sh_coll_await(c->group, first + t,
                                             c->parts_due[part_index(c, step, t)], err);
            sh_crew_counted(c, SH_TRAFFIC_SCANS, scans_bytes(plan), start);
            if (status != SH_OK) return status;
        }
    }
    return SH_OK;
}

/* Ranks that share a stage end it with the same hidden states. */
static sh_status hashes_check(sh_crew *c, const sh_step_plan *plan, sh_err *err)
{
    uint64_t want = 0;
    int first = (c->stages - 1) * c->tensor;
    for (int t = 0; t < c->tensor; t++) {
        uint64_t hash = sh_rank_hash(c->self, plan->step);
        if (first + t != c->rank) {
            sh_reader r = sh_reader_of((sh_str){part_of(c, plan->step, t), sizeof(hash)});
            hash = sh_get_uint(&r, 8);
        }
        if (t == 0) want = hash;
        if (hash == want) continue;
        sh_err_set(err, SH_ERR_GROUP,
                   "step %" PRIu64 ": ranks %d and %d computed different hidden states (%016" PRIx64
                   ", %016" PRIx64 ")",
                   plan->step, first, first + t, want, hash);
        sh_group_fail(c->group, err->text);
        return err->status;
    }
    return SH_OK;
}

static sh_status scan_read(const sh_crew *c, const char *at, const sh_draw *draw, int from,
                           sh_scan *out, sh_err *err)
{
    sh_reader r = sh_reader_of((sh_str){at, sh_scan_bytes(draw)});
    sh_scan_unpack(&r, draw, c->shards[from].vocab, out);
    if (!r.failed) return SH_OK;
    return sh_err_set(err, SH_ERR_GROUP, "rank %d sent a scan that makes no sense", from);
}

static sh_status picks_join(sh_crew *c, const sh_step_plan *plan, sh_pick *picks, sh_err *err)
{
    int first = (c->stages - 1) * c->tensor;
    size_t at = sizeof(uint64_t);
    for (int i = 0; i < plan->draw_count; i++) {
        const sh_draw *draw = &plan->draws[i].draw;
        sh_status status = SH_OK;
        for (int t = 0; t < c->tensor && status == SH_OK; t++) {
            if (first + t == c->rank)
                c->scans[t] = sh_rank_scans(c->self, plan->step)[i];
            else
                status = scan_read(c, part_of(c, plan->step, t) + at, draw, first + t, &c->scans[t],
                                   err);
        }
        if (status != SH_OK) return status;
        at += sh_scan_bytes(draw);
        if (sh_pick_join(draw, c->scans, c->tensor, &picks[i]) == SH_OK) continue;
        status = sh_crew_row(c, plan, i, c->row, err);
        if (status != SH_OK) return status;
        sh_pick_whole(draw, c->dev->ops->rows(c->dev), c->row, c->config.vocab, c->sorted,
                      &picks[i]);
    }
    return SH_OK;
}

static sh_status step_finish(sh_crew *c, const sh_step_plan *plan, sh_pick *picks, sh_err *err)
{
    if (c->group != NULL) {
        sh_status status = parts_recv(c, plan->step, err);
        if (status == SH_OK) status = hashes_check(c, plan, err);
        if (status != SH_OK) return status;
    }
    return picks_join(c, plan, picks, err);
}

sh_status sh_crew_finish(sh_crew *c, const sh_step_plan *plan, sh_pick *picks, sh_err *err)
{
    int64_t start = sh_clock_ns();
    sh_status status = step_finish(c, plan, picks, err);
    c->times.step_s += since(start);
    return status;
}

sh_status sh_crew_row(sh_crew *c, const sh_step_plan *plan, int draw, float *out, sh_err *err)
{
    int first = (c->stages - 1) * c->tensor;
    if (c->group != NULL) {
        /* The ranks answer in order: first what is under way. */
        sh_status status = parts_recv(c, c->step, err);
        if (status != SH_OK) return status;
        sh_step_clear(c->plan);
        c->plan->kind = SH_STEP_ROWS;
        c->plan->step = plan->step;
        c->plan->tokens[c->plan->token_count++] = draw;
        sh_buf_clear(&c->message);
        sh_step_pack(c->plan, &c->message);
        status = message_share(c, err);
        if (status != SH_OK) return status;
    }
    for (int t = 0; t < c->tensor; t++) {
        sh_range part = c->shards[first + t].vocab;
        size_t bytes = (size_t)part.count * sizeof(float);
        sh_status status = SH_OK;
        if (first + t == c->rank)
            memcpy(out + part.first, sh_rank_row(c->self, plan->step, draw), bytes);
        else
            status = recv_from(c, SH_TRAFFIC_SCANS, first + t, out + part.first, bytes, err);
        if (status != SH_OK) return status;
    }
    return SH_OK;
}

static sh_status tell(sh_crew *c, sh_step_kind kind, sh_err *err)
{
    if (c->group == NULL) return SH_OK;
    sh_step_clear(c->plan);
    c->plan->kind = kind;
    sh_buf_clear(&c->message);
    sh_step_pack(c->plan, &c->message);
    return message_share(c, err);
}

sh_status sh_crew_stop(sh_crew *c, sh_err *err)
{
    return tell(c, SH_STEP_STOP, err);
}

static void report_fill(const sh_crew *c, sh_report *out)
{
    sh_model_memory m = sh_model_memory_used(c->model);
    *out = (sh_report){.weights = (int64_t)m.weights,
                       .kv = (int64_t)m.kv,
                       .scratch = (int64_t)m.scratch,
                       .compute_s = c->times.compute_s,
                       .own_s = c->times.step_s - c->times.compute_s,
                       .steps = c->times.steps,
                       .tokens = c->times.tokens};
    for (int i = 0; i < SH_TRAFFICS; i++) {
        out->traffic[i] = c->times.traffic[i];
        if (c->rank == 0 || i != SH_TRAFFIC_PLAN) out->own_s -= out->traffic[i].seconds;
    }
    if (out->own_s < 0) out->own_s = 0; /* reports are asked for between steps, by plans too */
    sh_report_fill(out);
}

static sh_status report_send(sh_crew *c, sh_err *err)
{
    sh_report mine;
    report_fill(c, &mine);
    sh_buf_clear(&c->outgoing);
    sh_report_pack(&mine, &c->outgoing);
    return sh_coll_send(c->group, 0, c->outgoing.ptr, c->outgoing.len, err);
}

sh_status sh_crew_ask_reports(sh_crew *c, sh_err *err)
{
    SH_ASSERT(!c->reports_asked);
    sh_status status = tell(c, SH_STEP_REPORT, err);
    if (status != SH_OK) return status;
    for (int i = 1; i < c->size; i++)
        c->reports_due[i] = sh_coll_expect(c->group, i, c->reports + (size_t)i * SH_REPORT_BYTES,
                                           SH_REPORT_BYTES);
    c->reports_asked = true;
    return SH_OK;
}

bool sh_crew_reports_have_come(const sh_crew *c)
{
    for (int i = 1; i < c->size && c->reports_asked; i++)
        if (!sh_coll_has_come(c->group, i, c->reports_due[i])) return false;
    return c->reports_asked;
}

sh_status sh_crew_take_reports(sh_crew *c, sh_report *out, sh_err *err)
{
    SH_ASSERT(c->reports_asked);
    report_fill(c, &out[0]);
    for (int i = 1; i < c->size; i++) {
        sh_status status = sh_coll_await(c->group, i, c->reports_due[i], err);
        sh_reader r = sh_reader_of(
            (sh_str){c->reports + (size_t)i * SH_REPORT_BYTES, SH_REPORT_BYTES});
        if (status == SH_OK) sh_report_unpack(&r, &out[i]);
        if (status == SH_OK) status = sh_get_end(&r, "the report of a rank", err);
        if (status != SH_OK) return status;
    }
    c->reports_asked = false;
    return SH_OK;
}

static sh_status rows_send(sh_crew *c, const sh_step_plan *plan, sh_err *err)
{
    if (!last_stage(c)) return SH_OK;
    for (int i = 0; i < plan->token_count; i++) {
        int draw = plan->tokens[i];
        const float *row = draw < c->room.draws ? sh_rank_row(c->self, plan->step, draw) : NULL;
        if (row == NULL)
            return sh_err_set(err, SH_ERR_GROUP,
                              "rank 0 asks for row %d of step %" PRIu64 ", which is gone", draw,
                              plan->step);
        size_t bytes = (size_t)c->shards[c->rank].vocab.count * sizeof(float);
        sh_status status = send_to(c, SH_TRAFFIC_SCANS, 0, row, bytes, err);
        if (status != SH_OK) return status;
    }
    return SH_OK;
}

static sh_status plan_work(sh_crew *c, sh_err *err)
{
    int64_t start = sh_clock_ns();
    sh_status status;
    if (c->plan->kind == SH_STEP_REPORT) return report_send(c, err);
    if (c->plan->kind == SH_STEP_ROWS) {
        status = rows_send(c, c->plan, err);
    } else {
        status = plan_apply(c, c->plan, err);
        if (status == SH_OK) status = stage_run(c, c->plan, err);
        if (status == SH_OK && last_stage(c)) status = scans_send(c, c->plan, err);
    }
    c->times.step_s += since(start);
    return status;
}

sh_status sh_crew_work(sh_crew *c, sh_err *err)
{
    for (;;) {
        sh_buf_clear(&c->message);
        sh_status status = message_share(c, err);
        if (status != SH_OK) return status;
        status = sh_step_unpack(sh_buf_str(&c->message), c->config.vocab, c->plan, err);
        if (status == SH_OK && c->plan->kind == SH_STEP_STOP) return SH_OK;
        if (status == SH_OK) status = plan_work(c, err);
        if (status == SH_OK) continue;
        sh_group_fail(c->group, err->text); /* nothing happens when the group has failed already */
        return status;
    }
}
