/* The list is kept as JSON, because most of it is only passed on: what a hostfile says of a host
 * must come back unchanged when the cluster is launched again. */
#include "cluster/placement.h"

#include "base/alloc.h"
#include "base/file.h"
#include "cluster/state_dir.h"

#include <stdlib.h>
#include <string.h>

static const char FILE_NAME[] = "hosts.json";

static cJSON *hosts_of(const sh_placement *m)
{
    return cJSON_GetObjectItemCaseSensitive(m->json, "hosts");
}

static sh_status member_read(sh_place *member, const cJSON *entry, sh_err *err)
{
    int64_t rank = 0;
    sh_status status = sh_json_int_required(entry, "rank", FILE_NAME, 0, SH_RANKS_MAX - 1, &rank,
                                            err);
    member->rank = (int)rank;
    if (status == SH_OK)
        status = sh_json_string_required(entry, "name", FILE_NAME, &member->name, err);
    if (status == SH_OK) status = sh_json_string(entry, "reach", FILE_NAME, &member->ssh, err);
    if (status == SH_OK)
        status = sh_json_string_required(entry, "folder", FILE_NAME, &member->folder, err);
    if (status == SH_OK)
        status = sh_json_string_required(entry, "program", FILE_NAME, &member->program, err);
    return status;
}

/* Fills the list from the JSON. */
static sh_status members_index(sh_placement *m, sh_err *err)
{
    int64_t next = 0;
    sh_status status = sh_json_int_required(m->json, "next", FILE_NAME, 1, SH_RANKS_MAX, &next,
                                            err);
    if (status == SH_OK) status = sh_json_bool(m->json, "changed", FILE_NAME, &m->changed, err);
    m->next = (int)next;
    m->count = 0;
    const cJSON *list = hosts_of(m), *entry;
    int count = cJSON_GetArraySize(list);
    if (status == SH_OK && (!cJSON_IsArray(list) || count < 1 || count > SH_RANKS_MAX))
        status = sh_err_set(err, SH_ERR_INPUT, "%s: has %d hosts, must have 1 to %d", FILE_NAME,
                            count, SH_RANKS_MAX);
    if (status != SH_OK) return status;
    cJSON_ArrayForEach(entry, list)
    {
        sh_place *member = &m->list[m->count];
        *member = (sh_place){0};
        status = member_read(member, entry, err);
        if (status == SH_OK && sh_placement_find(m, member->rank) >= 0)
            status = sh_err_set(err, SH_ERR_INPUT, "%s: has rank %d twice", FILE_NAME,
                                member->rank);
        if (status != SH_OK) return status;
        m->count++;
    }
    return SH_OK;
}

static void number_set(cJSON *json, const char *key, int value)
{
    cJSON_DeleteItemFromObjectCaseSensitive(json, key);
    cJSON_AddNumberToObject(json, key, value);
}

/* Adds what a launch found out about the host to its entry of a hostfile. */
static void entry_complete(cJSON *entry, const sh_remote_host *host, int rank)
{
    cJSON_AddNumberToObject(entry, "rank", rank);
    cJSON_AddStringToObject(entry, "name", host->name);
    if (host->ssh != NULL) cJSON_AddStringToObject(entry, "reach", host->ssh);
    cJSON_AddStringToObject(entry, "folder", host->state);
    cJSON_AddStringToObject(entry, "program", host->program);
}

static sh_status hostfile_json(const sh_hostfile *file, cJSON **out, sh_err *err)
{
    sh_buf text = {0};
    sh_status status = sh_hostfile_write(file, SH_HOSTFILE_OBJECT, &text, err);
    if (status == SH_OK) status = sh_json_parse(sh_buf_str(&text), FILE_NAME, out, err);
    sh_buf_reset(&text);
    return status;
}

sh_status sh_placement_init(sh_placement *m, const sh_remote_hosts *hosts, sh_err *err)
{
    int rank = 0;
    *m = (sh_placement){0};
    sh_status status = hostfile_json(hosts->file, &m->json, err);
    if (status != SH_OK) return status;
    for (cJSON *entry = hosts_of(m)->child; entry != NULL; entry = entry->next, rank++)
        entry_complete(entry, &hosts->list[hosts->of_rank[rank]], rank);
    number_set(m->json, "next", rank);
    return members_index(m, err);
}

sh_status sh_placement_read(sh_placement *m, const char *state, sh_err *err)
{
    sh_buf text = {0};
    *m = (sh_placement){0};
    sh_status status = sh_state_dir_read(state, FILE_NAME, false, &text, err);
    if (status == SH_OK) status = sh_json_parse(sh_buf_str(&text), FILE_NAME, &m->json, err);
    if (status == SH_OK) status = members_index(m, err);
    sh_buf_reset(&text);
    return status;
}

sh_status sh_placement_write(const sh_placement *m, const char *state, sh_err *err)
{
    char *text = cJSON_Print(m->json);
    sh_status status = sh_state_dir_write(state, FILE_NAME, sh_str_of(text), err);
    cJSON_free(text);
    return status;
}

void sh_placement_reset(sh_placement *m)
{
    cJSON_Delete(m->json);
    *m = (sh_placement){0};
}

static void changed_set(sh_placement *m)
{
    cJSON_DeleteItemFromObjectCaseSensitive(m->json, "changed");
    cJSON_AddTrueToObject(m->json, "changed");
    m->changed = true;
}

sh_status sh_placement_add(sh_placement *m, const sh_remote_hosts *hosts, int idx, sh_err *err)
{
    cJSON *file = NULL;
    if (m->next == SH_RANKS_MAX)
        return sh_err_set(err, SH_ERR_LIMIT,
                          "ranks are numbered up to %d, and each number is used once: `shoal "
                          "restart --cold` numbers them anew",
                          SH_RANKS_MAX - 1);
    sh_status status = hostfile_json(hosts->file, &file, err);
    if (status != SH_OK) return status;
    cJSON *entry = cJSON_DetachItemFromArray(cJSON_GetObjectItemCaseSensitive(file, "hosts"), idx);
    entry_complete(entry, &hosts->list[hosts->of_rank[idx]], m->next);
    cJSON_AddItemToArray(hosts_of(m), entry);
    cJSON_Delete(file);
    number_set(m->json, "next", m->next + 1);
    changed_set(m);
    return members_index(m, err);
}

void sh_placement_remove(sh_placement *m, int idx)
{
    SH_ASSERT(idx > 0 && idx < m->count);
    cJSON_DeleteItemFromArray(hosts_of(m), idx);
    memmove(&m->list[idx], &m->list[idx + 1], (size_t)(m->count - idx - 1) * sizeof(m->list[0]));
    m->count--;
    changed_set(m);
}

int sh_placement_find(const sh_placement *m, int rank)
{
    for (int i = 0; i < m->count; i++)
        if (m->list[i].rank == rank) return i;
    return -1;
}

sh_status sh_placement_hostfile(const sh_placement *m, sh_hostfile **out, sh_err *err)
{
    char *text = cJSON_PrintUnformatted(m->json);
    sh_status status = sh_hostfile_parse(sh_str_of(text), FILE_NAME, out, err);
    cJSON_free(text);
    return status;
}
