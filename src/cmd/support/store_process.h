/* store_process.h - a process that downloads and deletes models for the API.
 *
 * The API is confined to what serving needs, so it asks this process, which is started before the
 * sandbox is entered (see api/store_service.h for what they say to each other). It knows no more
 * than names of models, and ends when the API does.
 *
 * Threads: the main thread, before others start. */
#ifndef SH_CMD_SUPPORT_STORE_PROCESS_H
#define SH_CMD_SUPPORT_STORE_PROCESS_H

#include "base/status.h"
#include "cmd/support/settings.h"

/* *fd is the API's end of the socket. */
SH_MUST_CHECK sh_status sh_store_process_start(const sh_settings *s, int *fd, sh_err *err);

#endif
