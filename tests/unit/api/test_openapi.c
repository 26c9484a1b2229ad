/* Checks that the document is complete; a validator from npm checks its format, in tests/api. */
#include "api/api_internal.h"
#include "api/assets.h"

#include "test.h"

static cJSON *document(void)
{
    sh_buf text = {0};
    sh_openapi_write(&sh_endpoints, &text);
    cJSON *json = cJSON_Parse(text.ptr);
    assert_non_null(json);
    sh_buf_reset(&text);
    return json;
}

TEST(documents_every_endpoint_and_field)
{
    UNUSED_STATE;
    cJSON *json = document();
    const cJSON *paths = cJSON_GetObjectItem(json, "paths");
    for (size_t i = 0; i < sh_endpoints.count; i++) {
        const sh_endpoint *endpoint = &sh_endpoints.rows[i];
        const cJSON *path = cJSON_GetObjectItem(paths, endpoint->path);
        const cJSON *operation = cJSON_GetObjectItem(path, sh_http_method_name(endpoint->method));
        if (operation == NULL) fail_msg("%s is missing", endpoint->path);
        if (endpoint->fields == NULL) continue;
        const cJSON *at = cJSON_GetObjectItem(operation, "requestBody");
        static const char *const way[] = {"content", "application/json", "schema", "properties"};
        for (size_t k = 0; k < SH_COUNT_OF(way); k++) at = cJSON_GetObjectItem(at, way[k]);
        for (const sh_field_table *table = endpoint->fields; table != NULL; table = table->more)
            for (size_t k = 0; k < table->count; k++)
                if (cJSON_GetObjectItemCaseSensitive(at, table->rows[k].name) == NULL)
                    fail_msg("%s: %s is missing", endpoint->path, table->rows[k].name);
    }
    cJSON_Delete(json);
}

TEST(gives_every_operation_its_own_name)
{
    UNUSED_STATE;
    cJSON *json = document(), *names = cJSON_CreateObject();
    const cJSON *path, *operation;
    cJSON_ArrayForEach(path, cJSON_GetObjectItem(json, "paths"))
    {
        cJSON_ArrayForEach(operation, path)
        {
            const char *name = cJSON_GetObjectItem(operation, "operationId")->valuestring;
            if (cJSON_HasObjectItem(names, name)) fail_msg("%s occurs twice", name);
            cJSON_AddTrueToObject(names, name);
        }
    }
    cJSON_Delete(names);
    cJSON_Delete(json);
}

TEST(holds_the_pages)
{
    UNUSED_STATE;
    const sh_asset *page = sh_asset_find(SH_STR("/docs"));
    assert_non_null(page);
    sh_str text = {page->data, (size_t)(page->end - page->data)};
    assert_true(sh_str_find(text, SH_STR("<!doctype html>"), 0) < text.len);
    assert_non_null(sh_asset_find(SH_STR("/docs/docs.js")));
    assert_null(sh_asset_find(SH_STR("/docs/../secret")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(documents_every_endpoint_and_field),
        cmocka_unit_test(gives_every_operation_its_own_name),
        cmocka_unit_test(holds_the_pages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
