#include "cmd/launched.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/system.h"
#include "cmd/support/cluster.h"
#include "cmd/support/model_definition.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { POLL_MS = 50, STALL_S = 600, API_S = 120 };

static const char LOCK_NAME[] = "change.lock", HOSTFILE_NAME[] = "changed-hosts.json";

static int log_open(const char *state)
{
    char *path = sh_path_join(state, "launch.log");
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) lseek(fd, 0, SEEK_END);
    free(path);
    return fd;
}

sh_status sh_launched_open(sh_launched *c, const char *state_dir, sh_err *err)
{
    *c = (sh_launched){.lock = -1, .log = -1};
    c->launch = (sh_launch){.lock = -1, .log = -1, .ready_fd = -1};
    c->state = sh_state_dir_path(state_dir);
    sh_status status = sh_launch_read(c->state, &c->record, err);
    if (status == SH_OK) status = sh_state_dir_lock(c->state, LOCK_NAME, &c->lock, err);
    if (status == SH_AGAIN)
        return sh_err_set(err, SH_ERR_LIMIT,
                          "another command is changing the cluster of %s: try again when it is "
                          "done",
                          c->state);
    if (status != SH_OK) return status;
    c->launcher = sh_launch_process(c->record);
    c->log = log_open(c->state);
    status = sh_placement_read(&c->members, c->state, err);
    return status == SH_ERR_NOT_FOUND ? SH_OK : status; /* an earlier version wrote no such file */
}

void sh_launched_close(sh_launched *c)
{
    sh_launch_reset(&c->launch);
    sh_placement_reset(&c->members);
    sh_options_free(c->options);
    cJSON_Delete(c->record);
    free(c->line);
    free(c->model);
    free(c->state);
    if (c->lock >= 0) close(c->lock);
    if (c->log >= 0) close(c->log);
}

bool sh_launched_is_alive(const sh_launched *c)
{
    return sh_process_alive(&c->launcher);
}

/* Restores the variables that the launch got its settings from, and removes all others that would
 * change them now. */
static void environment_take(const cJSON *record)
{
    const cJSON *item;
    sh_cluster_unset(NULL);
    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(record, "environment"))
    {
        if (cJSON_IsString(item)) putenv(sh_strdup(item->valuestring));
    }
}

/* The words of the command line from "launch" on, with room for two more. */
static char **line_of(const cJSON *record, int *count)
{
    const cJSON *line = cJSON_GetObjectItemCaseSensitive(record, "line"), *item;
    char **words = sh_alloc_array((size_t)cJSON_GetArraySize(line) + 4, sizeof(*words));
    *count = 0;
    cJSON_ArrayForEach(item, line)
    {
        if (cJSON_IsString(item)) words[(*count)++] = item->valuestring;
    }
    return words;
}

static sh_status folder_enter(const cJSON *record, sh_err *err)
{
    const char *folder = sh_launch_text(record, "folder");
    return chdir(folder) == 0 ? SH_OK : sh_err_sys(err, "folder of the launch, '%s'", folder);
}

sh_status sh_launched_recall(sh_launched *c, sh_err *err)
{
    int count;
    sh_status status = folder_enter(c->record, err);
    if (status != SH_OK) return status;
    environment_take(c->record);
    c->line = line_of(c->record, &count);
    if (count == 0)
        return sh_err_set(err, SH_ERR_INPUT, "%s/launch.json has no command line", c->state);
    c->options = sh_options_create(&sh_option_rows, &c->settings);
    c->args = (sh_command_args){
        .settings = &c->settings, .options = c->options, .argc = count - 1, .argv = c->line + 1};
    status = sh_settings_gather(c->options, &sh_command_launch, &c->settings, &c->args, err);
    if (status == SH_OK)
        status = sh_model_definition_apply(c->options, &c->settings, &c->model, err);
    c->launch.args = &c->args;
    c->launch.state = sh_strdup(c->state);
    return status == SH_OK ? sh_launch_open(&c->launch, err) : status;
}

bool sh_launched_has_new_hostfile(const sh_launched *c)
{
    return strcmp(sh_launch_text(c->record, "hosts"), c->launch.hosts_digest) != 0;
}

/* The hosts that there are now, as a hostfile in the state folder. */
static sh_status hostfile_write(const sh_launched *c, sh_err *err)
{
    sh_hostfile *file = NULL;
    sh_buf text = {0};
    sh_status status = sh_placement_hostfile(&c->members, &file, err);
    if (status == SH_OK) status = sh_hostfile_write(file, SH_HOSTFILE_OBJECT, &text, err);
    if (status == SH_OK)
        status = sh_state_dir_write(c->state, HOSTFILE_NAME, sh_buf_str(&text), err);
    sh_hostfile_free(file);
    sh_buf_reset(&text);
    return status;
}

/* What it allocates is not freed: the process ends or becomes another. */
sh_status sh_launched_repeat(sh_launched *c, sh_err *err)
{
    int count;
    char *program = NULL, **words = line_of(c->record, &count);
    sh_status status = folder_enter(c->record, err);
    if (status == SH_OK) status = sh_program_path(&program, err);
    bool changed = c->members.changed && !sh_launched_has_new_hostfile(c);
    if (status == SH_OK && changed) status = hostfile_write(c, err);
    if (status != SH_OK) return status;
    char **argv = sh_alloc_array((size_t)count + 5, sizeof(*argv));
    argv[0] = program;
    memcpy(argv + 1, words, (size_t)count * sizeof(*argv));
    argv[++count] = "--detach";
    if (changed) {
        argv[++count] = sh_asprintf("--hostfile=%s/%s", c->state, HOSTFILE_NAME);
        argv[++count] = sh_asprintf("--ranks=%d", c->members.count);
    }
    environment_take(c->record);
    execv(program, argv);
    return sh_err_sys(err, "%s", program);
}

static void log_copy(int log)
{
    char bytes[4096];
    for (ssize_t got; log >= 0 && (got = read(log, bytes, sizeof(bytes))) > 0;) {
        ssize_t put = write(STDERR_FILENO, bytes, (size_t)got);
        (void)put;
    }
}

const cJSON *sh_launched_rank(const cJSON *record, int number)
{
    const cJSON *rank;
    cJSON_ArrayForEach(rank, cJSON_GetObjectItemCaseSensitive(record, "ranks"))
    {
        const cJSON *item = cJSON_GetObjectItemCaseSensitive(rank, "rank");
        if (cJSON_IsNumber(item) && item->valueint == number) return rank;
    }
    return NULL;
}

/* Names the first rank that is not ready. */
static sh_status stall_explain(const cJSON *record, sh_err *err)
{
    const cJSON *rank;
    cJSON_ArrayForEach(rank, cJSON_GetObjectItemCaseSensitive(record, "ranks"))
    {
        const cJSON *number = cJSON_GetObjectItemCaseSensitive(rank, "rank");
        if (strcmp(sh_launch_text(rank, "state"), "ready") == 0) continue;
        return sh_err_set(err, SH_ERR_TIMEOUT,
                          "nothing has happened for %d s: rank %d on %s is in state '%s'; `shoal "
                          "logs` may say why",
                          STALL_S, number == NULL ? 0 : number->valueint,
                          sh_launch_text(rank, "host"), sh_launch_text(rank, "state"));
    }
    return sh_err_set(err, SH_ERR_TIMEOUT, "nothing has happened for %d s", STALL_S);
}

/* What the wait has seen last, to notice that something has changed. */
struct watch {
    char *ranks;
    sh_deadline stalled_at;
};

static void watch_update(struct watch *w, const cJSON *record)
{
    char *now = cJSON_PrintUnformatted(cJSON_GetObjectItemCaseSensitive(record, "ranks"));
    bool same = w->ranks != NULL && now != NULL && strcmp(now, w->ranks) == 0;
    if (!same) w->stalled_at = sh_deadline_in_ms(STALL_S * INT64_C(1000));
    cJSON_free(w->ranks);
    w->ranks = now;
}

static sh_status look(const sh_launched *c, sh_launched_check check, void *arg, struct watch *w,
                      sh_err *err)
{
    cJSON *record = NULL;
    bool alive = sh_launched_is_alive(c); /* before the record is read, which may be its last */
    sh_status status = sh_launch_read(c->state, &record, err);
    if (status == SH_OK) status = check(record, arg, err);
    if (status == SH_AGAIN) watch_update(w, record);
    if (!alive && status != SH_OK)
        status = sh_err_set(err, SH_ERR_PEER, "the cluster has stopped: `shoal logs` shows why");
    else if (status == SH_AGAIN && sh_deadline_passed(w->stalled_at))
        status = stall_explain(record, err);
    cJSON_Delete(record);
    return status;
}

sh_status sh_launched_await(sh_launched *c, sh_launched_check check, void *arg, sh_err *err)
{
    struct watch w = {.stalled_at = sh_deadline_in_ms(STALL_S * INT64_C(1000))};
    sh_status status;
    while ((status = look(c, check, arg, &w, err)) == SH_AGAIN) {
        log_copy(c->log);
        if (sh_launch_is_cancelled()) {
            status = sh_err_set(err, SH_ERR_CANCELLED,
                                "not waiting any longer; the cluster goes on with it");
            break;
        }
        sh_sleep_ms(POLL_MS);
    }
    log_copy(c->log);
    cJSON_free(w.ranks);
    return status;
}

/* Whether the API serves with that many ranks or fewer; `said` is its state otherwise. */
static bool api_serves(const sh_launched *c, int ranks, sh_err *said)
{
    sh_buf text = {0};
    cJSON *health = NULL;
    sh_err unused;
    sh_status status = sh_cluster_call(c->record, &c->settings, "/health", NULL, &text, said);
    bool serves = status == SH_OK &&
                  sh_json_parse(sh_buf_str(&text), "/health", &health, said) == SH_OK;
    if (status != SH_OK && sh_json_parse(sh_buf_str(&text), "/health", &health, &unused) == SH_OK)
        sh_err_set(said, SH_ERR_PEER, "it says '%s'", sh_launch_text(health, "status"));
    const cJSON *size = cJSON_GetObjectItemCaseSensitive(health, "world_size");
    if (serves && cJSON_IsNumber(size) && size->valueint > ranks) {
        sh_err_set(said, SH_ERR_PEER, "it has %d ranks, not %d", size->valueint, ranks);
        serves = false;
    }
    cJSON_Delete(health);
    sh_buf_reset(&text);
    return serves;
}

static bool record_is_ready(const sh_launched *c, sh_err *said)
{
    cJSON *record = NULL;
    bool ready = sh_launch_read(c->state, &record, said) == SH_OK &&
                 strcmp(sh_launch_text(record, "state"), "ready") == 0;
    if (record != NULL && !ready) sh_err_set(said, SH_ERR_PEER, "not all ranks are ready");
    cJSON_Delete(record);
    return ready;
}

sh_status sh_launched_await_api(sh_launched *c, int ranks, sh_err *err)
{
    sh_deadline end = sh_deadline_in_ms(API_S * INT64_C(1000));
    sh_err said;
    while (!api_serves(c, ranks, &said) || !record_is_ready(c, &said)) {
        log_copy(c->log);
        if (sh_launch_is_cancelled())
            return sh_err_set(err, SH_ERR_CANCELLED,
                              "not waiting any longer; the cluster goes on with it");
        if (!sh_launched_is_alive(c))
            return sh_err_set(err, SH_ERR_PEER, "the cluster has stopped: `shoal logs` shows why");
        if (sh_deadline_passed(end))
            return sh_err_set(err, SH_ERR_TIMEOUT, "the cluster does not serve after %d s: %s",
                              API_S, said.text);
        sh_sleep_ms(POLL_MS);
    }
    return SH_OK;
}
