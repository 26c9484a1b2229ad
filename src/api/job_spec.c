/* Everything else that a spec points to lives in the two things freed here. */
#include "api/job_spec.h"

void sh_job_spec_reset(sh_job_spec *spec)
{
    cJSON_Delete(spec->json);
    sh_arena_reset(&spec->arena);
    *spec = (sh_job_spec){0};
}
