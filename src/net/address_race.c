#include "net/address_race.h"

#include "base/log.h"
#include "net/sock.h"

#include <math.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>

enum {
    RACE_MS = 1000, /* for the first to arrive; a SYN that was lost is sent again after a second */
    OTHERS_MS = 60, /* for the others from then on: much slower ones need not be known exactly */
};

void sh_address_race_start(sh_address_race *race, const sh_addr *addrs, int count)
{
    memset(race, 0, sizeof(*race));
    race->count = count;
    race->start = sh_clock_ns();
    race->end = sh_deadline_in_ms(RACE_MS);
    for (int i = 0; i < count; i++) {
        sh_err ignored;
        race->addr[i] = addrs[i];
        race->rtt_us[i] = INFINITY;
        if (sh_sock_connect(&addrs[i], &race->fd[i], &ignored) != SH_OK) race->fd[i] = -1;
    }
}

void sh_address_race_reset(sh_address_race *race)
{
    for (int i = 0; i < race->count; i++) sh_sock_close(race->fd[i]);
    race->count = 0;
}

/* The kernel's figure does not depend on when we look. */
static double round_trip_us(const sh_address_race *race, int fd)
{
    double waited_us = (double)(sh_clock_ns() - race->start) * 1e-3;
#ifdef __linux__
    struct tcp_info info;
    socklen_t len = sizeof(info);
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0 && info.tcpi_rtt > 0)
        return info.tcpi_rtt;
#else
    (void)fd;
#endif
    return waited_us;
}

static bool is_settled(int fd)
{
    struct pollfd one = {.fd = fd, .events = POLLOUT};
    return poll(&one, 1, 0) > 0;
}

static void look(sh_address_race *race, int i)
{
    sh_err ignored;
    if (race->fd[i] < 0 || !is_settled(race->fd[i])) return;
    if (sh_sock_connected(race->fd[i], &ignored) == SH_OK) {
        race->rtt_us[i] = round_trip_us(race, race->fd[i]);
        sh_deadline others = sh_deadline_in_ms(OTHERS_MS);
        if (others < race->end) race->end = others;
    }
    sh_sock_close(race->fd[i]);
    race->fd[i] = -1;
}

/* A few elements, and those that are equal stay in order. */
static void sort(sh_address_race *race)
{
    for (int i = 1; i < race->count; i++)
        for (int k = i; k > 0 && race->rtt_us[k] < race->rtt_us[k - 1]; k--) {
            double rtt_us = race->rtt_us[k];
            sh_addr addr = race->addr[k];
            race->rtt_us[k] = race->rtt_us[k - 1];
            race->addr[k] = race->addr[k - 1];
            race->rtt_us[k - 1] = rtt_us;
            race->addr[k - 1] = addr;
        }
}

sh_status sh_address_race_step(sh_address_race *race)
{
    bool open = false;
    for (int i = 0; i < race->count; i++) {
        look(race, i);
        open = open || race->fd[i] >= 0;
    }
    if (open && !sh_deadline_passed(race->end)) return SH_AGAIN;
    for (int i = 0; i < race->count; i++) {
        sh_sock_close(race->fd[i]);
        race->fd[i] = -1;
    }
    sort(race);
    for (int i = 0; i < race->count; i++) {
        char text[SH_ADDR_TEXT_MAX];
        sh_addr_format(&race->addr[i], text);
        SH_LOGD("%s: round trip of %.0f us", text, race->rtt_us[i]);
    }
    return SH_OK;
}
