#include "share/hub_windows.h"

#include "base/alloc.h"
#include "base/log.h"
#include "store/range_reader.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct sh_hub_windows {
    const sh_share_hub *hub;
    sh_repo_name name;
    sh_listing listing; /* the files of the outline, with the same indexes */
    sh_range_reader *reader;
    atomic_flag said; /* that the bytes are not hashed */
    atomic_bool failed;
    atomic_uint_least64_t received;
};

/* What the outline says about the files, in the words of the hub. */
static sh_listing listing_of(const sh_share_outline *outline)
{
    sh_listing listing = {.count = (size_t)outline->count};
    strcpy(listing.commit, outline->origin.revision);
    listing.files = sh_alloc_array(listing.count, sizeof(*listing.files));
    for (size_t i = 0; i < listing.count; i++) {
        const sh_share_file *file = &outline->files[i];
        listing.files[i].path = sh_strdup(file->name);
        listing.files[i].size = (int64_t)file->size;
        strcpy(listing.files[i].digest, file->etag);
    }
    return listing;
}

/* Files that the hub's tools did not write, or that were replaced since. */
static void warn_of_unpinned(const sh_share_outline *outline)
{
    int unpinned = 0;
    for (int i = 0; i < outline->count; i++) unpinned += outline->files[i].etag[0] == '\0';
    if (unpinned > 0)
        SH_LOGW("%d of %d files of rank 0's model are not links into the blobs of the hub's cache, "
                "so that their ETags are not known: they come from rank 0",
                unpinned, outline->count);
}

sh_hub_windows *sh_hub_windows_create(const sh_share_hub *opts, const sh_share_outline *outline,
                                      int stop_fd)
{
    if (outline->origin.id[0] == '\0') {
        SH_LOGW("rank 0's model is not from the hub's cache: the share comes from rank 0");
        return NULL;
    }
    warn_of_unpinned(outline);
    sh_hub_windows *hub = sh_alloc(sizeof(*hub));
    hub->hub = opts;
    hub->name = outline->origin;
    hub->listing = listing_of(outline);
    atomic_flag_clear(&hub->said);
    sh_hub_opts http = {.endpoint = opts->endpoint,
                        .token = opts->token,
                        .name = &hub->name,
                        .timeout_ms = opts->timeout_ms};
    hub->reader = sh_range_reader_create(&http, &hub->listing, stop_fd);
    return hub;
}

void sh_hub_windows_free(sh_hub_windows *hub)
{
    if (hub == NULL) return;
    sh_range_reader_free(hub->reader);
    sh_listing_reset(&hub->listing);
    free(hub);
}

/* The rows of all windows. *count is how many; the list is the caller's. */
static sh_file_range *ranges_of(const sh_share_part *parts, int part_count, size_t *count)
{
    size_t rows = 0, used = 0;
    for (int i = 0; i < part_count; i++) rows += (size_t)parts[i].request.window.rows;
    sh_file_range *ranges = sh_alloc_array(rows, sizeof(*ranges));
    for (int i = 0; i < part_count; i++) {
        const sh_window *w = &parts[i].request.window;
        for (uint64_t row = 0; row < w->rows; row++)
            ranges[used++] = (sh_file_range){.at = (int64_t)(w->offset + row * w->stride),
                                             .len = (int64_t)w->len,
                                             .to = (char *)parts[i].data + row * w->len};
    }
    *count = used;
    return ranges;
}

/* Rank 0 alone can tell whether bytes that are here already are still the same. */
static bool can_read(const sh_hub_windows *hub, const sh_share_part *parts, int count)
{
    if (atomic_load(&hub->failed)) return false;
    for (int i = 0; i < count; i++)
        if (parts[i].request.known) return false;
    return hub->listing.files[parts[0].request.file].digest[0] != '\0';
}

static void came(sh_hub_windows *hub, sh_share_part *part)
{
    size_t len = (size_t)sh_window_bytes(&part->request.window);
    sh_digest(part->data, len, part->digest);
    atomic_fetch_add_explicit(&hub->received, len, memory_order_relaxed);
    if (!atomic_flag_test_and_set(&hub->said))
        SH_LOGI("the share comes from %s, %s at commit %s: pinned by commit and ETag, but not "
                "hashed against the files of rank 0",
                hub->hub->endpoint, hub->name.id, hub->name.revision);
}

bool sh_hub_windows_read(sh_hub_windows *hub, sh_share_part *parts, int count)
{
    size_t rows;
    sh_err err;
    if (!can_read(hub, parts, count)) return false;
    sh_file_range *ranges = ranges_of(parts, count, &rows);
    sh_status status = sh_range_reader_read(hub->reader, parts[0].request.file, ranges, rows, &err);
    free(ranges);
    for (int i = 0; status == SH_OK && i < count; i++) came(hub, &parts[i]);
    /* A group that has ended is not the hub's failure; asking rank 0 says what happened. */
    if (status != SH_OK && status != SH_ERR_CANCELLED && !atomic_exchange(&hub->failed, true))
        SH_LOGW("the hub cannot be used: %s; the rest of the share comes from rank 0", err.text);
    return status == SH_OK;
}

uint64_t sh_hub_windows_received(const sh_hub_windows *hub)
{
    return atomic_load_explicit(&hub->received, memory_order_relaxed);
}
