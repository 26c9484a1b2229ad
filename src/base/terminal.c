#include "base/terminal.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool knows_escapes(int fd)
{
    const char *kind = getenv("TERM");
    return isatty(fd) != 0 && (kind == NULL || strcmp(kind, "dumb") != 0);
}

bool sh_terminal_has_color(int fd)
{
    const char *refused = getenv("NO_COLOR");
    return knows_escapes(fd) && (refused == NULL || refused[0] == '\0');
}

const char *sh_terminal_clear_line(int fd)
{
    return knows_escapes(fd) ? "\r\033[K" : "";
}

const char *sh_terminal_hue(bool color, sh_hue hue)
{
    static const char *const codes[] = {"\033[0m", "\033[2m", "\033[32m", "\033[33m", "\033[31m"};
    return color ? codes[hue] : "";
}
