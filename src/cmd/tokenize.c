/* shoal tokenize: text to ids and back, for people and for scripts (--jsonl). Output is collected
 * and printed only if everything succeeded. */
#include "base/file.h"
#include "base/json.h"
#include "cmd/command.h"
#include "text/model_text.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

typedef struct {
    const sh_settings *settings;
    sh_model_text *text;
    const sh_tokenizer *tok; /* borrowed from text */
    sh_buf out;
} job;

/* cJSON takes zero-terminated strings, but decoded text may contain zero bytes. */
static void json_text(sh_str text, sh_buf *out)
{
    sh_buf_add_char(out, '"');
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.ptr[i];
        if (c < 0x20 || c == 0x7f)
            sh_buf_addf(out, "\\u%04x", c);
        else if (c == '"' || c == '\\')
            sh_buf_addf(out, "\\%c", c);
        else
            sh_buf_add_char(out, (char)c);
    }
    sh_buf_add_char(out, '"');
}

/* parse_special: text such as "<|im_end|>" becomes the special token, as it would in a template. */
static sh_status encode(job *j, sh_str text, sh_err *err)
{
    sh_ids ids = {0};
    sh_encode_opts opts = {.add_special = j->settings->special, .parse_special = true};
    sh_status status = sh_tokenizer_encode(j->tok, text, opts, &ids, err);
    sh_buf_add_char(&j->out, '[');
    for (size_t i = 0; i < ids.len && status == SH_OK; i++) {
        if (i > 0) sh_buf_add_char(&j->out, ',');
        sh_buf_addf(&j->out, j->settings->pieces ? "[%d," : "%d", ids.ptr[i]);
        if (!j->settings->pieces) continue;
        json_text(sh_tokenizer_piece(j->tok, ids.ptr[i]), &j->out);
        sh_buf_add_char(&j->out, ']');
    }
    sh_buf_add_text(&j->out, "]\n");
    sh_ids_reset(&ids);
    return status;
}

/* NaN stands for an item that is not a number; it fails the range check. */
static sh_status ids_read(const job *j, const cJSON *json, sh_ids *out, sh_err *err)
{
    const cJSON *item;
    if (!cJSON_IsArray(json))
        return sh_err_set(err, SH_ERR_INPUT, "ids must be a JSON list, not %s", sh_json_kind(json));
    cJSON_ArrayForEach(item, json)
    {
        double value = cJSON_IsNumber(item) ? item->valuedouble : NAN;
        if (!(value >= 0 && value < sh_tokenizer_size(j->tok)) || value != floor(value))
            return sh_err_set(err, SH_ERR_INPUT,
                              "an id must be a whole number from 0 to %d, not %g",
                              sh_tokenizer_size(j->tok) - 1, value);
        sh_ids_add(out, (int32_t)value);
    }
    return SH_OK;
}

/* Prints the text as a JSON string with --jsonl, as it is otherwise. */
static sh_status decode(job *j, const cJSON *json, sh_err *err)
{
    sh_ids ids = {0};
    sh_buf text = {0};
    sh_status status = ids_read(j, json, &ids, err);
    if (status == SH_OK)
        sh_tokenizer_decode(j->tok, ids.ptr, ids.len, !j->settings->special, &text);
    if (j->settings->jsonl) {
        json_text(sh_buf_str(&text), &j->out);
        sh_buf_add_char(&j->out, '\n');
    } else {
        sh_buf_add_str(&j->out, sh_buf_str(&text));
    }
    sh_ids_reset(&ids);
    sh_buf_reset(&text);
    return status;
}

/* Converts one text or list of ids; with `json` a text is given as a JSON string. */
static sh_status one(job *j, sh_str input, bool json, const char *where, sh_err *err)
{
    cJSON *value = NULL;
    if (!json && !j->settings->decode) return encode(j, input, err);
    sh_status status = sh_json_parse(input, where, &value, err);
    if (status == SH_OK && j->settings->decode)
        status = decode(j, value, err);
    else if (status == SH_OK && !cJSON_IsString(value))
        status = sh_err_set(err, SH_ERR_INPUT, "%s: must be a string, not %s", where,
                            sh_json_kind(value));
    else if (status == SH_OK)
        status = encode(j, sh_str_of(value->valuestring), err);
    cJSON_Delete(value);
    return status;
}

/* The first bad line ends the run; the error names its number. */
static sh_status lines(job *j, sh_str input, sh_err *err)
{
    sh_str line;
    sh_status status = SH_OK;
    for (int number = 1; status == SH_OK && sh_str_cut(&input, '\n', &line); number++) {
        char where[32];
        snprintf(where, sizeof(where), "line %d", number);
        status = one(j, line, true, where, err);
    }
    return status;
}

static sh_status run(job *j, const sh_command_args *args, sh_err *err)
{
    const sh_settings *settings = j->settings;
    sh_model_text_opts opts = {.parts = SH_MODEL_TEXT_TOKENS, .tokenizer = settings->tokenizer};
    sh_buf input = {0};
    sh_status status = sh_model_text_open(settings->model, &opts, &j->text, err);
    if (status == SH_OK) j->tok = sh_model_text_tokenizer(j->text);
    if (status == SH_OK && args->argc > 0)
        sh_buf_add_text(&input, args->argv[0]);
    else if (status == SH_OK)
        status = sh_fd_read_all(STDIN_FILENO, "standard input", SH_ENCODE_TEXT_MAX, &input, err);
    if (status == SH_OK)
        status = settings->jsonl ? lines(j, sh_buf_str(&input), err)
                                 : one(j, sh_buf_str(&input), false, "ids", err);
    sh_buf_reset(&input);
    return status;
}

static int tokenize_run(const sh_command_args *args)
{
    job j = {.settings = args->settings};
    sh_err err;
    if (args->settings->model == NULL && args->settings->tokenizer == NULL) {
        fprintf(stderr, "shoal: tokenize needs --model DIR or --tokenizer FILE\n");
        return SH_EXIT_USAGE;
    }
    sh_status status = run(&j, args, &err);
    if (status == SH_OK) fwrite(j.out.ptr, 1, j.out.len, stdout);
    sh_model_text_close(j.text);
    sh_buf_reset(&j.out);
    return status == SH_OK ? SH_EXIT_OK : sh_command_fail(&err);
}

const sh_command sh_command_tokenize = {
    SH_COMMAND_NAMED(tokenize),
    .arguments = "[TEXT]",
    .args_max = 1,
    .summary = "convert text to token ids, or ids to text",
    .details = "Reads TEXT, or standard input, and prints the ids as a JSON list. With --decode it "
               "reads such a list and prints the text. With --jsonl each line of standard input is "
               "one JSON string (or list of ids) and yields one line of output. --no-special "
               "leaves special tokens out, in both directions.",
    .run = tokenize_run,
};
