/* Messages of LocalAI, as Predict, as Embedding and as LoadModel read them. */
#include "api/localai.h"
#include "base/log.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void request_try(sh_str body, bool (*parse)(sh_str, cJSON **, sh_api_error *), bool reads)
{
    sh_job_spec spec = {0};
    sh_api_error err = {0};
    bool fine = parse(body, &spec.json, &err);
    if (fine && reads) fine = sh_localai_read(&spec, &err);
    if (!fine && err.message[0] == '\0') abort();
    cJSON_Delete(spec.json);
    spec.json = NULL;
    sh_job_spec_reset(&spec);
}

static void model_try(sh_str body)
{
    sh_arena arena = {0};
    ProtobufCMessage *message = NULL;
    sh_localai_wish wish = {0};
    sh_err err;
    if (sh_message_unpack(&backend__model_options__descriptor, body, &arena, &message, &err) ==
            SH_OK &&
        sh_localai_wish_read((const Backend__ModelOptions *)message, &wish, &err) != SH_OK &&
        err.text[0] == '\0')
        abort();
    sh_localai_wish_reset(&wish);
    sh_arena_reset(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    sh_str body = {(const char *)data, size};
    sh_log_set_level(SH_LOG_ERROR);
    request_try(body, sh_localai_parse_predict, true);
    request_try(body, sh_localai_parse_stream, true);
    request_try(body, sh_localai_parse_embedding, false);
    request_try(body, sh_localai_parse_rerank, false);
    request_try(body, sh_localai_parse_ids, false);
    model_try(body);
    sh_str id = sh_message_find_text(body, 47);
    if (id.len > 0 && (id.ptr < body.ptr || id.ptr + id.len > body.ptr + body.len)) abort();
    return 0;
}
