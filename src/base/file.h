/* file.h - whole small files, and checked reads of large ones.
 *
 * Threads: pure functions over the file system. */
#ifndef SH_BASE_FILE_H
#define SH_BASE_FILE_H

#include "base/buf.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* The whole file into *out (which must be empty), at most max_len bytes. The error names the path.
 */
SH_MUST_CHECK sh_status sh_file_read(const char *path, size_t max_len, sh_buf *out, sh_err *err);

/* The same of a plain file that nobody but this user and root can have written: one that belongs to
 * somebody else, or whose mode has bits of `refused` (and whatever a link of somebody else leads
 * to), is SH_ERR_AUTH. */
enum { SH_OTHERS_WRITE = 022, SH_OTHERS_TOUCH = 077 };
SH_MUST_CHECK sh_status sh_file_read_own(const char *path, mode_t refused, size_t max_len,
                                         sh_buf *out, sh_err *err);

/* SH_OK: the folder is ours, or root's, and others cannot put anything there. SH_ERR_NOT_FOUND when
 * there is none. */
SH_MUST_CHECK sh_status sh_dir_check_own(const char *path, sh_err *err);

/* Opens a log for appending; one that is new can be read by its owner alone. -1 and errno when that
 * fails. */
int sh_log_open(const char *path);

/* Everything up to the end of a stream such as stdin, at most max_len bytes. */
SH_MUST_CHECK sh_status sh_fd_read_all(int fd, const char *name, size_t max_len, sh_buf *out,
                                       sh_err *err);

/* Exactly len bytes at offset; a file that is shorter is an error that says so. */
SH_MUST_CHECK sh_status sh_fd_read_at(int fd, const char *path, uint64_t offset, void *data,
                                      size_t len, sh_err *err);

/* A file in the making, beside the place that it takes once it is whole: readers see the old file
 * or the new one. What is there and is no file, such as /dev/null or a pipe, is written to as it
 * is. Owns its descriptor and names until it is committed or dropped. */
typedef struct {
    char *path;
    char *temp; /* NULL: written in place */
    int fd;
} sh_draft;

/* `end` is put behind the path meanwhile; with NULL it is one that no other process takes. A large
 * file has a fixed one, so that what a killed process left is found and replaced by the next.
 * `mode` as for open: 0600 where others must not read it. */
SH_MUST_CHECK sh_status sh_draft_open(const char *path, const char *end, mode_t mode, sh_draft *out,
                                      sh_err *err);
SH_MUST_CHECK sh_status sh_draft_add(sh_draft *draft, const void *data, size_t len, sh_err *err);
SH_MUST_CHECK sh_status sh_draft_commit(sh_draft *draft, sh_err *err); /* drops it if that fails */
void sh_draft_drop(sh_draft *draft);

/* All of it at once; a private one can be read by its owner alone. */
SH_MUST_CHECK sh_status sh_file_write(const char *path, const void *data, size_t len, sh_err *err);
SH_MUST_CHECK sh_status sh_file_write_private(const char *path, const void *data, size_t len,
                                              sh_err *err);

bool sh_file_exists(const char *path);

/* "dir/name", owned by the caller. */
char *sh_path_join(const char *dir, const char *name);

#endif
