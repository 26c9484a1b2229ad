/* shoal stop, restart and logs: control of a launched cluster. All they know is its state folder,
 * and the only process that they signal is the launcher, which stops its ranks itself. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/system.h"
#include "cluster/launch.h"
#include "cmd/support/cluster.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { POLL_MS = 50, KILL_EXTRA_MS = 15000, FOLLOW_MS = 200 };

/* Stops the launcher of the record and waits until it has ended. False when it was not running. */
static bool launcher_stop(const cJSON *record)
{
    sh_process launcher = sh_launch_process(record);
    const cJSON *grace = cJSON_GetObjectItemCaseSensitive(record, "grace");
    double grace_ms = cJSON_IsNumber(grace) ? grace->valuedouble * 1000 : 0;
    if (!sh_process_signal(&launcher, SIGTERM)) return false;
    sh_deadline end = sh_deadline_in_ms((int64_t)grace_ms + KILL_EXTRA_MS);
    while (sh_process_alive(&launcher) && !sh_deadline_passed(end)) sh_sleep_ms(POLL_MS);
    /* Killing it is safe: ranks stop on their own when their launcher is gone. */
    sh_process_signal(&launcher, SIGKILL);
    while (sh_process_alive(&launcher)) sh_sleep_ms(POLL_MS);
    return true;
}

/* To stop what does not run is a success: scripts can call it at any time. */
static int stop_run(const sh_command_args *args)
{
    char *state = sh_state_dir_path(args->settings->state_dir);
    cJSON *record = NULL;
    sh_err err;
    sh_status status = sh_launch_read(state, &record, &err);
    if (status == SH_OK && launcher_stop(record))
        printf("stopped\n");
    else if (status == SH_OK || status == SH_ERR_NOT_FOUND)
        printf("no cluster is running from %s\n", state);
    bool bad = status != SH_OK && status != SH_ERR_NOT_FOUND;
    cJSON_Delete(record);
    free(state);
    return bad ? sh_command_fail(&err) : SH_EXIT_OK;
}

const sh_command sh_command_stop = {
    SH_COMMAND_NAMED(stop),
    .summary = "stop the launched cluster",
    .run = stop_run,
};

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

/* Runs the command line of the launch again, from the same folder, in the background. Only returns
 * on failure; what it allocates is not freed then, because the process ends. */
static sh_status launch_again(const cJSON *record, sh_err *err)
{
    const cJSON *line = cJSON_GetObjectItemCaseSensitive(record, "line"), *item;
    const cJSON *folder = cJSON_GetObjectItemCaseSensitive(record, "folder");
    char **argv = sh_alloc_array((size_t)cJSON_GetArraySize(line) + 3, sizeof(*argv));
    int count = 0;
    sh_status status = sh_program_path(&argv[count++], err);
    if (status != SH_OK || !cJSON_IsString(folder) || chdir(folder->valuestring) != 0)
        return status != SH_OK ? status : sh_err_sys(err, "folder of the launch");
    cJSON_ArrayForEach(item, line)
    {
        if (cJSON_IsString(item)) argv[count++] = item->valuestring;
    }
    argv[count++] = "--detach";
    environment_take(record);
    execv(argv[0], argv);
    return sh_err_sys(err, "%s", argv[0]);
}

/* Works for a cluster that has died as well, as long as launch.json is there. */
static int restart_run(const sh_command_args *args)
{
    char *state = sh_state_dir_path(args->settings->state_dir);
    cJSON *record = NULL;
    sh_err err;
    sh_status status = sh_launch_read(state, &record, &err);
    if (status == SH_OK) {
        launcher_stop(record);
        status = launch_again(record, &err);
    }
    cJSON_Delete(record);
    free(state);
    return status == SH_OK ? SH_EXIT_OK : sh_command_fail(&err);
}

const sh_command sh_command_restart = {
    SH_COMMAND_NAMED(restart),
    .summary = "stop the cluster and launch it again, in the background",
    .run = restart_run,
};

/* Seeks to the start of the last `count` lines. Backwards byte by byte is fast enough for a log. */
static void seek_lines(FILE *file, int64_t count)
{
    int64_t seen = 0;
    if (count == 0 || fseek(file, -1, SEEK_END) != 0) return;
    while (ftell(file) > 0) {
        fseek(file, -1, SEEK_CUR);
        int c = fgetc(file);
        if (c == '\n' && ++seen == count) return;
        fseek(file, -1, SEEK_CUR);
    }
}

static void copy_rest(FILE *file)
{
    char bytes[8192];
    for (size_t got; (got = fread(bytes, 1, sizeof(bytes), file)) > 0;)
        fwrite(bytes, 1, got, stdout);
    clearerr(file);
    fflush(stdout);
}

/* Until Ctrl-C. A new launch renames the log and starts another one, with another inode: then that
 * one is followed. */
static void follow(FILE **file, const char *path)
{
    struct stat own, now;
    for (;;) {
        sh_sleep_ms(FOLLOW_MS);
        copy_rest(*file);
        if (fstat(fileno(*file), &own) != 0 || stat(path, &now) != 0 || own.st_ino == now.st_ino)
            continue;
        FILE *next = fopen(path, "r");
        if (next == NULL) continue;
        fclose(*file);
        *file = next;
    }
}

static int logs_run(const sh_command_args *args)
{
    const sh_settings *s = args->settings;
    char *state = sh_state_dir_path(s->state_dir);
    char *path = sh_path_join(state, "launch.log");
    sh_err err;
    sh_status status = sh_state_dir_check(state, &err);
    FILE *file = status == SH_OK ? fopen(path, "r") : NULL;
    if (file == NULL) {
        if (status == SH_OK)
            sh_err_set(&err, SH_ERR_NOT_FOUND, "nothing was launched from %s", state);
    } else {
        seek_lines(file, s->lines);
        copy_rest(file);
        if (s->follow) follow(&file, path);
        fclose(file);
    }
    free(path);
    free(state);
    return file == NULL ? sh_command_fail(&err) : SH_EXIT_OK;
}

const sh_command sh_command_logs = {
    SH_COMMAND_NAMED(logs),
    .summary = "show the log of the launched cluster",
    .run = logs_run,
};
