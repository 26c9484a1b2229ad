/* shoal chat: a conversation at the terminal. Answers stream; Ctrl-C ends the answer and not the
 * program; what was said before is not computed again. */
#include "base/alloc.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/json.h"
#include "cmd/line.h"
#include "cmd/talk.h"
#include "model/family.h"
#include "text/output.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FILE_MAX_LEN = 64 << 20 };

#define DIM "\x1b[2m"
#define PLAIN "\x1b[0m"

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal)
{
    (void)signal;
    interrupted = 1;
}

typedef struct {
    sh_talk talk;
    sh_settings settings; /* a copy that commands may change; the talk looks at it */
    sh_line *line;
    cJSON *messages;
    sh_output_dialect dialect;
    bool color;
    bool quit;
} chat;

/* What one answer prints and keeps. */
typedef struct {
    const chat *c;
    sh_output *output;
    sh_buf content;
    bool reasoning; /* the text on the screen is dim just now */
} reply;

static void set_dim(reply *r, bool dim)
{
    if (r->reasoning == dim) return;
    r->reasoning = dim;
    if (r->c->color) fputs(dim ? DIM : PLAIN, stdout);
    if (!dim) fputs("\n\n", stdout);
}

static void on_output(void *arg, const sh_output_event *event)
{
    reply *r = arg;
    switch (event->kind) {
    case SH_OUTPUT_REASONING: set_dim(r, true); break;
    case SH_OUTPUT_CONTENT:
        set_dim(r, false);
        sh_buf_add_str(&r->content, event->text);
        break;
    case SH_OUTPUT_CALL_BEGIN:
        set_dim(r, false);
        printf("%.*s ", (int)event->name.len, event->name.ptr);
        return;
    case SH_OUTPUT_CALL_ARGS: break;
    case SH_OUTPUT_CALL_END:
    case SH_OUTPUT_CALL_BROKEN: printf("\n"); return;
    }
    fwrite(event->text.ptr, 1, event->text.len, stdout);
    fflush(stdout);
}

static void on_text(void *ctx, sh_str piece)
{
    reply *r = ctx;
    sh_output_push(r->output, piece);
}

static void add_message(cJSON *messages, const char *role, const char *content)
{
    cJSON *message = cJSON_CreateObject();
    cJSON_AddStringToObject(message, "role", role);
    cJSON_AddStringToObject(message, "content", content);
    cJSON_AddItemToArray(messages, message);
}

static void drop_last(cJSON *messages)
{
    int count = cJSON_GetArraySize(messages);
    if (count > 0) cJSON_DeleteItemFromArray(messages, count - 1);
}

static const char *last_role(const chat *c)
{
    int count = cJSON_GetArraySize(c->messages);
    const cJSON *last = count > 0 ? cJSON_GetArrayItem(c->messages, count - 1) : NULL;
    const cJSON *role = cJSON_GetObjectItem(last, "role");
    return cJSON_IsString(role) ? role->valuestring : "";
}

static void print_stats(const chat *c, const sh_talk_answer *a)
{
    double speed = a->answer_s > 0 ? (double)a->ids.len / a->answer_s : 0;
    printf("%s[%zu tokens, %.1f tokens/s; first after %.2f s%s]%s\n\n", c->color ? DIM : "",
           a->ids.len, speed, a->prompt_s,
           a->finish == SH_TALK_STOP     ? ""
           : a->finish == SH_TALK_LENGTH ? "; cut at the longest allowed"
                                         : "; stopped",
           c->color ? PLAIN : "");
    fflush(stdout);
}

/* Answers the messages as they stand. A failure that is the model's or the request's is shown, and
 * the chat goes on; only a lost group ends it. */
static sh_status answer(chat *c, sh_err *err)
{
    sh_ids ids = {0};
    sh_buf prompt = {0};
    sh_talk_answer a = {0};
    cJSON *request = cJSON_CreateObject();
    cJSON_AddItemReferenceToObject(request, "messages", c->messages);
    reply r = {.c = c};
    sh_status status = sh_talk_encode_chat(&c->talk, request, &prompt, &ids, err);
    if (status == SH_OK) {
        sh_output_opts opts = {
            .in_reasoning = sh_output_prompt_opens(&c->dialect, sh_buf_str(&prompt))};
        sh_talk_sink sink = {.text = on_text, .ctx = &r, .special = true, .stop = &interrupted};
        r.output = sh_output_create(&c->dialect, &opts, on_output, &r);
        interrupted = 0;
        status = sh_talk_run(&c->talk, &ids, &sink, &a, err);
        sh_output_finish(r.output);
        sh_output_free(r.output);
        if (r.reasoning && c->color) fputs(PLAIN, stdout);
        printf("\n");
    }
    if (status == SH_OK) {
        add_message(c->messages, "assistant", r.content.ptr != NULL ? r.content.ptr : "");
        print_stats(c, &a);
    }
    cJSON_Delete(request);
    sh_talk_answer_reset(&a);
    sh_buf_reset(&r.content);
    sh_buf_reset(&prompt);
    sh_ids_reset(&ids);
    return status;
}

static void start_anew(chat *c)
{
    cJSON_Delete(c->messages);
    c->messages = cJSON_CreateArray();
    if (c->settings.system != NULL) add_message(c->messages, "system", c->settings.system);
}

static sh_status say(chat *c, const char *text, sh_err *err)
{
    add_message(c->messages, "user", text);
    sh_status status = answer(c, err);
    if (status != SH_OK) drop_last(c->messages);
    return status;
}

static sh_status cmd_new(chat *c, const char *text, sh_err *err)
{
    (void)text;
    (void)err;
    start_anew(c);
    return SH_OK;
}

static sh_status cmd_system(chat *c, const char *text, sh_err *err)
{
    static char *kept;
    (void)err;
    free(kept);
    kept = sh_strdup(text);
    c->settings.system = text[0] == '\0' ? NULL : kept;
    start_anew(c);
    return SH_OK;
}

static sh_status cmd_undo(chat *c, const char *text, sh_err *err)
{
    (void)text;
    (void)err;
    if (strcmp(last_role(c), "assistant") == 0) drop_last(c->messages);
    if (strcmp(last_role(c), "user") == 0) drop_last(c->messages);
    return SH_OK;
}

static sh_status cmd_again(chat *c, const char *text, sh_err *err)
{
    (void)text;
    if (strcmp(last_role(c), "assistant") == 0) drop_last(c->messages);
    if (strcmp(last_role(c), "user") != 0)
        return sh_err_set(err, SH_ERR_INPUT, "nothing was said yet");
    c->talk.seed++;
    return answer(c, err);
}

static sh_status cmd_temperature(chat *c, const char *text, sh_err *err)
{
    double value = 0;
    if (!sh_str_to_double(sh_str_of(text), &value) || value < 0 || value > 100)
        return sh_err_set(err, SH_ERR_INPUT, "/temperature takes a number from 0 to 100");
    c->settings.temperature = value;
    return SH_OK;
}

static sh_status cmd_tokens(chat *c, const char *text, sh_err *err)
{
    int64_t value = 0;
    if (!sh_str_to_int(sh_str_of(text), &value) || value < 1 || value > 1 << 24)
        return sh_err_set(err, SH_ERR_INPUT, "/tokens takes a whole number from 1 on");
    c->settings.max_tokens = value;
    return SH_OK;
}

static sh_status cmd_save(chat *c, const char *text, sh_err *err)
{
    char *json = cJSON_Print(c->messages);
    sh_status status = sh_file_write(text, json, strlen(json), err);
    cJSON_free(json);
    return status;
}

static sh_status cmd_load(chat *c, const char *text, sh_err *err)
{
    cJSON *json = NULL;
    sh_status status = sh_json_load(text, FILE_MAX_LEN, &json, err);
    if (status != SH_OK) return status;
    if (!cJSON_IsArray(json)) {
        cJSON_Delete(json);
        return sh_err_set(err, SH_ERR_INPUT, "%s: must be a list of messages", text);
    }
    cJSON_Delete(c->messages);
    c->messages = json;
    return SH_OK;
}

static sh_status cmd_quit(chat *c, const char *text, sh_err *err)
{
    (void)text;
    (void)err;
    c->quit = true;
    return SH_OK;
}

static sh_status cmd_help(chat *c, const char *text, sh_err *err);

static const struct {
    const char *name;
    const char *argument;
    const char *help;
    sh_status (*run)(chat *c, const char *text, sh_err *err);
} COMMANDS[] = {
    {"/help", "", "show this list", cmd_help},
    {"/new", "", "forget all and start anew", cmd_new},
    {"/system", "TEXT", "start anew with this system message", cmd_system},
    {"/undo", "", "take the last question back", cmd_undo},
    {"/again", "", "another answer to the last question", cmd_again},
    {"/temperature", "T", "how freely to choose; 0 takes the likeliest", cmd_temperature},
    {"/tokens", "N", "longest answer in tokens", cmd_tokens},
    {"/save", "FILE", "write the conversation as JSON", cmd_save},
    {"/load", "FILE", "go on with a conversation", cmd_load},
    {"/quit", "", "leave; so does Ctrl-D", cmd_quit},
};

static sh_status cmd_help(chat *c, const char *text, sh_err *err)
{
    (void)c;
    (void)text;
    (void)err;
    for (size_t i = 0; i < SH_COUNT_OF(COMMANDS); i++)
        printf("  %-12s %-5s  %s\n", COMMANDS[i].name, COMMANDS[i].argument, COMMANDS[i].help);
    printf("Ctrl-C stops an answer. A pasted text may have many lines.\n");
    return SH_OK;
}

static sh_status run_command(chat *c, const char *text, sh_err *err)
{
    size_t len = strcspn(text, " ");
    const char *rest = text + len + strspn(text + len, " ");
    for (size_t i = 0; i < SH_COUNT_OF(COMMANDS); i++) {
        if (strlen(COMMANDS[i].name) != len || strncmp(text, COMMANDS[i].name, len) != 0) continue;
        bool needs = COMMANDS[i].argument[0] != '\0' && COMMANDS[i].run != cmd_system;
        if (needs && rest[0] == '\0')
            return sh_err_set(err, SH_ERR_INPUT, "%s needs %s", COMMANDS[i].name,
                              COMMANDS[i].argument);
        return COMMANDS[i].run(c, rest, err);
    }
    return sh_err_set(err, SH_ERR_INPUT, "%.*s is not known; /help lists what is", (int)len, text);
}

static bool is_fatal(sh_status status)
{
    return status == SH_ERR_PEER || status == SH_ERR_GROUP || status == SH_ERR_TIMEOUT;
}

static sh_status converse(chat *c, sh_err *err)
{
    sh_buf text = {0};
    sh_status status = SH_OK;
    while (!c->quit && !is_fatal(status)) {
        sh_line_result got = sh_line_read(c->line, "> ", &text);
        if (got == SH_LINE_END) break;
        if (got == SH_LINE_INTERRUPT || text.len == 0) continue;
        status = text.ptr[0] == '/' ? run_command(c, text.ptr, err) : say(c, text.ptr, err);
        if (status != SH_OK && !is_fatal(status)) printf("%s\n\n", err->text);
    }
    sh_buf_reset(&text);
    return is_fatal(status) ? status : SH_OK;
}

/* Ranks that a parent started are groups of processes of their own; the one that talks takes the
 * terminal, so that it may read and gets Ctrl-C alone. */
static void take_terminal(void)
{
    if (!isatty(STDIN_FILENO) || tcgetpgrp(STDIN_FILENO) == getpgrp()) return;
    signal(SIGTTOU, SIG_IGN);
    (void)tcsetpgrp(STDIN_FILENO, getpgrp());
}

static sh_status chat_open(chat *c, const sh_command_args *args, sh_err *err)
{
    sh_command_args own = *args;
    c->settings = *args->settings;
    own.settings = &c->settings;
    sh_status status = sh_talk_open(&own, &c->talk, err);
    if (status != SH_OK) return status;
    if (c->talk.template == NULL) {
        status = sh_err_set(err, SH_ERR_NOT_FOUND, "%s has no chat template; --template names one",
                            c->settings.model);
        sh_talk_close(&c->talk);
        return status;
    }
    const sh_config *config = sh_crew_config(c->talk.session.crew);
    c->dialect = sh_output_dialect_detect(sh_chat_template_source(c->talk.template, false),
                                          config->family->model_type);
    status = sh_output_dialect_choose(&c->dialect, c->settings.reasoning_parser,
                                      c->settings.tool_parser, err);
    if (status != SH_OK) {
        sh_talk_close(&c->talk);
        return status;
    }
    c->color = isatty(STDOUT_FILENO);
    c->line = sh_line_create();
    start_anew(c);
    return SH_OK;
}

int sh_cmd_chat(const sh_command_args *args)
{
    sh_err err;
    chat c = {0};
    if (args->settings->model == NULL) {
        fprintf(stderr, "shoal: chat needs --model\n");
        return SH_EXIT_USAGE;
    }
    if (sh_ranks_must_spawn(args)) return sh_ranks_spawn(args);
    struct sigaction action = {.sa_handler = on_interrupt};
    sigaction(SIGINT, &action, NULL);
    sh_status status = chat_open(&c, args, &err);
    if (status == SH_OK) {
        take_terminal();
        if (c.color)
            printf("%s on %d rank%s. /help lists commands, Ctrl-D leaves.\n\n",
                   args->settings->model, sh_crew_size(c.talk.session.crew),
                   sh_crew_size(c.talk.session.crew) == 1 ? "" : "s");
        status = converse(&c, &err);
        sh_talk_close(&c.talk);
        sh_line_free(c.line);
        cJSON_Delete(c.messages);
    }
    return status >= 0 ? SH_EXIT_OK : sh_command_fail(&err);
}
