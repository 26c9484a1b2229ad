#include "net/dial.h"

#include <stdio.h>
#include <string.h>

enum { PAUSE_FIRST_MS = 20, PAUSE_MAX_MS = 1000 };

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
    return sh_link_dial(&dial->addr[dial->addr_next++], dial->tls, &dial->hello,
                        sh_deadline_in_ms(dial->handshake_ms), &dial->link, err);
}

static void plan_next_try(sh_dial *dial, const sh_err *err)
{
    sh_dial_reset(dial);
    dial->last = *err;
    if (dial->addr_next < dial->addr_count) return; /* the name's next address at once */
    dial->next_try = sh_deadline_in_ms(dial->pause_ms);
    dial->pause_ms = dial->pause_ms * 2 < PAUSE_MAX_MS ? dial->pause_ms * 2 : PAUSE_MAX_MS;
}

static bool is_final(sh_status status)
{
    return status == SH_ERR_AUTH || status == SH_ERR_GROUP || status == SH_ERR_INPUT;
}

sh_status sh_dial_step(sh_dial *dial, sh_err *err)
{
    if (dial->link == NULL && !sh_deadline_passed(dial->next_try)) return SH_AGAIN;
    sh_status status = dial->link == NULL ? start_try(dial, err) : SH_OK;
    if (status == SH_OK) status = sh_link_step(dial->link, err);
    if (status >= 0) return status;
    plan_next_try(dial, err);
    return is_final(status) ? status : SH_AGAIN;
}

sh_link *sh_dial_take(sh_dial *dial)
{
    sh_link *link = dial->link;
    dial->link = NULL;
    return link;
}
