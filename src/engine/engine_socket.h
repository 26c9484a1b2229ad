/* engine_socket.h - the engine's Unix socket: requests in, events out.
 *
 * Only clients of the same user (or root) are accepted, whatever the file's mode. The socket file
 * has mode 0600; the stale file of a dead engine is replaced, that of a live engine is not.
 * Clients may connect and disconnect at any time; a client's requests are cancelled when it
 * disconnects. A client that does not read its events is dropped when too many bytes wait for it.
 *
 * Threads: a thread of its own moves the bytes; sh_engine_socket_emit is the engine's sink and runs
 * on the engine's thread. */
#ifndef SH_ENGINE_ENGINE_SOCKET_H
#define SH_ENGINE_ENGINE_SOCKET_H

#include "engine/engine.h"
#include "engine/load_board.h"

typedef struct sh_engine_socket sh_engine_socket;

/* Listens at path. */
SH_MUST_CHECK sh_status sh_engine_socket_open(const char *path, sh_engine_socket **out,
                                              sh_err *err);

/* Until the engine is there, tells clients that it is not ready, and what is on the board (NULL:
 * nothing more), which must outlive the socket. */
SH_MUST_CHECK sh_status sh_engine_socket_announce(sh_engine_socket *engine_socket,
                                                  sh_load_board *board, sh_err *err);

/* Starts to serve an engine whose sink is sh_engine_socket_emit with this socket. */
SH_MUST_CHECK sh_status sh_engine_socket_start(sh_engine_socket *engine_socket, sh_engine *engine,
                                               sh_err *err);

void sh_engine_socket_emit(void *engine_socket, uint64_t owner, const sh_event *event);

/* Refuses new clients and new requests; queued events are still sent. */
void sh_engine_socket_drain(sh_engine_socket *engine_socket);

/* To be called after the engine has stopped: ends the thread, closes all connections and removes
 * the socket file. */
void sh_engine_socket_close(sh_engine_socket *engine_socket);

#endif
