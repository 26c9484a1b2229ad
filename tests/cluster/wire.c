/* wire: a link with a given delay between two network namespaces, for tests. The kernel's netem is
 * missing on many test machines; this needs only TAP devices.
 *
 *   wire DELAY_US NETNS NETNS [LOSS]     creates a device "eth1" in each namespace; frames take
 * DELAY_US from one to the other, and LOSS percent of them do not arrive
 *
 * Prints "ready" and runs until it is killed. */
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum { FRAME_MAX = 9216, SLOTS = 8192, SPIN_NS = 60000 };

typedef struct {
    int64_t due_ns;
    int len;
    unsigned char bytes[FRAME_MAX];
} frame;

/* The frames on their way to one end. The delay is the same for all, so they leave in the order in
 * which they arrived. */
typedef struct {
    int fd;
    unsigned head, tail;
    frame *slots;
} end;

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static int tap_open(const char *netns)
{
    char path[256];
    struct ifreq request = {.ifr_flags = IFF_TAP | IFF_NO_PI};
    snprintf(path, sizeof(path), "/run/netns/%s", netns);
    int ns = open(path, O_RDONLY | O_CLOEXEC);
    if (ns < 0 || setns(ns, CLONE_NEWNET) != 0) die(path);
    close(ns);
    int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    strcpy(request.ifr_name, "eth1");
    if (fd < 0 || ioctl(fd, TUNSETIFF, &request) != 0) die("tap");
    return fd;
}

/* Queues the frames received at one end; a full queue drops, like a switch. Which frames are lost
 * is the same in every run. */
static void take(const end *from, end *to, int64_t delay_ns, int loss)
{
    while (to->tail - to->head < SLOTS) {
        frame *f = &to->slots[to->tail % SLOTS];
        ssize_t len = read(from->fd, f->bytes, sizeof(f->bytes));
        if (len <= 0) return;
        if (random() % 100 < loss) continue;
        f->len = (int)len;
        f->due_ns = now_ns() + delay_ns;
        to->tail++;
    }
}

static void deliver(end *to)
{
    while (to->head != to->tail && to->slots[to->head % SLOTS].due_ns <= now_ns()) {
        frame *f = &to->slots[to->head++ % SLOTS];
        if (write(to->fd, f->bytes, (size_t)f->len) < 0 && errno != EAGAIN && errno != EIO)
            die("write");
    }
}

static int64_t next_due(const end *to)
{
    return to->head == to->tail ? INT64_MAX : to->slots[to->head % SLOTS].due_ns;
}

int main(int argc, char **argv)
{
    if (argc != 4 && argc != 5) {
        fprintf(stderr, "usage: wire DELAY_US NETNS NETNS [LOSS]\n");
        return 2;
    }
    int64_t delay_ns = atoll(argv[1]) * 1000;
    int loss = argc == 5 ? atoi(argv[4]) : 0;
    end ends[2] = {{.fd = tap_open(argv[2])}, {.fd = tap_open(argv[3])}};
    for (int i = 0; i < 2; i++) ends[i].slots = malloc(SLOTS * sizeof(frame));
    if (ends[0].slots == NULL || ends[1].slots == NULL) die("malloc");
    printf("ready\n");
    fflush(stdout);
    for (;;) {
        for (int i = 0; i < 2; i++) take(&ends[i], &ends[1 - i], delay_ns, loss);
        for (int i = 0; i < 2; i++) deliver(&ends[i]);
        int64_t due = next_due(&ends[0]) < next_due(&ends[1]) ? next_due(&ends[0])
                                                              : next_due(&ends[1]);
        int64_t left = due == INT64_MAX ? 1000000000 : due - now_ns();
        if (left < SPIN_NS) continue;
        struct pollfd fds[2] = {{.fd = ends[0].fd, .events = POLLIN},
                                {.fd = ends[1].fd, .events = POLLIN}};
        left -= SPIN_NS / 2; /* a sleep ends late rather than early */
        ppoll(fds, 2, &(struct timespec){.tv_sec = left / 1000000000, .tv_nsec = left % 1000000000},
              NULL);
    }
}
