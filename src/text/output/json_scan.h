/* json_scan.h - checks one JSON value byte by byte, as it comes.
 *
 * The scanner keeps no text: it says after each byte whether the value goes on, is complete, or can
 * not become JSON any more. So a model's arguments are passed on while they are still being
 * written, and a value that breaks is known at the byte that breaks it. It holds to RFC 8259;
 * nesting is bounded. UTF-8 inside strings is the caller's to check.
 *
 * Threads: a scanner has one owner. */
#ifndef SH_TEXT_OUTPUT_JSON_SCAN_H
#define SH_TEXT_OUTPUT_JSON_SCAN_H

#include <stdbool.h>
#include <stdint.h>

enum { SH_JSON_SCAN_DEPTH_MAX = 128 };

typedef enum {
    SH_JSON_SCAN_MORE, /* the byte belongs to the value, which goes on */
    SH_JSON_SCAN_DONE, /* the byte is the last of the value */
    SH_JSON_SCAN_OVER, /* a number ended before this byte, which is not part of it */
    SH_JSON_SCAN_BAD,
} sh_json_scan_result;

typedef struct {
    uint8_t state;
    uint8_t left; /* hex digits of an escape still to come */
    bool key;     /* the string at hand is a key */
    uint16_t depth;
    const char *literal;                         /* rest of true, false or null */
    uint8_t objects[SH_JSON_SCAN_DEPTH_MAX / 8]; /* one bit a level: object or array */
} sh_json_scan;

void sh_json_scan_init(sh_json_scan *scan);

/* Feed no more after any result but MORE. White space in front of the value is part of it. */
sh_json_scan_result sh_json_scan_feed(sh_json_scan *scan, char c);

#endif
