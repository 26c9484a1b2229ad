/* model_hosts.h - the workers that offer their hosts to the keeper of models.
 *
 * A worker has a number from 1 up, which it keeps when it comes back; 0 is the keeper's own host.
 *
 * Threads: one owner; hooks are called from sh_model_hosts_poll. */
#ifndef SH_CLUSTER_MODEL_HOSTS_H
#define SH_CLUSTER_MODEL_HOSTS_H

#include "cluster/model_link.h"
#include "net/tls.h"

typedef struct sh_model_hosts sh_model_hosts;

typedef struct {
    void (*came)(void *arg, int host); /* or came back */
    void (*went)(void *arg, int host);
    void (*said)(void *arg, int host, const sh_model_message *message);
    void *arg;
} sh_model_hosts_hooks;

enum { SH_MODEL_HOSTS_MAX = SH_RANKS_MAX };

/* Listens at "host:port". token NULL: without TLS, which is refused unless the address is loopback
 * or `insecure`. */
SH_MUST_CHECK sh_status sh_model_hosts_open(const char *address, const char *token, bool insecure,
                                            const sh_model_hosts_hooks *hooks, sh_model_hosts **out,
                                            sh_err *err);
void sh_model_hosts_close(sh_model_hosts *hosts);
void sh_model_hosts_poll(sh_model_hosts *hosts);

bool sh_model_hosts_here(const sh_model_hosts *hosts, int host);
int sh_model_hosts_count(const sh_model_hosts *hosts); /* that are here */
const char *sh_model_hosts_name(const sh_model_hosts *hosts, int host);
double sh_model_hosts_memory(const sh_model_hosts *hosts, int host);
/* The rank that the worker was started as; SH_RANK_ANY: none in particular. */
uint32_t sh_model_hosts_rank(const sh_model_hosts *hosts, int host);
void sh_model_hosts_send(sh_model_hosts *hosts, int host, const sh_model_message *message);

/* A socket for the ranks of one model, at the same address with a port of its own. */
SH_MUST_CHECK sh_status sh_model_hosts_listen(const sh_model_hosts *hosts, int *fd, sh_addr *at,
                                              sh_err *err);

#endif
