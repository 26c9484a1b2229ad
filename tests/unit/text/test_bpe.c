/* Compares random merges with the plain definition of BPE, and times hostile words. */
#include "text/tokenizer/bpe.h"

#include "base/clock.h"
#include "base/hash.h"

#include "test.h"

enum { LETTERS = 4, MERGES = 40, PIECE_MAX = 12 };

typedef struct {
    int32_t left, right, into;
} merge;

typedef struct {
    sh_vocab vocab;
    sh_bpe *bpe;
    merge merges[MERGES];
    int count;
} model;

static uint64_t draws = 1;

static uint32_t pick(uint32_t count)
{
    return (uint32_t)(sh_mix64(draws++) >> 33) % count;
}

static void token_add(sh_vocab *vocab, sh_str piece)
{
    sh_err err;
    CHECK_OK(sh_vocab_add(vocab, piece, vocab->size, &err), err);
}

/* Letters (the last is U+2581, where words may be cut) and merges of existing tokens. */
static void model_make(model *m, bool ignore_merges)
{
    static const char *const letters[LETTERS] = {"a", "b", "\xc3\xa9", "\xe2\x96\x81"};
    *m = (model){0};
    sh_vocab_init(&m->vocab, 16);
    for (int i = 0; i < LETTERS; i++) token_add(&m->vocab, sh_str_of(letters[i]));
    token_add(&m->vocab, SH_STR("<unk>"));
    while (m->count < MERGES) {
        merge next = {.left = (int32_t)pick((uint32_t)m->vocab.size),
                      .right = (int32_t)pick((uint32_t)m->vocab.size)};
        sh_str left = sh_vocab_piece(&m->vocab, next.left);
        sh_str right = sh_vocab_piece(&m->vocab, next.right);
        char text[64];
        if (next.left == LETTERS || next.right == LETTERS || left.len + right.len > PIECE_MAX)
            continue;
        memcpy(text, left.ptr, left.len);
        memcpy(text + left.len, right.ptr, right.len);
        sh_str joined = {text, left.len + right.len};
        if (sh_vocab_find(&m->vocab, joined) < 0) token_add(&m->vocab, joined);
        next.into = sh_vocab_find(&m->vocab, joined);
        m->merges[m->count++] = next;
    }
    sh_bpe_opts opts = {.unk_id = LETTERS, .ignore_merges = ignore_merges};
    m->bpe = sh_bpe_create(&m->vocab, &opts, 0);
    for (int i = 0; i < m->count; i++)
        sh_bpe_add_merge(m->bpe, m->merges[i].left, m->merges[i].right, (uint32_t)i,
                         m->merges[i].into);
}

static void model_reset(model *m)
{
    sh_bpe_free(m->bpe);
    sh_vocab_reset(&m->vocab);
}

/* The rank of a pair: a later merge of the same pair replaces the earlier. */
static int rank_of(const model *m, int32_t left, int32_t right)
{
    for (int i = m->count - 1; i >= 0; i--)
        if (m->merges[i].left == left && m->merges[i].right == right) return i;
    return -1;
}

/* The definition: scan all pairs, merge the best one, leftmost first; repeat. */
static size_t plain_bpe(const model *m, int32_t *ids, size_t count)
{
    for (;;) {
        int best = -1;
        size_t at = 0;
        for (size_t i = 0; i + 1 < count; i++) {
            int rank = rank_of(m, ids[i], ids[i + 1]);
            if (rank >= 0 && (best < 0 || rank < best)) {
                best = rank;
                at = i;
            }
        }
        if (best < 0) return count;
        ids[at] = m->merges[best].into;
        memmove(ids + at + 1, ids + at + 2, (count - at - 2) * sizeof(*ids));
        count--;
    }
}

static void word_check(const model *m, sh_bpe_scratch *scratch)
{
    int32_t want[64];
    char word[256];
    size_t count = 1 + pick(60), len = 0;
    for (size_t i = 0; i < count; i++) {
        want[i] = (int32_t)pick(LETTERS);
        sh_str letter = sh_vocab_piece(&m->vocab, want[i]);
        memcpy(word + len, letter.ptr, letter.len);
        len += letter.len;
    }
    count = plain_bpe(m, want, count);
    sh_ids got = {0};
    sh_bpe_encode(m->bpe, (sh_str){word, len}, scratch, &got);
    assert_int_equal(got.len, count);
    assert_memory_equal(got.ptr, want, count * sizeof(*want));
    sh_ids_reset(&got);
}

TEST(merges_as_the_definition_says)
{
    UNUSED_STATE;
    for (int i = 0; i < 100; i++) {
        model m;
        sh_bpe_scratch scratch = {0};
        model_make(&m, false);
        for (int k = 0; k < 100; k++) word_check(&m, &scratch);
        sh_bpe_scratch_reset(&scratch);
        model_reset(&m);
    }
}

TEST(a_word_that_is_a_token_needs_no_merges_when_they_are_ignored)
{
    UNUSED_STATE;
    model m;
    sh_bpe_scratch scratch = {0};
    model_make(&m, true);
    for (int32_t id = 0; id < m.vocab.size; id++) {
        sh_ids got = {0};
        sh_bpe_encode(m.bpe, sh_vocab_piece(&m.vocab, id), &scratch, &got);
        assert_int_equal(got.len, 1);
        assert_int_equal(got.ptr[0], id);
        sh_ids_reset(&got);
    }
    sh_bpe_scratch_reset(&scratch);
    model_reset(&m);
}

static void unknown_check(sh_bpe_opts opts, const char *word, const int32_t *want, size_t count)
{
    sh_vocab vocab;
    sh_bpe_scratch scratch = {0};
    sh_ids got = {0};
    sh_vocab_init(&vocab, 4);
    token_add(&vocab, SH_STR("<unk>"));
    token_add(&vocab, SH_STR("a"));
    token_add(&vocab, SH_STR("<0xC3>"));
    token_add(&vocab, SH_STR("<0xA9>"));
    sh_bpe *bpe = sh_bpe_create(&vocab, &opts, 0);
    sh_bpe_encode(bpe, sh_str_of(word), &scratch, &got);
    assert_int_equal(got.len, count);
    if (count > 0) assert_memory_equal(got.ptr, want, count * sizeof(*want));
    sh_bpe_free(bpe);
    sh_ids_reset(&got);
    sh_bpe_scratch_reset(&scratch);
    sh_vocab_reset(&vocab);
}

TEST(unknown_characters_become_bytes_or_unk_or_nothing)
{
    UNUSED_STATE;
    const char *word = "xya\xc3\xa9z"; /* x, y and z are unknown, e with acute has its bytes */
    sh_bpe_opts opts = {.unk_id = 0};
    unknown_check(opts, word, (int32_t[]){0, 0, 1, 0, 0}, 5);
    opts.fuse_unk = true;
    unknown_check(opts, word, (int32_t[]){0, 1, 0}, 3);
    opts.byte_fallback = true;
    unknown_check(opts, word, (int32_t[]){0, 1, 2, 3, 0}, 5);
    opts.unk_id = -1;
    unknown_check(opts, word, (int32_t[]){1, 2, 3}, 3);
    opts.byte_fallback = false;
    unknown_check(opts, word, (int32_t[]){1}, 1);
}

/* A quadratic algorithm would take hours. */
TEST(a_megabyte_of_one_letter_is_fast)
{
    UNUSED_STATE;
    enum { LEN = 1 << 20 };
    sh_vocab vocab;
    sh_bpe_scratch scratch = {0};
    sh_ids got = {0};
    char *word = malloc(LEN);
    memset(word, 'a', LEN);
    sh_vocab_init(&vocab, 4);
    for (size_t len = 1; len <= 16; len *= 2) token_add(&vocab, (sh_str){word, len});
    sh_bpe *bpe = sh_bpe_create(&vocab, &(sh_bpe_opts){.unk_id = -1}, 4);
    for (int32_t i = 0; i < 4; i++) sh_bpe_add_merge(bpe, i, i, (uint32_t)i, i + 1);
    int64_t start = sh_clock_ns();
    sh_bpe_encode(bpe, (sh_str){word, LEN}, &scratch, &got);
    assert_int_equal(got.len, LEN / 16);
    assert_true(sh_clock_ns() - start < (int64_t)20 * 1000 * 1000 * 1000);
    sh_bpe_free(bpe);
    sh_ids_reset(&got);
    sh_bpe_scratch_reset(&scratch);
    sh_vocab_reset(&vocab);
    free(word);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merges_as_the_definition_says),
        cmocka_unit_test(a_word_that_is_a_token_needs_no_merges_when_they_are_ignored),
        cmocka_unit_test(unknown_characters_become_bytes_or_unk_or_nothing),
        cmocka_unit_test(a_megabyte_of_one_letter_is_fast),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
