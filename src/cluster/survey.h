/* survey.h - asks hosts about themselves and times the links between them, over ssh.
 *
 * All hosts are asked at once; links are timed one after the other, so that none disturbs another.
 * A host without the program tells less, and of its links only the latency is known.
 *
 * Threads: one owner. */
#ifndef SH_CLUSTER_SURVEY_H
#define SH_CLUSTER_SURVEY_H

#include "cluster/netplan.h"
#include "cluster/ssh.h"

typedef struct {
    const char *name;              /* as ssh knows it; NULL: this host */
    const char *shown;             /* its name in texts */
    const char *listen;            /* "ip:port,...": could it listen there?, or NULL */
    sh_fingerprint *fp;            /* the answer, owned; NULL when there is none */
    sh_err err;                    /* then why */
    int64_t asked_us, answered_us; /* between these it read its clock */
} sh_survey_host;

typedef struct {
    sh_ssh_opts ssh;
    const char *program;   /* path of this program: looked for at the same place over there too */
    const char *state_dir; /* where `shoal launch` keeps programs, on every host */
    const char *model;     /* to hash, or NULL */
    void (*progress)(const char *text); /* or NULL */
} sh_survey_opts;

/* Asks all; fills fp or err of each. */
void sh_survey_ask(const sh_survey_opts *opts, sh_survey_host *hosts, int count);
void sh_survey_reset(sh_survey_host *hosts, int count); /* frees the answers */

/* Times the links between hosts that answered. */
void sh_survey_measure(const sh_survey_opts *opts, const sh_survey_host *hosts, int count,
                       sh_net_link *links, int link_count);

/* The same hosts as netplan.h takes them. */
void sh_survey_net(const sh_survey_host *hosts, int count, sh_net_host *out);

/* The host names of an ssh settings file, without patterns; at most cap, each owned by the arena.
 */
int sh_ssh_config_hosts(sh_str text, sh_arena *arena, const char **out, int cap);

#endif
