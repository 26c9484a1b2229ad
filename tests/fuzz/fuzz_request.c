/* The body of a request to the model: JSON, fields, messages, template, tokens, grammar, and an
 * answer, as in the API. The first byte selects the format. */
#include "api/anthropic.h"
#include "api/form.h"
#include "api/ollama.h"
#include "api/openai.h"
#include "api/response_store.h"
#include "api/responses.h"
#include "api/served_model.h"
#include "base/alloc.h"
#include "text/grammar/pack.h"

#include <stdio.h>
#include <stdlib.h>

static sh_served_model *served;
static sh_response_store *store;

static const struct {
    char letter;
    const sh_job_format *format;
} formats[] = {
    {'c', &sh_openai_completion}, {'m', &sh_anthropic_messages}, {'r', &sh_responses},
    {'o', &sh_ollama_chat},       {'g', &sh_ollama_generate},    {'e', &sh_openai_embeddings},
    {'k', &sh_openai_rerank},     {'v', &sh_ollama_embed},
};

static const sh_job_format *format_of(char letter)
{
    for (size_t i = 0; i < SH_COUNT_OF(formats); i++)
        if (formats[i].letter == letter) return formats[i].format;
    return &sh_openai_chat;
}

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    sh_err err;
    store = sh_response_store_create(
        (sh_response_limits){.count = 100, .bytes = 1 << 20, .bytes_max = 1 << 20});
    sh_response_store_put(
        store, 1,
        &(sh_stored_response){.id = "resp_1",
                              .conversation = "c",
                              .response = SH_STR("{}"),
                              .input = SH_STR("[{\"role\":\"user\",\"content\":\"q\"}]"),
                              .output = SH_STR("[{\"id\":\"msg_1_0\",\"role\":\"assistant\","
                                               "\"content\":\"a\"}]")});
    sh_engine_info info = {.model_dir = "models/demo", .vocab = 4096, .context = 2048};
    if (sh_served_model_open(&info, &(sh_served_model_opts){0}, &served, &err) == SH_OK) return 0;
    fprintf(stderr, "%s\n", err.text);
    exit(1);
}

/* What was compiled is found again, and the engine can read it. */
static bool form_make(const sh_job_spec *request, const sh_tokens *prompts)
{
    sh_buf packed = {0}, found = {0};
    sh_api_error error;
    sh_grammar *grammar = NULL;
    sh_err err;
    if (!sh_form_is_needed(served, request)) return true;
    bool fine = sh_form_compile(served, request, prompts, &packed, &error);
    if (fine && (!sh_form_find(served, request, prompts, &found) ||
                 sh_grammar_unpack(sh_buf_str(&found), &grammar, &err) != SH_OK))
        abort();
    sh_grammar_free(grammar);
    sh_buf_reset(&packed);
    sh_buf_reset(&found);
    return fine;
}

/* Two tokens and the end, streamed or whole. */
static void answer_write(const sh_job_format *format, sh_answer *answer, int32_t token)
{
    static const float vector[] = {0.5f, -1.25f, 3};
    sh_buf out = {0};
    sh_event event = {.kind = SH_EVENT_TOKEN, .token = token};
    sh_event done = {.kind = SH_EVENT_DONE, .vector = vector, .vector_len = 3};
    bool stream = answer->spec->stream && format->part != NULL;
    snprintf(answer->id, sizeof(answer->id), "%s1", format->id_prefix);
    answer->state = sh_alloc(format->state_size);
    if (stream && format->begin != NULL) format->begin(answer, &out);
    for (int i = 0; i < answer->count; i++) {
        sh_choice *choice = &answer->choices[i];
        sh_answer_event(answer, choice, &event);
        if (stream) format->part(answer, choice, &out);
        if (stream) sh_choice_sent(choice);
        sh_answer_event(answer, choice, &event);
        sh_answer_event(answer, choice, &done);
        if (stream) format->part(answer, choice, &out);
    }
    if (stream)
        format->end(answer, &out);
    else
        format->whole(answer, &out);
    if (format->ended != NULL) format->ended(answer, NULL);
    if (format->state_reset != NULL) format->state_reset(answer->state);
    sh_buf_reset(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) return 0;
    const sh_job_format *format = format_of((char)data[0]);
    sh_job_spec request = {.store = store, .owner = 1};
    sh_api_error error;
    sh_err err;
    sh_tokens *prompts = NULL;
    size_t count = 0;
    sh_answer *answer = NULL;
    if (sh_json_parse((sh_str){(const char *)data + 1, size - 1}, "body", &request.json, &err) ==
            SH_OK &&
        format->read(&request, &error) && sh_form_check(served, &request, &error) &&
        (request.nothing || (sh_served_model_prepare(served, &request, &prompts, &count, &error) &&
                             form_make(&request, prompts))) &&
        sh_answer_create(&request, served, prompts, count, &answer, &err) == SH_OK)
        answer_write(format, answer, (int32_t)(size % 4096));
    sh_answer_free(answer);
    sh_job_spec_reset(&request);
    return 0;
}
