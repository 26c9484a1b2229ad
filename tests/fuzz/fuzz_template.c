/* A template with a small fixed conversation: renders to valid UTF-8, twice the same, or fails with
 * an error of one line and leaves the output unchanged, within the limits. */
#include "text/jinja/template.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char vars_text[] =
    "{\"messages\": [{\"role\": \"system\", \"content\": \"Be brief.\"}, {\"role\": \"user\", "
    "\"content\": \"H\\u00fc \\ud83d\\ude42\"}, {\"role\": \"assistant\", \"content\": null, "
    "\"tool_calls\": [{\"function\": {\"name\": \"f\", \"arguments\": {\"a\": 1.0, \"b\": "
    "[12345678901234567890]}}}]}], \"tools\": null, \"n\": 3, \"x\": -1.5e300, \"yes\": true, "
    "\"words\": [\"b\", \"A\", \"\"], \"bos_token\": \"<s>\", \"add_generation_prompt\": true}";

static void must(bool ok)
{
    if (!ok) abort();
}

static const cJSON *vars_get(void)
{
    static cJSON *vars;
    sh_err err;
    if (vars == NULL) must(sh_json_parse(SH_STR(vars_text), "vars", &vars, &err) == SH_OK);
    return vars;
}

static sh_status render(const sh_template *tmpl, sh_buf *out)
{
    sh_template_opts opts = {.steps_max = 100000,
                             .output_max = 1 << 20,
                             .memory_max = 16 << 20,
                             .now_us = 1700000000000000};
    const cJSON *vars = vars_get();
    sh_err err;
    sh_buf_add_text(out, "!");
    sh_status status = sh_template_render(tmpl, &vars, 1, &opts, out, &err);
    must(status == SH_OK || (out->len == 1 && err.text[0] != '\0'));
    must(sh_utf8_valid(out->ptr, out->len) && out->ptr[out->len] == '\0');
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    sh_template *tmpl = NULL;
    sh_buf first = {0}, second = {0};
    sh_err err;
    if (size > 4096) return -1;
    if (sh_template_parse((sh_str){(const char *)data, size}, &tmpl, &err) != SH_OK) return 0;
    must(render(tmpl, &first) == render(tmpl, &second));
    must(sh_str_eq(sh_buf_str(&first), sh_buf_str(&second)));
    sh_buf_reset(&first);
    sh_buf_reset(&second);
    sh_template_free(tmpl);
    return 0;
}
