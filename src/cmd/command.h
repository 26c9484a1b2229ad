/* command.h - what a subcommand is, and the list of them.
 *
 * A command is one short file: it reads the settings, calls the layers below, prints, and returns
 * an exit code. Adding one takes a bit here, a row in commands.c, and its options in options.c. */
#ifndef SH_CMD_COMMAND_H
#define SH_CMD_COMMAND_H

#include "base/option.h"
#include "cmd/support/settings.h"

/* What scripts can rely on. */
enum {
    SH_EXIT_OK = 0,
    SH_EXIT_FAILED = 1,       /* bad input, a missing file, a refused request */
    SH_EXIT_USAGE = 2,        /* unknown command, flag or value */
    SH_EXIT_PEER = 3,         /* a rank was lost or could not join */
    SH_EXIT_INTERRUPTED = 130 /* Ctrl-C */
};

typedef struct {
    const sh_settings *settings;
    const sh_options *options; /* where each value came from */
    int argc;                  /* positional arguments */
    char **argv;
    char *const *line; /* the whole command line as it was given, with a closing NULL */
} sh_command_args;

typedef struct {
    uint64_t bit;
    const char *name;
    const char *arguments; /* as shown in help, such as "[TEXT]" */
    int args_max;
    const char *summary; /* one line */
    const char *details; /* a paragraph for `help NAME`, or NULL */
    int (*run)(const sh_command_args *args);
} sh_command;

extern const sh_command sh_commands[];
extern const size_t sh_command_count;
extern const sh_option_table sh_option_rows;

/* Takes settings from all sources into `settings`; argc and argv are left with the positional ones.
 */
SH_MUST_CHECK sh_status sh_settings_gather(sh_options *opts, const sh_command *cmd,
                                           sh_settings *settings, sh_command_args *args,
                                           sh_err *err);

/* NULL when there is none of that name. */
const sh_command *sh_command_find(const char *name);

/* Prints "shoal: <text>" on stderr and gives the exit code that fits the status. */
int sh_command_fail(const sh_err *err);

int sh_cmd_help(const sh_command_args *args);
int sh_cmd_completion(const sh_command_args *args);
int sh_cmd_serve(const sh_command_args *args);
int sh_cmd_api(const sh_command_args *args);
int sh_cmd_engine(const sh_command_args *args);
int sh_cmd_template(const sh_command_args *args);
int sh_cmd_tokenize(const sh_command_args *args);
int sh_cmd_bench(const sh_command_args *args);
int sh_cmd_chat(const sh_command_args *args);
int sh_cmd_generate(const sh_command_args *args);
int sh_cmd_info(const sh_command_args *args);
int sh_cmd_logits(const sh_command_args *args);
int sh_cmd_synth(const sh_command_args *args);
int sh_cmd_worker(const sh_command_args *args);
int sh_cmd_plan(const sh_command_args *args);
int sh_cmd_linktest(const sh_command_args *args);
int sh_cmd_token(const sh_command_args *args);
int sh_cmd_launch(const sh_command_args *args);
int sh_cmd_agent(const sh_command_args *args);
int sh_cmd_stop(const sh_command_args *args);
int sh_cmd_restart(const sh_command_args *args);
int sh_cmd_status(const sh_command_args *args);
int sh_cmd_logs(const sh_command_args *args);
int sh_cmd_call(const sh_command_args *args);
int sh_cmd_bootstrap(const sh_command_args *args);
int sh_cmd_hosts(const sh_command_args *args);
int sh_cmd_doctor(const sh_command_args *args);
int sh_cmd_config(const sh_command_args *args);
int sh_cmd_monitor(const sh_command_args *args);
int sh_cmd_fingerprint(const sh_command_args *args);
int sh_cmd_probe(const sh_command_args *args);

#endif
