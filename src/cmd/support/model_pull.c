#include "cmd/support/model_pull.h"

#include "base/alloc.h"
#include "base/file.h"
#include "cmd/support/model_find.h"
#include "cmd/support/pull_view.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { TOKEN_FILE_MAX = 4096 };

static volatile sig_atomic_t stop;

/* A second Ctrl-C ends the program at once: the handler is installed for one signal. */
static void on_signal(int number)
{
    stop = number;
}

static const int STOPS[] = {SIGINT, SIGTERM, SIGHUP};

/* A file that outgrows a limit of the shell is an error of the write, and not the end of the
 * program. */
static void signals_catch(struct sigaction old[SH_COUNT_OF(STOPS)])
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESETHAND};
    stop = 0;
    for (size_t i = 0; i < SH_COUNT_OF(STOPS); i++) sigaction(STOPS[i], &action, &old[i]);
    signal(SIGXFSZ, SIG_IGN);
}

static void signals_restore(const struct sigaction old[SH_COUNT_OF(STOPS)])
{
    for (size_t i = 0; i < SH_COUNT_OF(STOPS); i++) sigaction(STOPS[i], &old[i], NULL);
    signal(SIGXFSZ, SIG_DFL);
}

/* The file is next to the cache. */
char *sh_model_pull_token(const sh_settings *s)
{
    if (s->hf_token != NULL) return sh_strdup(s->hf_token);
    sh_store_places places = sh_model_places(s);
    sh_buf text = {0};
    sh_err err;
    char *path = places.hf_home != NULL      ? sh_path_join(places.hf_home, "token")
                 : places.user_cache != NULL ? sh_path_join(places.user_cache, "huggingface/token")
                 : places.home != NULL       ? sh_path_join(places.home, ".cache/huggingface/token")
                                             : NULL;
    char *token = NULL;
    if (path != NULL && sh_file_read(path, TOKEN_FILE_MAX, &text, &err) == SH_OK)
        token = sh_str_dup(sh_str_trim(sh_buf_str(&text)));
    sh_buf_reset(&text);
    free(path);
    return token;
}

sh_status sh_model_pull_with(const sh_settings *s, const sh_repo_name *name,
                             const sh_pull_opts *with, char **dir, sh_err *err)
{
    sh_store_places places = sh_model_places(s);
    char *caches[SH_STORE_CACHES_MAX];
    int count = sh_store_caches(&places, caches);
    if (count == 0)
        return sh_err_set(err, SH_ERR_INPUT,
                          "there is no folder for models: set HF_HOME, since HOME is not set");
    char *token = sh_model_pull_token(s);
    sh_pull_opts opts = *with;
    opts.cache = caches[0];
    opts.endpoint = s->hf_endpoint;
    opts.token = token;
    opts.timeout_ms = s->hub_timeout * 1000;
    sh_status status = sh_pull(name, &opts, dir, err);
    free(token);
    for (int i = 0; i < count; i++) free(caches[i]);
    return status;
}

/* Adds what the user should know to the error. A hub that cannot be reached is not a lost rank,
 * which has an exit code of its own. */
static sh_status explain(const sh_repo_name *name, const sh_pull_view *view, sh_err *err)
{
    int percent = sh_pull_view_percent(view);
    if (err->status == SH_ERR_CANCELLED)
        return sh_err_set(err, err->status,
                          "%s: stopped at %d %%; the same command goes on from there", name->id,
                          percent);
    if (err->status == SH_ERR_PEER) err->status = SH_ERR_TIMEOUT;
    if (err->status == SH_ERR_TIMEOUT)
        sh_err_prefix(err, "%s could not be downloaded (%d %% is here; the same command goes on)",
                      name->id, percent);
    return err->status;
}

sh_status sh_model_pull(const sh_settings *s, const sh_repo_name *name, char **dir, sh_err *err)
{
    struct sigaction old[SH_COUNT_OF(STOPS)];
    sh_pull_view view;
    signals_catch(old);
    sh_pull_view_init(&view, s, name->id);
    sh_pull_opts opts = {.cancel = &stop, .progress = sh_pull_view_update, .ctx = &view};
    sh_status status = sh_model_pull_with(s, name, &opts, dir, err);
    sh_pull_view_end(&view, status == SH_OK);
    signals_restore(old);
    return status == SH_OK ? SH_OK : explain(name, &view, err);
}
