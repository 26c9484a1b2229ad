/* help.h - which commands are for users. */
#ifndef SH_CMD_HELP_H
#define SH_CMD_HELP_H

#include "cmd/command.h"

/* Whether only other parts of the program start it: the overview and completion leave it out. */
bool sh_help_hides(const sh_command *cmd);

#endif
