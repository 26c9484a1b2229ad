/* Each request has a thread of its own, since a download blocks; a lock keeps their lines apart.
 * The main thread reads requests until the API closes its end, which ends the process and with it
 * whatever is still running: a download goes on from there the next time. */
#include "cmd/support/store_process.h"

#include "api/json_writer.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "cmd/support/model_find.h"
#include "cmd/support/model_list.h"
#include "cmd/support/model_pull.h"
#include "store/catalog.h"
#include "store/pull.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { TASKS_MAX = 4, REQUEST_MAX = 4096, FILES_MAX = 4096, PROGRESS_MS = 200 };

typedef struct task task;
struct task {
    task *next;
    int64_t id;
    char *model;
    sh_status (*run)(task *t, sh_err *err);
    volatile sig_atomic_t cancel;
    sh_deadline next_report;
};

/* Of this process. */
static struct {
    const sh_settings *settings;
    int fd;
    pthread_mutex_t lock; /* of the socket and of what follows */
    task *tasks;
    int count;
} service = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- reports ---- */

static void line_send(sh_buf *line)
{
    sh_buf_add_char(line, '\n');
    pthread_mutex_lock(&service.lock);
    for (size_t at = 0; at < line->len;) {
        ssize_t sent = write(service.fd, line->ptr + at, line->len - at);
        if (sent <= 0) _exit(0); /* the API is gone */
        at += (size_t)sent;
    }
    pthread_mutex_unlock(&service.lock);
    sh_buf_reset(line);
}

static void end_send(int64_t id, const sh_err *err)
{
    sh_buf line = {0};
    sh_json_writer w = sh_json_writer_on(&line);
    sh_write_begin(&w, NULL, '{');
    sh_write_int(&w, "id", id);
    sh_write_bool(&w, "done", true);
    if (err != NULL) {
        sh_write_text(&w, "error", err->text);
        sh_write_int(&w, "code",
                     err->status == SH_ERR_NOT_FOUND  ? 404
                     : err->status == SH_ERR_INPUT    ? 400
                     : err->status == SH_ERR_CONFLICT ? 409
                     : err->status == SH_ERR_LIMIT    ? 429
                                                      : 500);
    }
    sh_write_end(&w, '}');
    line_send(&line);
}

static void on_progress(void *ctx, const sh_fetch_progress *progress)
{
    task *t = ctx;
    sh_buf line = {0};
    if (!sh_deadline_passed(t->next_report) && progress->done < progress->total) return;
    t->next_report = sh_deadline_in_ms(PROGRESS_MS);
    sh_json_writer w = sh_json_writer_on(&line);
    sh_write_begin(&w, NULL, '{');
    sh_write_int(&w, "id", t->id);
    sh_write_int(&w, "total", progress->total);
    sh_write_int(&w, "completed", progress->done);
    sh_write_end(&w, '}');
    line_send(&line);
}

/* ---- what is asked for ---- */

static sh_status pull(task *t, sh_err *err)
{
    const sh_settings *s = service.settings;
    sh_repo_name name;
    char *dir = NULL;
    if (!sh_repo_name_parse(t->model, &name) || !sh_repo_name_is_full(&name))
        return sh_err_set(err, SH_ERR_INPUT,
                          "'%s' is not the name of a model on the hub: ORG/NAME, or "
                          "ORG/NAME@REVISION with a branch, tag or commit",
                          t->model);
    if (s->offline)
        return sh_err_set(err, SH_ERR_UNSUPPORTED,
                          "%s: nothing is downloaded, because the server runs with --offline",
                          name.id);
    sh_pull_opts opts = {.cancel = &t->cancel, .progress = on_progress, .ctx = t};
    sh_status status = sh_model_pull_with(s, &name, &opts, &dir, err);
    free(dir);
    return status;
}

/* The files of the served model are in use, even if they stay open until then. */
static sh_status removal_check(const sh_removal *removal, sh_err *err)
{
    const char *model = service.settings->model;
    char *served = model == NULL ? NULL : sh_store_name(model);
    bool same = served != NULL && strcmp(served, removal->id) == 0;
    free(served);
    return same ? sh_err_set(err, SH_ERR_CONFLICT, "%s is being served", removal->id) : SH_OK;
}

/* A line for each model. */
static sh_status list(task *t, sh_err *err)
{
    sh_model_list models = {0};
    sh_status status = sh_model_list_make(service.settings, &models, err);
    for (size_t i = 0; status == SH_OK && i < models.count && t->cancel == 0; i++) {
        sh_buf line = {0};
        cJSON *report = cJSON_CreateObject();
        cJSON_AddNumberToObject(report, "id", (double)t->id);
        cJSON_AddItemToObject(report, "model", sh_model_row_json(&models.rows[i]));
        char *text = cJSON_PrintUnformatted(report);
        sh_buf_add_text(&line, text);
        line_send(&line);
        cJSON_free(text);
        cJSON_Delete(report);
    }
    sh_model_list_reset(&models);
    return status;
}

static sh_status removal(task *t, sh_err *err)
{
    sh_store_places places = sh_model_places(service.settings);
    sh_removal plan = {0};
    sh_status status = sh_removal_plan(t->model, &places, &plan, err);
    if (status == SH_OK) status = removal_check(&plan, err);
    if (status == SH_OK) status = sh_removal_run(&plan, err);
    sh_removal_reset(&plan);
    return status;
}

static void task_free(task *t)
{
    pthread_mutex_lock(&service.lock);
    task **at = &service.tasks;
    while (*at != t) at = &(*at)->next;
    *at = t->next;
    service.count--;
    pthread_mutex_unlock(&service.lock);
    free(t->model);
    free(t);
}

static void *task_main(void *arg)
{
    task *t = arg;
    sh_err err;
    sh_status status = t->run(t, &err);
    end_send(t->id, status == SH_OK ? NULL : &err);
    task_free(t);
    return NULL;
}

static void task_start(int64_t id, const char *model, sh_status (*run)(task *t, sh_err *err))
{
    sh_err err;
    pthread_t thread;
    task *t = sh_alloc(sizeof(*t));
    *t = (task){.id = id, .model = sh_strdup(model), .run = run};
    pthread_mutex_lock(&service.lock);
    bool fits = service.count < TASKS_MAX;
    t->next = service.tasks;
    service.tasks = t;
    service.count++;
    pthread_mutex_unlock(&service.lock);
    if (fits && pthread_create(&thread, NULL, task_main, t) == 0) {
        pthread_detach(thread);
        return;
    }
    task_free(t);
    sh_err_set(&err, SH_ERR_LIMIT, "%d downloads are running; try again later", TASKS_MAX);
    end_send(id, &err);
}

static void task_stop(int64_t id)
{
    pthread_mutex_lock(&service.lock);
    for (task *t = service.tasks; t != NULL; t = t->next)
        if (t->id == id) t->cancel = 1;
    pthread_mutex_unlock(&service.lock);
}

/* ---- the process ---- */

static void request_take(sh_str text)
{
    cJSON *request = NULL;
    const char *what = "", *model = "";
    int64_t id = 0;
    sh_err err;
    if (sh_json_parse(text, "request", &request, &err) == SH_OK &&
        sh_json_int(request, "id", "request", 0, INT64_C(1) << 53, &id, &err) == SH_OK &&
        sh_json_string(request, "do", "request", &what, &err) == SH_OK &&
        sh_json_string(request, "model", "request", &model, &err) == SH_OK) {
        if (strcmp(what, "stop") == 0)
            task_stop(id);
        else
            task_start(id, model,
                       strcmp(what, "delete") == 0 ? removal
                       : strcmp(what, "list") == 0 ? list
                                                   : pull);
    }
    cJSON_Delete(request);
}

/* Nothing of the API's may stay open here: its sockets, and the pipe by which its supervisor sees
 * that it is alive. */
static void files_close(int keep)
{
    for (int fd = STDERR_FILENO + 1; fd < FILES_MAX; fd++)
        if (fd != keep) close(fd);
}

_Noreturn static void service_run(void)
{
    sh_buf in = {0};
    char bytes[REQUEST_MAX];
    files_close(service.fd);
    signal(SIGXFSZ, SIG_IGN);
    signal(SIGINT, SIG_IGN); /* the API decides when to end */
    for (;;) {
        ssize_t got = recv(service.fd, bytes, sizeof(bytes), 0);
        if (got <= 0) _exit(0);
        sh_buf_add(&in, bytes, (size_t)got);
        const char *end;
        while (in.len > 0 && (end = memchr(in.ptr, '\n', in.len)) != NULL) {
            sh_str line = {in.ptr, (size_t)(end - in.ptr)};
            request_take(line);
            sh_buf_drop_front(&in, line.len + 1);
        }
        if (in.len > REQUEST_MAX) _exit(1);
    }
}

sh_status sh_store_process_start(const sh_settings *s, int *fd, sh_err *err)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) return sh_err_sys(err, "socketpair");
    pid_t pid = fork();
    if (pid < 0) {
        close(ends[0]);
        close(ends[1]);
        return sh_err_sys(err, "fork");
    }
    if (pid == 0) {
        service.settings = s;
        service.fd = ends[1];
        service_run();
    }
    close(ends[1]);
    *fd = ends[0];
    return SH_OK;
}
