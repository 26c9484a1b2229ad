#include "discover/search.h"

#include "base/log.h"
#include "discover/limiter.h"
#include "discover/multicast.h"

#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>

enum {
    PAUSE_FIRST_MS = 100,
    PAUSE_MAX_MS = 2000,
    SETTLE_MS = 250,    /* after the first answer: for those that come over other interfaces */
    BATCH_MAX = 64,     /* packets before timers are looked at */
    SOURCE_PER_S = 100, /* answers that are opened */
    ALL_PER_S = 1000,
};

struct search {
    sh_packet_key key;
    sh_query query;
    sh_multicast sockets;
    sh_limiter opened;
    sh_deadline deadline;
    sh_deadline next; /* query */
    int64_t pause_ms;
    bool warned;
};

static bool has_addr(const sh_answer_packet *answer, const sh_addr *addr)
{
    for (int i = 0; i < answer->addr_count; i++)
        if (answer->addr[i].len == addr->len &&
            memcmp(&answer->addr[i].sa, &addr->sa, addr->len) == 0)
            return true;
    return false;
}

/* An address that an answer came from is known to work, so it goes first. */
static void addr_put_first(sh_answer_packet *answer, const sh_addr *from)
{
    sh_addr addr = *from;
    sh_addr_set_port(&addr, answer->port);
    if (addr.sa.any.sa_family == AF_INET6) addr.sa.v6.sin6_flowinfo = 0;
    if (has_addr(answer, &addr)) return;
    if (sh_addr_is_loopback(&addr) && answer->addr_count > 0) return; /* of use here alone */
    int kept = answer->addr_count < SH_LANES_MAX ? answer->addr_count++ : SH_LANES_MAX - 1;
    memmove(&answer->addr[1], &answer->addr[0], (size_t)kept * sizeof(answer->addr[0]));
    answer->addr[0] = addr;
}

void sh_found_add(sh_answer_packet *list, int *count, const sh_answer_packet *answer,
                  const sh_addr *from)
{
    int at = 0;
    while (at < *count && (memcmp(list[at].node, answer->node, SH_NODE_ID_LEN) != 0 ||
                           list[at].port != answer->port))
        at++;
    if (at == SH_FOUND_MAX) return;
    if (at == *count) list[(*count)++] = *answer;
    addr_put_first(&list[at], from);
}

void sh_found_addresses(const sh_answer_packet *found, const sh_interfaces *own, sh_buf *out)
{
    int foreign = 0;
    for (int i = 0; i < found->addr_count; i++)
        foreign += !sh_interfaces_have(own, &found->addr[i]);
    for (int i = 0; i < found->addr_count; i++) {
        char text[SH_ADDR_TEXT_MAX];
        if (foreign > 0 && sh_interfaces_have(own, &found->addr[i])) continue;
        sh_addr_format(&found->addr[i], text);
        sh_buf_addf(out, "%s%s", out->len > 0 ? "," : "", text);
    }
}

static void query_send(struct search *s)
{
    uint8_t packet[SH_PACKET_LEN];
    sh_query_seal(&s->key, &s->query, packet);
    if (sh_multicast_send(&s->sockets, packet, sizeof(packet)) == 0 && !s->warned) {
        SH_LOGW("discovery: no interface takes a packet; searching on");
        s->warned = true;
    }
    s->next = sh_deadline_in_ms(s->pause_ms);
    s->pause_ms = 2 * s->pause_ms < PAUSE_MAX_MS ? 2 * s->pause_ms : PAUSE_MAX_MS;
}

static void answer_take(struct search *s, const uint8_t *data, size_t len, const sh_addr *from,
                        sh_answer_packet *out, int *count)
{
    sh_packet packet;
    sh_err err;
    if (!sh_packet_is_ours(&s->key, data, len) ||
        !sh_limiter_take(&s->opened, from, sh_clock_ns()) ||
        sh_packet_open(&s->key, data, &packet, &err) != SH_OK || packet.is_query ||
        CRYPTO_memcmp(packet.as.answer.nonce, s->query.nonce, SH_PACKET_NONCE_LEN) != 0)
        return;
    if (s->query.seek == SH_SEEK_SERVER && packet.as.answer.rank != 0) return;
    if (*count == 0 && s->query.seek == SH_SEEK_SERVER) {
        sh_deadline settled = sh_deadline_in_ms(SETTLE_MS);
        if (settled < s->deadline) s->deadline = settled;
    }
    sh_found_add(out, count, &packet.as.answer, from);
}

static void answers_take(struct search *s, sh_answer_packet *out, int *count)
{
    uint8_t data[SH_PACKET_LEN + 1];
    sh_addr from;
    ssize_t len;
    for (int i = 0; i < BATCH_MAX; i++) {
        if ((len = sh_multicast_recv(&s->sockets, data, sizeof(data), &from)) < 0) return;
        answer_take(s, data, (size_t)len, &from, out, count);
    }
}

static int compare(const void *x, const void *y)
{
    const sh_answer_packet *a = x, *b = y;
    if (a->rank != b->rank) return a->rank < b->rank ? -1 : 1;
    return memcmp(a->node, b->node, SH_NODE_ID_LEN);
}

sh_status sh_search(const char *token, sh_seek seek, sh_deadline deadline,
                    sh_answer_packet out[SH_FOUND_MAX], int *count, sh_err *err)
{
    struct search s = {
        .query.seek = seek, .deadline = deadline, .pause_ms = PAUSE_FIRST_MS, .next = 0};
    sh_status status = sh_multicast_open(&s.sockets, err);
    *count = 0;
    if (status != SH_OK) return status;
    sh_packet_key_init(&s.key, token);
    sh_random(s.query.nonce, sizeof(s.query.nonce));
    sh_limiter_init(&s.opened, SOURCE_PER_S, ALL_PER_S);
    while (!sh_deadline_passed(s.deadline)) {
        struct pollfd fds[2];
        if (sh_deadline_passed(s.next)) query_send(&s);
        int fd_count = sh_multicast_poll(&s.sockets, fds);
        sh_deadline wake = s.next < s.deadline ? s.next : s.deadline;
        poll(fds, (nfds_t)fd_count, sh_deadline_left_ms(wake));
        answers_take(&s, out, count);
    }
    OPENSSL_cleanse(&s.key, sizeof(s.key));
    sh_multicast_close(&s.sockets);
    qsort(out, (size_t)*count, sizeof(*out), compare);
    return *count > 0 ? SH_OK : sh_err_set(err, SH_ERR_NOT_FOUND, "nobody answered");
}
