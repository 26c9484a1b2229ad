/* repo_name.h - the name of a model on the hub: ORG/NAME[@REVISION].
 *
 * Names and revisions become parts of paths and of URLs, so only characters that cannot leave a
 * folder are let in. The same holds for the names of files that a server lists.
 *
 * Threads: pure functions. */
#ifndef SH_STORE_REPO_NAME_H
#define SH_STORE_REPO_NAME_H

#include "base/status.h"

#include <stdbool.h>

enum {
    SH_REPO_ID_MAX = 200,
    SH_REVISION_MAX = 128,
    SH_COMMIT_LEN = 40, /* of a commit, and of the SHA-1 of a git blob, in hex */
    SH_SHA256_LEN = 64, /* in hex */
};

typedef struct {
    char id[SH_REPO_ID_MAX];        /* ORG/NAME, or NAME for some old models */
    char revision[SH_REVISION_MAX]; /* a branch, tag or commit; "main" unless given */
} sh_repo_name;

/* False if the text cannot be the name of a model; it may then be a path. */
bool sh_repo_name_parse(const char *text, sh_repo_name *out);

/* Whether the hub could have it: with an organisation. */
bool sh_repo_name_is_full(const sh_repo_name *name);

/* A branch, a tag, a commit, or a reference such as refs/pr/1. */
bool sh_revision_is_safe(const char *text);

/* A relative path of plain names: nothing empty, hidden or "..", no control characters. */
bool sh_file_name_is_safe(const char *path);

/* Exactly len lower-case hexadecimal digits. */
bool sh_is_hex(const char *text, size_t len);

/* The digest of a file as the hub gives it: a SHA-256, or the SHA-1 of a git blob. */
bool sh_is_blob_digest(const char *text);

#endif
