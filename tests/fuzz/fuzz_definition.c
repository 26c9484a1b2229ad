/* A model in YAML. */
#include "store/definition.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    sh_definition definition;
    sh_err err;
    sh_status status = sh_definition_parse((sh_str){(const char *)data, size}, "f", &definition,
                                           &err);
    if (status == SH_OK && (definition.name == NULL || definition.model == NULL)) abort();
    sh_definition_reset(&definition);
    return 0;
}
