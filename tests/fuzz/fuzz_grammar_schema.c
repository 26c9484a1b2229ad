#include "grammar_walk.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    cJSON *schema = NULL;
    sh_err err;
    if (size > 1024) return -1;
    if (sh_json_parse((sh_str){(const char *)data, size}, "schema", &schema, &err) != SH_OK)
        return 0;
    sh_grammar_builder *b = sh_grammar_builder_create();
    sh_expr root = sh_expr_json_schema(b, schema, (sh_json_form){.spaces = size % 2 == 0});
    compile_and_walk(b, root, data, size);
    sh_grammar_builder_free(b);
    cJSON_Delete(schema);
    return 0;
}
