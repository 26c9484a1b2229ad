/* All cases from the reference libraries: all kinds of tokenizers, all components, tiktoken files.
 */
#include "base/json.h"
#include "text/tokenizer/tokenizer.h"
#include "tokenizer_cases.h"

#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct {
    char name[64];
    sh_tokenizer *tok;
    int cases;
} oracle;

static void ids_check(const oracle *o, sh_str text, bool special, const sh_ids *want)
{
    sh_ids got = {0};
    sh_err err;
    sh_encode_opts opts = {.add_special = special, .parse_special = true};
    CHECK_OK(sh_tokenizer_encode(o->tok, text, opts, &got, &err), err);
    bool same = got.len == want->len &&
                (got.len == 0 || memcmp(got.ptr, want->ptr, got.len * sizeof(*got.ptr)) == 0);
    if (!same) fail_msg("%s: '%.*s' encodes otherwise", o->name, (int)text.len, text.ptr);
    sh_ids_reset(&got);
}

static void text_check(const oracle *o, const sh_ids *ids, bool skip_special, sh_str want)
{
    sh_buf got = {0};
    sh_tokenizer_decode(o->tok, ids->ptr, ids->len, skip_special, &got);
    if (!sh_str_eq(sh_buf_str(&got), want))
        fail_msg("%s: decodes to '%.*s', not to '%.*s'", o->name, (int)got.len, got.ptr,
                 (int)want.len, want.ptr);
    sh_buf_reset(&got);
}

static void case_check(void *arg, const case_line *line)
{
    oracle *o = arg;
    sh_ids ids = {0}, with_special = {0};
    if (line->kind == 'E') {
        bool same = sh_str_is(line->fields[1], "=");
        case_ids(line->fields[0], &ids);
        case_ids(line->fields[same ? 0 : 1], &with_special);
        ids_check(o, line->fields[2], false, &ids);
        ids_check(o, line->fields[2], true, &with_special);
        text_check(o, &ids, false, line->fields[sh_str_is(line->fields[3], "=") ? 2 : 3]);
    } else {
        case_ids(line->fields[1], &ids);
        text_check(o, &ids, sh_str_is(line->fields[0], "1"), line->fields[2]);
    }
    o->cases++;
    sh_ids_reset(&ids);
    sh_ids_reset(&with_special);
}

TEST(encodes_and_decodes_every_oracle_case)
{
    UNUSED_STATE;
    for (size_t i = 0; i < SH_COUNT_OF(case_kinds); i++) {
        oracle o = {.tok = case_tokenizer(case_kinds[i])};
        char path[256];
        snprintf(o.name, sizeof(o.name), "%s", case_kinds[i]);
        snprintf(path, sizeof(path), DATA "%s.cases", o.name);
        cases_each(path, case_check, &o);
        assert_true(o.cases >= 150);
        sh_tokenizer_free(o.tok);
    }
}

/* Overlays the keys of `over` on the base; those of its model on the model, unless it has its own
 * vocabulary. */
static void keys_replace(cJSON *base, cJSON *over)
{
    while (over->child != NULL) {
        cJSON *item = cJSON_DetachItemViaPointer(over, over->child);
        cJSON *model = cJSON_GetObjectItem(base, "model");
        if (strcmp(item->string, "model") == 0 && cJSON_GetObjectItem(item, "vocab") == NULL) {
            keys_replace(model, item);
            cJSON_Delete(item);
        } else {
            cJSON_DeleteItemFromObjectCaseSensitive(base, item->string);
            cJSON_AddItemToObject(base, item->string, item);
        }
    }
}

static void component_check(void *arg, const case_line *line)
{
    oracle *o = arg;
    cJSON *base = NULL, *over = NULL;
    sh_err err;
    char path[256];
    if (line->kind != 'T') {
        case_check(o, line);
        return;
    }
    sh_tokenizer_free(o->tok);
    o->tok = NULL;
    snprintf(o->name, sizeof(o->name), "%.*s", (int)line->fields[0].len, line->fields[0].ptr);
    snprintf(path, sizeof(path), DATA "%.*s.json", (int)line->fields[1].len, line->fields[1].ptr);
    CHECK_OK(sh_json_load(path, 1 << 20, &base, &err), err);
    CHECK_OK(sh_json_parse(line->fields[2], o->name, &over, &err), err);
    keys_replace(base, over);
    char *text = cJSON_PrintUnformatted(base);
    CHECK_OK(sh_tokenizer_parse(sh_str_of(text), o->name, &o->tok, &err), err);
    free(text);
    cJSON_Delete(base);
    cJSON_Delete(over);
}

TEST(every_component_matches_the_reference)
{
    UNUSED_STATE;
    oracle o = {0};
    cases_each(DATA "components.cases", component_check, &o);
    assert_true(o.cases >= 1200);
    sh_tokenizer_free(o.tok);
}

typedef struct {
    oracle oracle;
    char dir[64];
} tiktoken;

static void path_write(const char *dir, const char *name, sh_str data)
{
    sh_err err;
    char *path = sh_path_join(dir, name);
    CHECK_OK(sh_file_write(path, data.ptr, data.len, &err), err);
    free(path);
}

static void tiktoken_check(void *arg, const case_line *line)
{
    tiktoken *t = arg;
    sh_err err;
    if (line->kind != 'T') {
        case_check(&t->oracle, line);
        return;
    }
    sh_tokenizer_free(t->oracle.tok);
    t->oracle.tok = NULL;
    snprintf(t->oracle.name, sizeof(t->oracle.name), "%.*s", (int)line->fields[0].len,
             line->fields[0].ptr);
    path_write(t->dir, "tokenizer_config.json", line->fields[2]);
    CHECK_OK(sh_tokenizer_load(t->dir, &t->oracle.tok, &err), err);
}

static void dir_remove(const char *dir)
{
    static const char *const names[] = {"tiktoken.model", "tokenizer_config.json"};
    for (size_t i = 0; i < SH_COUNT_OF(names); i++) {
        char *path = sh_path_join(dir, names[i]);
        unlink(path);
        free(path);
    }
    rmdir(dir);
}

TEST(reads_tiktoken_files_of_each_family)
{
    UNUSED_STATE;
    tiktoken t = {.dir = "/tmp/shoal-tiktoken-XXXXXX"};
    sh_buf model = {0};
    sh_err err;
    assert_non_null(mkdtemp(t.dir));
    CHECK_OK(sh_file_read(DATA "tiktoken.model", 1 << 20, &model, &err), err);
    path_write(t.dir, "tiktoken.model", sh_buf_str(&model));
    cases_each(DATA "tiktoken.cases", tiktoken_check, &t);
    assert_true(t.oracle.cases >= 100);
    int32_t bos = sh_tokenizer_named(t.oracle.tok, SH_TOKEN_BOS);
    assert_true(sh_str_is(sh_tokenizer_piece(t.oracle.tok, bos), "[BOS]"));
    assert_true(sh_tokenizer_is_special(t.oracle.tok, bos));
    sh_tokenizer_free(t.oracle.tok);
    sh_buf_reset(&model);
    dir_remove(t.dir);
}

TEST(pieces_and_ids_are_inverse)
{
    UNUSED_STATE;
    for (size_t i = 0; i < SH_COUNT_OF(case_kinds); i++) {
        sh_tokenizer *tok = case_tokenizer(case_kinds[i]);
        for (int32_t id = 0; id < sh_tokenizer_size(tok); id++)
            assert_int_equal(sh_tokenizer_id(tok, sh_tokenizer_piece(tok, id)), id);
        assert_null(sh_tokenizer_piece(tok, -1).ptr);
        assert_null(sh_tokenizer_piece(tok, sh_tokenizer_size(tok)).ptr);
        assert_int_equal(sh_tokenizer_id(tok, SH_STR("no such piece")), -1);
        sh_tokenizer_free(tok);
    }
}

/* The bytes of a text's tokens, concatenated, are the text: byte-level tokenizers have no other
 * rule. */
TEST(token_bytes_joined_are_the_text)
{
    UNUSED_STATE;
    sh_str text = SH_STR("Na\xc3\xafve caf\xc3\xa9, \xe4\xb8\xad\xe6\x96\x87 \xf0\x9f\x99\x82\n x");
    for (size_t i = 0; i < SH_COUNT_OF(case_kinds); i++) {
        if (strstr("unigram wordpiece", case_kinds[i]) != NULL) continue; /* these change texts */
        sh_tokenizer *tok = case_tokenizer(case_kinds[i]);
        sh_ids ids = {0};
        sh_buf bytes = {0};
        sh_err err;
        CHECK_OK(sh_tokenizer_encode(tok, text, (sh_encode_opts){0}, &ids, &err), err);
        for (size_t k = 0; k < ids.len; k++) sh_tokenizer_bytes(tok, ids.ptr[k], &bytes);
        bool space = strstr("spm-legacy spm-metaspace", case_kinds[i]) != NULL;
        assert_true(sh_str_eq(sh_str_sub(sh_buf_str(&bytes), space, bytes.len), text));
        sh_ids_reset(&ids);
        sh_buf_reset(&bytes);
        sh_tokenizer_free(tok);
    }
}

TEST(special_tokens_in_the_text_are_text_unless_asked_for)
{
    UNUSED_STATE;
    sh_tokenizer *tok = case_tokenizer("llama3");
    sh_ids plain = {0}, parsed = {0};
    sh_err err;
    sh_str text = SH_STR("<|im_start|><think>");
    CHECK_OK(sh_tokenizer_encode(tok, text, (sh_encode_opts){0}, &plain, &err), err);
    CHECK_OK(sh_tokenizer_encode(tok, text, (sh_encode_opts){.parse_special = true}, &parsed, &err),
             err);
    assert_int_equal(parsed.len, 2);
    assert_int_equal(parsed.ptr[0], sh_tokenizer_id(tok, SH_STR("<|im_start|>")));
    assert_true(plain.len > 2);
    assert_int_equal(plain.ptr[plain.len - 1], sh_tokenizer_id(tok, SH_STR("<think>")));
    sh_ids_reset(&plain);
    sh_ids_reset(&parsed);
    sh_tokenizer_free(tok);
}

/* The golden ids of cross-encoders are those of pairs. */
TEST(a_pair_of_texts_is_written_as_the_file_says)
{
    UNUSED_STATE;
    static const char *const dirs[] = {"tests/data/encoders/bert-rerank",
                                       "tests/data/encoders/xlm-roberta-rerank"};
    for (size_t d = 0; d < SH_COUNT_OF(dirs); d++) {
        sh_tokenizer *tok = NULL;
        cJSON *golden = NULL;
        sh_err err;
        char path[256];
        snprintf(path, sizeof(path), "%s/golden.json", dirs[d]);
        CHECK_OK(sh_tokenizer_load(dirs[d], &tok, &err), err);
        CHECK_OK(sh_json_load(path, 1 << 20, &golden, &err), err);
        const cJSON *pair, *want = cJSON_GetObjectItem(golden, "ids")->child;
        cJSON_ArrayForEach(pair, cJSON_GetObjectItem(golden, "pairs"))
        {
            sh_ids ids = {0};
            size_t second = 0, at = 0;
            CHECK_OK(sh_tokenizer_encode_pair(tok, sh_str_of(pair->child->valuestring),
                                              sh_str_of(pair->child->next->valuestring), &ids,
                                              &second, &err),
                     err);
            assert_int_equal(ids.len, cJSON_GetArraySize(want));
            for (const cJSON *id = want->child; id != NULL; id = id->next)
                assert_int_equal(ids.ptr[at++], id->valueint);
            assert_int_equal(ids.ptr[second - 1], d == 0 ? 3 : 2); /* the separator */
            sh_ids_reset(&ids);
            want = want->next;
        }
        cJSON_Delete(golden);
        sh_tokenizer_free(tok);
    }
    sh_tokenizer *tok = case_tokenizer("gpt2");
    sh_ids ids = {0};
    size_t second;
    sh_err err;
    CHECK_FAILS(sh_tokenizer_encode_pair(tok, SH_STR("a"), SH_STR("b"), &ids, &second, &err), err,
                "does not say how to write a pair");
    sh_tokenizer_free(tok);
}

TEST(a_model_folder_names_its_tokens)
{
    UNUSED_STATE;
    sh_tokenizer *tok = NULL;
    sh_err err;
    CHECK_OK(sh_tokenizer_load("models/demo", &tok, &err), err);
    int32_t eos = sh_tokenizer_named(tok, SH_TOKEN_EOS);
    assert_true(eos >= 0);
    assert_true(sh_tokenizer_is_special(tok, eos));
    sh_tokenizer_free(tok);
}

typedef struct {
    const sh_tokenizer *tok;
    uint64_t hash;
} encoding_thread;

/* All threads encode each word for the first time at about the same moment. */
static void *thread_encode(void *arg)
{
    encoding_thread *t = arg;
    sh_ids ids = {0};
    sh_buf text = {0};
    sh_err err;
    sh_status status = sh_file_read(DATA "README.md", 1 << 20, &text, &err);
    if (status == SH_OK)
        status = sh_tokenizer_encode(t->tok, sh_buf_str(&text), (sh_encode_opts){0}, &ids, &err);
    t->hash = status != SH_OK ? 0 : sh_hash64(ids.ptr, ids.len * sizeof(*ids.ptr));
    sh_ids_reset(&ids);
    sh_buf_reset(&text);
    return NULL;
}

TEST(many_threads_encode_alike)
{
    UNUSED_STATE;
    for (size_t kind = 0; kind < SH_COUNT_OF(case_kinds); kind++) {
        sh_tokenizer *tok = case_tokenizer(case_kinds[kind]);
        encoding_thread all[4];
        pthread_t threads[4];
        for (int i = 0; i < 4; i++) {
            all[i] = (encoding_thread){.tok = tok};
            assert_int_equal(pthread_create(&threads[i], NULL, thread_encode, &all[i]), 0);
        }
        for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
        for (int i = 0; i < 4; i++) assert_true(all[i].hash != 0 && all[i].hash == all[0].hash);
        sh_tokenizer_free(tok);
    }
}

TEST(refuses_text_that_is_not_utf8)
{
    UNUSED_STATE;
    sh_tokenizer *tok = case_tokenizer("gpt2");
    sh_ids ids = {0};
    sh_err err;
    sh_ids_add(&ids, 7);
    CHECK_FAILS(sh_tokenizer_encode(tok, SH_STR("ab\xff"), (sh_encode_opts){0}, &ids, &err), err,
                "not valid UTF-8 at byte 2");
    assert_int_equal(ids.len, 1);
    sh_ids_reset(&ids);
    sh_tokenizer_free(tok);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(encodes_and_decodes_every_oracle_case),
        cmocka_unit_test(every_component_matches_the_reference),
        cmocka_unit_test(reads_tiktoken_files_of_each_family),
        cmocka_unit_test(pieces_and_ids_are_inverse),
        cmocka_unit_test(token_bytes_joined_are_the_text),
        cmocka_unit_test(special_tokens_in_the_text_are_text_unless_asked_for),
        cmocka_unit_test(a_pair_of_texts_is_written_as_the_file_says),
        cmocka_unit_test(a_model_folder_names_its_tokens),
        cmocka_unit_test(many_threads_encode_alike),
        cmocka_unit_test(refuses_text_that_is_not_utf8),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
