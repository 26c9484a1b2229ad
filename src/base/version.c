/* SH_VERSION comes from the file VERSION by way of the Makefile; only this file depends on it. */
#include "base/version.h"

const char *sh_version(void)
{
    return SH_VERSION;
}
