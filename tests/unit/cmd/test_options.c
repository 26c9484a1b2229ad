/* The variables of related projects, whose users bring their .env files: each is known here, and
 * values that those projects refuse are refused. */
#include "cmd/command.h"

#include "test.h"

static bool is_ignored(const char *name)
{
    for (size_t i = 0; i < sh_option_rows.ignored_count; i++)
        if (strcmp(sh_option_rows.ignored[i].name, name) == 0) return true;
    return false;
}

TEST(every_variable_of_related_projects_is_known)
{
    UNUSED_STATE;
    static const char *const names[] = {
        /* MLX and its launchers */
        "MLX_RANK",
        "MLX_HOSTFILE",
        "MLX_RING_VERBOSE",
        "MLX_IBV_DEVICES",
        "JACCL_IBV_DEVICES",
        "MLX_JACCL_COORDINATOR",
        "JACCL_COORDINATOR",
        "MLX_JACCL_RING",
        "JACCL_RING",
        "JACCL_RANK",
        "MLX_WORLD_SIZE",
        "NCCL_HOST_IP",
        "NCCL_PORT",
        "CUDA_VISIBLE_DEVICES",
        "MLX_NCCL_TIMEOUT",
        "MLX_MPI_LIBNAME",
        "DYLD_LIBRARY_PATH",
        "MLX_METAL_FAST_SYNCH",
        "COLUMNS",
        "LINES",
        "MLX_DISTRIBUTED_HOSTFILE",
        "MLX_DISTRIBUTED_BACKEND",
        "MLX_DISTRIBUTED_ADDR",
        "MLX_LISTEN_PORT",
        "TOKEN",
        "VLLM_MLX_DISTRIBUTED",
        "VLLM_MLX_WORLD_SIZE",
        "VLLM_MLX_BACKEND",
        "VLLM_MLX_MODEL",
        "HF_HUB_OFFLINE",
        "TRANSFORMERS_OFFLINE",
        "HF_HOME",
        /* .env of the ring servers */
        "MODEL_REPO",
        "MODEL_CACHE_DIR",
        "API_HOST",
        "API_PORT",
        "WORKER_HOSTS",
        "WORKER_SSH",
        "SOCKET_PATH",
        "REQUEST_FILE_PATH",
        "RESPONSE_FILE_PATH",
        "NUM_DEVICES",
        "DISTRIBUTED_BACKEND",
        "KV_CACHE_MAX_SIZE",
        "KV_CACHE_RESERVED_MEMORY_MB",
        "MAX_SEQUENCE_LENGTH",
        "MAX_PROMPT_LEN_BYTES",
        "REQUEST_TIMEOUT_SECONDS",
        "POLL_INTERVAL_SECONDS",
        "DEFAULT_MAX_TOKENS",
        "FILE_DESCRIPTOR_SOFT_LIMIT",
        "FILE_DESCRIPTOR_HARD_LIMIT",
        "MODEL_LOAD_WAIT_SECONDS",
        "LOG_LEVEL",
        "SERVER_LOG_PATH",
        "API_LOG_PATH",
        /* the jaccl cluster */
        "MODEL_DIR",
        "HOSTFILE",
        "MODEL_ID",
        "HTTP_HOST",
        "HTTP_PORT",
        "CTRL_HOST",
        "CTRL_PORT",
        "QUEUE_MAX",
        "REQ_TIMEOUT",
        "MAX_TOKENS",
        "RDMA_DEVICES",
        "HOST",
        "PORT",
        "PYTHONPATH",
        "MLX_HARD_MAX_TOKENS",
        "MLX_SYSTEM_RESERVE_GB",
        "MLX_MAX_RAM_FRACTION",
        "MLX_CACHE_FRACTION",
        "MLX_WIRED_LIMIT_GB",
        "MLX_PRESSURE_WARN",
        "MLX_PRESSURE_CRITICAL",
        "OVERRIDE_MEMORY_MB",
        "REQUEST_LOG_PATH",
        "QWEN3_ENABLE_THINKING",
        "RDMA_ROUNDS",
        "RDMA_SIZES",
        "RDMA_VERBOSE",
        "RDMA_MAX_MB",
        "BENCH_RUNS",
        "BENCH_WARMUP",
    };
    for (size_t i = 0; i < SH_COUNT_OF(names); i++) {
        bool works = sh_option_by_env(&sh_option_rows, sh_str_of(names[i])) != NULL;
        if (works == is_ignored(names[i]))
            fail_msg("%s: known %s", names[i], works ? "twice" : "never");
    }
}

TEST(values_that_their_projects_refuse_are_refused)
{
    UNUSED_STATE;
    static char *const bad[] = {
        "API_PORT=65536",
        "API_PORT=x",
        "NUM_DEVICES=0",
        "DISTRIBUTED_BACKEND=gloo",
        "KV_CACHE_MAX_SIZE=-1",
        "KV_CACHE_RESERVED_MEMORY_MB=-1",
        "MAX_SEQUENCE_LENGTH=-1",
        "REQUEST_TIMEOUT_SECONDS=-1",
        "DEFAULT_MAX_TOKENS=-1",
        "FILE_DESCRIPTOR_SOFT_LIMIT=-1",
        "LOG_LEVEL=LOUD",
        "CTRL_PORT=0",
        "QUEUE_MAX=-1",
        "MLX_RANK=64",
        "MLX_HARD_MAX_TOKENS=1.5",
        "BENCH_RUNS=0",
    };
    for (size_t i = 0; i < SH_COUNT_OF(bad); i++) {
        sh_settings settings = {0};
        sh_options *options = sh_options_create(&sh_option_rows, &settings);
        char *env[] = {bad[i], NULL};
        sh_err err;
        CHECK_FAILS(sh_options_parse_env(options, env, &err), err, "is not allowed; it takes");
        sh_options_free(options);
    }
}

TEST(an_empty_variable_counts_as_unset)
{
    UNUSED_STATE;
    sh_settings settings = {0};
    sh_options *options = sh_options_create(&sh_option_rows, &settings);
    char *env[] = {"KV_CACHE_MAX_SIZE=", "MODEL_REPO=", NULL};
    sh_err err;
    CHECK_OK(sh_options_parse_env(options, env, &err), err);
    assert_null(settings.model);
    sh_options_free(options);
}

TEST(no_two_rows_share_a_name_or_a_variable)
{
    UNUSED_STATE;
    const sh_option_table *t = &sh_option_rows;
    for (size_t i = 0; i < t->count; i++) {
        sh_str rest = sh_str_of(t->rows[i].aliases), alias;
        while (sh_str_cut(&rest, ' ', &alias))
            if (sh_option_by_env(t, alias) != &t->rows[i])
                fail_msg("%.*s belongs to two rows", (int)alias.len, alias.ptr);
        for (size_t j = 0; j < i; j++) {
            assert_string_not_equal(t->rows[i].name, t->rows[j].name);
            bool meet = (t->rows[i].commands & t->rows[j].commands) != 0;
            if (meet && strcmp(sh_option_flag(&t->rows[i]), sh_option_flag(&t->rows[j])) == 0)
                fail_msg("a command has --%s twice", sh_option_flag(&t->rows[i]));
        }
    }
}

TEST(flags_of_related_projects_are_those_of_our_own)
{
    UNUSED_STATE;
    char *argv[] = {"--mlx-backend", "jaccl", "--mlx-listen-port", "5555"};
    sh_settings settings = {0};
    sh_options *opts = sh_options_create(&sh_option_rows, &settings);
    sh_err err;
    int left;
    CHECK_OK(sh_options_parse_flags(opts, FOR(worker), 4, argv, &left, &err), err);
    assert_int_equal(left, 0);
    assert_string_equal(settings.backend, "jaccl");
    assert_int_equal(settings.p2p_port, 5555);
    assert_true(sh_options_given(opts, "backend"));
    sh_options_free(opts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_variable_of_related_projects_is_known),
        cmocka_unit_test(values_that_their_projects_refuse_are_refused),
        cmocka_unit_test(an_empty_variable_counts_as_unset),
        cmocka_unit_test(no_two_rows_share_a_name_or_a_variable),
        cmocka_unit_test(flags_of_related_projects_are_those_of_our_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
