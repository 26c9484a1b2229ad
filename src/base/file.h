/* file.h - reading and atomically replacing small files, and bounds-checked reads of large ones.
 *
 * Threads: pure functions over the file system. */
#ifndef SH_BASE_FILE_H
#define SH_BASE_FILE_H

#include "base/buf.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Reads the whole file into *out, which must be empty; more than max_len bytes is an error. The
 * error names the path. */
SH_MUST_CHECK sh_status sh_file_read(const char *path, size_t max_len, sh_buf *out, sh_err *err);

/* The same for a regular file that only this user or root can have written: SH_ERR_AUTH if it is
 * owned by another user, if its mode has any bit of `refused`, or if it is reached through another
 * user's symlink. */
enum { SH_OTHERS_WRITE = 022, SH_OTHERS_TOUCH = 077 };
SH_MUST_CHECK sh_status sh_file_read_own(const char *path, mode_t refused, size_t max_len,
                                         sh_buf *out, sh_err *err);

/* SH_OK if the folder is owned by this user or root and nobody else can write to it;
 * SH_ERR_NOT_FOUND if it does not exist. */
SH_MUST_CHECK sh_status sh_dir_check_own(const char *path, sh_err *err);

/* Creates a folder that only this user can enter, and its parents with the usual mode. SH_OK if it
 * exists. */
SH_MUST_CHECK sh_status sh_dir_make_private(const char *path, sh_err *err);

/* Opens a log for appending; a new one is created readable by its owner only. -1 and errno on
 * failure. */
int sh_file_open_log(const char *path);

/* Reads a stream such as stdin to its end; more than max_len bytes is an error. */
SH_MUST_CHECK sh_status sh_fd_read_all(int fd, const char *name, size_t max_len, sh_buf *out,
                                       sh_err *err);

/* Reads exactly len bytes at offset; a file that ends before that is an error. */
SH_MUST_CHECK sh_status sh_fd_read_at(int fd, const char *path, uint64_t offset, void *data,
                                      size_t len, sh_err *err);

SH_MUST_CHECK sh_status sh_fd_write_at(int fd, const char *path, uint64_t offset, const void *data,
                                       size_t len, sh_err *err);

/* A file being written under a temporary name and renamed into place once complete: readers see
 * the old file or the new one, never a part. An existing path that is not a regular file, such as
 * /dev/null or a pipe, is written in place. Owns its descriptor and names until it is committed or
 * dropped. */
typedef struct {
    char *path;
    char *temp; /* NULL: written in place */
    int fd;
} sh_draft;

/* `end` is the suffix of the temporary name; NULL picks one that no other process uses. Give large
 * files a fixed suffix, so that a leftover of a killed process is replaced by the next run instead
 * of filling the disk. `mode` as for open: 0600 for files that others must not read. */
SH_MUST_CHECK sh_status sh_draft_open(const char *path, const char *end, mode_t mode, sh_draft *out,
                                      sh_err *err);
SH_MUST_CHECK sh_status sh_draft_add(sh_draft *draft, const void *data, size_t len, sh_err *err);
SH_MUST_CHECK sh_status sh_draft_commit(sh_draft *draft, sh_err *err); /* drops it on failure */
void sh_draft_drop(sh_draft *draft);

/* Replaces a whole file in one call; the private variant is readable by its owner only. */
SH_MUST_CHECK sh_status sh_file_write(const char *path, const void *data, size_t len, sh_err *err);
SH_MUST_CHECK sh_status sh_file_write_private(const char *path, const void *data, size_t len,
                                              sh_err *err);

bool sh_file_exists(const char *path);

/* When the contents were last written: Unix time in nanoseconds. */
struct stat;
int64_t sh_stat_written_ns(const struct stat *st);

/* "dir/name", owned by the caller. */
char *sh_path_join(const char *dir, const char *name);

/* The path as seen from "/", owned by the caller. Links are kept: what they point to may change. */
char *sh_path_absolute(const char *path);

#endif
