/* shoal chat: a conversation at the terminal.
 *
 * Answers stream; Ctrl-C stops the answer, not the program. The whole conversation is sent with
 * every message, as with OpenAI's API; the engine's prefix cache makes sure that earlier turns are
 * not computed again. It is kept in OpenAI's form, with reasoning next to the content: how much of
 * it the model sees again is up to its template.
 *
 * A message that fails is taken back, so that the conversation stays one that the model has
 * answered and the user can try again. Only the loss of the ranks ends the program. */
#include "base/alloc.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/terminal.h"
#include "cluster/state_dir.h"
#include "cmd/support/interrupt.h"
#include "cmd/support/line_editor.h"
#include "cmd/support/model_client.h"
#include "cmd/support/ranks.h"
#include "cmd/support/shown.h"
#include "cmd/support/step_driver.h"
#include "engine/bounds.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FILE_MAX_LEN = 64 << 20 };

#define DIM "\x1b[2m"
#define PLAIN "\x1b[0m"

typedef struct {
    sh_model_client *client;
    sh_question question; /* settings that commands can change */
    char *system;         /* NULL: none */
    sh_line_editor *line;
    cJSON *messages;
    bool color;
    bool quit;
} chat;

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

static const char *role_at(const chat *c, int index)
{
    const cJSON *message = index < 0 ? NULL : cJSON_GetArrayItem(c->messages, index);
    const char *role = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(message, "role"));
    return role == NULL ? "" : role;
}

static const char *last_role(const chat *c)
{
    return role_at(c, cJSON_GetArraySize(c->messages) - 1);
}

static void print_stats(const chat *c, const sh_reply *a)
{
    double speed = a->answer_s > 0 ? (double)a->completion_tokens / a->answer_s : 0;
    bool cut = strcmp(a->finish, "length") == 0;
    printf("%s[%d tokens, %.1f tokens/s; first after %.2f s%s]%s\n\n", c->color ? DIM : "",
           a->completion_tokens, speed, a->prompt_s,
           cut                                     ? "; cut at the token limit"
           : strcmp(a->finish, "interrupted") == 0 ? "; stopped"
                                                   : "",
           c->color ? PLAIN : "");
    fflush(stdout);
}

/* Generates an answer to the conversation so far and appends it. */
static sh_status answer(chat *c, sh_err *err)
{
    sh_reply reply = {0};
    sh_shown shown = {.content_to = stdout, .reasoning_to = stdout, .color = c->color};
    sh_reply_handler handler = {.event = sh_shown_event, .ctx = &shown, .stop = &sh_interrupted};
    c->question.messages = c->messages;
    sh_interrupted = 0;
    sh_status status = sh_model_client_ask(c->client, &c->question, &handler, &reply, err);
    sh_interrupted = 0; /* a late Ctrl-C must not stop the next answer */
    sh_shown_end(&shown);
    printf("\n");
    if (status == SH_OK) {
        cJSON_AddItemToArray(c->messages, sh_shown_message(&shown));
        print_stats(c, &reply);
    }
    sh_reply_reset(&reply);
    sh_shown_reset(&shown);
    return status;
}

static void start_over(chat *c)
{
    cJSON_Delete(c->messages);
    c->messages = cJSON_CreateArray();
    if (c->system != NULL) add_message(c->messages, "system", c->system);
}

/* The message is removed again if it could not be answered. */
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
    start_over(c);
    return SH_OK;
}

static sh_status cmd_system(chat *c, const char *text, sh_err *err)
{
    (void)err;
    free(c->system);
    c->system = text[0] == '\0' ? NULL : sh_strdup(text);
    start_over(c);
    return SH_OK;
}

/* Removes the last answer, with tool results and calls, and the message that it answered. */
static sh_status cmd_undo(chat *c, const char *text, sh_err *err)
{
    (void)text;
    (void)err;
    while (strcmp(last_role(c), "assistant") == 0 || strcmp(last_role(c), "tool") == 0)
        drop_last(c->messages);
    if (strcmp(last_role(c), "user") == 0) drop_last(c->messages);
    return SH_OK;
}

/* With another seed, or the answer would be the same. */
static sh_status cmd_again(chat *c, const char *text, sh_err *err)
{
    (void)text;
    if (strcmp(last_role(c), "assistant") == 0) drop_last(c->messages);
    if (strcmp(last_role(c), "user") != 0 && strcmp(last_role(c), "tool") != 0)
        return sh_err_set(err, SH_ERR_INPUT, "there is no message to answer yet");
    c->question.seed++;
    return answer(c, err);
}

/* The first tool call of the last answer that has no result yet, or NULL. Results follow the answer
 * in the order of its calls. */
static const cJSON *pending_call(const chat *c)
{
    int count = cJSON_GetArraySize(c->messages), results = 0;
    while (count > results && strcmp(role_at(c, count - 1 - results), "tool") == 0) results++;
    const cJSON *asked = cJSON_GetArrayItem(c->messages, count - 1 - results);
    return cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(asked, "tool_calls"), results);
}

/* Adds the result of a tool call. The model continues once all calls have one. */
static sh_status cmd_tool(chat *c, const char *text, sh_err *err)
{
    const cJSON *call = pending_call(c);
    if (call == NULL) return sh_err_set(err, SH_ERR_INPUT, "no tool call is waiting for a result");
    const char *id = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(call, "id"));
    add_message(c->messages, "tool", text);
    if (id != NULL)
        cJSON_AddStringToObject(
            cJSON_GetArrayItem(c->messages, cJSON_GetArraySize(c->messages) - 1), "tool_call_id",
            id);
    if (pending_call(c) != NULL) return SH_OK;
    sh_status status = answer(c, err);
    if (status != SH_OK) drop_last(c->messages);
    return status;
}

static sh_status cmd_temperature(chat *c, const char *text, sh_err *err)
{
    double value = 0;
    if (!sh_str_to_double(sh_str_of(text), &value) || value < SH_MIN_OF(SH_BOUNDS_TEMPERATURE) ||
        value > SH_MAX_OF(SH_BOUNDS_TEMPERATURE))
        return sh_err_set(err, SH_ERR_INPUT, "/temperature takes a number from %d to %d",
                          SH_MIN_OF(SH_BOUNDS_TEMPERATURE), SH_MAX_OF(SH_BOUNDS_TEMPERATURE));
    c->question.temperature = value;
    return SH_OK;
}

static sh_status cmd_tokens(chat *c, const char *text, sh_err *err)
{
    int64_t value = 0;
    if (!sh_str_to_int(sh_str_of(text), &value) || value < 1 || value > 1 << 24)
        return sh_err_set(err, SH_ERR_INPUT, "/tokens takes a whole number, at least 1");
    c->question.max_tokens = value;
    return SH_OK;
}

static sh_status cmd_save(chat *c, const char *text, sh_err *err)
{
    char *json = cJSON_Print(c->messages);
    sh_status status = sh_file_write(text, json, strlen(json), err);
    cJSON_free(json);
    return status;
}

/* The messages are only checked when they are sent: the server knows what it accepts. */
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
    {"/new", "", "start a new conversation", cmd_new},
    {"/system", "TEXT", "start over with this system message", cmd_system},
    {"/undo", "", "take back the last message", cmd_undo},
    {"/again", "", "answer the last message again", cmd_again},
    {"/tool", "TEXT", "give the result of a tool call", cmd_tool},
    {"/temperature", "T", "set the sampling temperature; 0: always the likeliest token",
     cmd_temperature},
    {"/tokens", "N", "set the longest answer in tokens", cmd_tokens},
    {"/save", "FILE", "write the conversation as JSON", cmd_save},
    {"/load", "FILE", "continue a saved conversation", cmd_load},
    {"/exit", "", "leave, like Ctrl-D", cmd_quit},
    {"/quit", "", "the same", cmd_quit},
};

static sh_status cmd_help(chat *c, const char *text, sh_err *err)
{
    (void)c;
    (void)text;
    (void)err;
    for (size_t i = 0; i < SH_COUNT_OF(COMMANDS); i++)
        printf("  %-12s %-5s  %s\n", COMMANDS[i].name, COMMANDS[i].argument, COMMANDS[i].help);
    printf("Ctrl-C stops an answer. Pasted text may have several lines.\n");
    return SH_OK;
}

/* Every command with an argument requires it, except /system, which without one removes the system
 * message. */
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
    return sh_err_set(err, SH_ERR_INPUT, "there is no command %.*s; /help lists them", (int)len,
                      text);
}

/* A message; a backslash at the end of a line means that another one follows. */
static sh_line_editor_result message_read(chat *c, sh_buf *text)
{
    sh_buf more = {0};
    sh_line_editor_result got = sh_line_editor_read(c->line, "> ", text);
    while (got == SH_LINE_TEXT && text->len > 0 && text->ptr[text->len - 1] == '\\') {
        text->ptr[text->len - 1] = '\n';
        got = sh_line_editor_read(c->line, ". ", &more);
        sh_buf_add_str(text, sh_buf_str(&more));
    }
    sh_buf_reset(&more);
    return got;
}

/* Until the end of the input, /exit, Ctrl-C twice, or the loss of the model. Other errors are shown
 * and the conversation goes on. */
static sh_status converse(chat *c, sh_err *err)
{
    sh_buf text = {0};
    sh_status status = SH_OK;
    bool lost = false, interrupted = false;
    while (!c->quit && !lost) {
        sh_line_editor_result got = message_read(c, &text);
        if (got == SH_LINE_END || (got == SH_LINE_INTERRUPT && interrupted)) break;
        interrupted = got == SH_LINE_INTERRUPT;
        if (interrupted) printf("Ctrl-C again, or /exit, leaves the chat\n");
        if (interrupted || text.len == 0) continue;
        status = text.ptr[0] == '/' ? run_command(c, text.ptr, err) : say(c, text.ptr, err);
        lost = sh_model_client_is_lost(c->client, status);
        if (status != SH_OK && !lost) printf("%s\n\n", err->text);
    }
    sh_buf_reset(&text);
    return lost ? status : SH_OK;
}

/* With several ranks the parent starts each in its own process group, in the background as far as
 * the terminal is concerned. Rank 0 makes itself the foreground group: only that one may read from
 * the terminal, and only it gets Ctrl-C. SIGTTOU would stop it for trying. */
static void take_terminal(void)
{
    if (!isatty(STDIN_FILENO) || tcgetpgrp(STDIN_FILENO) == getpgrp()) return;
    signal(SIGTTOU, SIG_IGN);
    (void)tcsetpgrp(STDIN_FILENO, getpgrp());
}

/* A history that cannot be kept is no reason not to chat. */
static sh_line_editor *line_editor_open(const char *state_dir)
{
    sh_err err;
    char *folder = sh_state_dir_path(state_dir);
    char *path = sh_path_join(folder, "chat_history");
    sh_status status = isatty(STDIN_FILENO) ? sh_state_dir_make(folder, &err) : SH_OK;
    if (status != SH_OK) SH_LOGW("chat: no history: %s", err.text);
    sh_line_editor *line = sh_line_editor_create(status == SH_OK ? path : NULL);
    free(path);
    free(folder);
    return line;
}

static sh_status chat_open(chat *c, const sh_command_args *args, sh_err *err)
{
    sh_status status = sh_question_init(&c->question, args, true, err);
    const sh_model_client_opts opts = {
        .chat = true, .slots = 1, .progress = sh_step_driver_progress};
    if (status == SH_OK) status = sh_model_client_open(args, &opts, &c->client, err);
    if (status != SH_OK) return status;
    if (args->settings->system != NULL) c->system = sh_strdup(args->settings->system);
    c->color = sh_terminal_has_color(STDOUT_FILENO);
    c->line = line_editor_open(args->settings->state_dir);
    start_over(c);
    return SH_OK;
}

static void chat_close(chat *c)
{
    sh_model_client_close(c->client);
    sh_question_reset(&c->question);
    if (c->line != NULL) sh_line_editor_free(c->line);
    cJSON_Delete(c->messages);
    free(c->system);
}

static int chat_run(const sh_command_args *args)
{
    sh_err err;
    chat c = {0};
    bool remote = sh_model_client_is_remote(args->options);
    if (!sh_model_client_usage(args, "chat")) return SH_EXIT_USAGE;
    if (!remote && sh_ranks_must_spawn(args)) return sh_ranks_spawn(args);
    sh_status status = chat_open(&c, args, &err);
    if (status == SH_OK) {
        sh_interrupt_catch();
        take_terminal();
        if (isatty(STDOUT_FILENO))
            printf("%s. /help lists commands, Ctrl-D exits.\n\n", sh_model_client_label(c.client));
        status = converse(&c, &err);
    }
    chat_close(&c);
    return status >= 0 ? SH_EXIT_OK : sh_command_fail(&err);
}

const sh_command sh_command_chat = {
    SH_COMMAND_NAMED(chat),
    .summary = "chat with a model at the terminal",
    .details =
        "Answers stream. Ctrl-C stops the answer, and twice at the prompt leaves; a backslash "
        "at the end of a line continues the message on the next; /help lists the commands "
        "inside. With --url it talks to a running server. Without --model and --url it "
        "takes the server that runs on this machine, or else the demo model.",
    .run = chat_run,
};
