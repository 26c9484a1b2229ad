/* curl_library.h - libcurl, loaded when it is first needed.
 *
 * It is not linked: libcurl comes with some thirty libraries, and loading these would triple the
 * time in which every process of ours starts, though few of them download anything. Besides, a host
 * that only runs ranks does without it.
 *
 * Threads: sh_curl_load is called before other threads start. */
#ifndef SH_STORE_CURL_LIBRARY_H
#define SH_STORE_CURL_LIBRARY_H

#include "base/status.h"

#include <curl/curl.h>

/* The functions in use, without the prefix curl_. */
#define SH_CURL_FUNCTIONS(X)                                                                       \
    X(global_init)                                                                                 \
    X(free)                                                                                        \
    X(slist_append)                                                                                \
    X(slist_free_all)                                                                              \
    X(easy_init)                                                                                   \
    X(easy_setopt)                                                                                 \
    X(easy_getinfo)                                                                                \
    X(easy_escape)                                                                                 \
    X(easy_strerror)                                                                               \
    X(easy_cleanup)                                                                                \
    X(multi_init)                                                                                  \
    X(multi_add_handle)                                                                            \
    X(multi_remove_handle)                                                                         \
    X(multi_perform)                                                                               \
    X(multi_poll)                                                                                  \
    X(multi_info_read)                                                                             \
    X(multi_cleanup)                                                                               \
    X(url)                                                                                         \
    X(url_get)                                                                                     \
    X(url_set)                                                                                     \
    X(url_cleanup)

#define SH_CURL_MEMBER(name) __typeof__(&curl_##name) name;
typedef struct {
    SH_CURL_FUNCTIONS(SH_CURL_MEMBER)
} sh_curl;
#undef SH_CURL_MEMBER

/* SH_ERR_NOT_FOUND, with what to install, if there is none. */
SH_MUST_CHECK sh_status sh_curl_load(const sh_curl **out, sh_err *err);

#endif
