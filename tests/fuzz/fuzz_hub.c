/* A hub that sends any bytes: descriptions of models, header lines, and names from a command line.
 * What is taken of a description stays in its folder. */
#include "base/alloc.h"
#include "store/hub.h"
#include "store/listing.h"

#include <stdlib.h>
#include <string.h>

static void check_listing(sh_str text)
{
    sh_listing l;
    sh_err err;
    if (sh_listing_parse(text, "fuzz", &l, &err) != SH_OK) return;
    SH_ASSERT(sh_is_hex(l.commit, SH_COMMIT_LEN));
    SH_ASSERT(l.count >= 2 && strcmp(l.files[l.count - 1].path, "config.json") == 0);
    int64_t bytes = 0;
    for (size_t i = 0; i < l.count; i++) {
        const sh_hub_file *file = &l.files[i];
        size_t len = strlen(file->digest);
        SH_ASSERT(file->path[0] != '/' && strstr(file->path, "..") != file->path);
        SH_ASSERT(strstr(file->path, "/../") == NULL && strchr(file->path, '\\') == NULL);
        SH_ASSERT(file->size >= 0 && (len == 40 || len == 64) && sh_is_hex(file->digest, len));
        bytes += file->size;
    }
    SH_ASSERT(bytes == l.bytes);
    sh_listing_reset(&l);
}

static void check_headers(sh_str text)
{
    sh_hub_reply reply = {.retry_after = -1, .range_first = -1, .range_total = -1};
    sh_str line;
    while (sh_str_cut(&text, '\n', &line)) sh_hub_header(&reply, line);
    SH_ASSERT(reply.retry_after >= -1);
    SH_ASSERT(reply.range_first < 0 || reply.range_first < reply.range_total);
    free(reply.location);
}

static void check_name(sh_str text)
{
    char *name = sh_str_dup(text);
    sh_repo_name parsed;
    if (sh_repo_name_parse(name, &parsed)) {
        char *repo = sh_cache_repo("cache", parsed.id);
        SH_ASSERT(strchr(repo + strlen("cache/"), '/') == NULL && strstr(repo, "..") == NULL);
        SH_ASSERT(sh_revision_is_safe(parsed.revision));
        free(repo);
    }
    free(name);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    sh_str text = {(const char *)data, len};
    check_listing(text);
    check_headers(text);
    check_name(text);
    return 0;
}
