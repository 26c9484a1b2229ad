#include "model/safetensors.h"
#include "model/safetensors_writer.h"
#include "model/tensors.h"

#include "base/alloc.h"
#include "base/file.h"

#include "scratch.h"

#include <sys/stat.h>
#include <unistd.h>

static char *path_of(const char *name)
{
    return sh_path_join(dir, name);
}

/* Parses a header that describes `data_size` bytes of data. */
static sh_status parse(const char *header, uint64_t data_size, sh_tensor_list *out, sh_arena *arena,
                       sh_err *err)
{
    uint64_t size = SH_SAFETENSORS_PREFIX + strlen(header) + data_size;
    return sh_safetensors_parse(sh_str_of(header), size, "f", arena, out, err);
}

TEST(lists_tensors_by_name)
{
    UNUSED_STATE;
    sh_err err = {0};
    sh_arena arena = {0};
    sh_tensor_list list;
    const char *header = "{\"__metadata__\":{\"format\":\"pt\"},"
                         "\"b\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[4,16]},"
                         "\"a\":{\"dtype\":\"U32\",\"shape\":[1],\"data_offsets\":[0,4]},"
                         "\"empty\":{\"dtype\":\"F32\",\"shape\":[0,7],\"data_offsets\":[16,16]}}";
    CHECK_OK(parse(header, 16, &list, &arena, &err), err);
    assert_int_equal(list.count, 3);
    const sh_stored_tensor *b = sh_tensor_list_find(&list, "b");
    assert_non_null(b);
    assert_int_equal(b->type, SH_TENSOR_BF16);
    assert_int_equal(b->dims, 2);
    assert_int_equal(b->shape[1], 3);
    assert_int_equal(b->offset, SH_SAFETENSORS_PREFIX + strlen(header) + 4);
    assert_int_equal(b->size, 12);
    assert_null(sh_tensor_list_find(&list, "c"));
    sh_arena_reset(&arena);
}

TEST(bad_headers_are_refused_in_one_line)
{
    UNUSED_STATE;
    static const struct {
        const char *header, *part;
    } cases[] = {
        {"[]", "must be a JSON object, not a list"},
        {"{\"a\":", "f:"},
        {"{\"a\":3}", "tensor 'a' must be an object, not a number"},
        {"{\"a\":{}}", "'dtype' must be a string, not nothing"},
        {"{\"a\":{\"dtype\":\"Q4\",\"shape\":[1],\"data_offsets\":[0,1]}}", "unknown dtype 'Q4'"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":4,\"data_offsets\":[0,4]}}",
         "'shape' must be an array"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[-1],\"data_offsets\":[0,4]}}", "impossible shape"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1.5],\"data_offsets\":[0,4]}}", "impossible shape"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,4]}}",
         "impossible shape"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,1]}}",
         "more than 8 dimensions"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}",
         "tensor 'a' of F32 [2] needs 8 bytes, its 'data_offsets' have 4"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[17],\"data_offsets\":[0,17]}}",
         "tensor 'a' ends at byte 17 of the data, the file has only 16"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[8,4]}}", "ascending"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0]}}", "two whole numbers"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,1e400]}}", "f"},
        {"{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,2]}}",
         "whole number of bytes"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8]},"
         "\"b\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[7,15]}}",
         "tensors 'a' and 'b' overlap"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8]},"
         "\"a\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[8,16]}}",
         "tensor 'a' is listed twice"},
    };
    for (size_t i = 0; i < SH_COUNT_OF(cases); i++) {
        sh_err err = {0};
        sh_arena arena = {0};
        sh_tensor_list list;
        CHECK_FAILS(parse(cases[i].header, 16, &list, &arena, &err), err, cases[i].part);
        sh_arena_reset(&arena);
    }
}

TEST(absurd_header_lengths_are_refused)
{
    UNUSED_STATE;
    sh_err err = {0};
    size_t len = 0;
    const uint8_t huge[8] = {255, 255, 255, 255, 255, 255, 255, 255}, some[8] = {100};
    CHECK_FAILS(sh_safetensors_header_len(huge, 1000, "f", &len, &err), err,
                "at most 100000000 are allowed");
    CHECK_FAILS(sh_safetensors_header_len(some, 107, "f", &len, &err), err,
                "needs 108 bytes, the file has 107");
    CHECK_OK(sh_safetensors_header_len(some, 108, "f", &len, &err), err);
    assert_int_equal(len, 100);
}

static void write_file(const char *name, const char *tensor, uint8_t fill, int64_t count)
{
    sh_err err = {0};
    sh_safetensors_writer *writer = NULL;
    sh_stored_tensor spec = {.name = tensor, .type = SH_TENSOR_U8, .dims = 1, .shape = {count}};
    char *path = path_of(name), *data = sh_alloc((size_t)count);
    memset(data, fill, (size_t)count);
    CHECK_OK(sh_safetensors_writer_open(path, &spec, 1, "mlx", &writer, &err), err);
    CHECK_OK(sh_safetensors_writer_add(writer, data, (size_t)count, &err), err);
    CHECK_OK(sh_safetensors_writer_finish(writer, &err), err);
    free(path);
    free(data);
}

static void write_text(const char *name, const char *text)
{
    sh_err err = {0};
    char *path = path_of(name);
    CHECK_OK(sh_file_write(path, text, strlen(text), &err), err);
    free(path);
}

TEST(what_was_written_is_read_back)
{
    UNUSED_STATE;
    sh_err err = {0};
    sh_tensors *set = NULL;
    write_file("model.safetensors", "x", 7, 1000);
    CHECK_OK(sh_tensors_open(dir, &set, &err), err);
    const sh_stored_tensor *x = sh_tensors_find(set, "%s", "x");
    assert_non_null(x);
    uint8_t data[10] = {0};
    CHECK_OK(sh_tensors_read(set, x, 990, data, 10, &err), err);
    for (int i = 0; i < 10; i++) assert_int_equal(data[i], 7);
    assert_int_equal(sh_tensors_bytes(set), 1000);
    sh_tensors_close(set);
}

TEST(a_file_that_shrinks_gives_an_error)
{
    UNUSED_STATE;
    sh_err err = {0};
    sh_tensors *set = NULL;
    char *path = path_of("model.safetensors"), data[8];
    write_file("model.safetensors", "x", 7, 1000);
    CHECK_OK(sh_tensors_open(dir, &set, &err), err);
    assert_int_equal(truncate(path, 500), 0);
    CHECK_FAILS(sh_tensors_read(set, sh_tensors_find(set, "x"), 900, data, 8, &err), err,
                "tensor 'x'");
    assert_non_null(strstr(err.text, "model.safetensors"));
    sh_tensors_close(set);
    CHECK_FAILS(sh_tensors_open(dir, &set, &err), err, "tensor 'x' ends at byte 1000");
    free(path);
}

TEST(an_index_names_the_files)
{
    UNUSED_STATE;
    sh_err err = {0};
    sh_tensors *set = NULL;
    write_file("m-1.safetensors", "a", 1, 10);
    write_file("m-2.safetensors", "b", 2, 20);
    write_text("model.safetensors.index.json",
               "{\"metadata\":{\"total_size\":30},\"weight_map\":{\"a\":\"m-1.safetensors\","
               "\"b\":\"m-2.safetensors\"}}");
    CHECK_OK(sh_tensors_open(dir, &set, &err), err);
    uint8_t byte = 0;
    CHECK_OK(sh_tensors_read(set, sh_tensors_find(set, "b"), 19, &byte, 1, &err), err);
    assert_int_equal(byte, 2);
    assert_int_equal(sh_tensors_list(set)->count, 2);
    sh_tensors_close(set);
}

TEST(a_wrong_index_is_refused)
{
    UNUSED_STATE;
    static const struct {
        const char *map, *part;
    } cases[] = {
        {"[]", "'weight_map' must be an object"},
        {"{\"a\":\"../m-1.safetensors\"}", "the entry of 'a' must be the name of a file"},
        {"{\"a\":3}", "the entry of 'a' must be the name of a file"},
        {"{\"a\":\"m-3.safetensors\"}", "m-3.safetensors"},
        {"{\"c\":\"m-1.safetensors\"}", "tensor 'c' should be in m-1.safetensors, but is missing"},
        {"{\"a\":\"m-2.safetensors\",\"b\":\"m-1.safetensors\"}", "but is in m-1.safetensors"},
    };
    write_file("m-1.safetensors", "a", 1, 10);
    write_file("m-2.safetensors", "b", 2, 20);
    for (size_t i = 0; i < SH_COUNT_OF(cases); i++) {
        sh_err err = {0};
        sh_tensors *set = NULL;
        char *text = sh_asprintf("{\"weight_map\":%s}", cases[i].map);
        write_text("model.safetensors.index.json", text);
        CHECK_FAILS(sh_tensors_open(dir, &set, &err), err, cases[i].part);
        free(text);
    }
}

TEST(a_tensor_in_two_files_is_refused)
{
    UNUSED_STATE;
    sh_err err = {0};
    sh_tensors *set = NULL;
    write_file("model-1.safetensors", "a", 1, 10);
    write_file("model-2.safetensors", "a", 1, 10);
    CHECK_FAILS(sh_tensors_open(dir, &set, &err), err, "tensor 'a' is both in");
}

TEST(a_folder_without_weights_is_refused)
{
    UNUSED_STATE;
    sh_err err = {0};
    sh_tensors *set = NULL;
    CHECK_FAILS(sh_tensors_open(dir, &set, &err), err, "no model.safetensors");
    CHECK_FAILS(sh_tensors_open("/nowhere", &set, &err), err, "/nowhere");
}

TEST(an_unfinished_file_has_no_name)
{
    UNUSED_STATE;
    sh_err err = {0};
    sh_safetensors_writer *writer = NULL;
    sh_stored_tensor spec = {.name = "a", .type = SH_TENSOR_F32, .dims = 1, .shape = {4}};
    char *path = path_of("model.safetensors"), *part = path_of("model.safetensors.part");
    CHECK_OK(sh_safetensors_writer_open(path, &spec, 1, NULL, &writer, &err), err);
    assert_false(sh_file_exists(path));
    assert_true(sh_file_exists(part));
    sh_safetensors_writer_abort(writer);
    assert_false(sh_file_exists(part));
    free(path);
    free(part);
}

#define IN_DIR(test) cmocka_unit_test_setup_teardown(test, make_dir, remove_dir)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_tensors_by_name),
        cmocka_unit_test(bad_headers_are_refused_in_one_line),
        cmocka_unit_test(absurd_header_lengths_are_refused),
        IN_DIR(what_was_written_is_read_back),
        IN_DIR(a_file_that_shrinks_gives_an_error),
        IN_DIR(an_index_names_the_files),
        IN_DIR(a_wrong_index_is_refused),
        IN_DIR(a_tensor_in_two_files_is_refused),
        IN_DIR(a_folder_without_weights_is_refused),
        IN_DIR(an_unfinished_file_has_no_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
