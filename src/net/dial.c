#include "net/dial.h"

#include "base/log.h"

#include <stdio.h>
#include <string.h>

enum {
    PAUSE_FIRST_MS = 20,
    PAUSE_MAX_MS = 1000,
    CONNECT_MS = 250, /* most connections stand within a few */
    LONG_TRY = 8,     /* every so many tries a connection gets the time of a whole handshake */
};

void sh_dial_init(sh_dial *dial, const char *address, sh_tls *tls, const sh_hello *hello,
                  int handshake_ms)
{
    memset(dial, 0, sizeof(*dial));
    snprintf(dial->address, sizeof(dial->address), "%s", address);
    dial->tls = tls;
    dial->hello = *hello;
    dial->handshake_ms = handshake_ms;
    dial->pause_ms = PAUSE_FIRST_MS;
    sh_err_set(&dial->last, SH_ERR_PEER, "not tried yet");
}

void sh_dial_reset(sh_dial *dial)
{
    sh_link_close(dial->link);
    dial->link = NULL;
}

/* Names are looked up anew for each round, since a machine that boots may not be known at first. */
static sh_status start_try(sh_dial *dial, sh_err *err)
{
    if (dial->addr_next >= dial->addr_count) {
        sh_status status = sh_addr_resolve(dial->address, SH_LANES_MAX, dial->addr,
                                           &dial->addr_count, err);
        if (status != SH_OK) return status;
        dial->addr_next = 0;
    }
    dial->connect_end = sh_deadline_in_ms(++dial->tries % LONG_TRY == 0 ? dial->handshake_ms
                                                                        : CONNECT_MS);
    return sh_link_dial(&dial->addr[dial->addr_next++], dial->tls, &dial->hello,
                        sh_deadline_in_ms(dial->handshake_ms), &dial->link, err);
}

static void plan_next_try(sh_dial *dial, const sh_err *err)
{
    sh_dial_reset(dial);
    dial->last = *err;
    if (dial->addr_next < dial->addr_count) return; /* the name's next address at once */
    if (err->status == SH_ERR_TIMEOUT) return;      /* that was pause enough */
    dial->next_try = sh_deadline_in_ms(dial->pause_ms);
    dial->pause_ms = dial->pause_ms * 2 < PAUSE_MAX_MS ? dial->pause_ms * 2 : PAUSE_MAX_MS;
}

static bool is_final(sh_status status)
{
    return status == SH_ERR_AUTH || status == SH_ERR_GROUP || status == SH_ERR_INPUT;
}

/* A system whose queue of connections is full, in a flood, drops what is new without a word, and
 * ours would ask again only after one second, then two, then four. A fresh try finds room sooner.
 */
static sh_status step_link(sh_dial *dial, sh_err *err)
{
    sh_status status = sh_link_step(dial->link, err);
    if (status != SH_AGAIN || sh_link_is_connected(dial->link) ||
        !sh_deadline_passed(dial->connect_end))
        return status;
    return sh_err_set(err, SH_ERR_TIMEOUT, "no answer: waited in vain for a connection");
}

/* An alert costs whoever can send a packet nothing: until the other end has proved the token it is
 * worth a line in the log, and another try. */
static void warn_unproved(sh_dial *dial, const sh_err *err)
{
    if (err->status != SH_ERR_AUTH || dial->warned) return;
    dial->warned = true;
    SH_LOGW("%s: %s, or somebody else answers there; it is tried again until the time to join is "
            "over",
            dial->address, err->text);
}

sh_status sh_dial_step(sh_dial *dial, sh_err *err)
{
    if (dial->link == NULL && !sh_deadline_passed(dial->next_try)) return SH_AGAIN;
    bool starts = dial->link == NULL;
    sh_status status = starts ? start_try(dial, err) : SH_OK;
    bool trusted = status != SH_OK; /* it is our own word: the address is none */
    if (status == SH_OK) {
        status = step_link(dial, err);
        trusted = sh_link_is_vouched(dial->link);
    }
    if (status >= 0) return status;
    plan_next_try(dial, err);
    if (trusted && is_final(status)) return status;
    warn_unproved(dial, err);
    return SH_AGAIN;
}

sh_link *sh_dial_take(sh_dial *dial)
{
    sh_link *link = dial->link;
    dial->link = NULL;
    return link;
}
