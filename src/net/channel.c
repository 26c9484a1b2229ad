/* What all transports share: a message as header and body that need not be contiguous, and cutting
 * a range of bytes out of it. */
#include "net/channel.h"

sh_msg sh_msg_in(void *head, size_t head_len, void *body, size_t body_len)
{
    return (sh_msg){.part = {{head, head_len}, {body, body_len}}, .len = head_len + body_len};
}

sh_msg sh_msg_out(const void *head, size_t head_len, const void *body, size_t body_len)
{
    /* Senders only read through these pointers; like iovec, one struct serves both directions. */
    return sh_msg_in((void *)(uintptr_t)head, head_len, (void *)(uintptr_t)body, body_len);
}

int sh_msg_parts(const sh_msg *msg, size_t from, size_t to, struct iovec out[2])
{
    int count = 0;
    size_t start = 0;
    for (int i = 0; i < 2; i++) {
        size_t end = start + msg->part[i].iov_len;
        size_t lo = from > start ? from : start;
        size_t hi = to < end ? to : end;
        if (lo < hi)
            out[count++] = (struct iovec){(char *)msg->part[i].iov_base + (lo - start), hi - lo};
        start = end;
    }
    return count;
}

void sh_channel_close(sh_channel *channel)
{
    if (channel != NULL) channel->ops->close(channel);
}
