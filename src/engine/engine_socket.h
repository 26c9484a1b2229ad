/* engine_socket.h - the engine's Unix socket: clients in, events out.
 *
 * Only clients of the same user (or root) are taken, whatever the file's mode becomes. The socket
 * file has mode 0600, and a stale one of a dead engine is replaced; a live one is not.
 * Any number of clients may come and go; what a client had running is cancelled when it goes. A
 * client that does not read its events is dropped once too much is waiting for it.
 *
 * Threads: a thread of its own moves the bytes; sh_engine_socket_emit is the engine's sink and runs
 * on the engine's thread. */
#ifndef SH_ENGINE_ENGINE_SOCKET_H
#define SH_ENGINE_ENGINE_SOCKET_H

#include "engine/engine.h"

typedef struct sh_engine_socket sh_engine_socket;

/* Listens at path. */
SH_MUST_CHECK sh_status sh_engine_socket_open(const char *path, sh_engine_socket **out,
                                              sh_err *err);

/* Starts to serve an engine whose sink is sh_engine_socket_emit with this engine_socket. */
SH_MUST_CHECK sh_status sh_engine_socket_start(sh_engine_socket *engine_socket, sh_engine *engine,
                                               sh_err *err);

void sh_engine_socket_emit(void *engine_socket, uint64_t owner, const sh_event *event);

/* Takes no new clients and no new requests; what is on its way out still goes. */
void sh_engine_socket_drain(sh_engine_socket *engine_socket);

/* Ends the thread (after the engine has stopped), closes all and removes the socket file. */
void sh_engine_socket_close(sh_engine_socket *engine_socket);

#endif
