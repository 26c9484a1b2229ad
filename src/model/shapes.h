/* shapes.h - the config.json of well-known models, by name, so that a machine can be benchmarked
 * before anything is downloaded.
 *
 * Threads: constant data. */
#ifndef SH_MODEL_SHAPES_H
#define SH_MODEL_SHAPES_H

#include <stddef.h>

/* The text of its config.json; NULL for an unknown name. */
const char *sh_shape_find(const char *name);

/* All names in one line, for errors and help. */
const char *sh_shape_list(char *text, size_t cap);

#endif
