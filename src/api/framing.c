#include "api/framing.h"

#include "http/sse.h"

const sh_framing sh_framing_sse = {
    .content_type = SH_SSE_TYPE,
    .before = "data: ",
    .after = "\n\n",
    .named = true,
};

const sh_framing sh_framing_ndjson = {
    .content_type = "application/x-ndjson",
    .before = "",
    .after = "\n",
};

sh_json_writer sh_framing_begin(const sh_framing *framing, const char *name, sh_buf *out)
{
    SH_ASSERT(name == NULL || framing->named);
    if (name != NULL) sh_buf_addf(out, "event: %s\n", name);
    sh_buf_add_text(out, framing->before);
    return sh_json_writer_on(out);
}

void sh_framing_end(const sh_framing *framing, sh_json_writer *w)
{
    sh_buf_add_text(w->out, framing->after);
}
