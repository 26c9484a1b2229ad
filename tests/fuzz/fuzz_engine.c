/* Bytes that an engine receives from other processes: frames of its socket, step plans, and
 * messages between ranks. The first byte selects the decoder. What a decoder accepts must be within
 * its limits, and where there is a packer it must reproduce the same bytes. */
#include "engine/engine_messages.h"
#include "engine/rank_messages.h"
#include "engine/step_plan.h"

#include <stdlib.h>
#include <string.h>

enum { VOCAB = 1000 };

static void try_frames(sh_str bytes)
{
    sh_buf in = {0};
    sh_engine_msg_frame frame;
    sh_err err;
    sh_buf_add_str(&in, bytes);
    while (sh_engine_msg_next(&in, &frame, &err) == SH_OK) {
        sh_submit_message submit;
        sh_event event;
        uint64_t id;
        sh_engine_info info;
        if (sh_engine_msg_get_submit(frame.payload, &submit, &err) == SH_OK) {
            sh_buf again = {0};
            sh_engine_msg_put_submit(&again, &submit.spec);
            SH_ASSERT(again.len == frame.payload.len + 5);
            if (sh_sequence_spec_check(&submit.spec, VOCAB, &err) == SH_OK)
                SH_ASSERT(submit.spec.max_tokens > 0 && submit.spec.prompt_count > 0);
            sh_buf_reset(&again);
        }
        sh_submit_message_reset(&submit);
        if (sh_engine_msg_get_info(frame.payload, &info, &err) == SH_OK)
            free((void *)info.model_dir);
        if (sh_engine_msg_get_event(&frame, &event, &err) == SH_OK)
            SH_ASSERT(event.top_count <= SH_TOP_LOGPROBS_MAX);
        if (sh_engine_msg_get_id(frame.payload, &id, &err) != SH_OK) id = 0;
        if (sh_engine_msg_get_hello(frame.payload, &err) == SH_OK) id = 0;
        sh_buf_drop_front(&in, frame.size);
    }
    sh_buf_reset(&in);
}

static void try_plan(sh_str bytes)
{
    static sh_step_plan *plan;
    const sh_step_limits room = {.slots = 4,
                                 .tokens = 32,
                                 .draws = 16,
                                 .adjusts = 64,
                                 .blocks = 20,
                                 .seq_blocks = 5,
                                 .vocab = VOCAB,
                                 .masks = 16,
                                 .outputs = true};
    sh_err err;
    if (plan == NULL) plan = sh_step_plan_create(&room);
    if (sh_step_plan_unpack(bytes, plan, &err) != SH_OK) return;
    sh_buf again = {0};
    sh_step_plan_pack(plan, &again);
    SH_ASSERT(again.len == bytes.len);
    sh_batch_state *state = sh_batch_state_create(&room);
    sh_span spans[4];
    if (plan->kind == SH_STEP_RUN && sh_batch_state_apply(state, plan, spans, &err) == SH_OK)
        SH_ASSERT(plan->token_count <= room.tokens);
    if (sh_step_masks_unpack(bytes, plan, &err) == SH_OK)
        SH_ASSERT(bytes.len == sh_step_masks_bytes(plan));
    sh_batch_state_free(state);
    sh_buf_reset(&again);
}

static void try_scan(sh_str bytes)
{
    static const sh_range parts[] = {{0, VOCAB}, {100, 50}, {VOCAB, 0}};
    for (size_t i = 0; i < SH_COUNT_OF(parts); i++) {
        sh_draw draw = {.temperature = 1, .top_p = 0.9, .top_k = 40 * (int)i, .logprobs = 3};
        static sh_logits_summary summary;
        sh_reader r = sh_reader_of(bytes);
        sh_logits_summary_unpack(&r, &draw, parts[i], &summary);
        if (r.failed) continue;
        sh_pick pick;
        SH_ASSERT(summary.top_count <= sh_draw_top(&draw) && summary.total == parts[i].count);
        if (summary.total > 0 && sh_pick_join(&draw, &summary, 1, &pick) == SH_OK)
            SH_ASSERT(pick.id >= parts[i].first && pick.id < parts[i].first + parts[i].count);
    }
}

static void try_reports(sh_str bytes)
{
    sh_rank_offer offer;
    sh_rank_report report;
    sh_link_report link;
    sh_reader r = sh_reader_of(bytes);
    sh_rank_offer_unpack(&r, &offer);
    SH_ASSERT(r.failed || (offer.resources.memory >= 0 && offer.resources.speed >= 0));
    SH_ASSERT(strlen(offer.host) < sizeof(offer.host));
    r = sh_reader_of(bytes);
    sh_rank_report_unpack(&r, &report);
    SH_ASSERT(strlen(report.host) < sizeof(report.host));
    r = sh_reader_of(bytes);
    sh_link_report_unpack(&r, &link);
    SH_ASSERT(strlen(link.kind) < sizeof(link.kind));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static void (*const tries[])(sh_str) = {try_frames, try_plan, try_scan, try_reports};
    if (len == 0) return 0;
    tries[data[0] % SH_COUNT_OF(tries)]((sh_str){(const char *)data + 1, len - 1});
    return 0;
}
