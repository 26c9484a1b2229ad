/* shard_journal.h - the record of which windows of a model are on this disk.
 *
 * A journal is text, a line for each window: where it is from, where its bytes are in the data
 * file, and their digest. Lines are only appended, each after its bytes, so what was interrupted is
 * not in it. A later line replaces an earlier one for the same window.
 *
 * Threads: pure functions. */
#ifndef SH_SHARE_SHARD_JOURNAL_H
#define SH_SHARE_SHARD_JOURNAL_H

#include "base/buf.h"
#include "base/str.h"
#include "model/window.h"
#include "net/digest.h"

typedef struct {
    uint32_t file; /* index in the outline */
    sh_window window;
    uint64_t at;                   /* of its first byte in the data file */
    uint64_t stamp;                /* of the outline that rank 0 had then */
    uint8_t digest[SH_DIGEST_LEN]; /* of its bytes */
} sh_shard_record;

void sh_shard_record_write(const sh_shard_record *record, sh_buf *out);

/* Takes the next line off *rest. SH_AGAIN: nothing is left, or not a whole line. SH_ERR_INPUT: it
 * is not a record of a window within a data file of `size` bytes. */
sh_status sh_shard_record_read(sh_str *rest, uint64_t size, sh_shard_record *out);

#endif
