#include "engine/rank_messages.h"

#include "test.h"

#include <math.h>

TEST(an_offer_and_a_report_survive_packing)
{
    UNUSED_STATE;
    sh_buf bytes = {0};
    sh_err err;
    sh_rank_offer offer = {.resources = {1.5e10, 2.25}, .machine = {1, 2, 3}, .host = "desk"},
                  got = {0};
    sh_rank_offer_pack(&offer, &bytes);
    assert_int_equal(bytes.len, SH_RANK_OFFER_BYTES);
    sh_reader r = sh_reader_of(sh_buf_str(&bytes));
    sh_rank_offer_unpack(&r, &got);
    CHECK_OK(sh_get_end(&r, "offer", &err), err);
    assert_memory_equal(got.machine, offer.machine, sizeof(got.machine));
    assert_string_equal(got.host, "desk");
    assert_true(got.resources.memory == 1.5e10 && got.resources.speed == 2.25);

    sh_rank_report report = {.host = "h", .pid = 7, .kv = 1 << 20, .steps = 9, .tokens = 11};
    sh_rank_report back = {0};
    report.traffic[SH_TRAFFIC_SUM] = (sh_traffic_cost){3, 4, 0.5};
    report.temperature_c = (double)NAN;
    report.power_w = (double)INFINITY; /* which JSON cannot say */
    sh_buf_clear(&bytes);
    sh_rank_report_pack(&report, &bytes);
    assert_int_equal(bytes.len, SH_RANK_REPORT_BYTES);
    r = sh_reader_of(sh_buf_str(&bytes));
    sh_rank_report_unpack(&r, &back);
    CHECK_OK(sh_get_end(&r, "report", &err), err);
    assert_int_equal(back.pid, 7);
    assert_int_equal(back.kv, 1 << 20);
    assert_int_equal(back.traffic[SH_TRAFFIC_SUM].bytes, 4);
    assert_true(isnan(back.temperature_c));
    assert_true(isnan(back.power_w));
    assert_int_equal(back.steps + back.tokens, 20);
    sh_buf_reset(&bytes);
}

TEST(text_from_another_rank_is_terminated_and_printable)
{
    UNUSED_STATE;
    sh_buf bytes = {0};
    sh_rank_offer offer = {0}, got;
    memset(offer.host, '\n', sizeof(offer.host));
    offer.host[0] = '"';
    sh_rank_offer_pack(&offer, &bytes);
    sh_reader r = sh_reader_of(sh_buf_str(&bytes));
    sh_rank_offer_unpack(&r, &got);
    assert_int_equal(strlen(got.host), sizeof(got.host) - 1);
    assert_int_equal(strspn(got.host, "?"), sizeof(got.host) - 1);
    sh_buf_reset(&bytes);
}

static bool scan_is_taken(const sh_logits_summary *summary, sh_range part, const sh_draw *draw)
{
    static sh_logits_summary got;
    sh_buf bytes = {0};
    sh_logits_summary_pack(summary, draw, &bytes);
    assert_int_equal(bytes.len, sh_logits_summary_bytes(draw));
    sh_reader r = sh_reader_of(sh_buf_str(&bytes));
    sh_logits_summary_unpack(&r, draw, part, &got);
    bool taken = !r.failed && r.left == 0;
    if (taken) {
        assert_int_equal(got.top_count, summary->top_count);
        assert_memory_equal(got.top, summary->top, (size_t)got.top_count * sizeof(got.top[0]));
        assert_true(got.won.id == summary->won.id && got.won_score == summary->won_score);
    }
    sh_buf_reset(&bytes);
    return taken;
}

TEST(a_summary_is_accepted_only_for_the_senders_part)
{
    UNUSED_STATE;
    sh_draw draw = {.temperature = 1, .top_p = 1, .top_k = 4, .logprobs = -1};
    sh_range part = {100, 50};
    sh_logits_summary good = {
        .total = 50, .max = 2, .won = {120, 2}, .won_score = 3, .top_count = 2};
    good.top[0] = (sh_candidate){120, 2};
    good.top[1] = (sh_candidate){149, 1};
    assert_true(scan_is_taken(&good, part, &draw));
    sh_logits_summary bad = good;
    bad.total = 49;
    assert_false(scan_is_taken(&bad, part, &draw));
    bad = good;
    bad.top[1].id = 150;
    assert_false(scan_is_taken(&bad, part, &draw));
    bad = good;
    bad.won.id = 99;
    assert_false(scan_is_taken(&bad, part, &draw));
    sh_logits_summary empty = {0};
    assert_true(scan_is_taken(&empty, (sh_range){150, 0}, &draw));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_offer_and_a_report_survive_packing),
        cmocka_unit_test(text_from_another_rank_is_terminated_and_printable),
        cmocka_unit_test(a_summary_is_accepted_only_for_the_senders_part),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
