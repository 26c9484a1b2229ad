#include "cmd/support/launch_job.h"

#include "base/status.h"

#include <string.h>

static const sh_launch_job JOBS[] = {
    {.name = "serve",
     .first = "serve",
     .others = "worker",
     .needs_model = true,
     .first_agent = SH_CHILD_AGENT,
     .other_agents = SH_CHILD_MEMBER_AGENT},
    {.name = "linktest",
     .first = "linktest",
     .others = "linktest",
     .ends = true,
     .first_agent = SH_CHILD_AGENT,
     .other_agents = SH_CHILD_AGENT},
    {.name = "bench",
     .first = "bench",
     .others = "bench",
     .ends = true,
     .needs_model = true,
     .first_agent = SH_CHILD_AGENT,
     .other_agents = SH_CHILD_AGENT},
    {.name = "program", .ends = true, .first_agent = SH_CHILD_TASK, .other_agents = SH_CHILD_TASK},
};

const sh_launch_job *sh_launch_job_find(const char *name)
{
    size_t i = 0;
    while (i < SH_COUNT_OF(JOBS) && strcmp(JOBS[i].name, name) != 0) i++;
    SH_ASSERT(i < SH_COUNT_OF(JOBS));
    return &JOBS[i];
}
