/* shoal stop and logs: control of a launched cluster. All they know is its state folder (or, if
 * that is lost, the list of launches), and the only process that they signal is the launcher, which
 * stops its ranks itself. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/system.h"
#include "cluster/launch.h"
#include "cluster/run_list.h"
#include "cmd/support/cluster.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FOLLOW_MS = 200 };

/* The launcher of a state folder that was removed, or emptied, while the cluster ran. */
static bool lost_stop(const sh_settings *s, const char *state)
{
    sh_process launcher;
    return sh_run_list_find(s->runtime_dir, state, &launcher) &&
           sh_cluster_stop_launcher(&launcher, s->grace * 1000);
}

/* To stop what does not run is a success: scripts can call it at any time. */
static int stop_run(const sh_command_args *args)
{
    char *state = sh_state_dir_path(args->settings->state_dir);
    cJSON *record = NULL;
    sh_err err;
    sh_status status = sh_launch_read(state, &record, &err);
    if (status == SH_OK && sh_cluster_stop(record))
        printf("stopped\n");
    else if ((status == SH_OK || status == SH_ERR_NOT_FOUND) && lost_stop(args->settings, state))
        printf("stopped; its files in %s were gone\n", state);
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
