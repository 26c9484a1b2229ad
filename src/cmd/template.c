/* shoal template: prints the prompt that a chat request is rendered to. */
#include "base/file.h"
#include "base/json.h"
#include "cmd/command.h"
#include "text/model_text.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { REQUEST_MAX = 256 << 20 };

/* Noon, local time, of a day such as "2025-01-31". */
static sh_status day_parse(const char *text, int64_t *out_us, sh_err *err)
{
    struct tm day = {.tm_hour = 12, .tm_isdst = -1};
    const char *end = strptime(text, "%Y-%m-%d", &day);
    time_t seconds = end == NULL || *end != '\0' ? -1 : mktime(&day);
    if (seconds < 0)
        return sh_err_set(err, SH_ERR_INPUT, "--date must be a day such as 2025-01-31, not '%s'",
                          text);
    *out_us = (int64_t)seconds * 1000000;
    return SH_OK;
}

/* From the named file; "-" or no argument is standard input. */
static sh_status request_read(const sh_command_args *args, cJSON **out, sh_err *err)
{
    if (args->argc > 0 && strcmp(args->argv[0], "-") != 0)
        return sh_json_load(args->argv[0], REQUEST_MAX, out, err);
    sh_buf text = {0};
    sh_status status = sh_fd_read_all(STDIN_FILENO, "standard input", REQUEST_MAX, &text, err);
    if (status == SH_OK) status = sh_json_parse(sh_buf_str(&text), "standard input", out, err);
    sh_buf_reset(&text);
    return status;
}

/* Only the chat parts of a model folder are loaded: no tokenizer is needed. */
static int template_run(const sh_command_args *args)
{
    const sh_settings *s = args->settings;
    sh_template_opts opts = {0};
    sh_model_text_opts parts = {.parts = SH_MODEL_TEXT_CHAT, .template = s->template};
    sh_model_text *text = NULL;
    cJSON *request = NULL;
    sh_buf out = {0};
    sh_err err;
    if (s->model == NULL && s->template == NULL) {
        fprintf(stderr, "shoal: template needs --model or --template\n");
        return SH_EXIT_USAGE;
    }
    sh_status status = s->date == NULL ? SH_OK : day_parse(s->date, &opts.now_us, &err);
    if (status == SH_OK) status = sh_model_text_open(s->model, &parts, &text, &err);
    if (status == SH_OK) status = request_read(args, &request, &err);
    if (status == SH_OK) status = sh_model_text_render(text, request, &opts, &out, &err);
    if (status == SH_OK) fwrite(out.ptr, 1, out.len, stdout);
    sh_buf_reset(&out);
    cJSON_Delete(request);
    sh_model_text_close(text);
    return status == SH_OK ? SH_EXIT_OK : sh_command_fail(&err);
}

const sh_command sh_command_template = {
    SH_COMMAND_NAMED(template),
    .arguments = "[REQUEST.json]",
    .args_max = 1,
    .summary = "print the prompt that a chat request is rendered to",
    .details =
        "Reads a JSON object from the file, or from standard input: messages and, optionally, "
        "tools, documents, add_generation_prompt (true if absent) and other template variables.",
    .run = template_run,
};
