/* survey.h - queries hosts about themselves and times the links between them, over ssh.
 *
 * Hosts are queried in parallel; links are timed one host after another, so that they do not
 * disturb each other. A host without the program reports less, and only the latency of its links is
 * known.
 *
 * Threads: one owner. */
#ifndef SH_CLUSTER_SURVEY_H
#define SH_CLUSTER_SURVEY_H

#include "cluster/cables.h"
#include "cluster/ssh.h"

typedef struct {
    const char *name;              /* the name that ssh uses; NULL: this host */
    const char *shown;             /* its name in messages */
    const char *listen;            /* "ip:port,...": test whether it can listen there; or NULL */
    sh_fingerprint *fp;            /* the answer, owned; NULL when there is none */
    sh_err err;                    /* the reason then */
    int64_t asked_us, answered_us; /* its clock was read between these two times */
} sh_survey_host;

typedef struct {
    sh_ssh_opts ssh;
    const char *program;   /* path of this program; hosts may have it at the same place */
    const char *state_dir; /* where `shoal launch` keeps programs, on every host */
    const char *model;     /* to hash, or NULL */
    void (*progress)(const char *text); /* or NULL */
} sh_survey_opts;

/* Queries all hosts; sets fp or err of each. */
void sh_survey_query(const sh_survey_opts *opts, sh_survey_host *hosts, int count);
void sh_survey_reset(sh_survey_host *hosts, int count); /* frees the answers */

/* Times the given links between hosts that answered. */
void sh_survey_measure(const sh_survey_opts *opts, const sh_survey_host *hosts, int count,
                       sh_net_link *links, int link_count);

/* Finds out which interfaces are connected, by trying: every host that has the program knocks, on
 * each of its interfaces, at the link-local IPv6 addresses of all others. Needs no IPv4 address. */
void sh_survey_cables(const sh_survey_opts *opts, const sh_survey_host *hosts, int count,
                      sh_cables *out);

/* Converts to the form that netplan.h takes. */
void sh_survey_net(const sh_survey_host *hosts, int count, sh_net_host *out);

/* The host names in an ssh configuration file, without patterns; at most cap, stored in the arena.
 */
int sh_ssh_config_hosts(sh_str text, sh_arena *arena, const char **out, int cap);

#endif
