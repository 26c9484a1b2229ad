/* The files of web/ are embedded into the program with .incbin, so that it needs no files at run
 * time. A new file needs a row here. */
#include "api/assets.h"

#include "base/status.h"

#include <stddef.h>

/* The bytes of a file lie between two symbols. The path is relative to the folder in which the
 * build runs. */
#ifdef __APPLE__
#define DATA_SECTION ".const_data\n"
#define NAME(symbol) "_" #symbol
#else
#define DATA_SECTION ".section .rodata\n"
#define NAME(symbol) #symbol
#endif
#define HTML "text/html; charset=utf-8"
#define CSS "text/css; charset=utf-8"
#define SCRIPT "text/javascript; charset=utf-8"
#define MODULE(name)                                                                               \
    X(dashboard_##name, "/dashboard/" #name ".js", SCRIPT, "dashboard/" #name ".js")

/* X(symbol, path of the URL, type, file of web/) */
/* clang-format off */
#define ASSETS                                                                                     \
    X(docs_html, "/docs", HTML, "docs.html")                                                       \
    X(docs_js, "/docs/docs.js", SCRIPT, "docs.js")                                                 \
    X(schemas, "/docs/schemas.json", "application/json", "schemas.json")                            \
    X(docs_css, "/docs/docs.css", CSS, "docs.css")                                                 \
    X(dashboard_html, "/dashboard", HTML, "dashboard/index.html")                                  \
    X(dashboard_css, "/dashboard/style.css", CSS, "dashboard/style.css")                           \
    X(dashboard_chat_css, "/dashboard/chat.css", CSS, "dashboard/chat.css")                        \
    X(dashboard_icon, "/dashboard/icon.svg", "image/svg+xml", "dashboard/icon.svg")                \
    MODULE(about) MODULE(answer) MODULE(app) MODULE(chat) MODULE(chats) MODULE(cluster)            \
    MODULE(code) MODULE(composer) MODULE(controls) MODULE(conversation) MODULE(dom) MODULE(feed)   \
    MODULE(format) MODULE(highlight) MODULE(history) MODULE(inline) MODULE(live) MODULE(markdown)  \
    MODULE(message) MODULE(models) MODULE(operate) MODULE(plot) MODULE(ranks) MODULE(requests)     \
    MODULE(search) MODULE(sidebar) MODULE(spark) MODULE(store) MODULE(tex) MODULE(tokens)
/* clang-format on */

#define X(symbol, path, type, file)                                                                \
    __asm__(DATA_SECTION ".balign 16\n.globl " NAME(sh_web_##symbol) "\n" NAME(                    \
        sh_web_##symbol) ":\n.incbin \"web/" file                                                  \
                         "\"\n.globl " NAME(sh_web_##symbol##_end) "\n" NAME(                      \
                             sh_web_##symbol##_end) ":\n.byte 0\n.text\n");                        \
    extern const char sh_web_##symbol[], sh_web_##symbol##_end[];
ASSETS
#undef X

#define X(symbol, path, type, file) {path, type, sh_web_##symbol, sh_web_##symbol##_end},
static const sh_asset assets[] = {ASSETS};
#undef X

const sh_asset *sh_asset_find(sh_str path)
{
    for (size_t i = 0; i < SH_COUNT_OF(assets); i++)
        if (sh_str_is(path, assets[i].path)) return &assets[i];
    return NULL;
}
