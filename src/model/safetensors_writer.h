/* safetensors_writer.h - writes a .safetensors file sequentially.
 *
 * The tensors are declared first, then their bytes follow in that order. The file appears under its
 * name only when it is complete, so a file that exists is a finished one.
 *
 * Threads: one owner. */
#ifndef SH_MODEL_SAFETENSORS_WRITER_H
#define SH_MODEL_SAFETENSORS_WRITER_H

#include "model/safetensors.h"

typedef struct sh_safetensors_writer sh_safetensors_writer;

/* Uses name, type, dims and shape of each tensor; names must be UTF-8 and distinct. `format` is the
 * value of the metadata entry "format", or NULL for none. */
SH_MUST_CHECK sh_status sh_safetensors_writer_open(const char *path,
                                                   const sh_stored_tensor *tensors, size_t count,
                                                   const char *format, sh_safetensors_writer **out,
                                                   sh_err *err);

/* The next bytes, of one tensor or of several. */
SH_MUST_CHECK sh_status sh_safetensors_writer_add(sh_safetensors_writer *writer, const void *data,
                                                  size_t len, sh_err *err);

/* Asserts that every byte was written, and renames the file to its final name. Frees the writer in
 * either case. */
SH_MUST_CHECK sh_status sh_safetensors_writer_finish(sh_safetensors_writer *writer, sh_err *err);

/* Deletes the unfinished file and frees the writer; accepts NULL. */
void sh_safetensors_writer_abort(sh_safetensors_writer *writer);

#endif
