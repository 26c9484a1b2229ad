/* terminal.h - colour and the like, where somebody sees it.
 *
 * Colour only repeats what the text says. It is off where a stream is not a terminal, where
 * NO_COLOR is set to anything (https://no-color.org), and on a terminal that knows none
 * (TERM=dumb).
 *
 * Threads: pure functions; the environment must not change. */
#ifndef SH_BASE_TERMINAL_H
#define SH_BASE_TERMINAL_H

#include <stdbool.h>

typedef enum { SH_HUE_NONE, SH_HUE_DIM, SH_HUE_GREEN, SH_HUE_YELLOW, SH_HUE_RED } sh_hue;

bool sh_terminal_has_color(int fd);

/* What removes a line that is not complete, such as a progress bar, to write another in its place.
 */
const char *sh_terminal_clear_line(int fd);

/* The escape sequence that begins a hue, or with SH_HUE_NONE ends it; "" if color is false. */
const char *sh_terminal_hue(bool color, sh_hue hue);

#endif
