#include "engine/blocks.h"

#include "kernels/device.h"

#include "test.h"

enum { COUNT = 8, B = SH_KV_BLOCK };

static const sh_key128 secret = {1, 2}, root = {3, 4};

/* Tokens of a prompt whose blocks are named by letters: the same letters are the same tokens. */
static void tokens_of(const char *letters, int32_t *out)
{
    for (size_t i = 0; letters[i] != '\0'; i++)
        for (int j = 0; j < B; j++) out[(int)i * B + j] = letters[i] * 100 + j;
}

/* Runs a prompt as the scheduler does: match, take and promise the rest, mark ready. */
static int run(sh_blocks *blocks, const char *letters, int32_t *list)
{
    int32_t tokens[COUNT * B];
    int count = (int)strlen(letters);
    tokens_of(letters, tokens);
    sh_prefix prefix = sh_blocks_match(blocks, sh_blocks_root(blocks, 0), tokens, count, list);
    sh_key128 key = prefix.key;
    for (int i = prefix.count; i < count; i++) {
        list[i] = sh_blocks_take(blocks);
        assert_true(list[i] >= 0);
        sh_key128 before = key;
        key = sh_blocks_key(blocks, before, tokens + i * B);
        sh_blocks_promise(blocks, list[i], before, tokens + i * B, key);
        sh_blocks_ready(blocks, list[i]);
    }
    return prefix.count;
}

TEST(a_prefix_is_found_after_its_sequence_is_gone)
{
    UNUSED_STATE;
    sh_blocks *blocks = sh_blocks_create(COUNT, secret, root);
    int32_t first[4], second[4];
    assert_int_equal(run(blocks, "abc", first), 0);
    sh_blocks_release(blocks, first, 3);
    assert_int_equal(sh_blocks_available(blocks), COUNT);
    assert_int_equal(sh_blocks_cached(blocks), 3);
    assert_int_equal(run(blocks, "abd", second), 2);
    assert_memory_equal(first, second, 2 * sizeof(int32_t));
    assert_int_equal(sh_blocks_available(blocks), COUNT - 3);
    sh_blocks_release(blocks, second, 3);
    sh_blocks_free(blocks);
}

TEST(the_same_tokens_after_another_prefix_are_another_block)
{
    UNUSED_STATE;
    sh_blocks *blocks = sh_blocks_create(COUNT, secret, root);
    int32_t list[3];
    run(blocks, "ab", list);
    assert_int_equal(run(blocks, "b", list), 0);
    sh_blocks_free(blocks);
}

TEST(shared_blocks_are_stored_once)
{
    UNUSED_STATE;
    sh_blocks *blocks = sh_blocks_create(COUNT, secret, root);
    int32_t a[3], b[3];
    run(blocks, "abc", a);
    assert_int_equal(run(blocks, "abc", b), 3);
    assert_int_equal(sh_blocks_available(blocks), COUNT - 3);
    sh_blocks_release(blocks, a, 3);
    assert_int_equal(sh_blocks_available(blocks), COUNT - 3);
    sh_blocks_release(blocks, b, 3);
    assert_int_equal(sh_blocks_available(blocks), COUNT);
    sh_blocks_free(blocks);
}

TEST(the_least_recently_released_is_evicted_first_and_tails_before_heads)
{
    UNUSED_STATE;
    sh_blocks *blocks = sh_blocks_create(COUNT, secret, root);
    int32_t old[4], fresh[4], more[8];
    run(blocks, "abcd", old);
    run(blocks, "wxyz", fresh);
    sh_blocks_release(blocks, old, 4);
    sh_blocks_release(blocks, fresh, 4);
    for (int i = 0; i < 3; i++) more[i] = sh_blocks_take(blocks);
    sh_blocks_release(blocks, more, 3);
    assert_int_equal(run(blocks, "wxyz", fresh), 4);
    assert_int_equal(run(blocks, "abcd", old), 1);
    sh_blocks_free(blocks);
}

TEST(a_promise_is_seen_and_dropped_when_its_block_is_never_computed)
{
    UNUSED_STATE;
    sh_blocks *blocks = sh_blocks_create(COUNT, secret, root);
    int32_t tokens[B], out[1];
    tokens_of("a", tokens);
    int32_t block = sh_blocks_take(blocks);
    sh_key128 before = sh_blocks_root(blocks, 0), key = sh_blocks_key(blocks, before, tokens);
    assert_true(sh_blocks_promise(blocks, block, before, tokens, key));
    sh_prefix prefix = sh_blocks_match(blocks, sh_blocks_root(blocks, 0), tokens, 1, out);
    assert_int_equal(prefix.count, 0);
    assert_true(prefix.promised);
    int32_t twin = sh_blocks_take(blocks);
    assert_false(sh_blocks_promise(blocks, twin, before, tokens, key));
    sh_blocks_release(blocks, &block, 1);
    prefix = sh_blocks_match(blocks, sh_blocks_root(blocks, 0), tokens, 1, out);
    assert_false(prefix.promised);
    assert_int_equal(sh_blocks_cached(blocks), 0);
    sh_blocks_release(blocks, &twin, 1);
    sh_blocks_free(blocks);
}

TEST(take_fails_when_all_blocks_are_held)
{
    UNUSED_STATE;
    sh_blocks *blocks = sh_blocks_create(2, secret, root);
    assert_true(sh_blocks_take(blocks) >= 0);
    assert_true(sh_blocks_take(blocks) >= 0);
    assert_int_equal(sh_blocks_take(blocks), -1);
    sh_blocks_free(blocks);
}

/* Checks random prompts of a few letters against a simple model: the counts must be right, and
 * prefixes that are held must be found. */
TEST(random_use_keeps_counts_and_prefixes_right)
{
    UNUSED_STATE;
    enum { SEQS = 6, STEPS = 20000 };
    sh_blocks *blocks = sh_blocks_create(24, secret, root);
    int32_t lists[SEQS][4];
    int held[SEQS] = {0};
    uint64_t random = 1;
    for (int step = 0; step < STEPS; step++) {
        random = sh_mix64(random);
        int s = (int)(random % SEQS);
        if (held[s] > 0) {
            sh_blocks_release(blocks, lists[s], held[s]);
            held[s] = 0;
        } else {
            char letters[5] = {0};
            int count = 1 + (int)(random >> 8) % 4;
            for (int i = 0; i < count; i++) letters[i] = (char)('a' + (random >> (16 + 4 * i)) % 3);
            run(blocks, letters, lists[s]);
            held[s] = count;
        }
        bool used[24] = {0};
        int distinct = 0;
        for (int i = 0; i < SEQS; i++)
            for (int j = 0; j < held[i]; j++)
                if (!used[lists[i][j]]) used[lists[i][j]] = true, distinct++;
        assert_int_equal(sh_blocks_available(blocks), 24 - distinct);
    }
    sh_blocks_free(blocks);
}

/* A sequence of `count` tokens, fewer than a block, that begin as `letter` does; then it ends. */
static int32_t part_leave(sh_blocks *blocks, int32_t letter, int count)
{
    int32_t tokens[B], block = sh_blocks_take(blocks);
    for (int j = 0; j < B; j++) tokens[j] = letter * 100 + j;
    sh_blocks_keep_part(blocks, block, sh_blocks_root(blocks, 0), tokens, count);
    sh_blocks_release(blocks, &block, 1);
    return block;
}

static sh_block_part part_find(sh_blocks *blocks, int32_t letter, int common, int count)
{
    int32_t tokens[B];
    for (int j = 0; j < B; j++) tokens[j] = j < common ? letter * 100 + j : 7;
    return sh_blocks_match_part(blocks, sh_blocks_root(blocks, 0), tokens, count);
}

TEST(the_longest_beginning_of_a_block_is_found)
{
    UNUSED_STATE;
    sh_blocks *blocks = sh_blocks_create(COUNT, secret, root);
    assert_int_equal(part_find(blocks, 'a', B, 20).count, 0);
    part_leave(blocks, 'a', 20);
    assert_int_equal(sh_blocks_cached(blocks), 0); /* parts are not reused unless one says so */
    sh_blocks_reuse_parts(blocks, SH_PARTS_ANY);
    int32_t list[1], block = part_leave(blocks, 'a', 20);
    assert_int_equal(sh_blocks_cached(blocks), 1);
    assert_int_equal(part_find(blocks, 'a', B, 12).count, 12);
    assert_int_equal(part_find(blocks, 'a', B, 31).count, 20);
    assert_int_equal(part_find(blocks, 'a', 9, 31).count, 9);
    assert_int_equal(part_find(blocks, 'a', SH_PART_MIN - 1, 31).count, 0);
    assert_int_equal(part_find(blocks, 'b', B, 31).count, 0);
    assert_int_equal(part_find(blocks, 'a', B, 31).block, block);
    run(blocks, "a", list); /* a full one has more */
    assert_int_equal(part_find(blocks, 'a', B, 31).block, list[0]);
    assert_int_equal(part_find(blocks, 'a', B, 31).count, 31);
    sh_blocks_release(blocks, list, 1);
    sh_blocks_free(blocks);
}

TEST(parts_are_kept_once_and_evicted_like_others)
{
    UNUSED_STATE;
    sh_blocks *blocks = sh_blocks_create(2, secret, root);
    sh_blocks_reuse_parts(blocks, SH_PARTS_ANY);
    part_leave(blocks, 'a', 20);
    part_leave(blocks, 'a', 20);
    part_leave(blocks, 'a', 10);
    assert_int_equal(sh_blocks_cached(blocks), 1);
    part_leave(blocks, 'a', 30); /* takes the place of the shorter one */
    assert_int_equal(sh_blocks_cached(blocks), 1);
    part_leave(blocks, 'b', 30);
    assert_int_equal(sh_blocks_cached(blocks), 2);
    assert_int_equal(part_find(blocks, 'a', B, 31).count, 30); /* so b is the oldest */
    part_leave(blocks, 'c', 30);
    assert_int_equal(part_find(blocks, 'b', B, 31).count, 0);
    assert_int_equal(part_find(blocks, 'a', B, 31).count, 30);
    assert_int_equal(part_find(blocks, 'c', B, 31).count, 30);
    assert_int_equal(sh_blocks_available(blocks), 2);
    sh_blocks_free(blocks);
}

TEST(a_state_is_reused_only_where_it_ends)
{
    UNUSED_STATE;
    sh_blocks *blocks = sh_blocks_create(COUNT, secret, root);
    sh_blocks_reuse_parts(blocks, SH_PARTS_WHOLE);
    part_leave(blocks, 'a', 20);
    part_leave(blocks, 'a', 25);
    assert_int_equal(sh_blocks_cached(blocks), 2);
    assert_int_equal(part_find(blocks, 'a', B, 19).count, 0);
    assert_int_equal(part_find(blocks, 'a', B, 20).count, 20);
    assert_int_equal(part_find(blocks, 'a', 24, 31).count, 20);
    assert_int_equal(part_find(blocks, 'a', B, 31).count, 25);
    sh_blocks_free(blocks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_prefix_is_found_after_its_sequence_is_gone),
        cmocka_unit_test(the_same_tokens_after_another_prefix_are_another_block),
        cmocka_unit_test(shared_blocks_are_stored_once),
        cmocka_unit_test(the_least_recently_released_is_evicted_first_and_tails_before_heads),
        cmocka_unit_test(a_promise_is_seen_and_dropped_when_its_block_is_never_computed),
        cmocka_unit_test(take_fails_when_all_blocks_are_held),
        cmocka_unit_test(random_use_keeps_counts_and_prefixes_right),
        cmocka_unit_test(the_longest_beginning_of_a_block_is_found),
        cmocka_unit_test(parts_are_kept_once_and_evicted_like_others),
        cmocka_unit_test(a_state_is_reused_only_where_it_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
