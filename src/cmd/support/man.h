/* man.h - manual pages, generated from the tables of commands and options.
 *
 * Threads: pure functions over the tables. */
#ifndef SH_CMD_SUPPORT_MAN_H
#define SH_CMD_SUPPORT_MAN_H

#include "cmd/command.h"

/* Appends the page shoal(1), an overview, or shoal-NAME(1) of a command. */
void sh_man_overview(sh_buf *out);
void sh_man_page(const sh_command *cmd, sh_buf *out);

#endif
