/* Bytes from the other end of a link about models. The packer must reproduce what the decoder
 * accepts, so a decoder cannot invent anything. */
#include "cluster/model_link.h"

#include "base/status.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static sh_model_message message;
    sh_buf out = {0};
    sh_err err;
    if (len > SH_FRAME_LEN_MAX) return 0;
    /* A copy of the exact length, so that a sanitizer sees a read past its end. */
    uint8_t *copy = malloc(len > 0 ? len : 1);
    if (len > 0) memcpy(copy, data, len);
    if (sh_model_message_unpack(copy, len, &message, &err) == SH_OK) {
        SH_ASSERT(message.ranks <= SH_RANKS_MAX);
        SH_ASSERT(message.kind != SH_MODEL_START || message.rank < message.ranks);
        sh_model_message_pack(&out, &message);
        SH_ASSERT(out.len == len + SH_FRAME_HEAD_LEN);
        SH_ASSERT(memcmp(out.ptr + SH_FRAME_HEAD_LEN, data, len) == 0);
    }
    sh_buf_reset(&out);
    free(copy);
    return 0;
}
