#include "base/version.h"

const char *sh_version(void)
{
    return SH_VERSION;
}
