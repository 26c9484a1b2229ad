/* safetensors_writer.h - writes a .safetensors file from front to end.
 *
 * The tensors are named first, then their bytes follow in that order. The file appears under its
 * name only when it is whole, so a name that exists is a finished file.
 *
 * Threads: one owner. */
#ifndef SH_MODEL_SAFETENSORS_WRITER_H
#define SH_MODEL_SAFETENSORS_WRITER_H

#include "model/safetensors.h"

typedef struct sh_safetensors_writer sh_safetensors_writer;

/* Of each tensor name, type, dims and shape count; names must be UTF-8 and differ. `format` is the
 * metadata entry of that name, or NULL. */
SH_MUST_CHECK sh_status sh_safetensors_writer_open(const char *path, const sh_tensor *tensors,
                                                   size_t count, const char *format,
                                                   sh_safetensors_writer **out, sh_err *err);

/* The next bytes, of one tensor or of several. */
SH_MUST_CHECK sh_status sh_safetensors_writer_add(sh_safetensors_writer *writer, const void *data,
                                                  size_t len, sh_err *err);

/* Checks that every byte came, and gives the file its name. The writer is gone either way. */
SH_MUST_CHECK sh_status sh_safetensors_writer_finish(sh_safetensors_writer *writer, sh_err *err);

/* Drops an unfinished file; takes NULL. */
void sh_safetensors_writer_abort(sh_safetensors_writer *writer);

#endif
