/* A hostfile of any bytes: if it can be read it can be checked and written, and reading that gives
 * the same again. */
#include "cluster/hostfile.h"

#include "base/status.h"

#include <string.h>

static void write_and_read(const sh_hostfile *file, sh_hostfile_form form)
{
    sh_buf once = {0}, twice = {0};
    sh_hostfile *again = NULL;
    sh_err err;
    if (sh_hostfile_write(file, form, &once, &err) == SH_OK) {
        sh_status status = sh_hostfile_parse(sh_buf_str(&once), "again", &again, &err);
        SH_ASSERT(status == SH_OK && again->count == file->count);
        status = sh_hostfile_write(again, form, &twice, &err);
        SH_ASSERT(status == SH_OK && strcmp(once.ptr, twice.ptr) == 0);
    }
    sh_hostfile_free(again);
    sh_buf_reset(&once);
    sh_buf_reset(&twice);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    sh_hostfile *file = NULL;
    sh_findings findings = {0};
    sh_addr_list list;
    sh_err err;
    if (sh_hostfile_parse((sh_str){(const char *)data, len}, "fuzz", &file, &err) != SH_OK)
        return 0;
    sh_hostfile_check(file, &findings);
    bool ring = sh_hostfile_check_devices(file, sh_backend_find("jaccl-ring"), &err) == SH_OK;
    bool mesh = sh_hostfile_check_devices(file, sh_backend_find("jaccl"), &err) == SH_OK;
    SH_ASSERT(ring || !mesh); /* devices for every pair are devices for the neighbours */
    for (int r = 0; r < file->count; r++)
        if (sh_hostfile_addresses(file, r, SH_HOSTFILE_PORT, &list, &err) != SH_OK) break;
    for (int form = SH_HOSTFILE_OBJECT; form <= SH_HOSTFILE_MATRIX; form++)
        write_and_read(file, (sh_hostfile_form)form);
    sh_findings_reset(&findings);
    sh_hostfile_free(file);
    return 0;
}
