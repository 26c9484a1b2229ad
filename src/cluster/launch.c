/* A launch sees each rank through its agent: the agent's lines are the rank's output, and marked
 * lines tell what happens to the rank (launch.h). Every change of a state rewrites launch.json, so
 * that `shoal status` needs no connection to this process. */
#include "cluster/launch.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "cluster/change.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    LINGER_MS = 2000, /* when a rank fails, for the others to log what they saw */
    REASON_MAX = 512,
    FIRST_MS = 5000, /* in a renewal, for all others to come back to rank 0 */
};

/* One for each agent that was started, in that order. The place of a rank that has left stays. */
struct rank {
    int number;
    char *name, *ssh, *folder, *program; /* as in sh_place */
    char state[16];
    char process[SH_PROCESS_TEXT_MAX];
    char error[REASON_MAX];   /* the last one that it reported */
    char refused[REASON_MAX]; /* why it may not leave; "": it may, or was not asked to */
    int restarts;
    int64_t since_us;
    bool renewed; /* and has not been started anew yet */
    bool leaving; /* was asked to */
    bool gone;
};

struct launch {
    const sh_launch_opts *opts;
    sh_children *children;
    struct rank *ranks;
    int count;
    int renewals;
    bool first_due; /* rank 0 is still to be renewed */
    sh_deadline first_at;
    bool was_ready;
    sh_change change;
};

void sh_launch_say_to(int fd, int log_fd, int rank, const char *name, sh_str text)
{
    sh_buf line = {0};
    sh_buf_addf(&line, "[%d %s] ", rank, name);
    sh_buf_add_str(&line, text);
    sh_buf_add_char(&line, '\n');
    ssize_t put = write(fd, line.ptr, line.len);
    if (log_fd >= 0) put = write(log_fd, line.ptr, line.len);
    (void)put; /* a closed terminal must not disturb the ranks */
    sh_buf_reset(&line);
}

void sh_launch_say(int log_fd, int rank, const char *name, sh_str text)
{
    sh_launch_say_to(STDERR_FILENO, log_fd, rank, name, text);
}

static void say(const struct launch *l, int idx, const char *text)
{
    const struct rank *r = &l->ranks[idx];
    sh_launch_say(l->opts->log_fd, r->number, r->name, sh_str_of(text));
}

static cJSON *rank_json(const struct rank *r)
{
    sh_process process = {0};
    cJSON *json = cJSON_CreateObject();
    cJSON_AddNumberToObject(json, "rank", r->number);
    cJSON_AddStringToObject(json, "host", r->name);
    cJSON_AddStringToObject(json, "ssh", r->ssh == NULL ? "" : r->ssh);
    cJSON_AddStringToObject(json, "folder", r->folder);
    cJSON_AddStringToObject(json, "program", r->program);
    cJSON_AddStringToObject(json, "state", r->state);
    cJSON_AddNumberToObject(json, "pid",
                            sh_process_parse(r->process, &process) ? (double)process.pid : 0);
    cJSON_AddStringToObject(json, "process", r->process);
    cJSON_AddNumberToObject(json, "restarts", r->restarts);
    cJSON_AddNumberToObject(json, "since", (double)(r->since_us / 1000000));
    if (r->error[0] != '\0') cJSON_AddStringToObject(json, "error", r->error);
    if (r->refused[0] != '\0') cJSON_AddStringToObject(json, "refused", r->refused);
    return json;
}

static bool all_ready(const struct launch *l)
{
    for (int i = 0; i < l->count; i++)
        if (!l->ranks[i].gone && strcmp(l->ranks[i].state, "ready") != 0) return false;
    return true;
}

/* Writes launch.json. A failure is logged, not fatal: serving goes on. */
static void record_write(const struct launch *l)
{
    static const char *const ours[] = {"state", "renewals", "ranks"};
    cJSON *record = l->opts->record, *ranks = cJSON_CreateArray();
    sh_err err;
    for (int i = 0; i < l->count; i++)
        if (!l->ranks[i].gone) cJSON_AddItemToArray(ranks, rank_json(&l->ranks[i]));
    for (size_t i = 0; i < SH_COUNT_OF(ours); i++) cJSON_DeleteItemFromObject(record, ours[i]);
    cJSON_AddStringToObject(record, "state", all_ready(l) ? "ready" : "starting");
    cJSON_AddNumberToObject(record, "renewals", l->renewals);
    cJSON_AddItemToObject(record, "ranks", ranks);
    char *text = cJSON_Print(record);
    if (sh_state_dir_write(l->opts->state, "launch.json", sh_str_of(text), &err) != SH_OK)
        SH_LOGW("%s", err.text);
    cJSON_free(text);
}

static void state_set(struct launch *l, int idx, sh_str state)
{
    struct rank *r = &l->ranks[idx];
    snprintf(r->state, sizeof(r->state), "%.*s", (int)state.len, state.ptr);
    r->since_us = sh_clock_unix_us();
    record_write(l);
}

static void ready_check(struct launch *l)
{
    if (l->was_ready || !all_ready(l)) return;
    l->was_ready = true;
    if (l->opts->ready != NULL) l->opts->ready(l->opts->arg);
}

static void text_set(char out[REASON_MAX], sh_str text)
{
    snprintf(out, REASON_MAX, "%.*s", (int)text.len, text.ptr);
}

/* Tells rank 0's host which ranks were removed. They say so themselves when they leave the group,
 * but not if they had crashed before, and were not back yet. */
static void removed_tell(const struct launch *l)
{
    sh_buf line = {0};
    sh_buf_add_text(&line, SH_LAUNCH_REMOVED);
    size_t none = line.len;
    for (int i = 0; i < l->count; i++)
        if (l->ranks[i].gone && l->ranks[i].leaving) sh_buf_addf(&line, " %d", l->ranks[i].number);
    if (line.len > none) sh_children_tell(l->children, 0, sh_buf_str(&line));
    sh_buf_reset(&line);
}

/* A state of the rank. Until one that was renewed has started anew, its old process is meant. */
static void state_handle(struct launch *l, int idx, sh_str state)
{
    struct rank *r = &l->ranks[idx];
    if (r->renewed) return;
    if (!sh_str_is(state, r->state)) sh_launch_say(l->opts->log_fd, r->number, r->name, state);
    if (sh_str_is(state, "ready")) {
        sh_children_ready(l->children, idx);
        r->error[0] = '\0';
        if (r->leaving)
            sh_children_ask_to_leave(l->children, idx); /* its process was another one */
    }
    state_set(l, idx, state);
    ready_check(l);
}

static void change_tell(const struct launch *l, sh_str id, sh_status status, const char *text)
{
    sh_buf line = {0};
    sh_buf_add_str(&line, id);
    sh_buf_addf(&line, " %s %s", status == SH_OK ? "done" : "failed", text);
    say(l, 0, line.ptr);
    sh_children_tell(l->children, 0, sh_buf_str(&line));
    sh_buf_reset(&line);
}

/* What rank 0's host asks for is run as if it had been typed here, so it is checked here. */
static void change_begin(struct launch *l, sh_str line)
{
    sh_change_order order;
    sh_err err;
    sh_status status = sh_change_parse(line, &order, &err);
    if (status == SH_OK && l->opts->program == NULL)
        status = sh_err_set(&err, SH_ERR_UNSUPPORTED, "this cluster cannot be changed");
    sh_launch_say(l->opts->log_fd, l->ranks[0].number, l->ranks[0].name, line);
    if (status == SH_OK)
        status = sh_change_start(&l->change, &order, l->opts->program, l->opts->state, &err);
    if (status != SH_OK) change_tell(l, order.id, status, err.text);
}

static void change_watch(struct launch *l)
{
    sh_err said;
    sh_status status = sh_change_poll(&l->change, &said);
    if (status != SH_AGAIN) change_tell(l, sh_str_of(l->change.id), status, said.text);
}

/* A marked line of an agent. */
static void mark_handle(struct launch *l, int idx, sh_str line)
{
    struct rank *r = &l->ranks[idx];
    sh_str rest = line, word;
    if (!sh_str_cut(&rest, ' ', &word)) return;
    if (sh_str_is(word, "pid")) {
        snprintf(r->process, sizeof(r->process), "%.*s", (int)rest.len, rest.ptr);
        r->renewed = false;
        state_set(l, idx, SH_STR("start"));
        if (r->number == 0) removed_tell(l);
    } else if (sh_str_is(word, "ended")) {
        if (r->renewed) return;
        r->restarts++;
        state_set(l, idx, SH_STR("ended"));
    } else if (sh_str_is(word, "change")) {
        if (r->number == 0) change_begin(l, rest);
    } else if (sh_str_is(word, "refused")) {
        text_set(r->refused, rest);
        r->leaving = false;
        record_write(l);
    } else {
        state_handle(l, idx, word);
    }
}

static void on_line(void *arg, int idx, sh_str line)
{
    struct launch *l = arg;
    struct rank *r = &l->ranks[idx];
    const sh_str failed = SH_STR("shoal: ");
    if (line.len > 0 && line.ptr[0] == SH_LAUNCH_MARK) {
        mark_handle(l, idx, sh_str_sub(line, 1, line.len));
        return;
    }
    if (sh_str_starts(line, failed)) text_set(r->error, sh_str_sub(line, failed.len, line.len));
    sh_launch_say_to(l->opts->outputs ? STDOUT_FILENO : STDERR_FILENO, l->opts->log_fd, r->number,
                     r->name, line);
}

/* An agent has ended. With code 0 its rank has left, if it is not rank 0. */
static void on_ended(void *arg, int idx, const char *how, bool restarts)
{
    struct launch *l = arg;
    struct rank *r = &l->ranks[idx];
    char text[96];
    bool well = strcmp(how, "ended with code 0") == 0;
    bool lost = r->ssh != NULL && strcmp(how, "ended with code 255") == 0;
    r->process[0] = '\0';
    r->renewed = false;
    if (restarts) r->restarts++;
    r->gone = !restarts && well && r->number > 0;
    snprintf(text, sizeof(text), "%s%s", lost ? "the connection was lost" : how,
             restarts ? "; restarting" : "");
    if (!well) say(l, idx, text);
    if (r->gone && r->leaving) {
        say(l, idx, "has left");
        removed_tell(l);
    }
    state_set(l, idx, sh_str_of(restarts || well ? "ended" : "failed"));
}

static sh_status agent_start(struct launch *l, const struct rank *r, sh_child_policy policy,
                             sh_err *err)
{
    sh_buf script = {0};
    if (r->ssh != NULL) {
        sh_buf_add_text(&script, "cd ");
        sh_shell_quote(&script, sh_str_of(r->folder));
        sh_buf_add_text(&script, " && ");
    }
    char *program = sh_path_join(r->folder, r->program);
    sh_buf_add_text(&script, "exec ");
    sh_shell_quote(&script, sh_str_of(program));
    sh_buf_addf(&script, " agent --rank %d --state-dir ", r->number);
    sh_shell_quote(&script, sh_str_of(r->folder));
    char **argv = sh_ssh_argv(&l->opts->ssh, r->ssh, script.ptr);
    char *name = sh_asprintf("rank %d on %s", r->number, r->name);
    sh_child_spec spec = {.name = name,
                          .argv = argv,
                          .env = l->opts->env,
                          .policy = policy,
                          .tether = true,
                          .capture = true};
    sh_status status = sh_children_add(l->children, &spec, err);
    free(name);
    sh_ssh_argv_free(argv);
    free(program);
    sh_buf_reset(&script);
    return status;
}

static sh_status rank_add(struct launch *l, const sh_place *member, sh_child_policy policy,
                          sh_err *err)
{
    l->ranks = sh_realloc_array(l->ranks, (size_t)l->count + 1, sizeof(*l->ranks));
    struct rank *r = &l->ranks[l->count++];
    *r = (struct rank){.number = member->rank,
                       .name = sh_strdup(member->name),
                       .ssh = member->ssh == NULL ? NULL : sh_strdup(member->ssh),
                       .folder = sh_strdup(member->folder),
                       .program = sh_strdup(member->program),
                       .state = "start",
                       .since_us = sh_clock_unix_us()};
    return agent_start(l, r, policy, err);
}

static int rank_find(const struct launch *l, int number)
{
    for (int i = 0; i < l->count; i++)
        if (!l->ranks[i].gone && l->ranks[i].number == number) return i;
    return -1;
}

static void rank_dismiss(struct launch *l, int idx)
{
    struct rank *r = &l->ranks[idx];
    if (r->leaving) return;
    r->leaving = true;
    r->refused[0] = '\0';
    r->gone = !sh_children_ask_to_leave(l->children, idx);
    if (r->gone)
        removed_tell(l);
    else
        say(l, idx, "is asked to leave");
}

/* Starts and dismisses ranks until they are those of the list. Rank 0 stays in any case. */
static void members_follow(struct launch *l, const sh_placement *members)
{
    sh_err err;
    for (int i = 0; i < members->count; i++) {
        if (rank_find(l, members->list[i].rank) >= 0) continue;
        if (rank_add(l, &members->list[i], SH_CHILD_ADDED_AGENT, &err) != SH_OK)
            say(l, l->count - 1, err.text);
    }
    for (int i = 0; i < l->count; i++) {
        const struct rank *r = &l->ranks[i];
        if (!r->gone && r->number > 0 && sh_placement_find(members, r->number) < 0)
            rank_dismiss(l, i);
    }
    record_write(l);
}

/* Renews all ranks but rank 0, which comes last: new processes learn from it who has left and how
 * the model is shared, and tell its successor. */
static void renewal_begin(struct launch *l)
{
    l->renewals++;
    for (int i = 0; i < l->count; i++) {
        struct rank *r = &l->ranks[i];
        if (r->gone) continue;
        r->renewed = true;
        snprintf(r->state, sizeof(r->state), "renew");
        r->since_us = sh_clock_unix_us();
        if (i > 0) sh_children_renew(l->children, i);
    }
    l->first_due = true;
    l->first_at = sh_deadline_in_ms(FIRST_MS);
    record_write(l);
}

/* A new program may not understand the old rank 0. Then its ranks end, or do not get as far as
 * loading, and rank 0 must not wait for them. */
static bool is_time_for_first(const struct launch *l)
{
    bool ready = true, join = true;
    for (int i = 1; i < l->count; i++) {
        const struct rank *r = &l->ranks[i];
        if (r->gone) continue;
        if (strcmp(r->state, "ended") == 0) return true;
        ready = ready && strcmp(r->state, "ready") == 0;
        join = join && (strcmp(r->state, "ready") == 0 || strcmp(r->state, "load") == 0);
    }
    return ready || (!join && sh_deadline_passed(l->first_at));
}

static void on_signal(void *arg, int number)
{
    struct launch *l = arg;
    sh_placement members;
    sh_err err;
    if (number == SIGUSR1) {
        if (sh_placement_read(&members, l->opts->state, &err) == SH_OK)
            members_follow(l, &members);
        else
            SH_LOGE("%s", err.text);
        sh_placement_reset(&members);
        return;
    }
    renewal_begin(l);
}

static void on_poll(void *arg)
{
    struct launch *l = arg;
    if (l->change.pid != 0) change_watch(l);
    if (!l->first_due || !is_time_for_first(l)) return;
    l->first_due = false;
    sh_children_renew(l->children, 0);
}

static sh_status ranks_start(struct launch *l, sh_err *err)
{
    sh_placement members;
    sh_status status = sh_placement_read(&members, l->opts->state, err);
    for (int i = 0; i < members.count && status == SH_OK; i++) {
        const sh_place *member = &members.list[i];
        status = rank_add(l, member, member->rank == 0 ? l->opts->first : l->opts->others, err);
    }
    sh_placement_reset(&members);
    record_write(l);
    return status;
}

sh_status sh_launch_run(const sh_launch_opts *opts, int *code, sh_err *err)
{
    struct launch l = {.opts = opts};
    char self[SH_PROCESS_TEXT_MAX];
    sh_process own = sh_process_of(getpid());
    sh_process_format(&own, self);
    cJSON_AddStringToObject(opts->record, "process", self);
    l.children = sh_children_create();
    sh_children_set_linger(l.children, LINGER_MS);
    sh_children_set_hooks(l.children, &(sh_children_hooks){.line = on_line,
                                                           .ended = on_ended,
                                                           .signalled = on_signal,
                                                           .polled = on_poll,
                                                           .arg = &l});
    sh_status status = ranks_start(&l, err);
    bool cancelled = opts->ssh.cancel != NULL && *opts->ssh.cancel != 0;
    if (status == SH_OK && !cancelled) *code = sh_children_run(l.children, opts->grace_ms);
    if (cancelled) status = sh_err_set(err, SH_ERR_CANCELLED, "stopped");
    sh_change_end(&l.change);
    sh_children_free(l.children);
    for (int i = 0; i < l.count; i++) {
        free(l.ranks[i].name);
        free(l.ranks[i].ssh);
        free(l.ranks[i].folder);
        free(l.ranks[i].program);
    }
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
