/* file.h - whole small files, and checked reads of large ones.
 *
 * Threads: pure functions over the file system. */
#ifndef SH_BASE_FILE_H
#define SH_BASE_FILE_H

#include "base/buf.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* The whole file into *out (which must be empty), at most max_len bytes. The error names the path.
 */
SH_MUST_CHECK sh_status sh_file_read(const char *path, size_t max_len, sh_buf *out, sh_err *err);

/* Everything up to the end of a stream such as stdin, at most max_len bytes. */
SH_MUST_CHECK sh_status sh_fd_read_all(int fd, const char *name, size_t max_len, sh_buf *out,
                                       sh_err *err);

/* Exactly len bytes at offset; a file that is shorter is an error that says so. */
SH_MUST_CHECK sh_status sh_fd_read_at(int fd, const char *path, uint64_t offset, void *data,
                                      size_t len, sh_err *err);

/* Writes a temporary file beside path and renames it: readers see the old file or the new one. */
SH_MUST_CHECK sh_status sh_file_write(const char *path, const void *data, size_t len, sh_err *err);

bool sh_file_exists(const char *path);

/* "dir/name", owned by the caller. */
char *sh_path_join(const char *dir, const char *name);

#endif
