#include "cmd/support/vocabulary.h"

#include <string.h>

static int encode(void *ctx, sh_str text, int32_t *out, int max)
{
    const sh_vocabulary_files *files = ctx;
    sh_ids ids = {0};
    sh_err ignored; /* without an encoding there is no draft */
    sh_encode_opts opts = {.add_special = false, .parse_special = false};
    int count = 0;
    if (sh_tokenizer_encode(files->tokenizer, text, opts, &ids, &ignored) == SH_OK)
        count = ids.len < (size_t)max ? (int)ids.len : max;
    if (count > 0) memcpy(out, ids.ptr, (size_t)count * sizeof(*out));
    sh_ids_reset(&ids);
    return count;
}

sh_status sh_vocabulary_load(void *ctx, sh_vocabulary *out, sh_err *err)
{
    sh_vocabulary_files *files = ctx;
    sh_status status = sh_tokenizer_load(files->model_dir, &files->tokenizer, err);
    if (status != SH_OK) return status;
    files->trie = sh_token_trie_create(files->tokenizer, NULL, 0);
    *out = (sh_vocabulary){.trie = files->trie, .encode = encode, .ctx = files};
    return SH_OK;
}

void sh_vocabulary_files_reset(sh_vocabulary_files *files)
{
    sh_token_trie_free(files->trie);
    sh_tokenizer_free(files->tokenizer);
    *files = (sh_vocabulary_files){.model_dir = files->model_dir};
}
