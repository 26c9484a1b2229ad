/* The files that a launch sends to its hosts: the program, the settings, the hostfile, and the demo
 * model. Settings are split by who needs them: ranks read settings.env, and only the API on rank
 * 0's host reads api.env, so that API keys never reach the other machines. */
#include "cmd/launch_internal.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/system.h"
#include "cmd/command_list.h"
#include "cmd/support/cluster.h"
#include "cmd/support/demo.h"
#include "cmd/support/draft_model.h"
#include "cmd/support/launch_job.h"
#include "cmd/support/launch_program.h"
#include "cmd/support/model_find.h"
#include "cmd/support/model_pull.h"
#include "engine/engine.h"
#include "net/plugin.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PROGRAM_MAX = 512 << 20,
    HASH_SHOWN = 16,
    OTHER_FILES = 6, /* program, plugin, hostfile.json, settings.env, api.env, program.json */
};

/* The commands that ranks run, other than `serve` on rank 0. */
#define FOR_JOBS (FOR(worker) | FOR(linktest) | FOR(bench))

static const char DEMO_DIR[] = "./models/demo"; /* in the state folders */

/* What only the agents read. */
static bool is_for_agents(const sh_option *row)
{
    return strcmp(row->name, "job") == 0 || strcmp(row->name, "cwd") == 0;
}

/* Everything that ranks or the API take is passed on, except settings that differ by process,
 * belong to the launcher, or are added below. */
static bool is_handed_on(const sh_option *row)
{
    static const char *const own[] = {
        "rank",        "ranks",          "hostfile",     "model",       "token",
        "part",        "coordinator-fd", "ready-fd",     "listen",      "config",
        "help",        "env-file",       "print-config", "runtime-dir", "log-file",
        "ibv-devices", "hf-token",       "draft-model",  "models-dir"};
    if ((row->commands & (FOR(serve) | FOR_JOBS)) == 0 && !is_for_agents(row)) return false;
    for (size_t i = 0; i < SH_COUNT_OF(own); i++)
        if (strcmp(row->name, own[i]) == 0) return false;
    return true;
}

/* `text` is for all ranks, `api` for the API only. */
struct settings_text {
    sh_buf text, api;
    sh_err *err;
    sh_status status;
};

/* `bench serve` is a client of the API and takes its keys, which are not for ranks. */
static bool is_for_ranks(const sh_option *row)
{
    bool key = (row->commands & FOR(api)) != 0 && (row->commands & FOR(worker)) == 0;
    return ((row->commands & FOR_JOBS) != 0 && !key) || is_for_agents(row);
}

/* A line that sh_options_parse_dotenv reads back unchanged. Single quotes protect everything but a
 * single quote; double quotes would expand `$`. */
static void setting_write(struct settings_text *to, const sh_option *row, const char *value)
{
    bool single = strchr(value, '\'') == NULL;
    if (strchr(value, '\n') != NULL || (!single && strpbrk(value, "\"$") != NULL)) {
        to->status = sh_err_set(to->err, SH_ERR_INPUT,
                                "--%s: the value cannot be passed to other hosts: it has line "
                                "breaks, or several kinds of quotes",
                                row->name);
        return;
    }
    sh_buf *text = is_for_ranks(row) ? &to->text : &to->api;
    sh_option_env_name(&sh_option_rows, row, text);
    sh_buf_addf(text, single ? "='%s'\n" : "=\"%s\"\n", value);
}

/* Ranks and the API run in the state folder, but a path is meant from where it was typed. What
 * exists here is expected under the same path there. Of what does not, only the API's is made
 * absolute, so that its error names what the user meant; ranks may have it in their own folder. */
static void setting_take(void *arg, const sh_option *row, const char *value)
{
    bool api = !is_for_ranks(row), path = row->type == SH_OPT_PATH && strcmp(value, "-") != 0;
    char *whole = path && (api || sh_file_exists(value)) ? sh_path_absolute(value) : NULL;
    if (is_handed_on(row)) setting_write(arg, row, whole != NULL ? whole : value);
    free(whole);
}

static void setting_export(void *arg, const sh_option *row, const char *value)
{
    sh_buf name = {0};
    (void)arg;
    if (!is_handed_on(row) || !is_for_ranks(row) || strcmp(row->name, "job") == 0) return;
    sh_option_env_name(&sh_option_rows, row, &name);
    sh_cluster_unset(row); /* under its other names */
    setenv(name.ptr, value, 1);
    sh_buf_reset(&name);
}

void sh_launch_export(const sh_command_args *args)
{
    sh_options_each_given(args->options, setting_export, NULL);
}

/* On one line, as the settings file needs it. */
static void matrix_write(struct settings_text *to, const sh_option *row, const sh_hostfile *matrix)
{
    sh_buf text = {0};
    if (sh_hostfile_write(matrix, SH_HOSTFILE_MATRIX, &text, to->err) == SH_OK) {
        for (size_t i = 0; i < text.len; i++)
            if (text.ptr[i] == '\n') text.ptr[i] = ' ';
        setting_write(to, row, text.ptr);
    }
    sh_buf_reset(&text);
}

static const sh_option *row_of(const char *env)
{
    return sh_option_by_env(&sh_option_rows, sh_str_of(env));
}

/* Like the model: a folder that exists here is expected under the same path there. */
static void folder_write(struct settings_text *to, const char *env, const char *given)
{
    if (given == NULL || to->status != SH_OK) return;
    char *here = strcmp(given, SH_DRAFT_MODEL_MTP) == 0 ? NULL : realpath(given, NULL);
    setting_write(to, row_of(env), here != NULL ? here : given);
    free(here);
}

/* A secret: it goes to other hosts only if ranks there read from the hub. */
static void hub_token_write(struct settings_text *to, const sh_settings *s)
{
    if (to->status != SH_OK || strcmp(s->shares_from, "hub") != 0) return;
    char *token = sh_model_pull_token(s);
    if (token != NULL) setting_write(to, row_of("HF_TOKEN"), token);
    free(token);
}

/* Only settings that were given are sent: the hosts have the same defaults, since they run the same
 * version. */
static sh_status settings_file(sh_launch *l, sh_err *err)
{
    struct settings_text to = {.err = err};
    sh_options_each_given(l->args->options, setting_take, &to);
    if (to.status == SH_OK && l->model != NULL) setting_write(&to, row_of("SHOAL_MODEL"), l->model);
    folder_write(&to, "SHOAL_DRAFT_MODEL", l->args->settings->draft_model);
    folder_write(&to, "SHOAL_MODELS_DIR", l->args->settings->models_dir);
    hub_token_write(&to, l->args->settings);
    if (to.status == SH_OK && l->matrix != NULL)
        matrix_write(&to, row_of("SHOAL_IBV_DEVICES"), l->matrix);
    if (to.status == SH_OK && l->token[0] != '\0')
        setting_write(&to, row_of("SHOAL_TOKEN"), l->token);
    if (to.status == SH_OK) {
        sh_remote_hosts_add_file(&l->remote, "settings.env", &to.text, false);
        sh_remote_hosts_add_file_of_first(&l->remote, "api.env", &to.api);
    }
    sh_buf_reset(&to.text);
    sh_buf_reset(&to.api);
    return to.status;
}

/* The user's token, or one that is generated once and kept in the state folder. */
static sh_status token_find(sh_launch *l, sh_err *err)
{
    const sh_settings *s = l->args->settings;
    sh_buf kept = {0};
    sh_err ignored;
    sh_status status = SH_OK;
    if (s->token != NULL) {
        status = sh_cluster_token_check(s->token, err);
        if (status == SH_OK) snprintf(l->token, sizeof(l->token), "%s", s->token);
    } else if (!s->insecure) {
        status = sh_state_dir_read(l->state, "token", true, &kept, err);
        if (status == SH_OK && sh_cluster_token_check(kept.ptr, &ignored) == SH_OK)
            snprintf(l->token, sizeof(l->token), "%s", kept.ptr);
        else
            sh_cluster_token_make(l->token);
        if (status != SH_ERR_AUTH) /* another user's file is neither used nor silently replaced */
            status = sh_state_dir_write(l->state, "token", sh_str_of(l->token), err);
    }
    sh_buf_reset(&kept);
    return status;
}

static sh_status file_add(sh_launch *l, const char *path, const char *name, size_t max,
                          bool program, sh_err *err)
{
    sh_buf bytes = {0};
    sh_status status = sh_file_read(path, max, &bytes, err);
    if (status == SH_OK) sh_remote_hosts_add_file(&l->remote, name, &bytes, program);
    return status;
}

/* A few small files; some places in the table are kept for the others. */
static sh_status demo_add(sh_launch *l, const char *dir, sh_err *err)
{
    DIR *d = opendir(dir);
    sh_status status = d == NULL ? sh_err_sys(err, "%s", dir) : SH_OK;
    for (struct dirent *e; status == SH_OK && (e = readdir(d)) != NULL;) {
        if (e->d_name[0] == '.' || l->remote.file_count >= SH_REMOTE_FILES_MAX - OTHER_FILES)
            continue;
        char *path = sh_path_join(dir, e->d_name), *name = sh_path_join(DEMO_DIR + 2, e->d_name);
        status = file_add(l, path, name, PROGRAM_MAX, false, err);
        free(path);
        free(name);
    }
    if (d != NULL) closedir(d);
    return status;
}

static bool has_local_host(const sh_launch *l)
{
    for (int i = 0; i < l->remote.count; i++)
        if (l->remote.list[i].ssh == NULL) return true;
    return false;
}

/* The demo model is sent along; any other must be on the hosts already. A folder that exists here
 * is expected under the same path there; anything else is a name that each host looks up itself,
 * and that this one downloads if it is to run a rank. */
static sh_status model_find(sh_launch *l, const char *program, sh_err *err)
{
    const sh_settings *s = l->args->settings;
    if (!sh_launch_job_find(s->job)->needs_model) return SH_OK;
    if (s->model != NULL) {
        char *dir = NULL, *here = realpath(s->model, NULL);
        sh_status status = here == NULL && has_local_host(l) ? sh_model_obtain(s, &dir, err)
                                                             : SH_OK;
        if (status == SH_OK) l->model = sh_strdup(here != NULL ? here : s->model);
        free(here);
        free(dir);
        return status;
    }
    if (s->models_dir != NULL) return SH_OK;
    char *demo = sh_demo_find(program);
    if (demo == NULL)
        return sh_err_set(err, SH_ERR_NOT_FOUND,
                          "the demo model was not found; name a model with --model DIR");
    l->model = sh_strdup(DEMO_DIR);
    sh_status status = demo_add(l, demo, err);
    free(demo);
    return status;
}

/* Goes beside the program, where it looks for plugins. A host without it is only a problem for a
 * rank there, which says so; it may have one of its own. */
static sh_status plugin_add(sh_launch *l, sh_err *err)
{
    sh_buf bytes = {0};
    char *path = l->uses_devices ? sh_plugin_find(NULL, SH_RDMA_PLUGIN_FILE) : NULL;
    if (path == NULL) return SH_OK;
    sh_status status = sh_file_read(path, PROGRAM_MAX, &bytes, err);
    if (status == SH_OK) sh_remote_hosts_add_plugin(&l->remote, "bin/" SH_RDMA_PLUGIN_FILE, &bytes);
    free(path);
    return status;
}

/* Which words the ranks run, if they are not ours. */
static void program_add(sh_launch *l)
{
    sh_launch_program program;
    sh_buf text = {0};
    sh_launch_program_init(&program, l->args->argc, l->args->argv);
    sh_launch_program_write(&program, &text);
    sh_remote_hosts_add_file(&l->remote, SH_LAUNCH_PROGRAM_FILE, &text, false);
    sh_launch_program_reset(&program);
}

/* The program's name contains its hash: a host keeps the programs of several versions apart, and
 * one that is running is never overwritten. */
static sh_status files_gather(sh_launch *l, sh_err *err)
{
    char *program = NULL, *name = NULL;
    sh_buf bytes = {0};
    char digest[SH_DIGEST_TEXT_LEN + 1];
    sh_status status = sh_program_path(&program, err);
    if (status == SH_OK) status = sh_file_read(program, PROGRAM_MAX, &bytes, err);
    if (status == SH_OK) {
        sh_digest_text(bytes.ptr, bytes.len, digest);
        name = sh_asprintf("bin/shoal-%.*s", HASH_SHOWN, digest);
        sh_remote_hosts_add_file(&l->remote, name, &bytes, true);
        status = model_find(l, program, err);
    }
    if (status == SH_OK) status = plugin_add(l, err);
    if (status == SH_OK && l->args->argc > 0) program_add(l);
    if (status == SH_OK)
        sh_remote_hosts_add_file(&l->remote, "hostfile.json", &l->hosts_text, false);
    if (status == SH_OK) status = settings_file(l, err);
    sh_buf_reset(&bytes);
    free(program);
    free(name);
    return status;
}

sh_status sh_launch_gather(sh_launch *l, sh_err *err)
{
    sh_status status = token_find(l, err);
    return status == SH_OK ? files_gather(l, err) : status;
}
