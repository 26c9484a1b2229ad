/* range_reader.h - reads parts of files on the hub into memory; no file is kept.
 *
 * A listing says what the files must be: the hub has to answer for the same commit, with the same
 * ETag and size. The bytes themselves cannot be checked, since a digest covers a whole file.
 *
 * Threads: one owner; reads may come from many threads, and each has a connection of its own. */
#ifndef SH_STORE_RANGE_READER_H
#define SH_STORE_RANGE_READER_H

#include "store/hub.h"
#include "store/listing.h"

typedef struct {
    int64_t at; /* offset in the file */
    int64_t len;
    char *to; /* where the bytes go */
} sh_file_range;

typedef struct sh_range_reader sh_range_reader;

/* Both are copied, but not what they point to. Reads end with SH_ERR_CANCELLED once stop_fd (-1:
 * none) is readable. */
sh_range_reader *sh_range_reader_create(const sh_hub_opts *hub, const sh_listing *listing,
                                        int stop_fd);
void sh_range_reader_free(sh_range_reader *reader);

/* Reads ranges of a file of the listing, by its index. They are in the order of their offsets, not
 * empty, within the file, and do not overlap. A short gap between two costs less than another
 * request, so it is fetched too. */
SH_MUST_CHECK sh_status sh_range_reader_read(sh_range_reader *reader, size_t file,
                                             const sh_file_range *ranges, size_t count,
                                             sh_err *err);

#endif
