/* shoal fingerprint: describes this host as JSON, for `hosts detect` and `doctor`. A model that is
 * not found is part of the answer, not an error. */
#include "cluster/fingerprint.h"
#include "base/system.h"

#include "cmd/command.h"
#include "cmd/support/model_find.h"
#include "kernels/cpu/cpu.h"

#include <stdio.h>
#include <stdlib.h>

static int fingerprint_run(const sh_command_args *args)
{
    const sh_settings *s = args->settings;
    const sh_cpu_level *level = NULL;
    sh_err err, model_err;
    char *program = NULL, *model = NULL;
    if (sh_cpu_level_find(NULL, &level, &err) != SH_OK) return sh_command_fail(&err);
    if (sh_program_path(&program, &err) != SH_OK) return sh_command_fail(&err);
    bool fault = s->model != NULL && sh_model_find(s, &model, &model_err) != SH_OK;
    cJSON *top = sh_fingerprint_gather(&(sh_fingerprint_opts){
        .program = program,
        .cpu_level = level->name,
        .model = model,
        .model_fault = fault ? model_err.text : NULL,
        .listen = s->listen,
    });
    char *text = cJSON_Print(top);
    puts(text);
    cJSON_free(text);
    cJSON_Delete(top);
    free(program);
    free(model);
    return SH_EXIT_OK;
}

const sh_command sh_command_fingerprint = {
    SH_COMMAND_NAMED(fingerprint),
    .summary = "print a description of this host as JSON",
    .details = "System, CPU, memory, networks, RDMA devices and limits; with --model the hash of "
               "the model.",
    .run = fingerprint_run,
};
