/* framing.h - how a streamed answer is divided into parts.
 *
 * A part is one JSON value. It is written in place, between sh_framing_begin and sh_framing_end,
 * and has no line ends, since the JSON writer escapes those of texts and sets none of its own.
 *
 * Threads: pure functions over their arguments. */
#ifndef SH_API_FRAMING_H
#define SH_API_FRAMING_H

#include "api/json_writer.h"

typedef struct {
    const char *content_type;
    const char *before, *after; /* of each part */
    bool named;                 /* parts may have a name */
} sh_framing;

extern const sh_framing sh_framing_sse;    /* server-sent events */
extern const sh_framing sh_framing_ndjson; /* one JSON value a line */

/* name: of the event; NULL for a part without one. */
sh_json_writer sh_framing_begin(const sh_framing *framing, const char *name, sh_buf *out);
void sh_framing_end(const sh_framing *framing, sh_json_writer *w);

#endif
