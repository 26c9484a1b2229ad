/* rank_messages.h - the wire format of what ranks send each other besides step plans.
 *
 * Each message has a length that both ends know beforehand, so that its receive can be posted ahead
 * of time. All of them come from other processes: unpacking checks everything that will be used as
 * a count, an index or a share, and fails the reader when it is out of range.
 *
 * Threads: pure functions over their buffers. */
#ifndef SH_ENGINE_RANK_MESSAGES_H
#define SH_ENGINE_RANK_MESSAGES_H

#include "base/pack.h"
#include "engine/rank_report.h"
#include "engine/sampler.h"
#include "model/shard.h"
#include "net/peer_messages.h"

/* What a rank brings to the group. Ranks on one machine count as equally fast, since they measure
 * at the same time. */
typedef struct {
    sh_rank_resources resources;
    int member; /* the number by which users know the rank */
    uint8_t machine[SH_HOST_ID_LEN];
    char host[SH_RANK_REPORT_HOST_MAX];
} sh_rank_offer;

enum {
    SH_RANK_OFFER_BYTES = 2 * 8 + 4 + SH_HOST_ID_LEN + SH_RANK_REPORT_HOST_MAX,
    SH_RANK_REPORT_BYTES = SH_RANK_REPORT_HOST_MAX + 8 * (8 + 3 + 3 * SH_TRAFFICS + 2 + 2),
    SH_LINK_REPORT_BYTES = 2 * 8 + SH_LINK_KIND_MAX,
    SH_SUMMARY_HEAD_BYTES = 8 + 4 + 8 + 8 + 8 + 4,
    SH_SUMMARY_BYTES_MAX = SH_SUMMARY_HEAD_BYTES + 8 * SH_SUMMARY_TOP,
};

void sh_rank_offer_pack(const sh_rank_offer *offer, sh_buf *out);
void sh_rank_offer_unpack(sh_reader *reader, sh_rank_offer *out);

void sh_rank_report_pack(const sh_rank_report *report, sh_buf *out);
void sh_rank_report_unpack(sh_reader *reader, sh_rank_report *out);

void sh_link_report_pack(const sh_link_report *link, sh_buf *out);
void sh_link_report_unpack(sh_reader *reader, sh_link_report *out);

/* The summary of one draw: its numbers, and as many candidates as the draw may need (padded). */
size_t sh_logits_summary_bytes(const sh_draw *draw);
void sh_logits_summary_pack(const sh_logits_summary *summary, const sh_draw *draw, sh_buf *out);
/* `part` is the sender's part of the vocabulary. */
void sh_logits_summary_unpack(sh_reader *reader, const sh_draw *draw, sh_range part,
                              sh_logits_summary *out);

/* All fields of a shard without struct padding, to compare shards by hash. */
void sh_shard_pack(const sh_shard *shard, sh_buf *out);

#endif
