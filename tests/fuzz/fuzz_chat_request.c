/* A chat request of any shape, with a template that uses most of it: renders to valid UTF-8, or
 * fails with an error of one line and leaves the output unchanged. */
#include "text/chat_template.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok)
{
    if (!ok) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static sh_chat_template *chat;
    sh_err err;
    cJSON *request = NULL;
    if (chat == NULL)
        must(sh_chat_template_load(NULL, "tests/data/templates/chat.jinja", &chat, &err) == SH_OK);
    if (size > 4096) return -1;
    if (sh_json_parse((sh_str){(const char *)data, size}, "request", &request, &err) != SH_OK)
        return 0;
    sh_template_opts opts = {.steps_max = 100000, .output_max = 1 << 20, .memory_max = 16 << 20};
    sh_buf out = {0};
    sh_buf_add_text(&out, "!");
    sh_status status = sh_chat_template_render(chat, request, &opts, &out, &err);
    must(status == SH_OK || (out.len == 1 && err.text[0] != '\0'));
    must(out.ptr[0] == '!' && out.ptr[out.len] == '\0' && sh_utf8_valid(out.ptr, out.len));
    sh_buf_reset(&out);
    cJSON_Delete(request);
    return 0;
}
