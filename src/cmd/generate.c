/* shoal generate: one answer, as text that streams or as JSON. */
#include "base/alloc.h"
#include "base/buf.h"
#include "base/json.h"
#include "cmd/talk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Nobody reads any more: there is nobody to compute for. */
static volatile sig_atomic_t output_lost;

static void print_piece(void *ctx, sh_str piece)
{
    (void)ctx;
    fwrite(piece.ptr, 1, piece.len, stdout);
    if (fflush(stdout) != 0) output_lost = 1;
}

static void keep_piece(void *ctx, sh_str piece)
{
    sh_buf_add_str(ctx, piece);
}

/* {messages: [system?, user]} */
static cJSON *chat_request(const sh_settings *s)
{
    cJSON *request = cJSON_CreateObject();
    cJSON *messages = cJSON_AddArrayToObject(request, "messages");
    const char *const roles[2] = {"system", "user"}, *const texts[2] = {s->system, s->chat};
    for (int i = 0; i < 2; i++) {
        if (texts[i] == NULL) continue;
        cJSON *message = cJSON_CreateObject();
        cJSON_AddStringToObject(message, "role", roles[i]);
        cJSON_AddStringToObject(message, "content", texts[i]);
        cJSON_AddItemToArray(messages, message);
    }
    return request;
}

static sh_status make_prompt(const sh_talk *talk, sh_ids *out, sh_err *err)
{
    const sh_settings *s = talk->settings;
    if (s->prompt != NULL) return sh_talk_encode(talk, s->prompt, out, err);
    if (s->chat != NULL) {
        sh_buf prompt = {0};
        cJSON *request = chat_request(s);
        sh_status status = sh_talk_encode_chat(talk, request, &prompt, out, err);
        cJSON_Delete(request);
        sh_buf_reset(&prompt);
        return status;
    }
    int32_t *ids = NULL;
    int count = 0;
    sh_status status = sh_session_ids(s->ids, sh_crew_config(talk->session.crew)->vocab, &ids,
                                      &count, err);
    if (status == SH_OK) sh_ids_add_all(out, ids, (size_t)count);
    free(ids);
    return status;
}

static double rate(double tokens, double seconds)
{
    return seconds > 0 ? tokens / seconds : 0;
}

static void print_json(const sh_talk *talk, const sh_talk_answer *answer, const sh_buf *text)
{
    cJSON *json = cJSON_CreateObject();
    int computed = answer->prompt_tokens - answer->held_tokens;
    if (talk->tokenizer != NULL)
        cJSON_AddStringToObject(json, "text", text->ptr != NULL ? text->ptr : "");
    cJSON *ids = cJSON_AddArrayToObject(json, "ids");
    cJSON *logprobs = cJSON_AddArrayToObject(json, "logprobs");
    for (size_t i = 0; i < answer->ids.len; i++) {
        cJSON_AddItemToArray(ids, cJSON_CreateNumber(answer->ids.ptr[i]));
        cJSON_AddItemToArray(logprobs, cJSON_CreateNumber((double)answer->logprobs[i]));
    }
    cJSON_AddStringToObject(json, "finish_reason", sh_talk_finish_name(answer->finish));
    cJSON_AddNumberToObject(json, "prompt_tokens", answer->prompt_tokens);
    cJSON_AddNumberToObject(json, "completion_tokens", (double)answer->ids.len);
    cJSON_AddNumberToObject(json, "load_s", talk->session.load_s);
    cJSON_AddNumberToObject(json, "prompt_s", answer->prompt_s);
    cJSON_AddNumberToObject(json, "completion_s", answer->answer_s);
    cJSON_AddNumberToObject(json, "prompt_tokens_per_s", rate(computed, answer->prompt_s));
    cJSON_AddNumberToObject(json, "completion_tokens_per_s",
                            rate((double)answer->ids.len, answer->answer_s));
    char *out = cJSON_Print(json);
    printf("%s\n", out);
    cJSON_free(out);
    cJSON_Delete(json);
}

static void print_end(const sh_talk *talk, const sh_talk_answer *answer)
{
    if (talk->tokenizer == NULL)
        for (size_t i = 0; i < answer->ids.len; i++)
            printf("%s%d", i > 0 ? "," : "", answer->ids.ptr[i]);
    printf("\n");
    fflush(stdout);
    fprintf(stderr, "shoal: %d prompt tokens at %.1f tokens/s, %zu at %.1f tokens/s, %s\n",
            answer->prompt_tokens, rate(answer->prompt_tokens, answer->prompt_s), answer->ids.len,
            rate((double)answer->ids.len, answer->answer_s), sh_talk_finish_name(answer->finish));
}

static sh_status answer_once(sh_talk *talk, sh_err *err)
{
    sh_ids prompt = {0};
    sh_buf text = {0};
    sh_talk_answer answer = {0};
    bool json = talk->settings->json;
    sh_talk_sink sink = {
        .text = json ? keep_piece : print_piece, .ctx = &text, .stop = &output_lost};
    sh_status status = make_prompt(talk, &prompt, err);
    if (status == SH_OK) status = sh_talk_run(talk, &prompt, &sink, &answer, err);
    if (status == SH_OK && json) print_json(talk, &answer, &text);
    if (status == SH_OK && !json) print_end(talk, &answer);
    sh_talk_answer_reset(&answer);
    sh_ids_reset(&prompt);
    sh_buf_reset(&text);
    return status;
}

int sh_cmd_generate(const sh_command_args *args)
{
    const sh_settings *s = args->settings;
    sh_talk talk;
    sh_err err;
    int given = (s->prompt != NULL) + (s->chat != NULL) + (s->ids != NULL);
    if (s->model == NULL || given != 1) {
        fprintf(stderr, "shoal: generate needs --model and one of --prompt, --chat, --ids\n");
        return SH_EXIT_USAGE;
    }
    if (sh_ranks_must_spawn(args)) return sh_ranks_spawn(args);
    sh_status status = sh_talk_open(args, &talk, &err);
    if (status == SH_OK) {
        status = answer_once(&talk, &err);
        sh_talk_close(&talk);
    }
    return status >= 0 ? SH_EXIT_OK : sh_command_fail(&err);
}
