#include "cluster/run_list.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/str.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char *folder_of(const char *dir)
{
    return sh_asprintf("%s/shoal-launch-%lld", dir == NULL ? "/tmp" : dir, (long long)getuid());
}

/* Two folders whose hashes are equal would share an entry; the last launch would be found. */
static char *name_of(const char *state)
{
    return sh_asprintf("%016llx", (unsigned long long)sh_hash64(state, strlen(state)));
}

sh_status sh_run_list_add(const char *dir, const char *state, sh_err *err)
{
    char *folder = folder_of(dir), *name = name_of(state);
    char text[SH_PROCESS_TEXT_MAX];
    sh_process self = sh_process_of(getpid());
    sh_process_format(&self, text);
    sh_status status = sh_state_dir_make(folder, err);
    if (status == SH_OK) status = sh_state_dir_write(folder, name, sh_str_of(text), err);
    free(folder);
    free(name);
    return status;
}

void sh_run_list_remove(const char *dir, const char *state)
{
    char *folder = folder_of(dir), *name = name_of(state);
    char *path = sh_path_join(folder, name);
    unlink(path);
    free(path);
    free(folder);
    free(name);
}

bool sh_run_list_find(const char *dir, const char *state, sh_process *out)
{
    char *folder = folder_of(dir), *name = name_of(state);
    sh_buf text = {0};
    sh_err ignored; /* no such launch, or a folder of somebody else: neither is ours to stop */
    bool found = sh_state_dir_check(folder, &ignored) == SH_OK &&
                 sh_state_dir_read(folder, name, false, &text, &ignored) == SH_OK &&
                 sh_process_parse(text.ptr, out) && sh_process_alive(out);
    sh_buf_reset(&text);
    free(folder);
    free(name);
    return found;
}
