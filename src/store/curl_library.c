#include "store/curl_library.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <string.h>

static const char *const FILES[] = {"libcurl.so.4", "libcurl-gnutls.so.4", "libcurl.4.dylib"};

/* POSIX lets a data pointer from dlsym be used as a function; C does not let it be cast. */
static sh_status function_find(void *library, const char *name, void *slot, sh_err *err)
{
    void *found = dlsym(library, name);
    if (found == NULL)
        return sh_err_set(err, SH_ERR_UNSUPPORTED, "libcurl is too old: it has no %s", name);
    memcpy(slot, &found, sizeof(found));
    return SH_OK;
}

sh_status sh_curl_load(const sh_curl **out, sh_err *err)
{
    static sh_curl curl;
    static bool loaded;
    void *library = NULL;
    sh_status status = SH_OK;
    if (loaded) {
        *out = &curl;
        return SH_OK;
    }
    for (size_t i = 0; library == NULL && i < SH_COUNT_OF(FILES); i++)
        library = dlopen(FILES[i], RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return sh_err_set(err, SH_ERR_NOT_FOUND,
                          "downloads need libcurl, which is not here: install libcurl4");
#define FIND(name)                                                                                 \
    if (status == SH_OK) status = function_find(library, "curl_" #name, &curl.name, err);
    SH_CURL_FUNCTIONS(FIND)
#undef FIND
    if (status == SH_OK && curl.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        status = sh_err_set(err, SH_ERR_SYSTEM, "libcurl could not be started");
    loaded = status == SH_OK;
    if (loaded) *out = &curl;
    return status;
}
