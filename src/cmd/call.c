/* shoal call: sends one request to the API and prints the answer.
 *
 * The API of a launched cluster may listen on the loopback address of another host, so the request
 * is made there, over ssh. It goes directly only if --host or --port was given as a flag, or if no
 * launched cluster runs. */
#include "base/file.h"
#include "cmd/support/api_call.h"
#include "cmd/support/cluster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WAIT_MS = 120000, BODY_MAX = 1 << 30 };

static sh_status call_directly(const sh_settings *s, const char *path, const char *body,
                               sh_buf *out, sh_err *err)
{
    int code = 0;
    sh_status status = sh_api_call(s, NULL, path, body, WAIT_MS, &code, out, err);
    if (status == SH_OK && code >= 400)
        status = sh_err_set(err, SH_ERR_INPUT, "%s: HTTP status %d", path, code);
    return status;
}

static sh_status call(const sh_command_args *args, const char *path, const char *body, sh_buf *out,
                      sh_err *err)
{
    const sh_settings *s = args->settings;
    cJSON *record = NULL;
    sh_status status = sh_cluster_find(args, &record, err);
    if (status == SH_OK)
        status = record == NULL ? call_directly(s, path, body, out, err)
                                : sh_cluster_call(record, s, path, body, out, err);
    cJSON_Delete(record);
    return status;
}

/* The body from the command line; "-" reads standard input. */
static sh_status body_read(const sh_command_args *args, sh_buf *input, const char **out,
                           sh_err *err)
{
    *out = args->argc > 1 ? args->argv[1] : NULL;
    if (*out == NULL || strcmp(*out, "-") != 0) return SH_OK;
    sh_status status = sh_fd_read_all(STDIN_FILENO, "standard input", BODY_MAX, input, err);
    *out = input->ptr;
    return status;
}

/* The body of an answer is printed even when its status is an error: it says what is wrong. */
static int call_run(const sh_command_args *args)
{
    sh_buf out = {0}, input = {0};
    const char *body = NULL;
    sh_err err;
    if (args->argc < 1 || args->argv[0][0] != '/') {
        fprintf(stderr, "shoal: call needs a path, such as /health\n");
        return SH_EXIT_USAGE;
    }
    sh_status status = body_read(args, &input, &body, &err);
    if (status == SH_OK) status = call(args, args->argv[0], body, &out, &err);
    sh_buf_reset(&input);
    fwrite(out.ptr, 1, out.len, stdout);
    if (out.len > 0 && out.ptr[out.len - 1] != '\n') putchar('\n');
    sh_buf_reset(&out);
    return status == SH_OK ? SH_EXIT_OK : sh_command_fail(&err);
}

const sh_command sh_command_call = {
    SH_COMMAND_NAMED(call),
    .arguments = "PATH [JSON|-]",
    .args_max = 2,
    .summary = "query the API: GET a path, or POST a JSON body to it",
    .details =
        "With - the body is read from standard input. Without --host and --port it queries the API "
        "of the launched cluster, wherever that runs, or else the one on this machine.",
    .run = call_run,
};
