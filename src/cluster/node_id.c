#include "cluster/node_id.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include "cluster/state_dir.h"
#include "net/cluster_token.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_MAX = 256 };

void sh_node_id_format(const uint8_t id[SH_NODE_ID_LEN], char out[SH_NODE_ID_TEXT_LEN + 1])
{
    for (int i = 0; i < SH_NODE_ID_LEN; i++) snprintf(out + 2 * i, 3, "%02x", id[i]);
}

static bool id_parse(sh_str text, uint8_t out[SH_NODE_ID_LEN])
{
    char copy[SH_NODE_ID_TEXT_LEN + 1] = "";
    if (text.len != SH_NODE_ID_TEXT_LEN) return false;
    memcpy(copy, text.ptr, text.len);
    if (strspn(copy, "0123456789abcdef") != SH_NODE_ID_TEXT_LEN) return false;
    for (int i = 0; i < SH_NODE_ID_LEN; i++) {
        unsigned byte = 0;
        if (sscanf(copy + 2 * i, "%2x", &byte) != 1) return false;
        out[i] = (uint8_t)byte;
    }
    return true;
}

sh_status sh_node_id_claim(const char *state_dir, char **file, int *lock, sh_err *err)
{
    char *folder = sh_state_dir_path(state_dir);
    sh_status status = sh_state_dir_make(folder, err);
    for (int i = 1; i <= SH_RANKS_MAX && status == SH_OK; i++) {
        char name[24], held[32];
        snprintf(name, sizeof(name), "node-%d", i);
        snprintf(held, sizeof(held), "%s.lock", name);
        status = sh_state_dir_lock(folder, held, lock, err);
        if (status == SH_OK) {
            *file = sh_path_join(folder, name);
            break;
        }
        if (status == SH_AGAIN) status = SH_OK; /* another process has it */
        if (status == SH_OK && i == SH_RANKS_MAX)
            status = sh_err_set(err, SH_ERR_LIMIT, "%s: %d processes of this machine have joined",
                                folder, SH_RANKS_MAX);
    }
    free(folder);
    return status;
}

sh_status sh_node_id_renew(const char *file, uint8_t out[SH_NODE_ID_LEN], sh_err *err)
{
    char text[SH_NODE_ID_TEXT_LEN + 2];
    sh_random(out, SH_NODE_ID_LEN);
    sh_node_id_format(out, text);
    strcat(text, "\n");
    return sh_file_write_private(file, text, strlen(text), err);
}

sh_status sh_node_id_read(const char *file, uint8_t out[SH_NODE_ID_LEN], sh_err *err)
{
    sh_buf text = {0};
    sh_status status = sh_file_exists(file)
                           ? sh_file_read_own(file, SH_OTHERS_WRITE, FILE_MAX, &text, err)
                           : SH_ERR_NOT_FOUND;
    bool good = status == SH_OK && id_parse(sh_str_trim(sh_buf_str(&text)), out);
    sh_buf_reset(&text);
    if (good || (status != SH_OK && status != SH_ERR_NOT_FOUND)) return status;
    if (status == SH_OK) SH_LOGW("%s holds no node id; it gets a new one", file);
    return sh_node_id_renew(file, out, err);
}
