/* The table of all commands, generated from command_list.h. */
#include "cmd/command.h"

#define ENTRY(name, groups) &sh_command_##name,
const sh_command *const sh_commands[SH_COMMAND_COUNT] = {SH_COMMAND_LIST(ENTRY)};
