/* Several questions at once to a running server, each on a thread of its own.
 *
 *     ./client http://127.0.0.1:8100 "Once upon a time" "It was a dark night"
 */
#include <pthread.h>
#include <shoal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    shoal_model *model;
    const char *prompt;
    char *text;
    size_t len;
    shoal_reply reply;
    shoal_status status;
    shoal_error err;
} task;

static int collect(void *ctx, shoal_piece_kind kind, const char *text, size_t len)
{
    task *t = ctx;
    if (kind != SHOAL_PIECE_TEXT) return 0;
    char *more = realloc(t->text, t->len + len + 1);
    if (more == NULL) return 1; /* stops the answer */
    memcpy(more + t->len, text, len + 1);
    t->text = more;
    t->len += len;
    return 0;
}

static void *ask(void *arg)
{
    task *t = arg;
    shoal_question question;
    SHOAL_QUESTION_INIT(&question);
    SHOAL_REPLY_INIT(&t->reply);
    question.prompt = t->prompt;
    question.max_tokens = 32;
    question.temperature = 0;
    question.piece = collect;
    question.ctx = t;
    t->status = shoal_model_ask(t->model, &question, &t->reply, &t->err);
    return NULL;
}

static int print(const task *t)
{
    if (t->status != SHOAL_OK) {
        fprintf(stderr, "client: %s\n", t->err.text);
        return 1;
    }
    printf("%s%s\n(%s, %d tokens)\n", t->prompt, t->text == NULL ? "" : t->text, t->reply.finish,
           t->reply.completion_tokens);
    return 0;
}

static int ask_all(shoal_model *model, int count, char **prompts)
{
    enum { MANY = 16 };
    pthread_t threads[MANY];
    task tasks[MANY] = {{0}};
    int failed = 0, started = 0;
    for (; started < count && started < MANY; started++) {
        tasks[started].model = model;
        tasks[started].prompt = prompts[started];
        if (pthread_create(&threads[started], NULL, ask, &tasks[started]) != 0) break;
    }
    for (int i = 0; i < started; i++) {
        pthread_join(threads[i], NULL);
        failed |= print(&tasks[i]);
        free(tasks[i].text);
    }
    return failed || started < count;
}

int main(int argc, char **argv)
{
    shoal_error err;
    shoal_model *model = NULL;
    if (argc < 3) {
        fprintf(stderr, "usage: client URL PROMPT...\n");
        return 2;
    }
    shoal_settings *settings = shoal_settings_new();
    shoal_status status = shoal_settings_set(settings, "url", argv[1], &err);
    if (status == SHOAL_OK) status = shoal_model_open(settings, &model, &err);
    shoal_settings_free(settings);
    if (status != SHOAL_OK) {
        fprintf(stderr, "client: %s\n", err.text);
        return 1;
    }
    int failed = ask_all(model, argc - 2, argv + 2);
    shoal_model_close(model);
    return failed;
}
