/* All addresses are tried at once, without blocking: a machine that is there answers within
 * milliseconds, with a connection or a refusal, and the others cost one timeout together. */
#include "cluster/neighbours.h"

#include "base/clock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SSH_PORT = 22, WAIT_MS = 500 };

void sh_neighbours_candidates(uint32_t address, uint32_t mask, bool thunderbolt, sh_neighbours *out)
{
    uint32_t first = address & mask, last = first | ~mask;
    uint32_t most = thunderbolt ? SH_NEIGHBOURS_MAX : SH_NEIGHBOURS_NET;
    if (last - first >= most) return;
    bool ends = last - first > 1; /* a network of two has no broadcast address */
    for (uint32_t at = first + ends; at <= last - ends && out->count < SH_NEIGHBOURS_MAX; at++) {
        struct in_addr number = {.s_addr = htonl(at)};
        if (at == address) continue;
        inet_ntop(AF_INET, &number, out->address[out->count++], SH_NEIGHBOURS_TEXT);
    }
}

/* -1 when it fails at once. */
static int connect_begin(const char *address, int port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    inet_pton(AF_INET, address, &to.sin_addr);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0) return -1;
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    if (connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0 || errno == EINPROGRESS) return fd;
    close(fd);
    return -1;
}

static bool is_connected(int fd)
{
    int error = 0;
    socklen_t len = sizeof(error);
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0 && error == 0;
}

void sh_neighbours_probe(sh_neighbours *list, int port, int wait_ms)
{
    struct pollfd wait[SH_NEIGHBOURS_MAX];
    bool there[SH_NEIGHBOURS_MAX] = {false};
    int kept = 0, open = 0;
    for (int i = 0; i < list->count; i++) {
        wait[i] = (struct pollfd){.fd = connect_begin(list->address[i], port), .events = POLLOUT};
        open += wait[i].fd >= 0;
    }
    sh_deadline end = sh_deadline_in_ms(wait_ms);
    while (open > 0 && poll(wait, (nfds_t)list->count, (int)sh_deadline_left_ms(end)) > 0)
        for (int i = 0; i < list->count; i++) {
            if (wait[i].fd < 0 || wait[i].revents == 0) continue;
            there[i] = is_connected(wait[i].fd);
            close(wait[i].fd);
            wait[i].fd = -1; /* poll skips it */
            open--;
        }
    for (int i = 0; i < list->count; i++) {
        if (wait[i].fd >= 0) close(wait[i].fd);
        if (there[i]) memmove(list->address[kept++], list->address[i], SH_NEIGHBOURS_TEXT);
    }
    list->count = kept;
}

void sh_neighbours_find(sh_neighbours *out)
{
    struct ifaddrs *all = NULL;
    out->count = 0;
    if (getifaddrs(&all) != 0) return;
    for (const struct ifaddrs *i = all; i != NULL; i = i->ifa_next) {
        if (i->ifa_addr == NULL || i->ifa_netmask == NULL || i->ifa_addr->sa_family != AF_INET ||
            (i->ifa_flags & IFF_UP) == 0 || (i->ifa_flags & IFF_LOOPBACK) != 0)
            continue;
        struct sockaddr_in address, mask;
        memcpy(&address, i->ifa_addr, sizeof(address));
        memcpy(&mask, i->ifa_netmask, sizeof(mask));
        sh_neighbours_candidates(ntohl(address.sin_addr.s_addr), ntohl(mask.sin_addr.s_addr),
                                 strncmp(i->ifa_name, "thunderbolt", 11) == 0, out);
    }
    freeifaddrs(all);
    sh_neighbours_probe(out, SSH_PORT, WAIT_MS);
}
