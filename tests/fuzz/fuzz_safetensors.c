/* A hostile .safetensors file: length, header, and what the header claims about the rest. */
#include "model/safetensors.h"

#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    sh_err err = {0};
    sh_arena arena = {0};
    sh_tensor_list list = {0};
    size_t len = 0;
    char text[SH_TENSOR_SHAPE_TEXT_MAX];
    if (size < SH_SAFETENSORS_PREFIX) return 0;
    if (sh_safetensors_header_len(data, size, "fuzz", &len, &err) != SH_OK) return 0;
    sh_str header = {(const char *)data + SH_SAFETENSORS_PREFIX, len};
    if (sh_safetensors_parse(header, size, "fuzz", &arena, &list, &err) == SH_OK) {
        for (size_t i = 0; i < list.count; i++) {
            const sh_stored_tensor *t = &list.tensors[i];
            SH_ASSERT(t->offset >= SH_SAFETENSORS_PREFIX + len && t->offset + t->size <= size);
            SH_ASSERT(sh_tensor_list_find(&list, t->name) == t);
            SH_ASSERT(strlen(sh_tensor_shape_text(t, text)) < sizeof(text));
        }
    } else {
        SH_ASSERT(err.text[0] != '\0');
    }
    sh_arena_reset(&arena);
    return 0;
}
