/* The entry point: finds the command, gathers its settings from all sources, and runs it.
 *
 * What many commands need first happens here, driven by the option groups of the command
 * (command_list.h): logging, limits, resolving --model to a folder, and the rank and size that
 * mpirun or srun assigned. Commands only see the resulting settings. */
#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include "base/sandbox.h"
#include "base/system.h"
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

int sh_command_unknown(const char *name)
{
    sh_suggestion meant = {.typed = sh_str_of(name)};
    sh_err err;
    if (name[0] == '-') {
        sh_err_set(&err, SH_ERR_INPUT, "flags come after a command: shoal COMMAND %s", name);
        return usage_fail(&err, NULL);
    }
    for (int i = 0; i < SH_COMMAND_COUNT; i++) sh_suggestion_try(&meant, sh_commands[i]->name);
    sh_err_set(&err, SH_ERR_INPUT, "there is no command '%s'", name);
    if (meant.name != NULL)
        sh_err_set(&err, SH_ERR_INPUT, "there is no command '%s'; did you mean %s?", name,
                   meant.name);
    return usage_fail(&err, NULL);
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
    return status;
}

static sh_status arguments_check(const sh_command *cmd, const sh_settings *settings,
                                 const sh_command_args *args, sh_err *err)
{
    bool program = cmd->takes_program && strcmp(settings->job, "program") == 0;
    if (program || args->argc <= cmd->args_max) return SH_OK;
    return sh_err_set(err, SH_ERR_INPUT, "unexpected argument '%s'%s", args->argv[cmd->args_max],
                      cmd->takes_program ? "; a program to run comes after `--`" : "");
}

/* Flags are parsed first because they name the files; which source wins does not depend on the
 * order of parsing. */
/* Says which flag named the file that the error is about. */
static sh_status prefixed(sh_status status, const char *flag, sh_err *err)
{
    return status == SH_OK || flag == NULL ? status : sh_err_prefix(err, "%s", flag);
}

sh_status sh_settings_gather(sh_options *opts, const sh_command *cmd, sh_settings *settings,
                             sh_command_args *args, sh_err *err)
{
    sh_status status = flags_parse(opts, cmd, args, err);
    if (status == SH_OK) status = sh_options_parse_env(opts, environ, err);
    bool named = settings->env_file != NULL;
    if (status == SH_OK)
        status = prefixed(
            sh_options_parse_dotenv(opts, named ? settings->env_file : ".env", named, err),
            named ? "--env-file" : NULL, err);
    if (status == SH_OK && settings->config != NULL)
        status = prefixed(sh_options_parse_file(opts, settings->config, err), "--config", err);
    return status == SH_OK ? arguments_check(cmd, settings, args, err) : status;
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
    if (s->models_dir != NULL && sh_definition_is_file(s->model)) return SH_OK; /* the keeper's */
    sh_status status = sh_model_definition_apply(opts, s, &owned[2], err);
    if (status != SH_OK) return status;
    status = pull ? sh_model_obtain(s, &owned[0], err) : sh_model_find(s, &owned[0], err);
    if (status != SH_OK) return status;
    s->model = owned[0];
    owned[1] = sh_store_name(s->model);
    if (s->model_name == NULL) s->model_name = owned[1];
    return SH_OK;
}

/* The words of the command line where the kernel put them, and where `ps` finds them. Commands get
 * a copy. */
static char *const *kernel_line;

void sh_command_hide(const char *word)
{
    for (char *const *at = kernel_line; at != NULL && *at != NULL; at++)
        if (strcmp(*at, word) == 0) memset(*at, 'x', strlen(*at));
}

/* The parts of a server share one command line; in `ps` and `top` each shows what it is. Their
 * supervisors keep the line that the user typed. */
static void title_set(const sh_command *cmd, const sh_settings *s)
{
    char title[96], model[64] = "";
    bool part = strcmp(s->part, "all") != 0;
    const char *slash = s->model == NULL ? NULL : strrchr(s->model, '/');
    if (s->models_dir != NULL && slash != NULL) snprintf(model, sizeof(model), ", %s", slash + 1);
    if (cmd->bit == FOR(api) || strcmp(s->part, "api") == 0)
        snprintf(title, sizeof(title), "shoal api");
    else if (cmd->bit == FOR(engine) || part)
        snprintf(title, sizeof(title), "shoal rank %d%s%s", (int)s->rank,
                 s->rank == 0 ? " (engine)" : "", model);
    else
        return;
    sh_process_title(kernel_line, title);
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
    if (strcmp(settings->part, "all") == 0) /* the parent has said it for its parts */
        lines_log(SH_LOG_INFO, sh_options_notices(opts));
    limits_set(settings);
    if ((cmd->bit & (FOR_COMPUTE | FOR(api) | FOR(agent))) != 0 && !settings->core_dumps)
        sh_core_dumps_off(!sh_backend_find(settings->backend)->peers_read_memory);
    if (status == SH_OK && cmd->bit == FOR(chat)) sh_model_client_choose(opts, settings);
    bool remote = (cmd->bit & FOR_CLIENT) != 0 && sh_model_client_is_remote(opts);
    if (status == SH_OK && (cmd->bit & FOR_MODEL) != 0 && !remote)
        status = model_find(opts, settings, (cmd->bit & FOR_PULL) != 0, owned, &err);
    if (status == SH_OK && (cmd->bit & (FOR(launch) | FOR(doctor))) != 0)
        status = sh_model_definition_apply(opts, settings, &owned[2], &err);
    if (status == SH_OK && (cmd->bit & FOR_RANKS & ~FOR(launch)) != 0)
        status = sh_launcher_settings_adopt(opts, settings, true, &err);
    if (status == SH_OK) title_set(cmd, settings);
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

static char **line_copy(int argc, char *const *argv)
{
    char **line = sh_alloc_array((size_t)argc + 1, sizeof(*line));
    for (int i = 0; i < argc; i++) line[i] = sh_strdup(argv[i]);
    return line;
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
    if (cmd == NULL) return sh_command_unknown(name);
    int skip = argc < 2 ? 1 : 2;
    char **line = line_copy(argc, argv), **rest = sh_alloc_array((size_t)argc, sizeof(*rest));
    kernel_line = argv;
    for (int i = skip; i < argc; i++) rest[i - skip] = line[i];
    int code = command_run(cmd, argc - skip, rest, line);
    for (int i = 0; i < argc; i++) free(line[i]);
    free(line);
    free(rest);
    if ((fflush(stdout) != 0 || ferror(stdout)) && code == SH_EXIT_OK) {
        fprintf(stderr, "shoal: cannot write the output\n");
        return SH_EXIT_FAILED;
    }
    return code;
}
