/* Asks a model one question and prints the answer while it is written. The model runs in this
 * process, or wherever the environment says:
 *
 *     ./chat models/demo "Hello"
 *     SHOAL_URL=http://127.0.0.1:8100 ./chat "Hello"
 *     shoal launch --hostfile hosts.json -- ./chat models/demo "Hello"
 */
#include <shoal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int show(void *ctx, shoal_piece_kind kind, const char *text, size_t len)
{
    (void)ctx;
    if (kind == SHOAL_PIECE_TEXT) fwrite(text, 1, len, stdout);
    fflush(stdout);
    return 0;
}

/* [{"role": "user", "content": TEXT}] */
static char *messages_of(const char *text)
{
    const char *begin = "[{\"role\": \"user\", \"content\": \"", *end = "\"}]";
    char *json = malloc(strlen(begin) + strlen(text) * 6 + strlen(end) + 1), *to = json;
    if (json == NULL) return NULL;
    to += sprintf(to, "%s", begin);
    for (; *text != '\0'; text++)
        if ((unsigned char)*text < 0x20 || *text == '"' || *text == '\\')
            to += sprintf(to, "\\u%04x", (unsigned)*text);
        else
            *to++ = *text;
    strcpy(to, end);
    return json;
}

static shoal_status ask(shoal_model *model, const char *text, shoal_error *err)
{
    shoal_question question;
    shoal_reply reply;
    char *messages = messages_of(text);
    SHOAL_QUESTION_INIT(&question);
    SHOAL_REPLY_INIT(&reply);
    question.messages = messages;
    question.max_tokens = 64;
    question.piece = show;
    shoal_status status = shoal_model_ask(model, &question, &reply, err);
    free(messages);
    if (status == SHOAL_OK)
        fprintf(stderr, "\n%s after %d tokens; the prompt had %d\n", reply.finish,
                reply.completion_tokens, reply.prompt_tokens);
    return status;
}

int main(int argc, char **argv)
{
    shoal_error err;
    shoal_model *model = NULL;
    if (argc < 2 || argc > 3) {
        fprintf(stderr, "usage: chat [MODEL] TEXT\n");
        return 2;
    }
    shoal_settings *settings = shoal_settings_new();
    shoal_status status = shoal_settings_use_environment(settings, &err);
    if (status == SHOAL_OK && argc == 3)
        status = shoal_settings_set(settings, "model", argv[1], &err);
    if (status == SHOAL_OK) status = shoal_model_open(settings, &model, &err);
    if (status == SHOAL_OK) status = ask(model, argv[argc - 1], &err);
    if (status < 0) fprintf(stderr, "chat: %s\n", err.text);
    shoal_model_close(model);
    shoal_settings_free(settings);
    return status < 0; /* SHOAL_DONE: a rank that has computed for rank 0 */
}
