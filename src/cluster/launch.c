/* A launch sees each rank through its agent: the agent's lines are the rank's output, and marked
 * lines tell what happens to the rank (launch.h). Every change of a state rewrites launch.json, so
 * that `shoal status` needs no connection to this process. */
#include "cluster/launch.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "cluster/children.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    LINGER_MS = 2000, /* when a rank fails, for the others to log what they saw */
};

struct rank {
    const sh_remote_host *host;
    char state[16];
    char process[SH_PROCESS_TEXT_MAX];
    int restarts;
    int64_t since_us;
};

struct launch {
    const sh_launch_opts *opts;
    sh_children *children;
    struct rank *ranks;
    int count;
    bool was_ready;
};

void sh_launch_say(int log_fd, int rank, const char *name, sh_str text)
{
    sh_buf line = {0};
    sh_buf_addf(&line, "[%d %s] ", rank, name);
    sh_buf_add_str(&line, text);
    sh_buf_add_char(&line, '\n');
    ssize_t put = write(STDERR_FILENO, line.ptr, line.len);
    if (log_fd >= 0) put = write(log_fd, line.ptr, line.len);
    (void)put; /* a closed terminal must not disturb the ranks */
    sh_buf_reset(&line);
}

static void say(const struct launch *l, int rank, const char *text)
{
    sh_launch_say(l->opts->log_fd, rank, l->ranks[rank].host->name, sh_str_of(text));
}

static cJSON *rank_json(const struct launch *l, int idx)
{
    const struct rank *r = &l->ranks[idx];
    sh_process process = {0};
    cJSON *json = cJSON_CreateObject();
    cJSON_AddNumberToObject(json, "rank", idx);
    cJSON_AddStringToObject(json, "host", r->host->name);
    cJSON_AddStringToObject(json, "ssh", r->host->ssh == NULL ? "" : r->host->ssh);
    cJSON_AddStringToObject(json, "folder", r->host->state);
    cJSON_AddStringToObject(json, "program", r->host->program);
    cJSON_AddStringToObject(json, "state", r->state);
    cJSON_AddNumberToObject(json, "pid",
                            sh_process_parse(r->process, &process) ? (double)process.pid : 0);
    cJSON_AddStringToObject(json, "process", r->process);
    cJSON_AddNumberToObject(json, "restarts", r->restarts);
    cJSON_AddNumberToObject(json, "since", (double)(r->since_us / 1000000));
    return json;
}

/* Writes launch.json. A failure is logged, not fatal: serving goes on. */
static void record_write(const struct launch *l)
{
    cJSON *ranks = cJSON_CreateArray();
    sh_err err;
    bool all = true;
    for (int i = 0; i < l->count; i++) {
        cJSON_AddItemToArray(ranks, rank_json(l, i));
        all = all && strcmp(l->ranks[i].state, "ready") == 0;
    }
    cJSON_DeleteItemFromObject(l->opts->record, "state");
    cJSON_DeleteItemFromObject(l->opts->record, "ranks");
    cJSON_AddStringToObject(l->opts->record, "state", all ? "ready" : "starting");
    cJSON_AddItemToObject(l->opts->record, "ranks", ranks);
    char *text = cJSON_Print(l->opts->record);
    if (sh_state_dir_write(l->opts->state, "launch.json", sh_str_of(text), &err) != SH_OK)
        SH_LOGW("%s", err.text);
    cJSON_free(text);
}

static void state_set(struct launch *l, int rank, sh_str state)
{
    struct rank *r = &l->ranks[rank];
    snprintf(r->state, sizeof(r->state), "%.*s", (int)state.len, state.ptr);
    r->since_us = sh_clock_unix_us();
    record_write(l);
}

static void ready_check(struct launch *l)
{
    for (int i = 0; i < l->count; i++)
        if (strcmp(l->ranks[i].state, "ready") != 0) return;
    if (l->was_ready) return;
    l->was_ready = true;
    if (l->opts->ready != NULL) l->opts->ready(l->opts->arg);
}

/* A marked line of an agent. */
static void mark_handle(struct launch *l, int rank, sh_str line)
{
    struct rank *r = &l->ranks[rank];
    char text[96];
    sh_str rest = line, word;
    if (!sh_str_cut(&rest, ' ', &word)) return;
    if (sh_str_is(word, "pid")) {
        snprintf(r->process, sizeof(r->process), "%.*s", (int)rest.len, rest.ptr);
        state_set(l, rank, SH_STR("start"));
    } else if (sh_str_is(word, "ended")) {
        r->restarts++;
        snprintf(text, sizeof(text), "%.*s; restarting it", (int)rest.len, rest.ptr);
        say(l, rank, text);
        state_set(l, rank, SH_STR("ended"));
    } else {
        if (!sh_str_is(word, r->state)) sh_launch_say(l->opts->log_fd, rank, r->host->name, word);
        if (sh_str_is(word, "ready")) sh_children_ready(l->children, rank);
        state_set(l, rank, word);
        ready_check(l);
    }
}

static void on_line(void *arg, int rank, sh_str line)
{
    struct launch *l = arg;
    if (line.len > 0 && line.ptr[0] == SH_LAUNCH_MARK)
        mark_handle(l, rank, sh_str_sub(line, 1, line.len));
    else
        sh_launch_say(l->opts->log_fd, rank, l->ranks[rank].host->name, line);
}

static void on_ended(void *arg, int rank, const char *how, bool restarts)
{
    struct launch *l = arg;
    struct rank *r = &l->ranks[rank];
    char text[96];
    bool lost = r->host->ssh != NULL && strcmp(how, "ended with code 255") == 0;
    r->process[0] = '\0';
    if (restarts) r->restarts++;
    snprintf(text, sizeof(text), "%s%s", lost ? "the connection was lost" : how,
             restarts ? "; restarting it" : "");
    if (strcmp(how, "ended with code 0") != 0) say(l, rank, text);
    state_set(l, rank, sh_str_of("ended"));
}

static sh_status rank_start(struct launch *l, int rank, sh_err *err)
{
    const sh_remote_host *host = l->ranks[rank].host;
    sh_buf script = {0};
    if (host->ssh != NULL) {
        sh_buf_add_text(&script, "cd ");
        sh_shell_quote(&script, sh_str_of(host->state));
        sh_buf_add_text(&script, " && ");
    }
    char *program = sh_path_join(host->state, host->program);
    sh_buf_add_text(&script, "exec ");
    sh_shell_quote(&script, sh_str_of(program));
    sh_buf_addf(&script, " agent --rank %d --state-dir ", rank);
    sh_shell_quote(&script, sh_str_of(host->state));
    char **argv = sh_ssh_argv(&l->opts->hosts->ssh, host->ssh, script.ptr);
    char *name = sh_asprintf("rank %d on %s", rank, host->name);
    sh_child_spec spec = {.name = name,
                          .argv = argv,
                          .env = l->opts->env,
                          .policy = SH_CHILD_AGENT,
                          .tether = true,
                          .capture = true};
    sh_status status = sh_children_add(l->children, &spec, err);
    free(name);
    sh_ssh_argv_free(argv);
    free(program);
    sh_buf_reset(&script);
    return status;
}

sh_status sh_launch_run(const sh_launch_opts *opts, int *code, sh_err *err)
{
    struct launch l = {.opts = opts, .count = opts->hosts->file->count};
    sh_status status = SH_OK;
    char self[SH_PROCESS_TEXT_MAX];
    sh_process own = sh_process_of(getpid());
    sh_process_format(&own, self);
    cJSON_AddStringToObject(opts->record, "process", self);
    l.ranks = sh_alloc_array((size_t)l.count, sizeof(*l.ranks));
    for (int i = 0; i < l.count; i++) {
        l.ranks[i].host = &opts->hosts->list[opts->hosts->of_rank[i]];
        snprintf(l.ranks[i].state, sizeof(l.ranks[i].state), "start");
    }
    l.children = sh_children_create();
    sh_children_set_linger(l.children, LINGER_MS);
    sh_children_set_hooks(l.children,
                          &(sh_children_hooks){.line = on_line, .ended = on_ended, .arg = &l});
    record_write(&l);
    for (int i = 0; i < l.count && status == SH_OK; i++) status = rank_start(&l, i, err);
    bool cancelled = opts->hosts->ssh.cancel != NULL && *opts->hosts->ssh.cancel != 0;
    if (status == SH_OK && !cancelled) *code = sh_children_run(l.children, opts->grace_ms);
    if (cancelled) status = sh_err_set(err, SH_ERR_CANCELLED, "stopped");
    sh_children_free(l.children);
    free(l.ranks);
    return status;
}

sh_status sh_launch_read(const char *state, cJSON **record, sh_err *err)
{
    char *path = sh_path_join(state, "launch.json");
    sh_buf text = {0};
    sh_status status = sh_state_dir_check(state, err);
    if (status == SH_OK && !sh_file_exists(path))
        status = sh_err_set(err, SH_ERR_NOT_FOUND, "nothing was launched from %s", state);
    if (status == SH_OK) status = sh_state_dir_read(state, "launch.json", false, &text, err);
    if (status == SH_OK) status = sh_json_parse(sh_buf_str(&text), path, record, err);
    sh_buf_reset(&text);
    free(path);
    return status;
}

const char *sh_launch_text(const cJSON *json, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, key);
    return cJSON_IsString(item) ? item->valuestring : "";
}

sh_process sh_launch_process(const cJSON *record)
{
    sh_process process;
    if (!sh_process_parse(sh_launch_text(record, "process"), &process)) process = (sh_process){0};
    return process;
}
