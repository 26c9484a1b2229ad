/* lib_internal.h - shared by the files of the library; see include/shoal.h.
 *
 * The library is a thin layer: settings become the same sh_command_args that commands get, and
 * everything after that is the code of the commands. What the library adds is checked arguments,
 * since its callers are not ours.
 *
 * Threads: pure functions, and memory that belongs to the caller. */
#ifndef SH_LIB_LIB_INTERNAL_H
#define SH_LIB_LIB_INTERNAL_H

#include "cmd/command.h"
#include "shoal.h"

/* What commands get, made from settings. Must not move: the parts point to each other. */
typedef struct {
    sh_settings settings;
    sh_options *options;
    char *model;      /* the folder that settings.model points to */
    bool environment; /* settings come from there, too */
    sh_command_args args;
} sh_lib_args;

/* settings == NULL: those of the environment. Free with sh_lib_args_reset, also after an error. */
SH_MUST_CHECK sh_status sh_lib_args_init(sh_lib_args *args, const shoal_settings *settings,
                                         sh_err *err);
/* Turns settings.model into a folder. SH_ERR_INPUT if it is not set. */
SH_MUST_CHECK sh_status sh_lib_args_find_model(sh_lib_args *args, sh_err *err);
/* Completes the place in a group by what mpirun or srun say, if the environment counts. */
SH_MUST_CHECK sh_status sh_lib_args_find_place(sh_lib_args *args, sh_err *err);
void sh_lib_args_reset(sh_lib_args *args);

/* The result of a public call: fills *out, which may be NULL, from err if it failed. */
shoal_status sh_lib_result(sh_status status, const sh_err *err, shoal_error *out);

/* Copies all fields after `size` that both sides know: a caller may have been compiled with another
 * version of the header. */
void sh_lib_copy(void *to, size_t to_size, const void *from, size_t from_size);

#endif
