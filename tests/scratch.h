/* scratch.h - a folder of a test program's own, `dir`: make_dir and remove_dir are the setup and
 * the teardown of its group of tests.
 *
 * Threads: one program, one folder. */
#ifndef SH_TESTS_SCRATCH_H
#define SH_TESTS_SCRATCH_H

#include "base/alloc.h"

#include "test.h"

static char dir[32];

static int make_dir(void **state)
{
    UNUSED_STATE;
    strcpy(dir, "/tmp/shoal-test-XXXXXX");
    return mkdtemp(dir) == NULL;
}

static int remove_dir(void **state)
{
    UNUSED_STATE;
    char *command = sh_asprintf("rm -rf '%s'", dir);
    int rc = system(command);
    free(command);
    return rc;
}

#endif
