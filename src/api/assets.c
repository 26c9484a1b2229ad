#include "api/assets.h"

#include "base/status.h"

#include <stddef.h>

/* The assembler copies a file into the object: its bytes lie between two symbols. The path is
 * relative to the folder in which the build runs. */
#ifdef __APPLE__
#define DATA_SECTION ".const_data\n"
#define NAME(symbol) "_" #symbol
#else
#define DATA_SECTION ".section .rodata\n"
#define NAME(symbol) #symbol
#endif
#define ASSET(symbol, file)                                                                        \
    __asm__(DATA_SECTION ".balign 16\n.globl " NAME(symbol) "\n" NAME(                             \
        symbol) ":\n.incbin \"" file                                                               \
                "\"\n.globl " NAME(symbol##_end) "\n" NAME(symbol##_end) ":\n.byte 0\n.text\n");   \
    extern const char symbol[], symbol##_end[]

ASSET(sh_web_docs_html, "web/docs.html");
ASSET(sh_web_docs_js, "web/docs.js");
ASSET(sh_web_docs_css, "web/docs.css");

static const sh_asset assets[] = {
    {"/docs", "text/html; charset=utf-8", sh_web_docs_html, sh_web_docs_html_end},
    {"/docs/docs.js", "text/javascript; charset=utf-8", sh_web_docs_js, sh_web_docs_js_end},
    {"/docs/docs.css", "text/css; charset=utf-8", sh_web_docs_css, sh_web_docs_css_end},
};

const sh_asset *sh_asset_find(sh_str path)
{
    for (size_t i = 0; i < SH_COUNT_OF(assets); i++)
        if (sh_str_is(path, assets[i].path)) return &assets[i];
    return NULL;
}
