/* tree.h - walks the files below a folder.
 *
 * Threads: pure functions over the file system. */
#ifndef SH_STORE_TREE_H
#define SH_STORE_TREE_H

#include "base/status.h"

#include <sys/stat.h>

/* Called for each entry, a folder after what is in it. Links are not followed. */
typedef sh_status (*sh_tree_fn)(void *ctx, const char *path, const struct stat *st, sh_err *err);

/* Everything below `path`, and the folder itself last. A folder that does not exist is empty. */
SH_MUST_CHECK sh_status sh_tree_walk(const char *path, sh_tree_fn fn, void *ctx, sh_err *err);

/* Removes a folder and everything in it. */
SH_MUST_CHECK sh_status sh_tree_remove(const char *path, sh_err *err);

#endif
