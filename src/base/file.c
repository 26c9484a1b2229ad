/* Files are input: sizes come from the file system and may change while we read, and a path may
 * lead somewhere else than it did a moment ago. So every read has a bound of its own that does not
 * rely on st_size, and ownership is checked on the open descriptor, not on the name.
 *
 * Writing never truncates a file in place: a draft is written beside it and renamed over it, so a
 * crash or a full disk leaves the old contents. There is no fsync: this protects against a dying
 * process, not against power loss. */
#include "base/file.h"

#include "base/alloc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { READ_STEP = 1 << 16 };

/* Reads at most one step past the limit before it gives up, whatever the size of the stream. */
sh_status sh_fd_read_all(int fd, const char *name, size_t max_len, sh_buf *out, sh_err *err)
{
    for (;;) {
        char *to = sh_buf_reserve(out, READ_STEP);
        ssize_t got = read(fd, to, READ_STEP);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return sh_err_sys(err, "read %s", name);
        out->len += (size_t)got;
        out->ptr[out->len] = '\0';
        if (got == 0) return SH_OK;
        if (out->len > max_len)
            return sh_err_set(err, SH_ERR_LIMIT, "%s: larger than %zu bytes", name, max_len);
    }
}

/* Takes over the descriptor and closes it. st_size only sizes the first allocation: it is 0 for
 * files of /proc, and the file may grow. */
static sh_status read_whole(int fd, const char *path, size_t max_len, sh_buf *out, sh_err *err)
{
    struct stat st;
    sh_buf bytes = {0};
    sh_status status = SH_OK;
    if (fstat(fd, &st) < 0)
        status = sh_err_sys(err, "%s", path);
    else if (S_ISDIR(st.st_mode))
        status = sh_err_set(err, SH_ERR_INPUT, "%s: is a folder, not a file", path);
    else if (st.st_size > 0 && (size_t)st.st_size <= max_len)
        sh_buf_reserve(&bytes, (size_t)st.st_size + READ_STEP);
    if (status == SH_OK) status = sh_fd_read_all(fd, path, max_len, &bytes, err);
    close(fd);
    if (status != SH_OK) {
        sh_buf_reset(&bytes);
        return status;
    }
    *out = bytes;
    return SH_OK;
}

sh_status sh_file_read(const char *path, size_t max_len, sh_buf *out, sh_err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd < 0 ? sh_err_sys(err, "%s", path) : read_whole(fd, path, max_len, out, err);
}

/* Root could change anything anyway, so a file owned by root is as trustworthy as our own. */
static sh_status own_check(const char *path, const struct stat *st, mode_t refused, sh_err *err)
{
    if (st->st_uid != geteuid() && st->st_uid != 0)
        return sh_err_set(err, SH_ERR_AUTH, "%s belongs to another user (uid %ld)", path,
                          (long)st->st_uid);
    if ((st->st_mode & refused & 022) != 0)
        return sh_err_set(err, SH_ERR_AUTH, "others may write to %s; run `chmod go-w` on it", path);
    if ((st->st_mode & refused) != 0)
        return sh_err_set(err, SH_ERR_AUTH, "others may read %s; run `chmod go=` on it", path);
    return SH_OK;
}

sh_status sh_file_read_own(const char *path, mode_t refused, size_t max_len, sh_buf *out,
                           sh_err *err)
{
    struct stat link, st;
    if (lstat(path, &link) < 0) return sh_err_sys(err, "%s", path);
    if (S_ISLNK(link.st_mode)) link.st_mode &= ~(mode_t)0777; /* symlinks have no real mode */
    sh_status status = own_check(path, &link, refused, err);
    if (status != SH_OK) return status;
    /* Check the target after opening it, so that it cannot be swapped between check and use.
     * O_NONBLOCK: opening a FIFO that somebody put there must not hang. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return sh_err_sys(err, "%s", path);
    if (fstat(fd, &st) < 0)
        status = sh_err_sys(err, "%s", path);
    else if (!S_ISREG(st.st_mode))
        status = sh_err_set(err, SH_ERR_INPUT, "%s is not a regular file", path);
    else
        status = own_check(path, &st, refused, err);
    if (status == SH_OK) return read_whole(fd, path, max_len, out, err);
    close(fd);
    return status;
}

sh_status sh_dir_check_own(const char *path, sh_err *err)
{
    struct stat st;
    if (stat(path, &st) < 0) {
        sh_status status = errno == ENOENT ? SH_ERR_NOT_FOUND : SH_ERR_SYSTEM;
        sh_err_sys(err, "%s", path);
        return err->status = status;
    }
    if (!S_ISDIR(st.st_mode)) return sh_err_set(err, SH_ERR_INPUT, "%s is not a folder", path);
    return own_check(path, &st, SH_OTHERS_WRITE, err);
}

sh_status sh_dir_make_private(const char *path, sh_err *err)
{
    char *part = sh_strdup(path);
    bool ok = true;
    for (char *p = part + 1; ok && *p != '\0'; p++) {
        if (*p != '/') continue;
        *p = '\0';
        ok = mkdir(part, 0755) == 0 || errno == EEXIST;
        *p = '/';
    }
    ok = ok && (mkdir(part, 0700) == 0 || errno == EEXIST);
    free(part);
    return ok ? SH_OK : sh_err_sys(err, "cannot create folder %s", path);
}

int sh_file_open_log(const char *path)
{
    return open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

sh_status sh_fd_read_at(int fd, const char *path, uint64_t offset, void *data, size_t len,
                        sh_err *err)
{
    size_t done = 0;
    while (done < len) {
        ssize_t got = pread(fd, (char *)data + done, len - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return sh_err_sys(err, "read %s", path);
        if (got == 0)
            return sh_err_set(err, SH_ERR_INPUT, "%s: ends at byte %llu, expected %llu", path,
                              (unsigned long long)(offset + done),
                              (unsigned long long)(offset + len));
        done += (size_t)got;
    }
    return SH_OK;
}

sh_status sh_fd_write_at(int fd, const char *path, uint64_t offset, const void *data, size_t len,
                         sh_err *err)
{
    size_t done = 0;
    while (done < len) {
        ssize_t put = pwrite(fd, (const char *)data + done, len - done, (off_t)(offset + done));
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return sh_err_sys(err, "%s", path);
        done += (size_t)put;
    }
    return SH_OK;
}

/* A device, pipe or socket. Renaming a file over /dev/null would replace it for the whole system.
 */
static bool is_special(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode);
}

sh_status sh_draft_open(const char *path, const char *end, mode_t mode, sh_draft *out, sh_err *err)
{
    sh_draft draft = {.path = sh_strdup(path)};
    if (is_special(path)) {
        draft.fd = open(path, O_WRONLY | O_CLOEXEC);
    } else {
        /* Unlink and create exclusively: otherwise we would write through a symlink planted there,
         * or keep the wider mode of a leftover. */
        draft.temp = end != NULL ? sh_asprintf("%s%s", path, end)
                                 : sh_asprintf("%s.tmp.%ld", path, (long)getpid());
        unlink(draft.temp);
        draft.fd = open(draft.temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    }
    if (draft.fd < 0) {
        sh_err_sys(err, "write %s", path);
        sh_draft_drop(&draft);
        return err->status;
    }
    *out = draft;
    return SH_OK;
}

sh_status sh_draft_add(sh_draft *draft, const void *data, size_t len, sh_err *err)
{
    const char *from = data;
    while (len > 0) {
        ssize_t put = write(draft->fd, from, len);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return sh_err_sys(err, "write %s", draft->path);
        from += put;
        len -= (size_t)put;
    }
    return SH_OK;
}

sh_status sh_draft_commit(sh_draft *draft, sh_err *err)
{
    sh_status status = SH_OK;
    /* close() can report a delayed write error (NFS, quota): check it before the rename. */
    int closed = close(draft->fd);
    draft->fd = -1;
    if (closed < 0 || (draft->temp != NULL && rename(draft->temp, draft->path) < 0))
        status = sh_err_sys(err, "write %s", draft->path);
    if (status == SH_OK) { /* the name is gone: drop must not unlink it */
        free(draft->temp);
        draft->temp = NULL;
    }
    sh_draft_drop(draft);
    return status;
}

void sh_draft_drop(sh_draft *draft)
{
    if (draft->fd >= 0) close(draft->fd);
    if (draft->temp != NULL) unlink(draft->temp);
    free(draft->temp);
    free(draft->path);
    *draft = (sh_draft){.fd = -1};
}

static sh_status write_whole(const char *path, mode_t mode, const void *data, size_t len,
                             sh_err *err)
{
    sh_draft draft;
    sh_status status = sh_draft_open(path, NULL, mode, &draft, err);
    if (status != SH_OK) return status;
    status = sh_draft_add(&draft, data, len, err);
    if (status == SH_OK) return sh_draft_commit(&draft, err);
    sh_draft_drop(&draft);
    return status;
}

sh_status sh_file_write(const char *path, const void *data, size_t len, sh_err *err)
{
    return write_whole(path, 0644, data, len, err);
}

sh_status sh_file_write_private(const char *path, const void *data, size_t len, sh_err *err)
{
    return write_whole(path, 0600, data, len, err);
}

bool sh_file_exists(const char *path)
{
    return access(path, F_OK) == 0;
}

int64_t sh_stat_written_ns(const struct stat *st)
{
#ifdef __APPLE__
    const struct timespec *at = &st->st_mtimespec;
#else
    const struct timespec *at = &st->st_mtim;
#endif
    return (int64_t)at->tv_sec * 1000000000 + at->tv_nsec;
}

char *sh_path_join(const char *dir, const char *name)
{
    sh_str d = sh_str_of(dir);
    return sh_asprintf("%s%s%s", dir, d.len == 0 || sh_str_ends(d, SH_STR("/")) ? "" : "/", name);
}

char *sh_path_absolute(const char *path)
{
    char *here = path[0] == '/' ? NULL : getcwd(NULL, 0);
    char *whole = here == NULL ? sh_strdup(path) : sh_path_join(here, path);
    free(here);
    return whole;
}
