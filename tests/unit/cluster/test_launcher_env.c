#include "cluster/launcher_env.h"

#include "test.h"

#include <stdlib.h>

static const char *const NAMES[] = {
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "PMI_RANK",
    "PMI_SIZE",
    "MPI_LOCALNRANKS",
    "SLURM_PROCID",
    "SLURM_STEP_NUM_TASKS",
    "SLURM_STEP_NUM_NODES",
    "SLURM_STEP_NODELIST",
    "SLURM_JOB_NODELIST",
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
};

/* Reads an environment with the variables in `pairs` ("NAME=value ...") and no others of a
 * launcher. */
static void environment(const char *pairs)
{
    for (size_t i = 0; i < SH_COUNT_OF(NAMES); i++) unsetenv(NAMES[i]);
    char text[512];
    snprintf(text, sizeof(text), "%s", pairs);
    for (char *pair = strtok(text, " "); pair != NULL; pair = strtok(NULL, " ")) {
        char *equals = strchr(pair, '=');
        *equals = '\0';
        setenv(pair, equals + 1, 1);
    }
}

static sh_launcher_env world_of(const char *pairs)
{
    sh_launcher_env world;
    sh_err err;
    environment(pairs);
    CHECK_OK(sh_launcher_env_read(&world, &err), err);
    return world;
}

TEST(a_process_that_nobody_launched_is_alone)
{
    UNUSED_STATE;
    sh_launcher_env world = world_of("");
    assert_int_equal(world.launcher, SH_LAUNCHER_NONE);
    assert_int_equal(world.size, 1);
}

TEST(reads_rank_and_size_of_both_mpiruns)
{
    UNUSED_STATE;
    sh_launcher_env world = world_of("OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=3 "
                                     "OMPI_COMM_WORLD_LOCAL_SIZE=3");
    assert_int_equal(world.launcher, SH_LAUNCHER_MPI);
    assert_int_equal(world.rank, 2);
    assert_int_equal(world.size, 3);
    assert_true(world.one_host);
    world = world_of("PMI_RANK=1 PMI_SIZE=4 MPI_LOCALNRANKS=2");
    assert_int_equal(world.rank, 1);
    assert_int_equal(world.size, 4);
    assert_false(world.one_host);
}

TEST(slurm_tells_where_rank_0_is)
{
    UNUSED_STATE;
    sh_launcher_env world = world_of(
        "SLURM_PROCID=3 SLURM_STEP_NUM_TASKS=4 SLURM_STEP_NUM_NODES=2 "
        "SLURM_STEP_NODELIST=node[07-08] SLURM_JOB_NODELIST=node[01-09] "
        "SLURM_JOB_ID=5 SLURM_STEP_ID=2");
    assert_int_equal(world.launcher, SH_LAUNCHER_SLURM);
    assert_int_equal(world.rank, 3);
    assert_string_equal(world.coordinator, "node07:20157");
    world = world_of("SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NUM_NODES=1 "
                     "SLURM_STEP_NODELIST=node07 SLURM_JOB_ID=5 SLURM_STEP_ID=3");
    assert_string_equal(world.coordinator, "127.0.0.1:20158");
}

TEST(a_batch_script_of_slurm_is_no_step)
{
    UNUSED_STATE;
    assert_int_equal(world_of("SLURM_PROCID=0 SLURM_JOB_ID=5").launcher, SH_LAUNCHER_NONE);
}

TEST(mpirun_inside_of_slurm_counts_as_mpirun)
{
    UNUSED_STATE;
    sh_launcher_env world = world_of("SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NUM_NODES=2 "
                                     "OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4");
    assert_int_equal(world.launcher, SH_LAUNCHER_MPI);
    assert_int_equal(world.rank, 3);
}

TEST(values_that_make_no_sense_are_named)
{
    UNUSED_STATE;
    static const struct {
        const char *pairs, *said;
    } cases[] = {
        {"PMI_RANK=x PMI_SIZE=4", "PMI_RANK is 'x'"},
        {"PMI_RANK=4 PMI_SIZE=4", "PMI_RANK is '4'"},
        {"PMI_RANK=0 PMI_SIZE=0", "PMI_SIZE is '0'"},
        {"PMI_RANK=0 PMI_SIZE=65", "PMI_SIZE is '65'"},
        {"SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NUM_NODES=2 SLURM_JOB_ID=1 "
         "SLURM_STEP_ID=0",
         "not a node list"},
        {"SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NUM_NODES=2", "SLURM_JOB_ID"},
    };
    for (size_t i = 0; i < SH_COUNT_OF(cases); i++) {
        sh_launcher_env world;
        sh_err err;
        environment(cases[i].pairs);
        sh_status status = sh_launcher_env_read(&world, &err);
        CHECK_FAILS(status, err, cases[i].said);
    }
}

TEST(finds_the_first_name_of_a_list_of_nodes)
{
    UNUSED_STATE;
    static const char *const cases[][2] = {
        {"h1", "h1"},
        {"h1,h2", "h1"},
        {"node[01-03,7]", "node01"},
        {"node[9,01-03],gpu5", "node9"},
        {"rack[2-3]n[010-012].lan", "rack2n010.lan"},
        {"a-b-c[5]", "a-b-c5"},
    };
    static const char *const bad[] = {"", ",", "node[1", "node[[1]]", "n]1"};
    char name[SH_ADDR_HOST_MAX];
    sh_err err;
    for (size_t i = 0; i < SH_COUNT_OF(cases); i++) {
        CHECK_OK(sh_nodelist_first(cases[i][0], name, &err), err);
        assert_string_equal(name, cases[i][1]);
    }
    for (size_t i = 0; i < SH_COUNT_OF(bad); i++) {
        sh_status status = sh_nodelist_first(bad[i], name, &err);
        CHECK_FAILS(status, err, "not a node list");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_process_that_nobody_launched_is_alone),
        cmocka_unit_test(reads_rank_and_size_of_both_mpiruns),
        cmocka_unit_test(slurm_tells_where_rank_0_is),
        cmocka_unit_test(a_batch_script_of_slurm_is_no_step),
        cmocka_unit_test(mpirun_inside_of_slurm_counts_as_mpirun),
        cmocka_unit_test(values_that_make_no_sense_are_named),
        cmocka_unit_test(finds_the_first_name_of_a_list_of_nodes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
