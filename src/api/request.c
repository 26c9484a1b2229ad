#include "api/request.h"

void sh_request_reset(sh_request *request)
{
    cJSON_Delete(request->json);
    sh_arena_reset(&request->arena);
    *request = (sh_request){0};
}
