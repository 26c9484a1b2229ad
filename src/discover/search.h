/* search.h - finds the ranks of the network that a token belongs to.
 *
 * Queries go out on all interfaces, at first every tenth of a second and then more and more rarely,
 * so that lost packets matter little. Answers count only with the nonce of this search.
 *
 * Threads: one owner; blocks until its deadline. */
#ifndef SH_DISCOVER_SEARCH_H
#define SH_DISCOVER_SEARCH_H

#include "base/clock.h"
#include "discover/packet.h"
#include "net/interfaces.h"

enum { SH_FOUND_MAX = SH_RANKS_MAX };

/* With SH_SEEK_SERVER it ends shortly after the first answer, else at the deadline. Sorted by rank
 * and node id; addresses begin with those that answers came from. SH_ERR_NOT_FOUND: nobody
 * answered. */
SH_MUST_CHECK sh_status sh_search(const char *token, sh_seek seek, sh_deadline deadline,
                                  sh_answer_packet out[SH_FOUND_MAX], int *count, sh_err *err);

/* Takes an answer that came from this address into the list: the same rank may answer over several
 * interfaces. For sh_search and tests. */
void sh_found_add(sh_answer_packet *list, int *count, const sh_answer_packet *answer,
                  const sh_addr *from);

/* "a:port,b:port": the addresses, without those that this machine has itself, unless it has all of
 * them. */
void sh_found_addresses(const sh_answer_packet *found, const sh_interfaces *own, sh_buf *out);

#endif
