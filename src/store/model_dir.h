/* model_dir.h - the model folders in a folder: NAME, or ORG/NAME below it.
 *
 * A model folder has a config.json. Links are followed; hidden names are not looked at.
 *
 * Threads: pure functions over the file system. */
#ifndef SH_STORE_MODEL_DIR_H
#define SH_STORE_MODEL_DIR_H

#include "base/status.h"

#include <stddef.h>

typedef struct {
    char **names; /* relative to the folder, sorted */
    size_t count;
} sh_model_dir;

/* More names than SH_MODEL_DIR_MAX are an error. */
enum { SH_MODEL_DIR_MAX = 1000 };
SH_MUST_CHECK sh_status sh_model_dir_read(const char *dir, sh_model_dir *out, sh_err *err);
void sh_model_dir_reset(sh_model_dir *found);

#endif
