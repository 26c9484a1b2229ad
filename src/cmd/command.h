/* command.h - the definition of a command.
 *
 * A command is one short file: it reads the settings, calls the layers below, prints, and returns
 * an exit code. It ends with the definition of sh_command_NAME; its line in command_list.h
 * registers it everywhere else. Its options are rows of support/options.c. */
#ifndef SH_CMD_COMMAND_H
#define SH_CMD_COMMAND_H

#include "base/option.h"
#include "cmd/command_list.h"
#include "cmd/support/settings.h"

/* Exit codes; scripts rely on them. */
enum {
    SH_EXIT_OK = 0,
    SH_EXIT_FAILED = 1,       /* bad input, a missing file, a refused request */
    SH_EXIT_USAGE = 2,        /* unknown command, flag or value */
    SH_EXIT_PEER = 3,         /* a rank was lost or did not join */
    SH_EXIT_INTERRUPTED = 130 /* Ctrl-C */
};

typedef struct {
    const sh_settings *settings;
    const sh_options *options; /* where each value came from */
    int argc;                  /* positional arguments */
    char **argv;
    char *const *line; /* the complete, unparsed command line, NULL-terminated */
} sh_command_args;

typedef struct {
    uint64_t bit; /* in the masks of option rows */
    const char *name;
    const char *arguments; /* as shown in help, such as "[TEXT]"; NULL: none */
    int args_max;
    bool takes_program;  /* words after "--" are a program and its arguments; or more flags, if the
                            first of them begins with '-' */
    const char *summary; /* one line */
    const char *details; /* a paragraph for `help NAME`, or NULL */
    int (*run)(const sh_command_args *args);
} sh_command;

/* The first members of every command definition. */
#define SH_COMMAND_NAMED(command) .bit = FOR(command), .name = #command

#define SH_COMMAND_DECLARE(name, groups) extern const sh_command sh_command_##name;
SH_COMMAND_LIST(SH_COMMAND_DECLARE)
#undef SH_COMMAND_DECLARE

extern const sh_command *const sh_commands[SH_COMMAND_COUNT];
extern const sh_option_table sh_option_rows;

/* Reads the settings of a command from all sources; leaves the positional arguments in args. */
SH_MUST_CHECK sh_status sh_settings_gather(sh_options *opts, const sh_command *cmd,
                                           sh_settings *settings, sh_command_args *args,
                                           sh_err *err);

/* NULL when there is no such command. */
const sh_command *sh_command_find(const char *name);

/* Says that there is no such command, and which one was probably meant; returns the exit code. */
int sh_command_unknown(const char *name);

/* Overwrites a word of the command line, a secret, in what `ps` shows of this process. */
void sh_command_hide(const char *word);

/* Prints "shoal: <text>" on stderr and returns the exit code for the status. */
int sh_command_fail(const sh_err *err);

#endif
