/* The expected texts and errors in tests/data/templates were produced by Jinja2 with the settings
 * of transformers: cases.json holds small templates over one set of variables, chats.json complete
 * conversations for the .jinja files in the same folder. */
#include "text/jinja/template.h"

#include "base/file.h"

#include "test.h"

#include <pthread.h>
#include <time.h>

#define DATA "tests/data/templates/"

static sh_err err;

/* Parses and renders. */
static sh_status render(const char *source, const cJSON *vars, const sh_template_opts *opts,
                        sh_buf *out)
{
    sh_template *tmpl = NULL;
    sh_status status = sh_template_parse(sh_str_of(source), &tmpl, &err);
    if (status == SH_OK) status = sh_template_render(tmpl, &vars, 1, opts, out, &err);
    sh_template_free(tmpl);
    return status;
}

static cJSON *load(const char *path)
{
    cJSON *json = NULL;
    CHECK_OK(sh_json_load(path, 1 << 20, &json, &err), err);
    return json;
}

static const cJSON *get(const cJSON *object, const char *name)
{
    return cJSON_GetObjectItemCaseSensitive(object, name);
}

static const char *text_at(const cJSON *row, int at)
{
    return cJSON_GetArrayItem(row, at)->valuestring;
}

static int64_t now_of(const cJSON *file)
{
    return (int64_t)get(file, "now_us")->valuedouble;
}

static int faults;

static void differs(const char *source, const char *want, const char *got)
{
    print_error("%s\n  want: %s\n  got:  %s\n", source, want, got);
    faults++;
}

static void check_texts(const cJSON *file, const sh_template_opts *opts)
{
    const cJSON *row;
    sh_buf out = {0};
    cJSON_ArrayForEach(row, get(file, "texts"))
    {
        sh_buf_clear(&out);
        sh_status status = render(text_at(row, 0), get(file, "vars"), opts, &out);
        const char *got = status != SH_OK ? err.text : out.ptr == NULL ? "" : out.ptr;
        if (status != SH_OK || strcmp(got, text_at(row, 1)) != 0)
            differs(text_at(row, 0), text_at(row, 1), got);
    }
    sh_buf_reset(&out);
}

TEST(small_templates_render_as_jinja2_renders_them)
{
    UNUSED_STATE;
    cJSON *file = load(DATA "cases.json");
    sh_template_opts opts = {.now_us = now_of(file)};
    faults = 0;
    check_texts(file, &opts);
    cJSON_Delete(file);
    assert_int_equal(faults, 0);
}

/* The line number precedes the message unless the template raised it. */
static const char *message_of(bool raised)
{
    const char *colon = strstr(err.text, ": ");
    return raised || colon == NULL ? err.text : colon + 2;
}

static void check_errors(const cJSON *file, const char *list, bool want_raised)
{
    const cJSON *row;
    cJSON_ArrayForEach(row, get(file, list))
    {
        bool raised = false;
        sh_template_opts opts = {.raised = &raised, .now_us = now_of(file)};
        const char *source = cJSON_IsArray(row) ? text_at(row, 0) : row->valuestring;
        sh_buf out = {0};
        if (render(source, get(file, "vars"), &opts, &out) == SH_OK)
            differs(source, "an error", out.ptr == NULL ? "" : out.ptr);
        else if (cJSON_IsArray(row) && strcmp(message_of(raised), text_at(row, 1)) != 0)
            differs(source, text_at(row, 1), err.text);
        if (raised != want_raised) differs(source, "another kind of error", err.text);
        assert_int_equal(out.len, 0);
        sh_buf_reset(&out);
    }
}

TEST(errors_are_those_of_jinja2_and_python)
{
    UNUSED_STATE;
    cJSON *file = load(DATA "cases.json");
    faults = 0;
    check_errors(file, "errors", false);
    check_errors(file, "fails", false);
    check_errors(file, "raised", true);
    cJSON_Delete(file);
    assert_int_equal(faults, 0);
}

static sh_template *load_template(const char *name)
{
    char path[200];
    sh_buf source = {0};
    sh_template *tmpl = NULL;
    snprintf(path, sizeof(path), DATA "%s.jinja", name);
    CHECK_OK(sh_file_read(path, 1 << 20, &source, &err), err);
    CHECK_OK(sh_template_parse(sh_buf_str(&source), &tmpl, &err), err);
    sh_buf_reset(&source);
    return tmpl;
}

static void check_chat(const cJSON *row, int64_t now_us)
{
    bool raised = false;
    sh_template *tmpl = load_template(get(row, "template")->valuestring);
    sh_template_opts opts = {.now_us = now_us, .raised = &raised};
    const cJSON *request = get(row, "request");
    sh_buf out = {0};
    sh_status status = sh_template_render(tmpl, &request, 1, &opts, &out, &err);
    if (get(row, "text") != NULL) {
        CHECK_OK(status, err);
        assert_string_equal(out.ptr, get(row, "text")->valuestring);
    } else {
        CHECK_FAILS(status, err, get(row, "error")->valuestring);
        assert_int_equal(raised, cJSON_IsTrue(get(row, "raised")));
    }
    sh_buf_reset(&out);
    sh_template_free(tmpl);
}

TEST(conversations_render_as_jinja2_renders_them)
{
    UNUSED_STATE;
    cJSON *file = load(DATA "chats.json");
    const cJSON *row;
    cJSON_ArrayForEach(row, get(file, "cases")) check_chat(row, now_of(file));
    cJSON_Delete(file);
}

TEST(errors_carry_the_line)
{
    UNUSED_STATE;
    cJSON *vars = cJSON_CreateObject();
    sh_buf out = {0};
    CHECK_FAILS(render("a\nb\n{{ 1 +\n }}", vars, NULL, &out), err, "line 4: unexpected");
    CHECK_FAILS(render("a\n{% if 1 %}\n{{ none.x.y }}\n{% endif %}", vars, NULL, &out), err,
                "line 3: 'None' has no attribute 'x'");
    CHECK_FAILS(render("{% macro m() %}\n{{ 1/0 }}{% endmacro %}\n\n{{ m() }}", vars, NULL, &out),
                err, "line 2: division by zero");
    CHECK_FAILS(render("\n{% for x in y %}", vars, NULL, &out), err,
                "line 2: Unexpected end of template.");
    CHECK_FAILS(render("\r\n\r{% include 'x' %}", vars, NULL, &out), err, "line 3: include");
    assert_int_equal(err.status, SH_ERR_UNSUPPORTED);
    CHECK_FAILS(render("{{ 1|urlize }}", vars, NULL, &out), err, "'urlize' is not supported");
    CHECK_FAILS(render("\xff", vars, NULL, &out), err, "not valid UTF-8");
    cJSON_Delete(vars);
    sh_buf_reset(&out);
}

static void check_bound(const char *source, sh_template_opts opts, const char *part)
{
    cJSON *vars = cJSON_CreateObject();
    sh_buf out = {0};
    sh_buf_add_text(&out, "before");
    CHECK_FAILS(render(source, vars, &opts, &out), err, part);
    assert_int_equal(err.status, SH_ERR_LIMIT);
    assert_string_equal(out.ptr, "before");
    cJSON_Delete(vars);
    sh_buf_reset(&out);
}

#define LOOPS "{% for a in range(9999) %}{% for b in range(9999) %}"
#define ENDS "{% endfor %}{% endfor %}"

TEST(hostile_templates_hit_a_limit)
{
    UNUSED_STATE;
    check_bound(LOOPS ENDS, (sh_template_opts){.steps_max = 1 << 20}, "more steps than allowed");
    check_bound(LOOPS ENDS, (sh_template_opts){.time_max_ms = 20}, "longer than allowed");
    check_bound(LOOPS ENDS, (sh_template_opts){.steps_max = 100}, "more steps than allowed");
    check_bound(LOOPS "xxxxxxxxxxxxxxxx" ENDS, (sh_template_opts){.output_max = 1 << 20},
                "more than 1024 KiB of text");
    check_bound("{{ 'x' * 999999999999 }}", (sh_template_opts){0}, "more than 32768 KiB");
    check_bound("{{ [1] * 999999999999 }}", (sh_template_opts){0}, "more than 256 MiB");
    check_bound("{{ [1] * 9223372036854775807 }}", (sh_template_opts){0}, "more than 256 MiB");
    check_bound("{% set ns = namespace(t=[]) %}{% for a in range(9999) %}"
                "{% set ns.t = ns.t + ns.t + [a] %}{% endfor %}",
                (sh_template_opts){.memory_max = 16 << 20}, "more than 16 MiB");
    check_bound("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", (sh_template_opts){0},
                "nested more than");
    check_bound("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", (sh_template_opts){0},
                "nested more than");
    check_bound("{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}", (sh_template_opts){0},
                "nested more than");
    check_bound("{% set ns = namespace(t=(1,)) %}{% for i in range(60) %}"
                "{% set ns.t = (ns.t, ns.t) %}{% endfor %}{{ {ns.t: 1} }}",
                (sh_template_opts){.steps_max = 1 << 20}, "more steps than allowed");
    check_bound("{% set ns = namespace(g=[1]) %}{% for i in range(5000) %}"
                "{% set ns.g = ns.g|map('string') %}{% endfor %}{{ ns.g|list }}",
                (sh_template_opts){0}, "nested more than");
    check_bound("{{ '%999999999d' % 1 }}", (sh_template_opts){0}, "for a width");
    check_bound("{{ strftime_now('%Y' * 1000) }}", (sh_template_opts){0}, "strftime_now");
}

static void check_deep(const char *open, const char *middle, const char *close)
{
    sh_buf source = {0};
    cJSON *vars = cJSON_CreateObject();
    for (int i = 0; i < 20000; i++) sh_buf_add_text(&source, open);
    sh_buf_add_text(&source, middle);
    for (int i = 0; i < 20000; i++) sh_buf_add_text(&source, close);
    sh_buf out = {0};
    CHECK_FAILS(render(source.ptr, vars, NULL, &out), err, "nested");
    sh_buf_reset(&source);
    sh_buf_reset(&out);
    cJSON_Delete(vars);
}

TEST(nesting_is_bounded_in_every_construct)
{
    UNUSED_STATE;
    check_deep("{% if 1 %}", "x", "{% endif %}");
    check_deep("{{ (", "1", ") }}");
    check_deep("{{ ", "1 + ", "1 + ");
    check_deep("{{ not ", "1", " }}");
    check_deep("{% for x in y %}", "x", "{% endfor %}");
    sh_buf source = {0};
    const char *chains[] = {" + 1", "|string", ".x", "[0]", "()", " and 1", " - -1", " if 1"};
    for (size_t i = 0; i < SH_COUNT_OF(chains); i++) {
        cJSON *vars = cJSON_CreateObject();
        sh_buf out = {0};
        sh_buf_clear(&source);
        sh_buf_add_text(&source, "{{ 1");
        for (int k = 0; k < 100000; k++) sh_buf_add_text(&source, chains[i]);
        sh_buf_add_text(&source, " }}");
        CHECK_FAILS(render(source.ptr, vars, NULL, &out), err, "nested more than");
        cJSON_Delete(vars);
        sh_buf_reset(&out);
    }
    sh_buf_reset(&source);
}

TEST(later_variables_replace_earlier_ones)
{
    UNUSED_STATE;
    cJSON *first = NULL, *second = NULL;
    CHECK_OK(sh_json_parse(SH_STR("{\"a\": 1, \"b\": 2}"), "x", &first, &err), err);
    CHECK_OK(sh_json_parse(SH_STR("{\"b\": 3, \"range\": 4}"), "x", &second, &err), err);
    const cJSON *vars[] = {first, second};
    sh_template *tmpl = NULL;
    sh_buf out = {0};
    CHECK_OK(sh_template_parse(SH_STR("{{ a }}{{ b }}{{ range }}"), &tmpl, &err), err);
    CHECK_OK(sh_template_render(tmpl, vars, 2, NULL, &out, &err), err);
    CHECK_OK(sh_template_render(tmpl, vars, 1, NULL, &out, &err), err);
    assert_true(strncmp(out.ptr, "13412<", 6) == 0);
    sh_buf_reset(&out);
    sh_template_free(tmpl);
    cJSON_Delete(first);
    cJSON_Delete(second);
}

typedef struct {
    const sh_template *tmpl;
    const cJSON *row;
    int wrong;
} worker;

static void *worker_run(void *arg)
{
    worker *w = arg;
    const cJSON *request = get(w->row, "request");
    sh_err own;
    for (int i = 0; i < 50; i++) {
        sh_buf out = {0};
        if (sh_template_render(w->tmpl, &request, 1, NULL, &out, &own) != SH_OK ||
            strcmp(out.ptr, get(w->row, "text")->valuestring) != 0)
            w->wrong++;
        sh_buf_reset(&out);
    }
    return NULL;
}

TEST(one_template_renders_in_many_threads)
{
    UNUSED_STATE;
    cJSON *file = load(DATA "chats.json");
    const cJSON *row = get(file, "cases")->child;
    while (strcmp(get(row, "case")->valuestring, "tools") != 0) row = row->next;
    worker workers[4];
    pthread_t threads[4];
    sh_template *tmpl = load_template("chat");
    for (int i = 0; i < 4; i++) {
        workers[i] = (worker){tmpl, row, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, worker_run, &workers[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(workers[i].wrong, 0);
    }
    sh_template_free(tmpl);
    cJSON_Delete(file);
}

TEST(text_grown_in_a_loop_takes_linear_memory)
{
    UNUSED_STATE;
    cJSON *vars = cJSON_CreateObject();
    sh_template_opts opts = {.memory_max = 32 << 20};
    sh_buf out = {0};
    CHECK_OK(render("{% set ns = namespace(t='') %}{% for i in range(50000) %}"
                    "{% set ns.t = ns.t + 'twenty bytes of text' %}{% endfor %}{{ ns.t|length }}",
                    vars, &opts, &out),
             err);
    assert_string_equal(out.ptr, "1000000");
    sh_buf_reset(&out);
    cJSON_Delete(vars);
}

TEST(a_range_reaches_the_ends_of_64_bits)
{
    UNUSED_STATE;
    sh_buf out = {0};
    cJSON *vars = cJSON_CreateObject();
#define WIDE "range(-9000000000000000000, 9000000000000000000, 6000000000000000000)"
    CHECK_OK(render("{% for i in " WIDE " %}{{ i }} {% endfor %}{{ " WIDE "[1:]|list }} {{ " WIDE
                    "[2] }} {{ 3000000000000000000 in " WIDE " }}",
                    vars, NULL, &out),
             err);
    assert_string_equal(out.ptr, "-9000000000000000000 -3000000000000000000 3000000000000000000 "
                                 "[-3000000000000000000, 3000000000000000000] 3000000000000000000 "
                                 "True");
    sh_buf_reset(&out);
    cJSON_Delete(vars);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_range_reaches_the_ends_of_64_bits),
        cmocka_unit_test(small_templates_render_as_jinja2_renders_them),
        cmocka_unit_test(errors_are_those_of_jinja2_and_python),
        cmocka_unit_test(conversations_render_as_jinja2_renders_them),
        cmocka_unit_test(errors_carry_the_line),
        cmocka_unit_test(hostile_templates_hit_a_limit),
        cmocka_unit_test(nesting_is_bounded_in_every_construct),
        cmocka_unit_test(later_variables_replace_earlier_ones),
        cmocka_unit_test(one_template_renders_in_many_threads),
        cmocka_unit_test(text_grown_in_a_loop_takes_linear_memory),
    };
    setenv("TZ", "UTC", 1);
    tzset();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
