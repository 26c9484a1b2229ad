#include "http/http_acceptor.h"

#include "base/alloc.h"
#include "base/log.h"
#include "http/carrier.h"
#include "http/loop_event.h"

#include <errno.h>
#include <event2/listener.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>

enum { PAUSE_MS = 100 };

struct sh_http_acceptor {
    sh_http_acceptor_events events;
    struct evconnlistener *listeners[SH_LISTENERS_MAX];
    int count;
    int port;
    bool on, ended;
    sh_trigger *resume; /* on again after running out of descriptors */
};

int sh_http_acceptor_port(const sh_http_acceptor *acceptor)
{
    return acceptor->port;
}

bool sh_http_acceptor_is_on(const sh_http_acceptor *acceptor)
{
    return acceptor->on;
}

void sh_http_acceptor_set(sh_http_acceptor *acceptor, bool on)
{
    if (acceptor->ended) on = false;
    if (on == acceptor->on) return;
    for (int i = 0; i < acceptor->count; i++) {
        if (on)
            evconnlistener_enable(acceptor->listeners[i]);
        else
            evconnlistener_disable(acceptor->listeners[i]);
    }
    acceptor->on = on;
}

void sh_http_acceptor_end(sh_http_acceptor *acceptor)
{
    acceptor->ended = true;
    sh_http_acceptor_set(acceptor, false);
}

void sh_http_acceptor_refuse(sh_http_acceptor *acceptor)
{
    for (int i = 0; i < acceptor->count; i++)
        shutdown(evconnlistener_get_fd(acceptor->listeners[i]), SHUT_RDWR);
}

static void on_accept(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *addr,
                      int addr_len, void *arg)
{
    (void)listener;
    const sh_http_acceptor_events *events = &((sh_http_acceptor *)arg)->events;
    char peer[SH_HTTP_PEER_MAX] = "";
    getnameinfo(addr, (socklen_t)addr_len, peer, sizeof(peer), NULL, 0, NI_NUMERICHOST);
    events->accepted(events->ctx, fd, addr, peer);
}

/* Most likely the process is out of descriptors: accepting would fail again at once and the loop
 * would spin, so pause. */
static void on_error(struct evconnlistener *listener, void *arg)
{
    (void)listener;
    sh_http_acceptor *acceptor = arg;
    SH_LOGW("%s: accept: %s", acceptor->events.name, strerror(errno));
    sh_http_acceptor_set(acceptor, false);
    if (acceptor->events.starved != NULL) acceptor->events.starved(acceptor->events.ctx);
    sh_trigger_start(acceptor->resume, PAUSE_MS);
}

static void on_resume(void *arg)
{
    sh_http_acceptor_set(arg, true);
}

/* Its socket is closed with it. */
static struct evconnlistener *watch(sh_http_acceptor *acceptor, sh_loop *loop, int fd)
{
    struct evconnlistener *listener = evconnlistener_new(
        sh_loop_base(loop), on_accept, acceptor, LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC, 0,
        fd);
    if (listener != NULL) evconnlistener_set_error_cb(listener, on_error);
    return listener;
}

sh_status sh_http_acceptor_open(sh_loop *loop, sh_listeners *sockets,
                                const sh_http_acceptor_events *events, sh_http_acceptor **out,
                                sh_err *err)
{
    sh_http_acceptor *acceptor = sh_alloc(sizeof(*acceptor));
    acceptor->events = *events;
    acceptor->port = sockets->port;
    acceptor->on = true;
    acceptor->resume = sh_trigger_timer(loop, on_resume, acceptor);
    while (sockets->count > 0) {
        struct evconnlistener *listener = watch(acceptor, loop, sockets->fds[sockets->count - 1]);
        if (listener == NULL) {
            sh_listeners_close(sockets);
            sh_http_acceptor_close(acceptor);
            return sh_err_set(err, SH_ERR_SYSTEM, "cannot watch a socket");
        }
        acceptor->listeners[acceptor->count++] = listener;
        sockets->count--;
    }
    *out = acceptor;
    return SH_OK;
}

void sh_http_acceptor_close(sh_http_acceptor *acceptor)
{
    if (acceptor == NULL) return;
    for (int i = 0; i < acceptor->count; i++) evconnlistener_free(acceptor->listeners[i]);
    sh_trigger_free(acceptor->resume);
    free(acceptor);
}
