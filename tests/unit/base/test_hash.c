#include "base/hash.h"

#include "test.h"

/* Vectors of the SipHash authors' reference (key 00..0f, message 00..len-1, 128 bits out). */
TEST(hash128_gives_the_published_vectors)
{
    UNUSED_STATE;
    static const struct {
        size_t len;
        unsigned char out[16];
    } want[] = {
        {0,
         {0xa3, 0x81, 0x7f, 0x04, 0xba, 0x25, 0xa8, 0xe6, 0x6d, 0xf6, 0x72, 0x14, 0xc7, 0x55, 0x02,
          0x93}},
        {1,
         {0xda, 0x87, 0xc1, 0xd8, 0x6b, 0x99, 0xaf, 0x44, 0x34, 0x76, 0x59, 0x11, 0x9b, 0x22, 0xfc,
          0x45}},
        {2,
         {0x81, 0x77, 0x22, 0x8d, 0xa4, 0xa4, 0x5d, 0xc7, 0xfc, 0xa3, 0x8b, 0xde, 0xf6, 0x0a, 0xff,
          0xe4}},
        {3,
         {0x9c, 0x70, 0xb6, 0x0c, 0x52, 0x67, 0xa9, 0x4e, 0x5f, 0x33, 0xb6, 0xb0, 0x29, 0x85, 0xed,
          0x51}},
    };
    unsigned char message[64];
    for (int i = 0; i < 64; i++) message[i] = (unsigned char)i;
    sh_key128 key = {0x0706050403020100u, 0x0f0e0d0c0b0a0908u};
    for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
        sh_key128 got = sh_hash128(key, message, want[i].len);
        for (int b = 0; b < 8; b++) {
            assert_int_equal((got.lo >> (8 * b)) & 255, want[i].out[b]);
            assert_int_equal((got.hi >> (8 * b)) & 255, want[i].out[8 + b]);
        }
    }
}

TEST(every_bit_of_a_counter_changes_half_of_the_mix)
{
    UNUSED_STATE;
    for (int bit = 0; bit < 64; bit++) {
        int changed = 0;
        for (uint64_t x = 0; x < 1000; x++)
            changed += __builtin_popcountll(sh_mix64(x) ^ sh_mix64(x ^ UINT64_C(1) << bit));
        assert_in_range(changed, 31000, 33000);
    }
}

TEST(random_bytes_differ)
{
    UNUSED_STATE;
    sh_err err;
    unsigned char a[1000], b[1000];
    CHECK_OK(sh_random_bytes(a, sizeof(a), &err), err);
    CHECK_OK(sh_random_bytes(b, sizeof(b), &err), err);
    assert_memory_not_equal(a, b, sizeof(a));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hash128_gives_the_published_vectors),
        cmocka_unit_test(every_bit_of_a_counter_changes_half_of_the_mix),
        cmocka_unit_test(random_bytes_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
