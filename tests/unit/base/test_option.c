#include "base/option.h"

#include "base/file.h"

#include "test.h"

#include <sys/stat.h>
#include <unistd.h>

struct settings {
    bool loud;
    bool safe;
    int64_t port;
    double heat;
    int64_t room;
    const char *name;
    const char *key;
    const char *kind;
    int64_t prompt;
    const char *library;
    const char *vars;
    const char *file;
    const char *model;
};

enum { RUN = 1, BENCH = 2 };

#define AT(field) .offset = offsetof(struct settings, field)
static const sh_option rows[] = {
    {.name = "loud", .type = SH_OPT_BOOL, .help = "be loud", AT(loud), .commands = RUN},
    {.name = "safe",
     .type = SH_OPT_BOOL,
     .fallback = "true",
     .help = "be safe",
     AT(safe),
     .commands = RUN},
    {.name = "port",
     .type = SH_OPT_INT,
     .value_name = "N",
     .fallback = "8100",
     .min = 1,
     .max = 65535,
     .aliases = "API_PORT HTTP_PORT",
     .help = "port",
     AT(port),
     .commands = RUN | BENCH,
     .letter = 'p'},
    {.name = "heat",
     .type = SH_OPT_FLOAT,
     .fallback = "0.5",
     .min = 0,
     .max = 2,
     .help = "heat",
     AT(heat),
     .commands = RUN},
    {.name = "room",
     .type = SH_OPT_SIZE,
     .min = 0,
     .max = 1e15,
     .help = "room",
     AT(room),
     .commands = RUN},
    {.name = "name", .type = SH_OPT_STRING, .help = "name", AT(name), .commands = RUN},
    {.name = "api-key", .type = SH_OPT_SECRET, .help = "key", AT(key), .commands = RUN},
    {.name = "kind",
     .type = SH_OPT_CHOICE,
     .choices = "ring|mpi",
     .fallback = "ring",
     .help = "kind",
     AT(kind),
     .commands = RUN},
    {.name = "bench-name",
     .flag = "name",
     .type = SH_OPT_INT,
     .min = 0,
     .max = 9,
     .help = "a number here",
     AT(prompt),
     .commands = BENCH},
    {.name = "library",
     .type = SH_OPT_STRING,
     .help = "library",
     AT(library),
     .commands = RUN,
     .runs_code = true},
    {.name = "var",
     .type = SH_OPT_STRING,
     .help = "variables",
     AT(vars),
     .commands = RUN,
     .repeats = true},
    {.name = "file", .type = SH_OPT_PATH, .help = "file", AT(file), .commands = RUN},
    {.name = "model", .type = SH_OPT_MODEL, .help = "model", AT(model), .commands = RUN},
};
static const sh_option_ignored ignored[] = {
    {.name = "OLD_NAME", .why = "it went away"},
    {.name = "COMMON", .why = "others set it", .quiet = true},
    {.name = "--faster", .why = "it is fast already"},
};
static const sh_option_table table = {.rows = rows,
                                      .count = sizeof(rows) / sizeof(rows[0]),
                                      .ignored = ignored,
                                      .ignored_count = sizeof(ignored) / sizeof(ignored[0]),
                                      .env_prefix = "SHOAL_"};

static sh_err err;
static struct settings set;

static sh_options *fresh(void)
{
    memset(&set, 0, sizeof(set));
    return sh_options_create(&table, &set);
}

static sh_status flags(sh_options *opts, int command, int *left, char **argv)
{
    int argc = 0;
    while (argv[argc] != NULL) argc++;
    return sh_options_parse_flags(opts, (uint64_t)command, argc, argv, left, &err);
}

#define ARGS(...) ((char *[]){__VA_ARGS__, NULL})

TEST(flags_take_values_in_both_spellings)
{
    UNUSED_STATE;
    sh_options *opts = fresh();
    char *argv[] = {"a",      "--port", "9", "--heat=1.5", "--loud", "--no-safe",
                    "--room", "1.5G",   "b", "--",         "--c",    NULL};
    int left;
    CHECK_OK(flags(opts, RUN, &left, argv), err);
    assert_int_equal(left, 3);
    assert_string_equal(argv[0], "a");
    assert_string_equal(argv[1], "b");
    assert_string_equal(argv[2], "--c");
    assert_int_equal(set.port, 9);
    assert_true(set.heat == 1.5);
    assert_true(set.loud);
    assert_false(set.safe);
    assert_int_equal(set.room, (int64_t)3 << 29);
    assert_string_equal(set.kind, "ring");
    sh_options_free(opts);
}

TEST(the_values_of_a_repeated_flag_are_joined)
{
    UNUSED_STATE;
    sh_options *opts = fresh();
    char *argv[] = {"--var", "A=1", "--var=B=2", "--name", "x", "--name", "y", NULL};
    int left;
    CHECK_OK(sh_options_parse_env(opts, (char *[]){"SHOAL_VAR=C=3", NULL}, &err), err);
    assert_string_equal(set.vars, "C=3");
    CHECK_OK(flags(opts, RUN, &left, argv), err);
    assert_string_equal(set.vars, "A=1\nB=2"); /* and a stronger source replaces a weaker one */
    assert_string_equal(set.name, "y");
    sh_options_free(opts);
}

TEST(a_refused_value_is_named_with_what_is_allowed)
{
    UNUSED_STATE;
    sh_options *opts = fresh();
    int left;
    CHECK_FAILS(flags(opts, RUN, &left, ARGS("--port", "0")), err,
                "--port: '0' is not allowed; it takes a whole number from 1 to 65535");
    CHECK_FAILS(flags(opts, RUN, &left, ARGS("--port", "8x")), err, "'8x'");
    CHECK_FAILS(flags(opts, RUN, &left, ARGS("--kind", "rin")), err, "one of ring|mpi");
    CHECK_FAILS(flags(opts, RUN, &left, ARGS("--heat")), err, "--heat needs a value");
    CHECK_FAILS(flags(opts, RUN, &left, ARGS("--prot", "1")), err, "did you mean --port?");
    CHECK_FAILS(flags(opts, RUN, &left, ARGS("--loud=maybe")), err, "true or false");
    CHECK_FAILS(flags(opts, BENCH, &left, ARGS("--loud")), err, "unknown flag --loud");
    CHECK_FAILS(flags(opts, RUN, &left, ARGS("--no-port")), err, "unknown flag --no-port");
    CHECK_FAILS(flags(opts, RUN, &left, ARGS("--room", "5Q")), err, "such as 512M");
    CHECK_FAILS(flags(opts, RUN, &left, ARGS("--name", "")), err, "non-empty text");
    sh_options_free(opts);
}

TEST(the_nearer_source_wins_whatever_the_order_of_reading)
{
    UNUSED_STATE;
    char path[] = "/tmp/shoal-option-XXXXXX";
    int fd = mkstemp(path);
    const char text[] = "# comment\nexport API_PORT=3\nSHOAL_HEAT='0.25'\nSHOAL_NAME=\"x "
                        "${SHOAL_TEST_WHO} y\"  # why\n"
                        "SHOAL_KIND=mpi # trailing\nUNKNOWN=1\n";
    assert_int_equal(write(fd, text, sizeof(text) - 1), sizeof(text) - 1);
    close(fd);
    setenv("SHOAL_TEST_WHO", "me", 1);
    sh_options *opts = fresh();
    int left;
    CHECK_OK(flags(opts, RUN, &left, ARGS("--port", "1")), err);
    CHECK_OK(
        sh_options_parse_env(opts, ARGS("SHOAL_PORT=2", "SHOAL_KIND=ring", "SHOAL_NAME="), &err),
        err);
    CHECK_OK(sh_options_parse_dotenv(opts, path, true, &err), err);
    assert_int_equal(set.port, 1);
    assert_true(set.heat == 0.25);
    assert_string_equal(set.name, "x me y");
    assert_string_equal(set.kind, "ring");
    assert_int_equal(sh_options_source(opts, "port"), SH_FROM_FLAG);
    assert_int_equal(sh_options_source(opts, "heat"), SH_FROM_DOTENV);
    assert_false(sh_options_given(opts, "room"));
    sh_options_free(opts);
    unlink(path);
}

TEST(aliases_that_disagree_are_refused)
{
    UNUSED_STATE;
    sh_options *opts = fresh();
    CHECK_OK(sh_options_parse_env(opts, ARGS("API_PORT=5", "HTTP_PORT=5"), &err), err);
    CHECK_FAILS(sh_options_parse_env(opts, ARGS("SHOAL_PORT=6"), &err), err,
                "HTTP_PORT and SHOAL_PORT are the same setting but have different values");
    sh_options_free(opts);
}

TEST(a_file_fault_is_named_by_line)
{
    UNUSED_STATE;
    const char *path = "/tmp/shoal-option-test.conf";
    sh_options *opts = fresh();
    CHECK_OK(sh_file_write(path, "port = 7\n\nprt = 8\n", 18, &err), err);
    CHECK_FAILS(sh_options_parse_file(opts, path, &err), err,
                "test.conf:3: 'prt' is not a setting");
    assert_int_equal(set.port, 7);
    CHECK_OK(sh_file_write(path, "name = \"x\n", 10, &err), err);
    CHECK_FAILS(sh_options_parse_file(opts, path, &err), err, ":1: unbalanced quotes");
    unlink(path);
    sh_options_free(opts);
}

TEST(secrets_are_never_shown_and_foreign_names_are_noticed)
{
    UNUSED_STATE;
    sh_options *opts = fresh();
    CHECK_OK(sh_options_parse_env(opts, ARGS("SHOAL_API_KEY=hunter2", "OLD_NAME=1"), &err), err);
    assert_string_equal(set.key, "hunter2");
    sh_buf out = {0};
    sh_options_print(opts, RUN, &out);
    assert_null(strstr(out.ptr, "hunter2"));
    assert_non_null(strstr(out.ptr, "api-key = (hidden)  # environment SHOAL_API_KEY"));
    assert_non_null(
        strstr(sh_options_notices(opts).ptr, "OLD_NAME is not used here: it went away"));
    sh_buf_reset(&out);
    sh_options_free(opts);
}

TEST(one_flag_may_mean_different_things_to_two_commands)
{
    UNUSED_STATE;
    sh_options *opts = fresh();
    int left;
    CHECK_OK(flags(opts, BENCH, &left, ARGS("--name", "4")), err);
    assert_int_equal(set.prompt, 4);
    assert_null(set.name);
    CHECK_FAILS(flags(opts, BENCH, &left, ARGS("--name", "ten")), err, "--name: 'ten'");
    sh_options_free(opts);
}

static void given_add(void *arg, const sh_option *row, const char *text)
{
    sh_buf_addf(arg, "%s=%s;", row->name, text);
}

TEST(what_was_given_can_be_handed_on)
{
    UNUSED_STATE;
    sh_options *opts = fresh();
    sh_buf all = {0};
    int left;
    CHECK_OK(flags(opts, RUN, &left, ARGS("--port", "9", "--api-key", "k", "--no-safe")), err);
    CHECK_OK(sh_options_parse_env(opts, ARGS("API_PORT=7", "SHOAL_NAME=it's", "HOME=/"), &err),
             err);
    sh_options_each_given(opts, given_add, &all);
    assert_string_equal(all.ptr, "safe=false;port=9;name=it's;api-key=k;");
    sh_buf_reset(&all);
    sh_options_free(opts);
    assert_ptr_equal(sh_option_by_env(&table, SH_STR("HTTP_PORT")), &rows[2]);
    assert_ptr_equal(sh_option_by_env(&table, SH_STR("SHOAL_PORT")), &rows[2]);
    assert_null(sh_option_by_env(&table, SH_STR("HOME")));
}

TEST(a_letter_stands_for_its_flag)
{
    UNUSED_STATE;
    sh_options *opts = fresh();
    char *argv[] = {"-p", "9", "-1", "-x"};
    int left;
    CHECK_OK(sh_options_parse_flags(opts, RUN, 4, argv, &left, &err), err);
    assert_int_equal(set.port, 9);
    assert_int_equal(left, 2);
    assert_string_equal(argv[0], "-1");
    sh_options_free(opts);
}

TEST(faults_are_collected_and_origins_are_reported)
{
    UNUSED_STATE;
    sh_options *opts = fresh();
    char *argv[] = {"--port", "x", "--heat=9", "--loud", "--nonsense"};
    char *env[] = {"API_PORT=70000", "COMMON=1", NULL};
    int left;
    sh_buf text = {0};
    sh_options_collect(opts);
    CHECK_OK(sh_options_parse_flags(opts, RUN, 5, argv, &left, &err), err);
    CHECK_OK(sh_options_parse_env(opts, env, &err), err);
    CHECK_OK(
        sh_file_write("build/test-faults.env", "\nHTTP_PORT=81\noops\nSHOAL_HEAT=1\n", 31, &err),
        err);
    CHECK_OK(sh_options_parse_dotenv(opts, "build/test-faults.env", true, &err), err);
    unlink("build/test-faults.env");
    const char *faults = sh_options_faults(opts).ptr;
    assert_non_null(strstr(faults, "--port: 'x' is not allowed"));
    assert_non_null(strstr(faults, "--heat: '9' is not allowed"));
    assert_non_null(strstr(faults, "unknown flag --nonsense"));
    assert_non_null(strstr(faults, "API_PORT: '70000' is not allowed"));
    assert_non_null(strstr(faults, "build/test-faults.env:3: expected NAME=value"));
    assert_true(set.loud);
    assert_int_equal(set.port, 81);
    sh_options_origin(opts, "port", &text);
    assert_string_equal(text.ptr, "build/test-faults.env:2 HTTP_PORT");
    sh_buf_clear(&text);
    sh_options_origin(opts, "loud", &text);
    assert_string_equal(text.ptr, "flag");
    sh_buf_clear(&text);
    assert_int_equal(sh_options_notices(opts).len, 0);
    assert_string_equal(sh_options_ignored_text(opts, 1, &text), "1");
    assert_string_equal(text.ptr, "environment");
    assert_null(sh_options_ignored_text(opts, 0, &text));
    sh_buf_reset(&text);
    sh_options_free(opts);
}

static void implicit_read(const char *path, sh_options *opts)
{
    CHECK_OK(sh_options_parse_dotenv(opts, path, false, &err), err);
}

TEST(an_implicit_file_cannot_run_code)
{
    UNUSED_STATE;
    const char *path = "build/test-implicit.env";
    CHECK_OK(sh_file_write(path, "SHOAL_LIBRARY=/x.so\nAPI_PORT=81\n", 32, &err), err);
    sh_options *opts = fresh();
    implicit_read(path, opts);
    assert_null(set.library);
    assert_int_equal(set.port, 81);
    assert_true(sh_options_is_implicit(opts, "port"));
    assert_non_null(strstr(sh_options_warnings(opts).ptr, "test-implicit.env:1: SHOAL_LIBRARY"));
    assert_non_null(strstr(sh_options_warnings(opts).ptr, "pass --library"));
    sh_options_free(opts);

    opts = fresh(); /* no warning if the environment has already set it */
    CHECK_OK(sh_options_parse_env(opts, ARGS("SHOAL_LIBRARY=/y.so"), &err), err);
    implicit_read(path, opts);
    assert_string_equal(set.library, "/y.so");
    assert_int_equal(sh_options_warnings(opts).len, 0);
    sh_options_free(opts);

    opts = fresh();
    CHECK_OK(sh_options_parse_dotenv(opts, path, true, &err), err);
    assert_string_equal(set.library, "/x.so");
    assert_false(sh_options_is_implicit(opts, "port"));
    assert_int_equal(sh_options_warnings(opts).len, 0);
    sh_options_free(opts);
    unlink(path);
}

TEST(a_file_of_others_is_not_read_unless_it_is_named)
{
    UNUSED_STATE;
    const char *path = "build/test-foreign.env";
    for (int foreign = 0; foreign < 2; foreign++) {
        CHECK_OK(sh_file_write(path, "API_PORT=81\n", 12, &err), err);
        if (foreign && chown(path, 12345, 12345) != 0) break; /* only root can chown */
        if (!foreign) assert_int_equal(chmod(path, 0664), 0);
        sh_options *opts = fresh();
        implicit_read(path, opts);
        assert_int_equal(set.port, 8100);
        assert_non_null(strstr(sh_options_warnings(opts).ptr,
                               foreign ? "belongs to another user" : "others may write"));
        CHECK_OK(sh_options_parse_dotenv(opts, path, true, &err), err);
        assert_int_equal(set.port, 81);
        sh_options_free(opts);
        unlink(path);
    }
}

TEST(a_settings_file_may_be_json_with_sections)
{
    UNUSED_STATE;
    sh_options *opts = fresh();
    CHECK_OK(
        sh_options_parse_json(opts,
                              SH_STR("{\"api\": {\"port\": 81}, \"loud\": true, \"x\": {\"heat\": "
                                     "1.5, \"api_key\": \"k\"}, \"name\": [\"a\", 2], "
                                     "\"old_name\": 1, \"room\": null}"),
                              "conf", &err),
        err);
    assert_int_equal(set.port, 81);
    assert_true(set.loud && set.heat == 1.5);
    assert_string_equal(set.name, "a,2");
    assert_string_equal(set.key, "k");
    assert_non_null(strstr(sh_options_notices(opts).ptr, "OLD_NAME is not used"));
    CHECK_FAILS(sh_options_parse_json(opts, SH_STR("{\"api\": {\"prot\": 1}}"), "conf", &err), err,
                "conf: 'api.prot' is not a setting");
    CHECK_FAILS(sh_options_parse_json(opts, SH_STR("{\"port\": {}, \"loud\": [{}]}"), "conf", &err),
                err, "conf: 'loud' must be");
    CHECK_FAILS(sh_options_parse_json(opts, SH_STR("{\"heat\": 9}"), "conf", &err), err,
                "conf: heat: '9' is not allowed");
    CHECK_FAILS(sh_options_parse_json(opts, SH_STR("{"), "conf", &err), err,
                "conf: not valid JSON");
    sh_options_free(opts);
}

static void reads_path(const char *file, const char *text, const char *name, const char *model)
{
    sh_options *opts = fresh();
    CHECK_OK(sh_file_write(file, text, strlen(text), &err), err);
    CHECK_OK(strstr(file, ".env") != NULL ? sh_options_parse_dotenv(opts, file, true, &err)
                                          : sh_options_parse_file(opts, file, &err),
             err);
    unlink(file);
    assert_string_equal(set.file, name);
    if (model != NULL) assert_string_equal(set.model, model);
    sh_options_free(opts);
}

TEST(paths_in_a_file_are_relative_to_its_folder)
{
    UNUSED_STATE;
    const char *conf = "build/test-paths";
    reads_path(conf, "file = keys.txt\nmodel = org/name\n", "build/keys.txt", "org/name");
    reads_path(conf, "{\"file\": \"../k\", \"model\": \"./m\"}", "build/../k", "build/./m");
    reads_path("build/test-paths.env", "SHOAL_FILE=a/b\nSHOAL_MODEL=../m\n", "build/a/b",
               "build/../m");
    reads_path(conf, "file = /etc/keys\n", "/etc/keys", NULL);
    reads_path(conf, "file = -\n", "-", NULL);
    reads_path(conf, "file = ~/keys\n", "~/keys", NULL);
    reads_path(conf, "file = '[[null]]'\n", "[[null]]", NULL);
    reads_path("test-paths-here", "file = keys\n", "keys", NULL);
}

TEST(paths_in_flags_and_variables_stay_as_they_are)
{
    UNUSED_STATE;
    sh_options *opts = fresh();
    int left;
    CHECK_OK(sh_options_parse_env(opts, (char *[]){"SHOAL_FILE=a/b", NULL}, &err), err);
    assert_string_equal(set.file, "a/b");
    CHECK_OK(flags(opts, RUN, &left, ARGS("--file", "keys.txt")), err);
    assert_string_equal(set.file, "keys.txt");
    sh_options_free(opts);
}

TEST(a_flag_of_other_programs_is_understood_and_said_once)
{
    UNUSED_STATE;
    sh_options *opts = fresh();
    int left;
    CHECK_OK(flags(opts, RUN, &left, ARGS("--faster", "x", "--faster")), err);
    assert_int_equal(left, 1);
    assert_true(
        sh_str_is(sh_options_notices(opts), "--faster is not used here: it is fast already\n"));
    CHECK_FAILS(flags(opts, RUN, &left, ARGS("--fastest")), err, "unknown flag --fastest");
    sh_options_free(opts);
}

TEST(help_has_sections_and_hides_what_is_rare)
{
    UNUSED_STATE;
    static const sh_option some[] = {
        {.name = "none", .section = "Empty", .type = SH_OPT_BOOL, .help = "n", .commands = BENCH},
        {.name = "one", .section = "First", .type = SH_OPT_BOOL, .help = "1", .commands = RUN},
        {.name = "rare", .hidden = true, .type = SH_OPT_BOOL, .help = "r", .commands = RUN},
        {.name = "inner", .section = "Hidden", .hidden = true, .help = "i", .commands = RUN},
        {.name = "last", .section = "Last", .type = SH_OPT_BOOL, .help = "l", .commands = RUN},
    };
    static const sh_option_table few = {.rows = some, .count = SH_COUNT_OF(some)};
    sh_buf text = {0};
    assert_int_equal(sh_options_help(&few, RUN, false, &text), 2);
    assert_string_equal(text.ptr, "\nFirst:\n  --one                     1\n"
                                  "\nLast:\n  --last                    l\n");
    sh_buf_reset(&text);
    assert_int_equal(sh_options_help(&few, RUN, true, &text), 0);
    assert_non_null(strstr(text.ptr, "--rare"));
    assert_non_null(strstr(text.ptr, "\nHidden:\n"));
    sh_buf_reset(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flags_take_values_in_both_spellings),
        cmocka_unit_test(the_values_of_a_repeated_flag_are_joined),
        cmocka_unit_test(a_refused_value_is_named_with_what_is_allowed),
        cmocka_unit_test(the_nearer_source_wins_whatever_the_order_of_reading),
        cmocka_unit_test(aliases_that_disagree_are_refused),
        cmocka_unit_test(a_file_fault_is_named_by_line),
        cmocka_unit_test(secrets_are_never_shown_and_foreign_names_are_noticed),
        cmocka_unit_test(one_flag_may_mean_different_things_to_two_commands),
        cmocka_unit_test(what_was_given_can_be_handed_on),
        cmocka_unit_test(a_letter_stands_for_its_flag),
        cmocka_unit_test(faults_are_collected_and_origins_are_reported),
        cmocka_unit_test(an_implicit_file_cannot_run_code),
        cmocka_unit_test(a_file_of_others_is_not_read_unless_it_is_named),
        cmocka_unit_test(a_settings_file_may_be_json_with_sections),
        cmocka_unit_test(paths_in_a_file_are_relative_to_its_folder),
        cmocka_unit_test(paths_in_flags_and_variables_stay_as_they_are),
        cmocka_unit_test(a_flag_of_other_programs_is_understood_and_said_once),
        cmocka_unit_test(help_has_sections_and_hides_what_is_rare),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
