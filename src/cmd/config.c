/* shoal config check: reads all settings as a command would and reports everything that is wrong,
 * what has no effect, and where each value came from.
 *
 * A command stops at the first bad setting; this one must find all of them. So the options are
 * parsed in collecting mode (sh_options_collect), where a bad value is recorded and skipped, and
 * every check runs regardless of what others have found.
 *
 * main.c does not parse the settings for this command: they belong to another one (see run). */
#include "model/config.h"
#include "base/file.h"
#include "cmd/command_list.h"
#include "cmd/hosts.h"
#include "cmd/support/model_find.h"
#include "cmd/support/model_group_setup.h"
#include "http/server.h"
#include "net/cluster_token.h"
#include "store/repo_name.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const sh_settings *s;
    const sh_options *options;
    sh_findings report;
    const char *command;
} check;

static bool given(const check *c, const char *name)
{
    return sh_options_given(c->options, name);
}

static void fail(check *c, const char *name, const char *advice, const char *text)
{
    sh_findings_add(&c->report, SH_FINDING_FAIL, name, "", advice, "%s", text);
}

static void ok(check *c, const char *name, const char *text)
{
    sh_findings_add(&c->report, SH_FINDING_OK, name, "", NULL, "%s", text);
}

static void check_faults(check *c)
{
    sh_str rest = sh_options_faults(c->options), line;
    while (sh_str_cut(&rest, '\n', &line)) {
        char *text = sh_str_dup(line);
        fail(c, "values", NULL, text);
        free(text);
    }
}

/* Files that were not read, or lines that were not taken, for reasons of safety. */
static void check_warnings(check *c)
{
    sh_str rest = sh_options_warnings(c->options), line;
    while (sh_str_cut(&rest, '\n', &line))
        sh_findings_add(&c->report, SH_FINDING_WARN, "files", "", NULL, "%.*s", (int)line.len,
                        line.ptr);
}

/* Loads config.json too: a folder that exists may still hold a model that is not supported. */
static void check_model(check *c)
{
    char *dir = NULL;
    sh_config config = {0};
    sh_err err;
    if (c->s->model == NULL) return;
    sh_repo_name name;
    sh_status status = sh_model_find(c->s, &dir, &err);
    bool on_hub = sh_repo_name_parse(c->s->model, &name) && sh_repo_name_is_full(&name);
    if (status != SH_OK && on_hub && !c->s->offline)
        sh_findings_add(&c->report, SH_FINDING_WARN, "model", "",
                        "it is downloaded when it is needed; `shoal pull` does so now", "%s",
                        err.text);
    else if (status != SH_OK)
        fail(c, "model", "copy the model folder to this host, or name its path", err.text);
    else if (sh_config_load(dir, &config, &err) != SH_OK)
        fail(c, "model", NULL, err.text);
    else
        ok(c, "model", dir);
    sh_config_reset(&config);
    free(dir);
}

/* The number of entries of a comma-separated list; -1 when one of them is empty. */
static int list_count(const char *text)
{
    sh_str rest = sh_str_of(text), part;
    int count = 0;
    while (sh_str_cut(&rest, ',', &part)) {
        if (sh_str_trim(part).len == 0) return -1;
        count++;
    }
    size_t len = strlen(text);
    return len > 0 && text[len - 1] == ',' ? -1 : count;
}

static void check_workers(check *c)
{
    const char *hosts = c->s->workers, *ssh = c->s->worker_ssh;
    if (hosts == NULL && ssh == NULL) return;
    int count = hosts == NULL ? 0 : list_count(hosts), names = ssh == NULL ? 0 : list_count(ssh);
    if (count < 0 || names < 0)
        fail(c, "workers", NULL, "WORKER_HOSTS and WORKER_SSH must not have empty entries");
    else if (count != names)
        fail(c, "workers", NULL, "WORKER_HOSTS and WORKER_SSH must have equally many entries");
    else
        ok(c, "workers", hosts);
}

/* The same contradictions are errors when a rank starts (support/ranks.c). */
static void check_hostfile(check *c)
{
    sh_hostfile *file = NULL;
    sh_err err;
    if (c->s->hostfile == NULL) return;
    if (sh_hostfile_load(c->s->hostfile, &file, &err) != SH_OK)
        fail(c, "hostfile", NULL, err.text);
    else
        sh_hostfile_check(file, &c->report);
    if (file != NULL && given(c, "ranks") && c->s->ranks != file->count)
        fail(c, "ranks", "omit --ranks", "--ranks is not the number of hosts in the hostfile");
    if (file != NULL && given(c, "rank") && c->s->rank >= file->count)
        fail(c, "rank", "ranks count from 0", "--rank must be below the number of hosts");
    sh_hostfile_free(file);
}

/* CTRL_HOST may come from the .env of a related project, next to a hostfile: that is not a fault.
 */
static void check_ctrl(check *c)
{
    if (c->s->ctrl_host != NULL && (c->s->hostfile != NULL || c->s->coordinator != NULL))
        ok(c, "ctrl-host", "has no effect: the hostfile or --coordinator says where rank 0 is");
}

/* Which backend the ranks will use is not known here, so the devices must suit one of the two. */
static void check_devices(check *c)
{
    sh_hostfile *file = NULL;
    sh_err err;
    if (c->s->ibv_devices == NULL) return;
    if (sh_hostfile_load_matrix(c->s->ibv_devices, "--ibv-devices", &file, &err) != SH_OK ||
        sh_hostfile_check_devices(file, sh_backend_find("jaccl-ring"), &err) != SH_OK)
        fail(c, "ibv-devices", NULL, err.text);
    else if (!sh_backend_is_built_in(sh_backend_find("jaccl")))
        sh_findings_add(&c->report, SH_FINDING_WARN, "ibv-devices", "",
                        "use --backend ring over TCP",
                        "has no effect: the jaccl backend is not built into this program");
    else
        ok(c, "ibv-devices", file->where);
    sh_hostfile_free(file);
}

static void check_token(check *c)
{
    sh_err err;
    if (c->s->token == NULL) return;
    if (sh_cluster_token_check(c->s->token, &err) != SH_OK)
        fail(c, "token", "`shoal token` makes a good one", err.text);
}

static void check_file(check *c, const char *name, const char *path)
{
    sh_buf text = {0};
    sh_err err;
    if (path == NULL) return;
    if (sh_file_read(path, 1 << 22, &text, &err) != SH_OK) fail(c, name, NULL, err.text);
    sh_buf_reset(&text);
}

static void check_http(check *c)
{
    const sh_settings *s = c->s;
    check_file(c, "api-key-file", s->api_key_file);
    check_file(c, "tls-cert", s->tls_cert);
    check_file(c, "tls-key", s->tls_key);
    if ((s->tls_cert == NULL) != (s->tls_key == NULL))
        fail(c, "tls", "give both", "--tls-cert and --tls-key must be used together");
    if (!sh_http_is_loopback(s->host) && s->api_key == NULL && s->api_key_file == NULL)
        sh_findings_add(&c->report, SH_FINDING_WARN, "host", "",
                        "--api-key-file FILE, or --host 127.0.0.1",
                        "%s is open to other machines, but no API key is required", s->host);
    if (!sh_http_is_loopback(s->host) && s->tls_cert == NULL)
        sh_findings_add(&c->report, SH_FINDING_WARN, "tls", "", "--tls-cert and --tls-key",
                        "requests to %s are not encrypted", s->host);
}

static void check_ranks(check *c)
{
    sh_model_group_opts grid = {0};
    sh_err err;
    if (c->s->hostfile == NULL &&
        sh_parallel_parse(c->s->parallel, (int)c->s->ranks, &grid, &err) != SH_OK)
        fail(c, "parallel", NULL, err.text);
    if (sh_ranks_check_backend(c->s->backend, "--backend", &err) != SH_OK)
        fail(c, "backend", "--backend ring", err.text);
}

static void check_limits(check *c)
{
    if (c->s->files_hard > 0 && c->s->files_hard < c->s->files_soft)
        fail(c, "files-hard", NULL,
             "FILE_DESCRIPTOR_HARD_LIMIT must not be below FILE_DESCRIPTOR_SOFT_LIMIT");
}

/* Variables of related projects that mean nothing here (support/ignored.h). Where such a project
 * would reject the value, say so: it is a mistake in the file even if it has no effect. */
static void check_ignored(check *c)
{
    const sh_option_table *table = &sh_option_rows;
    const char *request = NULL;
    for (size_t i = 0; i < table->ignored_count; i++) {
        const sh_option_ignored *row = &table->ignored[i];
        sh_buf from = {0};
        const char *text = sh_options_ignored_text(c->options, i, &from);
        double number;
        if (text != NULL) {
            bool number_ok = row->max <= row->min || (sh_str_to_double(sh_str_of(text), &number) &&
                                                      number >= row->min && number <= row->max);
            sh_findings_add(&c->report, number_ok ? SH_FINDING_OK : SH_FINDING_WARN, row->name, "",
                            number_ok ? NULL : "correct or remove it",
                            "from %s, has no effect: %s%s", from.ptr, row->why,
                            number_ok ? "" : "; and its value is out of range");
        }
        if (text != NULL && strcmp(row->name, "REQUEST_FILE_PATH") == 0) request = text;
        if (text != NULL && request != NULL && strcmp(row->name, "RESPONSE_FILE_PATH") == 0 &&
            strcmp(text, request) == 0)
            fail(c, row->name, NULL, "must not be the same file as REQUEST_FILE_PATH");
        sh_buf_reset(&from);
    }
}

static void (*const checks[])(check *c) = {
    check_faults,  check_warnings, check_model, check_hostfile, check_workers, check_ctrl,
    check_devices, check_token,    check_http,  check_ranks,    check_limits,  check_ignored,
};

/* `bit` is that of the checked command: settings that it does not take are not listed. */
static int print(const check *c, uint64_t bit, bool json)
{
    sh_buf text = {0};
    if (json) return sh_hosts_report(&c->report, true);
    sh_options_print(c->options, bit, &text);
    fwrite(text.ptr, 1, text.len, stdout);
    sh_buf_reset(&text);
    putchar('\n');
    int code = sh_hosts_report(&c->report, false);
    int faults = sh_findings_count(&c->report, SH_FINDING_FAIL),
        warnings = sh_findings_count(&c->report, SH_FINDING_WARN);
    printf("settings of `shoal %s`: %d fault%s, %d warning%s\n", c->command, faults,
           faults == 1 ? "" : "s", warnings, warnings == 1 ? "" : "s");
    return code;
}

/* Gathers the settings as main.c would for `cmd`, but without stopping at errors. */
static int run(const sh_command *cmd, int argc, char **argv, char *const *line)
{
    sh_settings settings = {0};
    sh_options *options = sh_options_create(&sh_option_rows, &settings);
    sh_command_args args = {
        .settings = &settings, .options = options, .argc = argc, .argv = argv, .line = line};
    check c = {.s = &settings, .options = options, .command = cmd->name};
    sh_err err;
    int code;
    sh_options_collect(options);
    if (sh_settings_gather(options, cmd, &settings, &args, &err) != SH_OK)
        fail(&c, "sources", NULL, err.text);
    if (settings.help) {
        char *name = "config";
        code = sh_command_help.run(
            &(sh_command_args){.settings = &settings, .argc = 1, .argv = &name});
    } else {
        for (size_t i = 0; i < SH_COUNT_OF(checks); i++) checks[i](&c);
        code = print(&c, cmd->bit & ~FOR(config), settings.json);
    }
    sh_findings_reset(&c.report);
    sh_options_free(options);
    return code;
}

static int config_run(const sh_command_args *args)
{
    bool help = args->argc > 0 && strcmp(args->argv[0], "--help") == 0;
    if (!help && (args->argc == 0 || strcmp(args->argv[0], "check") != 0)) {
        fprintf(stderr, "shoal: usage: shoal config check [COMMAND] [ITS FLAGS]\n");
        return SH_EXIT_USAGE;
    }
    int skip = help ? 0 : 1;
    const char *name = "serve";
    if (args->argc > skip && args->argv[skip][0] != '-') name = args->argv[skip++];
    const sh_command *cmd = sh_command_find(name);
    if (cmd == NULL || cmd->bit == FOR(config)) {
        fprintf(stderr, "shoal: config check: there is no command '%s' to check\n", name);
        return SH_EXIT_USAGE;
    }
    sh_command with_own = *cmd; /* accepts the flags of config itself as well */
    with_own.bit |= FOR(config);
    return run(&with_own, args->argc - skip, args->argv + skip, args->line);
}

const sh_command sh_command_config = {
    SH_COMMAND_NAMED(config),
    .arguments = "check [COMMAND] [ITS FLAGS]",
    .args_max = 64,
    .summary = "check all settings of a command and show where each came from",
    .details = "Reads flags, environment, .env and settings file as COMMAND (default: serve) "
               "would, and reports everything that is wrong or has no effect.",
    .run = config_run,
};
