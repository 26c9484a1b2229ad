/* shoal probe: one side of a timed connection between two hosts, for `shoal hosts detect` and
 * `shoal doctor`, which start both sides over ssh.
 *
 * With --listen it is the server, and runs in the background. Without, it reads lines from stdin
 * and prints one JSON object for each:
 *
 *   ip:port secret more|last   measure a link; `last` also stops the server
 *   ip:port - knock            time a connection to a host that has no probe server
 *   ip:port secret quit        stop the server
 *   ip:port - near             like knock, but once and all such lines at the same time; a file has
 *                              either these lines only, or none */
#include "cluster/probe.h"

#include "base/alloc.h"
#include "base/arena.h"
#include "base/file.h"
#include "base/json.h"
#include "cmd/command.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { INPUT_MAX = 1 << 20, NEIGHBOURS_MAX = 1 << 13 };

/* Forks; true in the child, which is in its own session and has closed the standard descriptors:
 * the ssh that started this command waits for them to close, and must not wait for the server. */
static bool go_to_background(void)
{
    if (fork() != 0) return false;
    setsid();
    int null = open("/dev/null", O_RDWR);
    for (int fd = 0; null >= 0 && fd < 3; fd++) dup2(null, fd);
    return true;
}

/* Port and secret are printed before the fork, so that the caller has them when this command, the
 * parent, exits. */
static int serve(const sh_settings *s)
{
    sh_probe_server *server;
    sh_err err;
    if (sh_probe_server_open(s->listen, &server, &err) != SH_OK) return sh_command_fail(&err);
    sh_buf text = {0};
    sh_probe_server_describe(server, &text);
    fwrite(text.ptr, 1, text.len, stdout);
    fflush(stdout);
    sh_buf_reset(&text);
    if (go_to_background()) sh_probe_server_run(server, s->seconds * 1000, s->seconds * 1000);
    sh_probe_server_close(server);
    return SH_EXIT_OK;
}

/* A line of the output. */
static void print_result(const char *address, const sh_probe_result *result, const char *fault)
{
    cJSON *item = cJSON_CreateObject();
    cJSON_AddStringToObject(item, "address", address);
    if (fault == NULL) {
        cJSON_AddNumberToObject(item, "rtt_us", result->rtt_us);
        cJSON_AddNumberToObject(item, "gbit_s", result->gbit_s);
    } else {
        cJSON_AddStringToObject(item, "fault", fault);
    }
    char *text = cJSON_PrintUnformatted(item);
    puts(text);
    fflush(stdout);
    cJSON_free(text);
    cJSON_Delete(item);
}

static void measure(const char *address, const char *secret, sh_str how)
{
    sh_probe_result result = {0};
    sh_err err;
    sh_status status;
    if (sh_str_is(how, "knock"))
        status = sh_probe_knock(address, &result.rtt_us, &err);
    else if (sh_str_is(how, "quit"))
        status = sh_probe_quit(address, secret, &err);
    else
        status = sh_probe_measure(address, secret, sh_str_is(how, "last"), &result, &err);
    print_result(address, &result, status == SH_OK ? NULL : err.text);
}

static void find_neighbours(sh_str rest)
{
    const char **addresses = sh_alloc_array(NEIGHBOURS_MAX, sizeof(*addresses));
    double *rtt_us = sh_alloc_array(NEIGHBOURS_MAX, sizeof(*rtt_us));
    sh_arena arena = {0};
    sh_str line, address;
    int count = 0;
    while (count < NEIGHBOURS_MAX && sh_str_cut(&rest, '\n', &line))
        if (sh_str_cut(&line, ' ', &address))
            addresses[count++] = sh_arena_str(&arena, address).ptr;
    sh_probe_knock_all(addresses, count, rtt_us);
    for (int i = 0; i < count; i++)
        print_result(addresses[i], &(sh_probe_result){.rtt_us = rtt_us[i]},
                     rtt_us[i] < 0 ? "no answer" : NULL);
    sh_arena_reset(&arena);
    free(addresses);
    free(rtt_us);
}

static int measure_all(void)
{
    sh_buf input = {0};
    sh_err err;
    if (sh_fd_read_all(STDIN_FILENO, "stdin", INPUT_MAX, &input, &err) != SH_OK)
        return sh_command_fail(&err);
    sh_str rest = sh_buf_str(&input), line;
    if (sh_str_ends(sh_str_trim(rest), SH_STR(" near"))) {
        find_neighbours(rest);
        rest = SH_STR("");
    }
    while (sh_str_cut(&rest, '\n', &line)) {
        sh_str address, secret;
        if (!sh_str_cut(&line, ' ', &address) || !sh_str_cut(&line, ' ', &secret)) continue;
        char *at = sh_str_dup(address), *key = sh_str_dup(secret);
        measure(at, key, line);
        free(at);
        free(key);
    }
    sh_buf_reset(&input);
    return SH_EXIT_OK;
}

static int probe_run(const sh_command_args *args)
{
    return args->settings->listen != NULL ? serve(args->settings) : measure_all();
}

const sh_command sh_command_probe = {
    SH_COMMAND_NAMED(probe),
    .summary = "run one end of a timed connection, for detect and doctor",
    .details = "With --listen IP,... it prints ports and a secret and answers from the background. "
               "Without, it reads lines `ip:port secret more|last` and prints what it measured.",
    .run = probe_run,
};
