/* What ranks say to each other about weights, and what is found on the disk; the first byte selects
 * the decoder. What a decoder accepts must be within its bounds and come out of the packer again.
 */
#include "share/shard_journal.h"
#include "share/share_messages.h"

#include <stdlib.h>
#include <string.h>

/* Bytes that the packer fills with zeros may be anything in the input. */
enum { REQUEST_USED = 74, REPLY_USED = 45 };

static void try_request(const uint8_t *data, size_t len)
{
    sh_share_request request;
    uint8_t bytes[SH_SHARE_REQUEST_LEN] = {0}, again[SH_SHARE_REQUEST_LEN];
    sh_err err;
    memcpy(bytes, data, len < sizeof(bytes) ? len : sizeof(bytes));
    if (sh_share_request_unpack(bytes, &request, &err) != SH_OK) return;
    sh_share_request_pack(&request, again);
    SH_ASSERT(memcmp(bytes, again, REQUEST_USED) == 0);
    const uint64_t size = 1 << 20;
    sh_window part;
    if (!sh_window_fits(&request.window, size)) return;
    SH_ASSERT(sh_window_bytes(&request.window) <= size);
    for (uint64_t done = 0; sh_window_next(&request.window, 4096, &done, &part);) {
        SH_ASSERT(sh_window_fits(&part, size) && sh_window_bytes(&part) <= 4096);
        SH_ASSERT(done <= sh_window_bytes(&request.window));
    }
}

static void try_reply(const uint8_t *data, size_t len)
{
    sh_share_reply reply;
    uint8_t bytes[SH_SHARE_REPLY_LEN] = {0}, again[SH_SHARE_REPLY_LEN];
    sh_err err;
    memcpy(bytes, data, len < sizeof(bytes) ? len : sizeof(bytes));
    if (sh_share_reply_unpack(bytes, &reply, &err) != SH_OK) return;
    SH_ASSERT(reply.len <= SH_SHARE_OUTLINE_MAX);
    sh_share_reply_pack(&reply, again);
    SH_ASSERT(memcmp(bytes, again, REPLY_USED) == 0);
}

static void try_outline(const uint8_t *data, size_t len)
{
    sh_share_outline outline;
    sh_arena arena = {0};
    sh_buf again = {0};
    sh_err err;
    if (sh_share_outline_unpack((sh_str){(const char *)data, len}, &arena, &outline, &err) ==
        SH_OK) {
        for (int i = 0; i < outline.count; i++) {
            SH_ASSERT(strchr(outline.files[i].name, '/') == NULL);
            SH_ASSERT(outline.files[i].name[0] != '.');
            SH_ASSERT(sh_share_outline_find(&outline, outline.files[i].name) == i);
        }
        sh_share_outline_pack(&outline, &again);
        SH_ASSERT(again.len == len && memcmp(again.ptr, data, len) == 0);
    }
    sh_buf_reset(&again);
    sh_arena_reset(&arena);
}

static void try_journal(const uint8_t *data, size_t len)
{
    const uint64_t size = 1 << 24;
    sh_str rest = {(const char *)data, len};
    sh_shard_record record, same;
    for (sh_status status; (status = sh_shard_record_read(&rest, size, &record)) != SH_AGAIN;) {
        sh_buf line = {0};
        if (status != SH_OK) continue;
        SH_ASSERT(record.at + sh_window_bytes(&record.window) <= size);
        sh_shard_record_write(&record, &line);
        sh_str text = sh_buf_str(&line);
        SH_ASSERT(sh_shard_record_read(&text, size, &same) == SH_OK && text.len == 0);
        SH_ASSERT(memcmp(&same.window, &record.window, sizeof(same.window)) == 0);
        SH_ASSERT(same.at == record.at && same.stamp == record.stamp);
        sh_buf_reset(&line);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static void (*const decoders[])(const uint8_t *data, size_t len) = {try_request, try_reply,
                                                                        try_outline, try_journal};
    if (len == 0) return 0;
    decoders[data[0] % SH_COUNT_OF(decoders)](data + 1, len - 1);
    return 0;
}
