/* The body of a request to the model: JSON, fields, messages, template, tokens, grammar, as in the
 * API. The first byte selects the dialect. */
#include "api/form.h"
#include "api/openai.h"
#include "api/served_model.h"
#include "text/grammar/pack.h"

#include <stdio.h>
#include <stdlib.h>

static sh_served_model *served;

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    sh_err err;
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

static const sh_job_format *format_of(uint8_t letter)
{
    switch (letter) {
    case 'c': return &sh_openai_completion;
    case 'e': return &sh_openai_embeddings;
    case 'r': return &sh_openai_rerank;
    default: return &sh_openai_chat;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const float vector[] = {0.5f, -1.25f, 3};
    if (size == 0) return 0;
    const sh_job_format *format = format_of(data[0]);
    sh_job_spec request = {0};
    sh_api_error error;
    sh_err err;
    sh_tokens *prompts;
    size_t count;
    sh_answer *answer = NULL;
    sh_buf out = {0};
    if (sh_json_parse((sh_str){(const char *)data + 1, size - 1}, "body", &request.json, &err) ==
            SH_OK &&
        format->read(&request, &error) && sh_form_check(served, &request, &error) &&
        sh_served_model_prepare(served, &request, &prompts, &count, &error) &&
        form_make(&request, prompts) &&
        sh_answer_create(&request, served, prompts, count, &answer, &err) == SH_OK) {
        sh_event token = {.kind = SH_EVENT_TOKEN, .token = (int32_t)(size % 4096)};
        sh_event done = {.kind = SH_EVENT_DONE, .vector = vector, .vector_len = 3};
        for (int i = 0; i < answer->count; i++) {
            sh_answer_event(answer, &answer->choices[i], &token);
            sh_answer_event(answer, &answer->choices[i], &done);
            if (format->part != NULL) format->part(answer, &answer->choices[i], &out);
        }
        format->whole(answer, &out);
    }
    sh_buf_reset(&out);
    sh_answer_free(answer);
    sh_job_spec_reset(&request);
    return 0;
}
