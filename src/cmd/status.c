/* shoal status: the ranks as recorded in launch.json, and the state that the API reports.
 *
 * launch.json may be left over from a launcher that was killed, so it counts only if that process
 * is still alive. The exit code is meant for scripts: 0 ready, 3 something is not, 1 stopped. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/terminal.h"
#include "cluster/launch.h"
#include "cmd/support/cluster.h"
#include "http/http_client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINKS_SHOWN = 15, GIB = 1 << 30 };

static double number_of(const cJSON *json, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, key);
    return cJSON_IsNumber(item) ? item->valuedouble : 0;
}

/* The API's metrics, as the dashboard shows them; NULL, with the error, when it does not answer. */
static cJSON *api_query(const cJSON *record, const sh_settings *s, sh_err *err)
{
    sh_buf text = {0};
    cJSON *json = NULL;
    if (sh_cluster_call(record, s, "/metrics/snapshot", NULL, &text, err) == SH_OK &&
        sh_json_parse(sh_buf_str(&text), "/metrics/snapshot", &json, err) != SH_OK)
        json = NULL;
    sh_buf_reset(&text);
    return json;
}

static void ranks_print(const cJSON *record)
{
    const cJSON *rank;
    double now = (double)(sh_clock_unix_us() / 1000000);
    bool color = sh_terminal_has_color(STDOUT_FILENO);
    printf("rank  host                  pid      state     for       restarts\n");
    cJSON_ArrayForEach(rank, cJSON_GetObjectItemCaseSensitive(record, "ranks"))
    {
        char time[24];
        snprintf(time, sizeof(time), "%.0f s", now - number_of(rank, "since"));
        const char *is = sh_launch_text(rank, "state");
        sh_hue hue = strcmp(is, "ready") == 0 ? SH_HUE_GREEN : SH_HUE_YELLOW;
        printf("%-4.0f  %-20s  %-7.0f  %s%-8s%s  %-8s  %.0f\n", number_of(rank, "rank"),
               sh_launch_text(rank, "host"), number_of(rank, "pid"), sh_terminal_hue(color, hue),
               is, sh_terminal_hue(color, SH_HUE_NONE), time, number_of(rank, "restarts"));
    }
}

/* Used memory is that of the whole host, since other programs count too. */
static void memory_print(const cJSON *api)
{
    const cJSON *engine = cJSON_GetObjectItemCaseSensitive(api, "engine"), *rank;
    cJSON_ArrayForEach(rank, cJSON_GetObjectItemCaseSensitive(engine, "ranks"))
    {
        const cJSON *memory = cJSON_GetObjectItemCaseSensitive(rank, "memory");
        double total = number_of(memory, "total"), free = number_of(memory, "available");
        printf("memory  rank %.0f: %.1f of %.1f GiB used; weights %.2f, KV cache %.2f\n",
               number_of(rank, "rank"), (total - free) / GIB, total / GIB,
               number_of(memory, "weights") / GIB, number_of(memory, "kv") / GIB);
    }
}

/* How the ranks are connected, as measured when the group formed. */
static void links_print(const cJSON *api)
{
    const cJSON *engine = cJSON_GetObjectItemCaseSensitive(api, "engine"), *link;
    int shown = 0;
    cJSON_ArrayForEach(link, cJSON_GetObjectItemCaseSensitive(engine, "links"))
    {
        if (shown++ == LINKS_SHOWN) {
            printf("      ... (--json has all)\n");
            return;
        }
        const char *device = sh_launch_text(link, "a_device");
        printf("link  %.0f - %.0f  %s%s%s%s%s, %.1f us, %.2f GB/s\n", number_of(link, "a"),
               number_of(link, "b"), sh_launch_text(link, "kind"), device[0] == '\0' ? "" : " ",
               device, device[0] == '\0' ? "" : " - ", sh_launch_text(link, "b_device"),
               number_of(link, "latency_us"), number_of(link, "bandwidth_gb_s"));
    }
}

/* The API runs on the host of rank 0, whatever host this is. */
static void api_print(const cJSON *record, const cJSON *api, const sh_err *err)
{
    const cJSON *first = cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(record, "ranks"), 0);
    char *url = sh_http_url(cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(record, "tls")),
                            sh_launch_text(record, "api_host"), (int)number_of(record, "api_port"),
                            "");
    printf("api   %s on %s: ", url, sh_launch_text(first, "host"));
    free(url);
    if (api == NULL) {
        printf("%s\n", err->text);
        return;
    }
    printf("%s, %.1f tokens/s, %.0f running, queue %.0f of %.0f, %.0f requests, %.0f errors\n",
           sh_launch_text(api, "status"), number_of(api, "avg_tps_60s"),
           number_of(api, "requests_running"), number_of(api, "queue_size"),
           number_of(api, "queue_max"), number_of(api, "total_requests"),
           number_of(api, "error_count"));
}

/* Of a server with several. */
static void models_print(const cJSON *api)
{
    const cJSON *models = cJSON_GetObjectItemCaseSensitive(api, "models"), *model;
    if (cJSON_GetArraySize(models) < 2) return;
    cJSON_ArrayForEach(model, models)
    {
        const char *error = sh_launch_text(model, "error");
        printf("model %s: %s%s, %.0f running, %.0f MiB%s%s\n", sh_launch_text(model, "name"),
               sh_launch_text(model, "state"),
               cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(model, "pinned")) ? ", pinned" : "",
               number_of(model, "running"), number_of(model, "memory") / (1024.0 * 1024.0),
               error[0] == '\0' ? "" : ": ", error);
    }
}

/* Prints the record without the fields kept for `restart`, which may hold secrets. */
static void json_print(cJSON *record, cJSON *api, const sh_err *err)
{
    static const char *const hidden[] = {"line", "environment", "process"};
    sh_process launcher = sh_launch_process(record);
    for (size_t i = 0; i < SH_COUNT_OF(hidden); i++) cJSON_DeleteItemFromObject(record, hidden[i]);
    cJSON_AddNumberToObject(record, "pid", (double)launcher.pid);
    if (api != NULL)
        cJSON_AddItemReferenceToObject(record, "api", api);
    else
        cJSON_AddStringToObject(record, "api_error", err->text);
    char *text = cJSON_Print(record);
    puts(text);
    cJSON_free(text);
}

static int show(cJSON *record, const sh_settings *s)
{
    sh_err err;
    cJSON *api = api_query(record, s, &err);
    sh_process launcher = sh_launch_process(record);
    bool ready = strcmp(sh_launch_text(record, "state"), "ready") == 0;
    bool healthy = api != NULL && (strcmp(sh_launch_text(api, "status"), "healthy") == 0 ||
                                   strcmp(sh_launch_text(api, "status"), "degraded") == 0);
    if (s->json) {
        json_print(record, api, &err);
    } else {
        const char *hosts = sh_launch_text(record, "hostfile");
        printf("%s: %s on %s, process %lld\n", sh_launch_text(record, "state"),
               sh_launch_text(record, "model"), hosts[0] == '\0' ? "this machine" : hosts,
               (long long)launcher.pid);
        ranks_print(record);
        memory_print(api);
        links_print(api);
        api_print(record, api, &err);
        models_print(api);
    }
    cJSON_Delete(api);
    return ready && healthy ? SH_EXIT_OK : SH_EXIT_PEER;
}

static int status_run(const sh_command_args *args)
{
    const sh_settings *s = args->settings;
    char *state = sh_state_dir_path(s->state_dir);
    cJSON *record = NULL;
    sh_err err;
    int code;
    sh_status status = sh_launch_read(state, &record, &err);
    sh_process launcher = sh_launch_process(record);
    if (status == SH_OK && sh_process_alive(&launcher)) {
        code = show(record, s);
    } else if (status == SH_OK || status == SH_ERR_NOT_FOUND) {
        if (s->json)
            printf("{\"state\": \"stopped\"}\n");
        else
            printf("no cluster is running from %s\n", state);
        code = SH_EXIT_FAILED;
    } else {
        code = sh_command_fail(&err);
    }
    cJSON_Delete(record);
    free(state);
    return code;
}

const sh_command sh_command_status = {
    SH_COMMAND_NAMED(status),
    .summary = "show the ranks of the launched cluster and the state of its API",
    .details = "The exit code is 0 when everything is ready, 3 when a rank or the API is not, 1 "
               "when nothing runs.",
    .run = status_run,
};
