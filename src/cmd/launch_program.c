/* `shoal launch --ranks N -- PROGRAM`, without a hostfile: all ranks are children of this process.
 *
 * That needs no agents, no copies and no state folder, so any number of such launches may run next
 * to each other and to a cluster. Output and exit codes are those of a launch on several hosts. */
#include "cmd/support/launch_program.h"
#include "base/alloc.h"
#include "cluster/local_ranks.h"
#include "cmd/launch_internal.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINGER_MS = 2000 };

static const char HOST[] = "localhost";

/* Children are added in the order of their ranks. */
static void on_line(void *arg, int child, sh_str line)
{
    (void)arg;
    sh_launch_say_to(STDOUT_FILENO, -1, child, HOST, line);
}

static void on_ended(void *arg, int child, const char *how, bool restarts)
{
    (void)arg;
    (void)restarts;
    if (strcmp(how, "ended with code 0") != 0) sh_launch_say(-1, child, HOST, sh_str_of(how));
}

static sh_status ranks_run(const sh_command_args *args, char *const *argv, int *code, sh_err *err)
{
    const sh_settings *s = args->settings;
    sh_local_ranks_spec spec = {.argv = argv,
                                .ranks = (int)s->ranks,
                                .token = s->token,
                                .policy = SH_CHILD_TASK,
                                .alike = true};
    int fd;
    sh_children *children = sh_children_create();
    sh_children_set_linger(children, LINGER_MS);
    sh_children_set_hooks(children, &(sh_children_hooks){.line = on_line, .ended = on_ended});
    sh_status status = sh_local_ranks_add(children, &spec, &fd, NULL, err);
    if (status == SH_OK) *code = sh_children_run(children, s->grace * 1000);
    sh_children_free(children);
    return status;
}

int sh_launch_program_local(const sh_command_args *args)
{
    sh_launch_program program;
    sh_err err;
    int code = SH_EXIT_OK;
    sh_launch_program_init(&program, args->argc, args->argv);
    sh_status status = sh_launch_program_check(&program, &err);
    if (status == SH_OK) {
        sh_launch_export(args);
        status = ranks_run(args, program.argv, &code, &err);
    }
    sh_launch_program_reset(&program);
    return status == SH_OK ? code : sh_command_fail(&err);
}
