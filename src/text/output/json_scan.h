/* json_scan.h - incremental validator for one JSON value.
 *
 * The scanner stores no text: after each byte it reports whether the value continues, is complete,
 * or can no longer become valid JSON. This lets tool-call arguments stream while the model is still
 * writing them, and detects malformed JSON at the first wrong byte. Follows RFC 8259 with bounded
 * nesting; the caller checks UTF-8 inside strings.
 *
 * Threads: a scanner has one owner. */
#ifndef SH_TEXT_OUTPUT_JSON_SCAN_H
#define SH_TEXT_OUTPUT_JSON_SCAN_H

#include <stdbool.h>
#include <stdint.h>

enum { SH_JSON_SCAN_DEPTH_MAX = 128 };

typedef enum {
    SH_JSON_SCAN_MORE, /* the byte belongs to the value, which is not complete */
    SH_JSON_SCAN_DONE, /* the byte is the last one of the value */
    SH_JSON_SCAN_OVER, /* a number ended before this byte, which is not part of it */
    SH_JSON_SCAN_BAD,
} sh_json_scan_result;

typedef struct {
    uint8_t state;
    uint8_t left; /* hex digits still missing from a \u escape */
    bool key;     /* the current string is a key */
    uint16_t depth;
    const char *literal;                         /* what is missing of true, false or null */
    uint8_t objects[SH_JSON_SCAN_DEPTH_MAX / 8]; /* one bit per level: object or array */
} sh_json_scan;

void sh_json_scan_init(sh_json_scan *scan);

/* Do not call it again after any result but MORE. White space before the value is part of it. */
sh_json_scan_result sh_json_scan_feed(sh_json_scan *scan, char c);

#endif
