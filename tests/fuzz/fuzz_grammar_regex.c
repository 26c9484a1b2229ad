#include "grammar_walk.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > 512) return -1;
    sh_grammar_builder *b = sh_grammar_builder_create();
    compile_and_walk(b, sh_expr_regex(b, (sh_str){(const char *)data, size}), data, size);
    sh_grammar_builder_free(b);
    return 0;
}
