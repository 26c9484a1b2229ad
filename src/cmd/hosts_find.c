/* shoal hosts find: lists the ranks that answer to a token, and writes a hostfile of them. */
#include "base/alloc.h"
#include "base/json.h"
#include "cluster/node_id.h"
#include "cmd/hosts.h"
#include "cmd/support/p2p.h"
#include "discover/search.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIND_MS = 1200 }; /* five queries, so that a lost packet does not matter */

static bool is_near(const sh_addr *addr)
{
    return addr->sa.any.sa_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&addr->sa.v6.sin6_addr);
}

/* The address without its port; "" unless it means the same on every machine. */
static void host_of(const sh_addr *addr, char out[SH_ADDR_HOST_MAX])
{
    char text[SH_ADDR_TEXT_MAX];
    uint16_t port;
    sh_err ignored;
    sh_addr_format(addr, text);
    if (is_near(addr) || sh_addr_split(text, out, &port, &ignored) != SH_OK) out[0] = '\0';
}

static cJSON *addresses_json(const sh_answer_packet *a, int most)
{
    cJSON *list = cJSON_CreateArray();
    for (int i = 0; i < a->addr_count && cJSON_GetArraySize(list) < most; i++) {
        char host[SH_ADDR_HOST_MAX];
        host_of(&a->addr[i], host);
        if (host[0] != '\0') cJSON_AddItemToArray(list, cJSON_CreateString(host));
    }
    return list;
}

static void json_print(const sh_answer_packet *found, int count)
{
    cJSON *list = cJSON_CreateArray();
    for (int i = 0; i < count; i++) {
        const sh_answer_packet *a = &found[i];
        char node[SH_NODE_ID_TEXT_LEN + 1];
        cJSON *one = cJSON_CreateObject();
        sh_node_id_format(a->node, node);
        if (a->rank == SH_RANK_ANY)
            cJSON_AddNullToObject(one, "rank");
        else
            cJSON_AddNumberToObject(one, "rank", a->rank);
        cJSON_AddStringToObject(one, "host", a->host);
        cJSON_AddStringToObject(one, "node", node);
        cJSON_AddStringToObject(one, "model", a->model);
        cJSON_AddNumberToObject(one, "ranks", a->world);
        cJSON_AddNumberToObject(one, "port", a->port);
        cJSON_AddItemToObject(one, "addresses", addresses_json(a, SH_LANES_MAX));
        cJSON_AddItemToArray(list, one);
    }
    char *text = cJSON_Print(list);
    puts(text);
    cJSON_free(text);
    cJSON_Delete(list);
}

static void table_print(const sh_answer_packet *found, int count)
{
    printf("%-4s  %-16s  %-32s  %-5s  %s\n", "rank", "host", "node", "port", "addresses");
    for (int i = 0; i < count; i++) {
        const sh_answer_packet *a = &found[i];
        char node[SH_NODE_ID_TEXT_LEN + 1], rank[16] = "-";
        sh_node_id_format(a->node, node);
        if (a->rank != SH_RANK_ANY) snprintf(rank, sizeof(rank), "%u", a->rank);
        printf("%-4s  %-16s  %-32s  %-5u ", rank, a->host, node, a->port);
        for (int k = 0; k < a->addr_count; k++) {
            char host[SH_ADDR_HOST_MAX];
            host_of(&a->addr[k], host);
            if (host[0] != '\0') printf(" %s", host);
        }
        putchar('\n');
    }
}

/* The ranks that have numbers, each by the address that answered first. */
static sh_status hostfile_write(const sh_answer_packet *found, int count, const sh_settings *s,
                                sh_err *err)
{
    cJSON *list = cJSON_CreateArray();
    sh_hostfile *file = NULL;
    for (int i = 0; i < count; i++) {
        if (found[i].rank == SH_RANK_ANY) continue;
        cJSON *one = cJSON_CreateObject();
        cJSON_AddStringToObject(one, "ssh", found[i].host);
        cJSON_AddItemToObject(one, "ips", addresses_json(&found[i], 1));
        cJSON_AddItemToArray(list, one);
    }
    char *text = cJSON_PrintUnformatted(list);
    sh_status status = sh_hostfile_parse(sh_str_of(text), "hosts find", &file, err);
    if (status == SH_OK) status = sh_hosts_write(file, s, err);
    sh_hostfile_free(file);
    cJSON_free(text);
    cJSON_Delete(list);
    return status;
}

int sh_hosts_find(const sh_command_args *args)
{
    const sh_settings *s = args->settings;
    sh_answer_packet *found = sh_alloc_array(SH_FOUND_MAX, sizeof(*found));
    char *token = NULL;
    int count = 0;
    sh_err err;
    sh_status status = sh_p2p_token(s, args->argc > 1 ? args->argv[1] : NULL, &token, &err);
    if (status == SH_OK)
        status = sh_search(token, SH_SEEK_ALL, sh_deadline_in_ms(FIND_MS), found, &count, &err);
    if (status == SH_ERR_NOT_FOUND && token != NULL)
        sh_err_set(&err, status, "no rank answers to this token on the local network");
    if (status == SH_OK && sh_hosts_out(s) != NULL)
        status = hostfile_write(found, count, s, &err);
    else if (status == SH_OK && s->json)
        json_print(found, count);
    else if (status == SH_OK)
        table_print(found, count);
    free(token);
    free(found);
    return status == SH_OK ? SH_EXIT_OK : sh_command_fail(&err);
}
