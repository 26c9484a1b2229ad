/* The choice of a transport for a pair, as a truth table, and what a pair does with it. */
#include "net/pairing.h"

#include "test.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

enum { LOW = 3, HIGH = 7 };

/* One letter for each transport of the table: m made, f failed, n not for these two, - absent. */
static sh_offers offers_of(uint32_t rank, const char *wanted, const char *states)
{
    sh_offers offers = {.rank = rank};
    snprintf(offers.wanted, sizeof(offers.wanted), "%s", wanted);
    for (int i = 0; sh_transports[i] != NULL; i++) {
        if (states[i] == '-') continue;
        sh_offer *offer = &offers.offer[offers.count++];
        snprintf(offer->transport, sizeof(offer->transport), "%s", sh_transports[i]->name);
        if (states[i] == 'm')
            offer->state = SH_OFFER_MADE;
        else if (states[i] == 'f')
            sh_offer_refuse(offer, SH_OFFER_FAILED, "the disk is full");
        else
            sh_offer_refuse(offer, SH_OFFER_NONE, "they are on two machines");
    }
    return offers;
}

/* Offers are in the order of the table: shm, tcp, mpi. */
static const struct {
    const char *low_wanted, *low, *high_wanted, *high;
    const char *chosen; /* NULL: an error that contains these */
    const char *part, *part2;
} CASES[] = {
    /* nobody asks: shared memory before sockets, and never what sends clear text */
    {"", "mmm", "", "mmm", "shm", NULL, NULL},
    {"", "nmm", "", "mmm", "tcp", NULL, NULL},
    {"", "mmn", "", "fmn", "tcp", NULL, NULL},
    {"", "-m-", "", "mm-", "tcp", NULL, NULL},
    {"", "nnm", "", "nnm", NULL, "nothing connects ranks 3 and 7", "sockets: they are on two"},
    {"", "fmm", "", "mfm", NULL, "shared memory: rank 3 failed to set it up: the disk is full",
     "sockets: rank 7 failed to set it up: the disk is full"},
    {"", "---", "", "---", NULL, "shared memory: rank 7 does not offer it", "sockets: rank 7"},
    /* one asks: that one or nothing */
    {"tcp", "-m-", "", "mmn", "tcp", NULL, NULL},
    {"", "mmn", "tcp", "-m-", "tcp", NULL, NULL},
    {"shm", "m--", "", "mmn", "shm", NULL, NULL},
    {"", "nmn", "shm", "m--", NULL,
     "shared memory was asked for between ranks 3 and 7, but they are on two machines", ""},
    {"shm", "---", "", "fmn", NULL,
     "shared memory was asked for between ranks 3 and 7, but rank 7 failed to set it up: the disk",
     ""},
    {"", "mmn", "mpi", "--m", NULL, "MPI was asked for between ranks 3 and 7", ""},
    {"mpi", "--m", "", "mmm", "mpi", NULL, NULL},
    /* both ask */
    {"mpi", "--m", "mpi", "--m", "mpi", NULL, NULL},
    {"tcp", "-m-", "tcp", "-m-", "tcp", NULL, NULL},
    {"tcp", "-m-", "shm", "m--", NULL, "rank 7 asks for shared memory, but rank 3 for sockets", ""},
    {"ether", "---", "ether", "---", NULL, "ether was asked for", "does not have it"},
};

TEST(both_ends_of_a_pair_choose_the_same)
{
    UNUSED_STATE;
    for (size_t i = 0; i < SH_COUNT_OF(CASES); i++) {
        sh_offers low = offers_of(LOW, CASES[i].low_wanted, CASES[i].low);
        sh_offers high = offers_of(HIGH, CASES[i].high_wanted, CASES[i].high);
        const sh_transport *by_low = NULL, *by_high = NULL;
        sh_err low_err, high_err;
        sh_status status = sh_transport_choose(sh_transports, &low, &high, &by_low, &low_err);
        assert_int_equal(sh_transport_choose(sh_transports, &high, &low, &by_high, &high_err),
                         status);
        assert_ptr_equal(by_low, by_high);
        if (CASES[i].chosen != NULL) {
            CHECK_OK(status, low_err);
            assert_string_equal(by_low->name, CASES[i].chosen);
        } else {
            CHECK_FAILS(status, low_err, CASES[i].part);
            CHECK_FAILS(status, low_err, CASES[i].part2);
            assert_string_equal(low_err.text, high_err.text);
        }
    }
}

TEST(the_table_is_in_order)
{
    UNUSED_STATE;
    int count = 0;
    for (; sh_transports[count] != NULL; count++) {
        const sh_transport *t = sh_transports[count];
        assert_true(strlen(t->name) < SH_TRANSPORT_NAME_MAX);
        assert_ptr_equal(sh_transport_find(sh_transports, t->name), t);
        /* Clear text needs consent, so there must be a way to ask for it. */
        if (t->clear_text)
            assert_ptr_equal(sh_transport_find_backend(sh_transports, t->backend), t);
    }
    assert_true(count <= SH_TRANSPORTS_MAX);
    assert_null(sh_transport_find(sh_transports, "auto"));
    assert_null(sh_transport_find_backend(sh_transports, "ring"));
}

/* Two ends of a pair in one process, without any connection between them. */
typedef struct {
    sh_mesh_opts opts;
    sh_pairing *low, *high;
} couple;

static void couple_make(couple *c, bool same_host, const sh_transport *wanted)
{
    sh_pair pair = {.rank = LOW, .peer = HIGH, .same_host = same_host, .epoch = 5, .lanes = 2};
    sh_mesh_opts_init(&c->opts);
    c->opts.wanted = wanted;
    c->low = calloc(1, sizeof(*c->low));
    c->high = calloc(1, sizeof(*c->high));
    sh_pairing_init(c->low, &c->opts, &pair);
    pair.rank = HIGH;
    pair.peer = LOW;
    sh_pairing_init(c->high, &c->opts, &pair);
    sh_pairing_offer(c->high);
}

static void couple_free(couple *c)
{
    sh_pairing_reset(c->low);
    sh_pairing_reset(c->high);
    free(c->low);
    free(c->high);
}

TEST(a_pair_on_one_machine_shares_memory_and_needs_one_socket)
{
    UNUSED_STATE;
    couple c;
    sh_err err;
    sh_channel *channel;
    char name[64] = "";
    couple_make(&c, true, NULL);
    memcpy(name, &c.high->mine.offer[0].body[16], sizeof(name) - 1);
    int fd = shm_open(name, O_RDWR, 0);
    assert_true(fd >= 0);
    close(fd);
    CHECK_OK(sh_pairing_agree(c.low, &c.high->mine, &err), err);
    CHECK_OK(sh_pairing_agree(c.high, &c.low->mine, &err), err);
    assert_ptr_equal(c.low->chosen, &sh_transport_shm);
    assert_ptr_equal(c.high->chosen, &sh_transport_shm);
    assert_int_equal(shm_open(name, O_RDWR, 0), -1); /* nothing is left for a crash to leave */
    assert_int_equal(c.low->sockets, 1);
    assert_true(sh_pairing_needs_socket(c.low, 0));
    assert_false(sh_pairing_needs_socket(c.low, 1));
    assert_int_equal(sh_pairing_connect(c.low, &channel, &err), SH_AGAIN);
    couple_free(&c);
}

TEST(a_segment_that_cannot_be_attached_means_sockets)
{
    UNUSED_STATE;
    couple c;
    sh_err err;
    couple_make(&c, true, NULL);
    c.high->mine.offer[0].body[0] ^= 1; /* another key */
    CHECK_OK(sh_pairing_agree(c.low, &c.high->mine, &err), err);
    CHECK_OK(sh_pairing_agree(c.high, &c.low->mine, &err), err);
    assert_ptr_equal(c.low->chosen, &sh_transport_tcp);
    assert_ptr_equal(c.high->chosen, &sh_transport_tcp);
    assert_int_equal(c.high->sockets, 4);
    couple_free(&c);
    couple_make(&c, true, &sh_transport_shm);
    c.high->mine.offer[0].body_len = 3;
    CHECK_FAILS(sh_pairing_agree(c.low, &c.high->mine, &err), err,
                "but rank 3 cannot attach it: the offer is malformed");
    couple_free(&c);
}

TEST(a_pair_on_two_machines_uses_sockets_unless_asked_for_memory)
{
    UNUSED_STATE;
    couple c;
    sh_err err, same;
    couple_make(&c, false, NULL);
    CHECK_OK(sh_pairing_agree(c.low, &c.high->mine, &err), err);
    CHECK_OK(sh_pairing_agree(c.high, &c.low->mine, &err), err);
    assert_ptr_equal(c.low->chosen, &sh_transport_tcp);
    assert_ptr_equal(c.high->chosen, &sh_transport_tcp);
    couple_free(&c);
    couple_make(&c, false, &sh_transport_shm);
    CHECK_FAILS(sh_pairing_agree(c.low, &c.high->mine, &err), err,
                "shared memory was asked for between ranks 3 and 7, but they are on two machines");
    CHECK_FAILS(sh_pairing_agree(c.high, &c.low->mine, &same), same, err.text);
    couple_free(&c);
}

TEST(mpi_needs_its_library_on_both_ranks)
{
    UNUSED_STATE;
    couple c;
    sh_err err;
    couple_make(&c, true, &sh_transport_mpi);
    CHECK_FAILS(sh_pairing_agree(c.low, &c.high->mine, &err), err,
                "MPI was asked for between ranks 3 and 7, but rank 7 was started without");
    couple_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_ends_of_a_pair_choose_the_same),
        cmocka_unit_test(the_table_is_in_order),
        cmocka_unit_test(a_pair_on_one_machine_shares_memory_and_needs_one_socket),
        cmocka_unit_test(a_segment_that_cannot_be_attached_means_sockets),
        cmocka_unit_test(a_pair_on_two_machines_uses_sockets_unless_asked_for_memory),
        cmocka_unit_test(mpi_needs_its_library_on_both_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
