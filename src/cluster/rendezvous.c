/* Rendezvous over MPI: mpirun does not export where rank 0 runs, so the ranks use MPI once to agree
 * on an address. Which of its addresses rank 0 should offer cannot be known from its side alone
 * (container bridges, management networks), so it collects the networks of all machines first. */
#include "cluster/rendezvous.h"

#include "base/alloc.h"
#include "base/log.h"
#include "net/sock.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool same_network(const sh_card_addr *a, const sh_card_addr *b)
{
    if (a->len != b->len || a->prefix != b->prefix) return false;
    for (int bit = 0; bit < a->prefix; bit++)
        if (((a->bytes[bit / 8] ^ b->bytes[bit / 8]) >> (7 - bit % 8) & 1) != 0) return false;
    return true;
}

/* The address alone, whatever its prefix. */
static bool has_addr(const sh_card *card, const sh_card_addr *addr)
{
    for (uint32_t i = 0; i < card->count; i++)
        if (card->addr[i].len == addr->len &&
            memcmp(card->addr[i].bytes, addr->bytes, addr->len) == 0)
            return true;
    return false;
}

/* By their sets of addresses; the order does not matter. */
static bool same_machine(const sh_card *a, const sh_card *b)
{
    if (a->count != b->count) return false;
    for (uint32_t i = 0; i < a->count; i++)
        if (!has_addr(b, &a->addr[i])) return false;
    return true;
}

/* Whether a machine is in the network of this address. If it has the address itself, connecting
 * would lead it to itself. */
static bool reaches(const sh_card *card, const sh_card_addr *addr)
{
    if (has_addr(card, addr)) return false;
    for (uint32_t i = 0; i < card->count; i++)
        if (same_network(&card->addr[i], addr)) return true;
    return false;
}

/* How many other ranks can reach this address of cards[0]. */
static int reach_of(const sh_card *cards, int count, uint32_t idx)
{
    int found = 0;
    for (int r = 1; r < count; r++)
        found += same_machine(&cards[0], &cards[r]) || reaches(&cards[r], &cards[0].addr[idx]);
    return found;
}

int sh_rendezvous_pick(const sh_card *cards, int count)
{
    bool alone = true;
    for (int r = 1; r < count; r++) alone = alone && same_machine(&cards[0], &cards[r]);
    if (alone || cards[0].count == 0) return -1;
    int best = 0;
    for (uint32_t i = 1; i < cards[0].count; i++)
        if (reach_of(cards, count, i) > reach_of(cards, count, (uint32_t)best)) best = (int)i;
    return best;
}

static int prefix_of(const uint8_t *mask, int len)
{
    int bits = 0;
    while (bits < 8 * len && (mask[bits / 8] >> (7 - bits % 8) & 1) != 0) bits++;
    return bits;
}

/* False for entries that are of no use: interfaces that are down, loopback, other families. */
static bool card_addr_of(const struct ifaddrs *ifa, sh_card_addr *out)
{
    if (ifa->ifa_addr == NULL || ifa->ifa_netmask == NULL || (ifa->ifa_flags & IFF_UP) == 0 ||
        (ifa->ifa_flags & IFF_LOOPBACK) != 0)
        return false;
    const void *bytes, *mask;
    if (ifa->ifa_addr->sa_family == AF_INET) {
        bytes = &((const struct sockaddr_in *)(const void *)ifa->ifa_addr)->sin_addr;
        mask = &((const struct sockaddr_in *)(const void *)ifa->ifa_netmask)->sin_addr;
        out->len = 4;
    } else if (ifa->ifa_addr->sa_family == AF_INET6) {
        const struct in6_addr *in6 =
            &((const struct sockaddr_in6 *)(const void *)ifa->ifa_addr)->sin6_addr;
        if (IN6_IS_ADDR_LINKLOCAL(in6)) return false; /* useless without an interface name */
        bytes = in6;
        mask = &((const struct sockaddr_in6 *)(const void *)ifa->ifa_netmask)->sin6_addr;
        out->len = 16;
    } else {
        return false;
    }
    memcpy(out->bytes, bytes, out->len);
    out->prefix = (uint8_t)prefix_of(mask, out->len);
    return true;
}

static sh_status card_make(sh_card *out, sh_err *err)
{
    struct ifaddrs *list = NULL;
    memset(out, 0, sizeof(*out));
    if (getifaddrs(&list) != 0) return sh_err_sys(err, "addresses of this machine");
    for (const struct ifaddrs *ifa = list; ifa != NULL && out->count < SH_CARD_ADDRS_MAX;
         ifa = ifa->ifa_next) {
        sh_card_addr addr = {.len = 0};
        if (card_addr_of(ifa, &addr)) out->addr[out->count++] = addr;
    }
    freeifaddrs(list);
    return SH_OK;
}

/* Data from MPI is checked like data from a socket. */
static bool card_is_sound(const sh_card *card)
{
    bool good = card->count <= SH_CARD_ADDRS_MAX;
    for (uint32_t i = 0; good && i < card->count; i++)
        good = (card->addr[i].len == 4 || card->addr[i].len == 16) &&
               card->addr[i].prefix <= 8 * card->addr[i].len;
    return good;
}

/* The kernel picks the port, so there is nothing to collide with; NULL means loopback. */
static sh_status listen_at(const sh_card_addr *chosen, sh_rendezvous *out, sh_err *err)
{
    char host[INET6_ADDRSTRLEN] = "127.0.0.1", text[SH_ADDR_TEXT_MAX];
    bool six = chosen != NULL && chosen->len == 16;
    if (chosen != NULL) inet_ntop(six ? AF_INET6 : AF_INET, chosen->bytes, host, sizeof(host));
    snprintf(text, sizeof(text), six ? "[%s]:0" : "%s:0", host);
    sh_addr addr;
    sh_status status = sh_addr_parse(text, &addr, err);
    if (status == SH_OK) status = sh_sock_listen(&addr, &out->fd, err);
    if (status == SH_OK) status = sh_sock_local(out->fd, &addr, err);
    if (status == SH_OK) sh_addr_format(&addr, out->coordinator);
    return status;
}

/* Rank 0. It listens before it publishes the address, so that no rank can come too early. Structs
 * are sent as raw bytes, so all machines must have the same byte order. */
static sh_status lead(sh_mpi *mpi, sh_card *cards, const char *token, sh_deadline deadline,
                      sh_rendezvous *out, sh_err *err)
{
    int size = sh_mpi_size(mpi);
    sh_status status = card_make(&cards[0], err);
    for (int r = 1; r < size && status == SH_OK; r++) {
        status = sh_mpi_recv(mpi, r, &cards[r], sizeof(cards[r]), deadline, err);
        if (status == SH_OK && !card_is_sound(&cards[r]))
            status = sh_err_set(err, SH_ERR_PEER, "rank %d sent invalid addresses", r);
    }
    if (status != SH_OK) return status;
    int chosen = sh_rendezvous_pick(cards, size);
    status = listen_at(chosen < 0 ? NULL : &cards[0].addr[chosen], out, err);
    if (status != SH_OK) return status;
    if (token != NULL)
        snprintf(out->token, sizeof(out->token), "%s", token);
    else
        sh_cluster_token_make(out->token);
    sh_rendezvous sent = *out;
    sent.fd = -1;
    for (int r = 1; r < size && status == SH_OK; r++)
        status = sh_mpi_send(mpi, r, &sent, sizeof(sent), deadline, err);
    SH_LOGD("rendezvous over MPI: %d ranks join at %s", size, out->coordinator);
    return status;
}

/* All other ranks. */
static sh_status follow(sh_mpi *mpi, sh_deadline deadline, sh_rendezvous *out, sh_err *err)
{
    sh_card card;
    sh_status status = card_make(&card, err);
    if (status == SH_OK) status = sh_mpi_send(mpi, 0, &card, sizeof(card), deadline, err);
    if (status == SH_OK) status = sh_mpi_recv(mpi, 0, out, sizeof(*out), deadline, err);
    if (status != SH_OK) return status;
    /* Received as raw bytes: make sure that both strings end. */
    out->coordinator[sizeof(out->coordinator) - 1] = '\0';
    out->token[sizeof(out->token) - 1] = '\0';
    return SH_OK;
}

sh_status sh_rendezvous_run(sh_mpi *mpi, const char *token, int wait_ms, sh_rendezvous *out,
                            sh_err *err)
{
    sh_deadline deadline = sh_deadline_in_ms(wait_ms);
    int size = sh_mpi_size(mpi);
    sh_rendezvous got = {.fd = -1};
    sh_card *cards = sh_alloc_array((size_t)size, sizeof(*cards));
    sh_status status = sh_mpi_rank(mpi) == 0 ? lead(mpi, cards, token, deadline, &got, err)
                                             : follow(mpi, deadline, &got, err);
    free(cards);
    if (status == SH_OK)
        *out = got;
    else
        sh_sock_close(got.fd);
    return status == SH_OK ? SH_OK : sh_err_prefix(err, "rendezvous over MPI");
}
