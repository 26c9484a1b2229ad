/* p2p.h - groups whose ranks find each other by a token: `serve --p2p`, `join`, `worker --p2p`.
 *
 * A supervisor prepares: it finds or makes the token, claims the identity of this machine, and puts
 * both where the processes that it starts find them, their environment. The processes that compute
 * search and answer.
 *
 * Threads: the main thread, except where noted. */
#ifndef SH_CMD_SUPPORT_P2P_H
#define SH_CMD_SUPPORT_P2P_H

#include "cmd/command.h"
#include "cmd/support/ranks.h"
#include "discover/answerer.h"

/* Fails for settings that place ranks in other ways or, without --p2p, that mean nothing then. */
SH_MUST_CHECK sh_status sh_p2p_check(const sh_command_args *args, sh_err *err);

/* For supervisors. A server makes a token where none is given or saved, and prints what to run on
 * other machines. */
SH_MUST_CHECK sh_status sh_p2p_prepare_server(const sh_command_args *args, sh_err *err);
SH_MUST_CHECK sh_status sh_p2p_prepare_worker(const sh_command_args *args, sh_err *err);

/* The token that was given as an argument (or NULL), that of --token and its relatives, or the one
 * that a server of this machine saved; owned by the caller. SH_ERR_NOT_FOUND: there is none. */
SH_MUST_CHECK sh_status sh_p2p_token(const sh_settings *settings, const char *given, char **out,
                                     sh_err *err);

/* For ranks: the options of their group. */
SH_MUST_CHECK sh_status sh_p2p_use(sh_ranks *ranks, const sh_settings *settings, sh_err *err);

/* Searches for rank 0 and notes its addresses in the options. SH_ERR_NOT_FOUND: nobody answers, and
 * the token has no addresses; call it again. */
SH_MUST_CHECK sh_status sh_p2p_find(sh_ranks *ranks, sh_err *err);

/* Starts answering those who search; NULL where this is not such a group. */
SH_MUST_CHECK sh_status sh_p2p_answer(const sh_ranks *ranks, const sh_settings *settings,
                                      sh_answerer **out, sh_err *err);

/* Another rank has the identity of this one, which makes itself a new one. */
SH_MUST_CHECK sh_status sh_p2p_rename(sh_ranks *ranks, const sh_settings *settings, sh_err *err);

#endif
