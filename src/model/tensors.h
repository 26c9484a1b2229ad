/* tensors.h - all tensors of a model folder, whichever files they are in.
 *
 * Opens the files that `model.safetensors.index.json` names, else `model.safetensors`, else every
 * `model*.safetensors`. Headers are checked when the set is opened. Data is read with pread, so
 * that a file that shrinks meanwhile gives an error and not a signal.
 *
 * Threads: read-only once open; reads may run on many threads. */
#ifndef SH_MODEL_TENSORS_H
#define SH_MODEL_TENSORS_H

#include "model/safetensors.h"
#include "model/window.h"

typedef struct sh_tensors sh_tensors;

SH_MUST_CHECK sh_status sh_tensors_open(const char *dir, sh_tensors **out, sh_err *err);

/* The same for a folder that has only the headers of the files (SH_TENSORS_OUTLINE says so): data
 * comes from `source`, which must outlive the set. NULL: from the files. */
#define SH_TENSORS_OUTLINE "only-headers"
SH_MUST_CHECK sh_status sh_tensors_open_from(const char *dir, const sh_window_source *source,
                                             sh_tensors **out, sh_err *err);

/* Opens a single file. */
SH_MUST_CHECK sh_status sh_tensors_open_file(const char *path, sh_tensors **out, sh_err *err);
void sh_tensors_close(sh_tensors *set);

/* All tensors, sorted by name; borrowed. */
const sh_tensor_list *sh_tensors_list(const sh_tensors *set);

/* The tensor, or NULL. `name` is a printf format, since names are put together from parts. */
const sh_stored_tensor *sh_tensors_find(const sh_tensors *set, const char *name, ...)
    SH_PRINTF(2, 3);

/* The file that a tensor is in, for error texts. */
const char *sh_tensors_path(const sh_tensors *set, const sh_stored_tensor *tensor);

/* The folder or file that the set was opened with, for error texts. */
const char *sh_tensors_where(const sh_tensors *set);

/* Bytes of all tensors. */
uint64_t sh_tensors_bytes(const sh_tensors *set);

/* Reads bytes [offset, offset + len) of a tensor; the range must be inside it. */
SH_MUST_CHECK sh_status sh_tensors_read(const sh_tensors *set, const sh_stored_tensor *tensor,
                                        uint64_t offset, void *data, size_t len, sh_err *err);

/* Reads a window of a tensor, whose offset counts from the tensor's first byte; it must be inside.
 */
SH_MUST_CHECK sh_status sh_tensors_read_window(const sh_tensors *set,
                                               const sh_stored_tensor *tensor,
                                               const sh_window *window, void *data, sh_err *err);

#endif
