/* Settings of the library: names and texts, checked against the option table when they are set and
 * parsed again by whatever is opened, so that a handle owns all that it refers to.
 *
 * They count as flags, which is why they take precedence over the environment. */
#include "base/alloc.h"
#include "base/log.h"
#include "base/version.h"
#include "cmd/support/launcher_settings.h"
#include "cmd/support/model_find.h"
#include "lib/lib_internal.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

_Static_assert((int)SHOAL_ERR_CONFLICT == (int)SH_ERR_CONFLICT && (int)SHOAL_DONE == (int)SH_AGAIN,
               "a shoal_status is an sh_status");
_Static_assert((int)SHOAL_ERROR_TEXT_MAX >= (int)SH_ERR_TEXT_MAX, "all of an error fits");
_Static_assert((int)SHOAL_LOG_DEBUG == (int)SH_LOG_DEBUG, "levels have the same numbers");

extern char **environ;

struct shoal_settings {
    struct pair {
        char *name, *value;
    } * pairs;
    size_t count;
    bool environment;
};

static struct {
    shoal_log_fn fn;
    void *ctx;
} the_log;

static void log_pass_on(void *ctx, sh_log_level level, const char *text)
{
    (void)ctx;
    if (the_log.fn != NULL) the_log.fn(the_log.ctx, (shoal_log_level)level, text);
}

/* Silence is the default of a library, and must be so before anything can log. */
__attribute__((constructor)) static void log_start(void)
{
    sh_log_set_sink(log_pass_on, NULL);
}

void shoal_set_log(shoal_log_fn fn, void *ctx, shoal_log_level level)
{
    the_log.fn = fn;
    the_log.ctx = ctx;
    sh_log_set_level((sh_log_level)level);
}

const char *shoal_version(void)
{
    return sh_version();
}

void shoal_free(void *memory)
{
    free(memory);
}

shoal_status sh_lib_result(sh_status status, const sh_err *err, shoal_error *out)
{
    if (out == NULL || status == SH_OK) return (shoal_status)status;
    out->status = (shoal_status)status;
    snprintf(out->text, sizeof(out->text), "%s", status < 0 ? err->text : "");
    return out->status;
}

void sh_lib_copy(void *to, size_t to_size, const void *from, size_t from_size)
{
    size_t both = to_size < from_size ? to_size : from_size, head = sizeof(size_t);
    if (both > head) memcpy((char *)to + head, (const char *)from + head, both - head);
}

shoal_settings *shoal_settings_new(void)
{
    return sh_alloc(sizeof(shoal_settings));
}

void shoal_settings_free(shoal_settings *settings)
{
    if (settings == NULL) return;
    for (size_t i = 0; i < settings->count; i++) {
        free(settings->pairs[i].name);
        free(settings->pairs[i].value);
    }
    free(settings->pairs);
    free(settings);
}

static sh_status parse(const shoal_settings *settings, sh_options *options, sh_err *err)
{
    sh_status status = SH_OK;
    for (size_t i = 0; i < settings->count && status == SH_OK; i++) {
        const struct pair *p = &settings->pairs[i];
        status = sh_options_set(options, SH_FROM_FLAG, sh_str_of(p->name), sh_str_of(p->value),
                                err);
        if (status == SH_ERR_NOT_FOUND)
            status = sh_err_set(err, SH_ERR_INPUT, "there is no setting '%s'", p->name);
    }
    if (status == SH_OK && settings->environment)
        status = sh_options_parse_env(options, environ, err);
    return status;
}

/* Parses all settings once more; what was wrong shows here and not when something is opened. */
static sh_status check(const shoal_settings *settings, sh_err *err)
{
    sh_settings ignored = {0};
    sh_options *options = sh_options_create(&sh_option_rows, &ignored);
    sh_status status = parse(settings, options, err);
    sh_options_free(options);
    return status;
}

static void pair_drop_last(shoal_settings *settings)
{
    struct pair *p = &settings->pairs[--settings->count];
    free(p->name);
    free(p->value);
}

shoal_status shoal_settings_set(shoal_settings *settings, const char *name, const char *value,
                                shoal_error *error)
{
    sh_err err;
    if (settings == NULL || name == NULL || value == NULL)
        return sh_lib_result(sh_err_set(&err, SH_ERR_INPUT, "a setting has a name and a value"),
                             &err, error);
    settings->pairs = sh_realloc_array(settings->pairs, settings->count + 1,
                                       sizeof(*settings->pairs));
    settings->pairs[settings->count++] = (struct pair){sh_strdup(name), sh_strdup(value)};
    sh_status status = check(settings, &err);
    if (status != SH_OK) pair_drop_last(settings);
    return sh_lib_result(status, &err, error);
}

shoal_status shoal_settings_use_environment(shoal_settings *settings, shoal_error *error)
{
    sh_err err;
    bool before = settings->environment;
    settings->environment = true;
    sh_status status = check(settings, &err);
    if (status != SH_OK) settings->environment = before;
    return sh_lib_result(status, &err, error);
}

/* Nothing is downloaded: that takes long, and what it shows is made for a terminal. */
sh_status sh_lib_args_init(sh_lib_args *args, const shoal_settings *settings, sh_err *err)
{
    static const shoal_settings of_environment = {.environment = true};
    static char *no_line[] = {NULL};
    memset(args, 0, sizeof(*args));
    args->options = sh_options_create(&sh_option_rows, &args->settings);
    args->args = (sh_command_args){
        .settings = &args->settings, .options = args->options, .line = no_line};
    if (settings == NULL) settings = &of_environment;
    args->environment = settings->environment;
    sh_status status = parse(settings, args->options, err);
    args->settings.offline = true;
    return status;
}

sh_status sh_lib_args_find_model(sh_lib_args *args, sh_err *err)
{
    if (args->settings.model == NULL)
        return sh_err_set(err, SH_ERR_INPUT, "the setting 'model' is missing");
    sh_status status = sh_model_find(&args->settings, &args->model, err);
    if (status == SH_OK) args->settings.model = args->model;
    return status;
}

/* Rank 0 may have inherited a socket that listens already, from whatever started it. It stays open,
 * for another group after this one. */
static sh_status listener_share(sh_settings *s, sh_err *err)
{
    int fd = (int)s->coordinator_fd, listens = 0;
    socklen_t len = sizeof(listens);
    if (fd < 0) return SH_OK;
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &len) != 0 || listens == 0)
        return sh_err_set(err, SH_ERR_INPUT, "coordinator-fd: %d is not a listening socket", fd);
    s->coordinator_fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    return s->coordinator_fd < 0 ? sh_err_sys(err, "coordinator-fd") : SH_OK;
}

sh_status sh_lib_args_find_place(sh_lib_args *args, sh_err *err)
{
    sh_status status = SH_OK;
    if (args->environment)
        status = sh_launcher_settings_adopt(args->options, &args->settings, false, err);
    return status == SH_OK ? listener_share(&args->settings, err) : status;
}

void sh_lib_args_reset(sh_lib_args *args)
{
    sh_options_free(args->options);
    free(args->model);
}
