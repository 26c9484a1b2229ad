/* assets.h - the web pages that are embedded in the program: the files of web/.
 *
 * Threads: constant data. */
#ifndef SH_API_ASSETS_H
#define SH_API_ASSETS_H

#include "base/str.h"

typedef struct {
    const char *path; /* of the URL, such as "/docs" */
    const char *type;
    const char *data;
    const char *end;
} sh_asset;

/* NULL when there is no such path. */
const sh_asset *sh_asset_find(sh_str path);

#endif
