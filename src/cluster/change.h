/* change.h - a change of a launched cluster that the API has asked for.
 *
 * The launcher runs the command that a user would type (`shoal hosts add h3`), so there is one way
 * to change a cluster, with one lock. An order is a line of words:
 *
 *   ID restart
 *   ID add HOST
 *   ID remove HOST     a host, or the number of a rank
 *
 * It comes from the host that serves strangers. So a host is a name or an address and nothing else,
 * and ssh connects only to hosts that the launcher's user has a key for and knows.
 *
 * Threads: one owner. */
#ifndef SH_CLUSTER_CHANGE_H
#define SH_CLUSTER_CHANGE_H

#include "base/buf.h"
#include "base/status.h"
#include "base/str.h"

#include <stdbool.h>
#include <sys/types.h>

enum { SH_CHANGE_ID_MAX = 64, SH_CHANGE_HOST_MAX = 255 };

typedef struct {
    sh_str id; /* set whenever there is one, also by an order that is refused */
    sh_str what, host;
} sh_change_order;

/* Zero is none. */
typedef struct {
    char id[SH_CHANGE_ID_MAX + 1];
    pid_t pid;  /* of the command; 0: there is none */
    int output; /* of the command */
    sh_buf line;
    char last[SH_ERR_TEXT_MAX];   /* the last line */
    char failed[SH_ERR_TEXT_MAX]; /* the last one that tells of an error */
} sh_change;

/* The parts of the order are borrowed from the line. SH_ERR_INPUT if it is not one. */
SH_MUST_CHECK sh_status sh_change_parse(sh_str line, sh_change_order *out, sh_err *err);

/* Whether it may be a host for an order: letters, digits and ._-@:%[] after a letter, a digit or
 * '['. */
bool sh_change_is_host(sh_str text);

/* Starts the command. SH_ERR_CONFLICT while there is one. */
SH_MUST_CHECK sh_status sh_change_start(sh_change *change, const sh_change_order *order,
                                        const char *program, const char *state, sh_err *err);

/* SH_AGAIN while it runs; after that, once, SH_OK or its failure. *said is what it said last. */
SH_MUST_CHECK sh_status sh_change_poll(sh_change *change, sh_err *said);

/* Stops the command if one runs. */
void sh_change_end(sh_change *change);

#endif
