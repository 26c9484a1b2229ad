/* shoal generate: one answer, streamed as text or printed whole as JSON.
 *
 * Only the answer goes to stdout; reasoning and statistics go to stderr, so that the output can be
 * piped. Sampling is greedy unless flags say otherwise: the same prompt gives the same answer. */
#include "base/json.h"
#include "base/terminal.h"
#include "cmd/support/interrupt.h"
#include "cmd/support/model_client.h"
#include "cmd/support/ranks.h"
#include "cmd/support/shown.h"
#include "cmd/support/step_driver.h"

#include <stdio.h>
#include <unistd.h>

/* [system?, user] */
static cJSON *messages_make(const sh_settings *s)
{
    cJSON *messages = cJSON_CreateArray();
    const char *const roles[2] = {"system", "user"}, *const texts[2] = {s->system, s->chat};
    for (int i = 0; i < 2; i++) {
        if (texts[i] == NULL) continue;
        cJSON *message = cJSON_CreateObject();
        cJSON_AddStringToObject(message, "role", roles[i]);
        cJSON_AddStringToObject(message, "content", texts[i]);
        cJSON_AddItemToArray(messages, message);
    }
    return messages;
}

static double rate(double tokens, double seconds)
{
    return seconds > 0 ? tokens / seconds : 0;
}

static void ids_add(cJSON *json, const sh_reply *reply)
{
    cJSON *ids = cJSON_AddArrayToObject(json, "ids");
    for (size_t i = 0; i < reply->ids.len; i++)
        cJSON_AddItemToArray(ids, cJSON_CreateNumber(reply->ids.ptr[i]));
    cJSON *logprobs = cJSON_AddArrayToObject(json, "logprobs");
    for (size_t i = 0; i < reply->logprob_count; i++)
        cJSON_AddItemToArray(logprobs, cJSON_CreateNumber(reply->logprobs[i]));
}

/* The prompt's rate counts only the tokens that were computed, not those from the prefix cache. */
static void print_json(const sh_reply *reply, const sh_shown *shown, double load_s)
{
    cJSON *json = cJSON_CreateObject(), *calls = sh_shown_calls(shown);
    int computed = reply->prompt_tokens - reply->cached_tokens;
    if (reply->has_text)
        cJSON_AddStringToObject(json, "text", shown->content.len > 0 ? shown->content.ptr : "");
    if (shown->reasoning.len > 0) cJSON_AddStringToObject(json, "reasoning", shown->reasoning.ptr);
    if (calls != NULL) cJSON_AddItemToObject(json, "tool_calls", calls);
    ids_add(json, reply);
    cJSON_AddStringToObject(json, "finish_reason", reply->finish);
    cJSON_AddNumberToObject(json, "prompt_tokens", reply->prompt_tokens);
    cJSON_AddNumberToObject(json, "completion_tokens", reply->completion_tokens);
    cJSON_AddNumberToObject(json, "load_s", load_s);
    cJSON_AddNumberToObject(json, "prompt_s", reply->prompt_s);
    cJSON_AddNumberToObject(json, "completion_s", reply->answer_s);
    cJSON_AddNumberToObject(json, "prompt_tokens_per_s", rate(computed, reply->prompt_s));
    cJSON_AddNumberToObject(json, "completion_tokens_per_s",
                            rate(reply->completion_tokens, reply->answer_s));
    char *out = cJSON_Print(json);
    printf("%s\n", out);
    cJSON_free(out);
    cJSON_Delete(json);
}

/* Without a tokenizer nothing has been streamed: print the ids instead. */
static void print_end(const sh_reply *reply)
{
    if (!reply->has_text)
        for (size_t i = 0; i < reply->ids.len; i++)
            printf("%s%d", i > 0 ? "," : "", reply->ids.ptr[i]);
    printf("\n");
    fflush(stdout);
    fprintf(stderr, "shoal: %d prompt tokens at %.1f tokens/s, %d at %.1f tokens/s, %s\n",
            reply->prompt_tokens, rate(reply->prompt_tokens, reply->prompt_s),
            reply->completion_tokens, rate(reply->completion_tokens, reply->answer_s),
            reply->finish);
}

/* Stops the answer when standard output is closed (`shoal generate ... | head`). */
static void on_event(void *arg, const sh_output_event *event)
{
    sh_shown *shown = arg;
    sh_shown_event(shown, event);
    if (shown->lost) sh_interrupted = 1;
}

/* An answer that was stopped because the reader went away is a success; one stopped by Ctrl-C has
 * its own exit code. */
static int answer(sh_model_client *client, sh_question *q, const sh_settings *s)
{
    sh_shown shown = {.color = sh_terminal_has_color(STDERR_FILENO)};
    sh_reply_handler handler = {.event = on_event, .ctx = &shown, .stop = &sh_interrupted};
    cJSON *messages = s->chat != NULL ? messages_make(s) : NULL;
    sh_reply reply = {0};
    sh_err err;
    q->messages = messages;
    q->text = s->prompt;
    q->ids = s->ids;
    q->details = s->json;
    if (!s->json) {
        shown.content_to = stdout;
        shown.reasoning_to = stderr;
    }
    sh_status status = sh_model_client_ask(client, q, &handler, &reply, &err);
    sh_shown_end(&shown);
    if (status == SH_OK && s->json) print_json(&reply, &shown, sh_model_client_load_s(client));
    if (status == SH_OK && !s->json) print_end(&reply);
    int code = status != SH_OK                      ? sh_command_fail(&err)
               : sh_interrupted != 0 && !shown.lost ? SH_EXIT_INTERRUPTED
                                                    : SH_EXIT_OK;
    sh_reply_reset(&reply);
    sh_shown_reset(&shown);
    cJSON_Delete(messages);
    return code;
}

static int generate_run(const sh_command_args *args)
{
    const sh_settings *s = args->settings;
    sh_model_client *client = NULL;
    sh_question q;
    sh_err err;
    int given = (s->prompt != NULL) + (s->chat != NULL) + (s->ids != NULL);
    if (given != 1) {
        fprintf(stderr, "shoal: generate needs one of --prompt, --chat, --ids\n");
        return SH_EXIT_USAGE;
    }
    if (!sh_model_client_usage(args, "generate")) return SH_EXIT_USAGE;
    if (!sh_model_client_is_remote(args->options) && sh_ranks_must_spawn(args))
        return sh_ranks_spawn(args);
    if (sh_question_init(&q, args, false, &err) != SH_OK) return sh_command_fail(&err);
    int code = SH_EXIT_OK;
    sh_model_client_opts opts = {
        .chat = s->chat != NULL, .slots = 1, .progress = sh_step_driver_progress};
    sh_status status = sh_model_client_open(args, &opts, &client, &err);
    if (status == SH_OK) {
        sh_interrupt_catch();
        code = answer(client, &q, s);
    } else if (status < 0) {
        code = sh_command_fail(&err);
    }
    sh_model_client_close(client);
    sh_question_reset(&q);
    return code;
}

const sh_command sh_command_generate = {
    SH_COMMAND_NAMED(generate),
    .summary = "answer one prompt and exit",
    .details = "Streams the answer to standard output and any reasoning before it to standard "
               "error. With --json the answer is printed whole, with its token ids, their "
               "log-probabilities and timings. With --url a running server answers.",
    .run = generate_run,
};
