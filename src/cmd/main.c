/* The entry point: finds the command, gathers its settings from all sources, and runs it.
 *
 * What many commands need first happens here, driven by the option groups of the command
 * (command_list.h): logging, limits, resolving --model to a folder, and the rank and size that
 * mpirun or srun assigned. Commands only see the resulting settings. */
#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include "base/sandbox.h"
#include "base/version.h"
#include "cmd/command.h"
#include "cmd/command_list.h"
#include "cmd/support/launcher_settings.h"
#include "cmd/support/model_client.h"
#include "cmd/support/model_definition.h"
#include "cmd/support/model_find.h"
#include "cmd/support/ranks.h"
#include "store/definition.h"
#include "store/find.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

extern char **environ;

int sh_command_fail(const sh_err *err)
{
    fprintf(stderr, "shoal: %s\n", err->text);
    switch (err->status) {
    case SH_ERR_PEER:
    case SH_ERR_GROUP: return SH_EXIT_PEER;
    case SH_ERR_CANCELLED: return SH_EXIT_INTERRUPTED;
    default: return SH_EXIT_FAILED;
    }
}

static int usage_fail(const sh_err *err, const char *name)
{
    fprintf(stderr, "shoal: %s\nshoal: see `shoal help%s%s`\n", err->text, name == NULL ? "" : " ",
            name == NULL ? "" : name);
    return SH_EXIT_USAGE;
}

const sh_command *sh_command_find(const char *name)
{
    for (int i = 0; i < SH_COMMAND_COUNT; i++)
        if (strcmp(sh_commands[i]->name, name) == 0) return sh_commands[i];
    return NULL;
}

/* The first letter is enough: names of other projects (WARNING, CRITICAL) are accepted too. */
static sh_log_level log_level_of(const char *text)
{
    switch (text[0]) {
    case 'e':
    case 'E':
    case 'c':
    case 'C': return SH_LOG_ERROR;
    case 'w':
    case 'W': return SH_LOG_WARN;
    case 'd':
    case 'D': return SH_LOG_DEBUG;
    default: return SH_LOG_INFO;
    }
}

static bool has_word(char *const *words, int count, const char *word)
{
    for (int i = 0; i < count; i++)
        if (strcmp(words[i], word) == 0) return true;
    return false;
}

/* A program to run is what the ranks do, so it settles --job. */
static sh_status flags_parse(sh_options *opts, const sh_command *cmd, sh_command_args *args,
                             sh_err *err)
{
    bool separated = has_word(args->argv, args->argc, "--");
    sh_status status = sh_options_parse_flags(opts, cmd->bit, args->argc, args->argv, &args->argc,
                                              err);
    bool program = status == SH_OK && cmd->takes_program && separated && args->argc > 0;
    if (program && args->argv[0][0] == '-')
        return sh_options_parse_flags(opts, cmd->bit, args->argc, args->argv, &args->argc, err);
    if (program && sh_options_given(opts, "job"))
        return sh_err_set(err, SH_ERR_INPUT, "--job and a program after `--`: use one of them");
    if (program) return sh_options_set(opts, SH_FROM_FLAG, SH_STR("job"), SH_STR("program"), err);
    if (status == SH_OK && args->argc > cmd->args_max)
        status = sh_err_set(err, SH_ERR_INPUT, "'%s' is one argument too many for %s%s",
                            args->argv[cmd->args_max], cmd->name,
                            cmd->takes_program ? "; a program to run comes after `--`" : "");
    return status;
}

/* Flags are parsed first because they name the files; which source wins does not depend on the
 * order of parsing. */
sh_status sh_settings_gather(sh_options *opts, const sh_command *cmd, sh_settings *settings,
                             sh_command_args *args, sh_err *err)
{
    sh_status status = flags_parse(opts, cmd, args, err);
    if (status == SH_OK) status = sh_options_parse_env(opts, environ, err);
    bool named = settings->env_file != NULL;
    if (status == SH_OK)
        status = sh_options_parse_dotenv(opts, named ? settings->env_file : ".env", named, err);
    if (status == SH_OK && settings->config != NULL)
        status = sh_options_parse_file(opts, settings->config, err);
    return status;
}

static void lines_log(sh_log_level level, sh_str rest)
{
    sh_str line;
    while (sh_str_cut(&rest, '\n', &line)) sh_log(level, "%.*s", (int)line.len, line.ptr);
}

/* The limits are only a request: if the system allows less, a warning says so. */
static void limits_set(const sh_settings *s)
{
    struct rlimit limit;
    if (s->files_soft == 0 && s->files_hard == 0) return;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
    if (s->files_hard > 0) limit.rlim_max = (rlim_t)s->files_hard;
    if (s->files_soft > 0) limit.rlim_cur = (rlim_t)s->files_soft;
    if (limit.rlim_cur > limit.rlim_max) limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
        SH_LOGW("the system does not allow %lld open files", (long long)limit.rlim_cur);
}

/* stderr itself becomes the file, so that libraries and crashes write there too. */
static sh_status log_open(const char *path, sh_err *err)
{
    if (path == NULL) return SH_OK;
    int fd = sh_file_open_log(path);
    if (fd < 0) return sh_err_sys(err, "log file '%s'", path);
    dup2(fd, STDERR_FILENO);
    close(fd);
    return SH_OK;
}

/* Resolves --model to a folder; a model from a cache keeps its name for the API. `owned` holds what
 * is allocated. With `pull` it is downloaded if it is not here. */
static sh_status model_find(sh_options *opts, sh_settings *s, bool pull, char *owned[3],
                            sh_err *err)
{
    s->model_given = s->model;
    if (s->model == NULL) return SH_OK;
    /* One of several models: its settings are not those of the others. The keeper reads it. */
    if (s->models_dir != NULL && sh_definition_is_file(s->model)) return SH_OK;
    sh_status status = sh_model_definition_apply(opts, s, &owned[2], err);
    if (status != SH_OK) return status;
    status = pull ? sh_model_obtain(s, &owned[0], err) : sh_model_find(s, &owned[0], err);
    if (status != SH_OK) return status;
    s->model = owned[0];
    owned[1] = sh_store_name(s->model);
    if (s->model_name == NULL) s->model_name = owned[1];
    return SH_OK;
}

/* Prompts and keys are in the memory of these commands, so core dumps and debuggers are off unless
 * asked for; the latter only where ranks do not copy from each other's memory (MPI does). */
static int command_start(const sh_command *cmd, sh_options *opts, sh_settings *settings,
                         const sh_command_args *args)
{
    char *owned[3] = {NULL, NULL, NULL};
    sh_err err;
    sh_log_set_level(log_level_of(settings->log_level));
    sh_status status = log_open(settings->log_file, &err);
    lines_log(SH_LOG_INFO, sh_options_notices(opts));
    limits_set(settings);
    if ((cmd->bit & (FOR_COMPUTE | FOR(api) | FOR(agent))) != 0 && !settings->core_dumps)
        sh_core_dumps_off(!sh_backend_find(settings->backend)->peers_read_memory);
    bool remote = (cmd->bit & FOR_CLIENT) != 0 && sh_model_client_is_remote(opts);
    if (status == SH_OK && (cmd->bit & FOR_MODEL) != 0 && !remote)
        status = model_find(opts, settings, (cmd->bit & FOR_PULL) != 0, owned, &err);
    if (status == SH_OK && (cmd->bit & FOR_RANKS & ~FOR(launch)) != 0)
        status = sh_launcher_settings_adopt(opts, settings, true, &err);
    int code = status == SH_OK ? cmd->run(args) : sh_command_fail(&err);
    sh_ranks_leave(code == SH_EXIT_OK);
    free(owned[0]);
    free(owned[1]);
    free(owned[2]);
    return code;
}

/* line: the complete command line. argv: a copy of its end, from which the flags are removed. */
static int command_run(const sh_command *cmd, int argc, char **argv, char *const *line)
{
    sh_settings settings = {0};
    sh_options *opts = sh_options_create(&sh_option_rows, &settings);
    sh_command_args args = {
        .settings = &settings, .options = opts, .argc = argc, .argv = argv, .line = line};
    sh_err err;
    int code;
    bool own = cmd->bit == FOR(config); /* parses the settings of another command itself */
    sh_status status = own ? SH_OK : sh_settings_gather(opts, cmd, &settings, &args, &err);
    lines_log(SH_LOG_WARN, sh_options_warnings(opts));
    if (own) {
        code = cmd->run(&args);
    } else if (status != SH_OK) {
        code = usage_fail(&err, cmd->name);
    } else if (settings.help) {
        char *name = (char *)cmd->name;
        code = sh_command_help.run(
            &(sh_command_args){.settings = &settings, .argc = 1, .argv = &name});
    } else if (settings.print_config) {
        sh_buf out = {0};
        sh_options_print(opts, cmd->bit, &out);
        fwrite(out.ptr, 1, out.len, stdout);
        sh_buf_reset(&out);
        code = SH_EXIT_OK;
    } else {
        code = command_start(cmd, opts, &settings, &args);
    }
    sh_options_free(opts);
    return code;
}

/* If the caller has closed descriptor 0, 1 or 2, the next file or socket would get that number, and
 * output meant for the terminal would end up in it. Fill the gaps with /dev/null. */
static void standard_files_open(void)
{
    int fd;
    do fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0) close(fd);
}

/* SIGPIPE is ignored: a client or a reader that goes away is an error code, not the end of the
 * process. Output that could not be written (disk full) must not exit with success. */
int main(int argc, char **argv)
{
    standard_files_open();
    signal(SIGPIPE, SIG_IGN);
    const char *name = argc < 2 ? "--help" : argv[1];
    if (strcmp(name, "--version") == 0 || strcmp(name, "version") == 0) {
        printf("shoal %s\n", sh_version());
        return SH_EXIT_OK;
    }
    bool help = strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0;
    const sh_command *cmd = sh_command_find(help ? "help" : name);
    if (cmd == NULL) {
        sh_err err;
        sh_err_set(&err, SH_ERR_INPUT, "there is no command '%s'", name);
        return usage_fail(&err, NULL);
    }
    int skip = argc < 2 ? 1 : 2;
    char **rest = sh_alloc_array((size_t)argc, sizeof(*rest));
    for (int i = skip; i < argc; i++) rest[i - skip] = argv[i];
    int code = command_run(cmd, argc - skip, rest, argv);
    free(rest);
    if ((fflush(stdout) != 0 || ferror(stdout)) && code == SH_EXIT_OK) {
        fprintf(stderr, "shoal: cannot write the output\n");
        return SH_EXIT_FAILED;
    }
    return code;
}
