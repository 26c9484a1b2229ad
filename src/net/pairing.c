/* Offers are made for everything that the two ranks might use, and all but one are withdrawn after
 * the choice. What an offer made (a segment, say) therefore stays here until then, one state for
 * each transport. */
#include "net/pairing.h"

#include "base/log.h"

#include <stdio.h>

void sh_pairing_init(sh_pairing *pairing, const sh_mesh_opts *opts, const sh_pair *pair)
{
    pairing->opts = opts;
    pairing->pair = *pair;
}

static void withdraw(sh_pairing *pairing, int place)
{
    if (pairing->state[place] == NULL) return;
    pairing->opts->transports[place]->withdraw(pairing->state[place]);
    pairing->state[place] = NULL;
}

static void withdraw_all_but(sh_pairing *pairing, const sh_transport *kept)
{
    const sh_transport *const *table = pairing->opts->transports;
    for (int i = 0; table[i] != NULL; i++)
        if (table[i] != kept) withdraw(pairing, i);
}

void sh_pairing_reset(sh_pairing *pairing)
{
    if (pairing->opts != NULL) withdraw_all_but(pairing, NULL);
    for (int i = 0; i < SH_SOCKETS_MAX; i++)
        if (pairing->sockets_up >> i & 1) sh_stream_close(&pairing->pair.socket[i]);
    pairing->sockets_up = 0;
}

bool sh_pairing_leads(const sh_pairing *pairing)
{
    return pairing->pair.rank > pairing->pair.peer;
}

/* The transport that this rank asks for, or NULL. */
static const sh_transport *wanted(const sh_pairing *pairing)
{
    const sh_transport *t = pairing->opts->wanted;
    return t == NULL || t->covers == NULL || t->covers(&pairing->pair) ? t : NULL;
}

/* Fills one offer. Without a reason it means that nothing else was worth trying: this rank asks for
 * another transport, or the peer cannot use this one anyway. */
static void offer_one(sh_pairing *pairing, int place, const sh_offers *theirs)
{
    const sh_mesh_opts *opts = pairing->opts;
    const sh_transport *t = opts->transports[place];
    sh_offer *mine = &pairing->mine.offer[place];
    const sh_offer *their = theirs != NULL ? sh_offers_find(theirs, t) : NULL;
    snprintf(mine->transport, sizeof(mine->transport), "%s", t->name);
    if (wanted(pairing) != NULL && wanted(pairing) != t) return;
    if (theirs != NULL && (their == NULL || their->state != SH_OFFER_MADE)) return;
    sh_err err;
    sh_status status = t->offer(&pairing->pair, their, mine, &pairing->state[place], &err);
    if (status == SH_OK)
        mine->state = SH_OFFER_MADE;
    else
        sh_offer_refuse(mine, status == SH_ERR_UNSUPPORTED ? SH_OFFER_NONE : SH_OFFER_FAILED,
                        err.text);
}

/* theirs: the offers to answer; NULL on the end that leads. */
static void offer_all(sh_pairing *pairing, const sh_offers *theirs)
{
    const sh_mesh_opts *opts = pairing->opts;
    pairing->mine.rank = (uint32_t)pairing->pair.rank;
    snprintf(pairing->mine.wanted, sizeof(pairing->mine.wanted), "%s",
             wanted(pairing) != NULL ? wanted(pairing)->name : "");
    for (int i = 0; opts->transports[i] != NULL; i++) {
        SH_ASSERT(i < SH_TRANSPORTS_MAX);
        offer_one(pairing, i, theirs);
        pairing->mine.count = i + 1;
    }
    pairing->offered = true;
}

void sh_pairing_offer(sh_pairing *pairing)
{
    SH_ASSERT(sh_pairing_leads(pairing) && !pairing->offered);
    offer_all(pairing, NULL);
}

/* Both ends know why a better transport was not chosen; the leading one says so, once. It is worth
 * a warning if that one should have worked. */
static void log_choice(const sh_pairing *pairing)
{
    const sh_offers *both[] = {&pairing->mine, &pairing->theirs};
    const sh_transport *const *table = pairing->opts->transports;
    for (; *table != pairing->chosen && sh_pairing_leads(pairing); table++) {
        for (size_t i = 0; i < SH_COUNT_OF(both); i++) {
            const sh_offer *offer = sh_offers_find(both[i], *table);
            if (offer == NULL || offer->why[0] == '\0') continue;
            sh_log(offer->state == SH_OFFER_FAILED ? SH_LOG_WARN : SH_LOG_DEBUG,
                   "ranks %d and %d use %s: %s", pairing->pair.peer, pairing->pair.rank,
                   pairing->chosen->title, offer->why);
        }
    }
}

sh_status sh_pairing_agree(sh_pairing *pairing, const sh_offers *theirs, sh_err *err)
{
    const sh_transport *chosen;
    pairing->theirs = *theirs;
    if (!sh_pairing_leads(pairing)) offer_all(pairing, theirs);
    sh_status status = sh_transport_choose(pairing->opts->transports, &pairing->mine, theirs,
                                           &chosen, err);
    if (status != SH_OK) return status;
    withdraw_all_but(pairing, chosen);
    pairing->chosen = chosen;
    pairing->sockets = chosen->sockets != NULL ? chosen->sockets(&pairing->pair) : 0;
    SH_ASSERT(pairing->sockets <= 2 * pairing->pair.lanes);
    log_choice(pairing);
    return SH_OK;
}

bool sh_pairing_needs_socket(const sh_pairing *pairing, int socket)
{
    return pairing->chosen != NULL && socket < pairing->sockets &&
           (pairing->sockets_up >> socket & 1) == 0;
}

void sh_pairing_add_socket(sh_pairing *pairing, int socket, sh_stream stream)
{
    pairing->pair.socket[socket] = stream;
    pairing->sockets_up |= 1 << socket;
}

sh_status sh_pairing_connect(sh_pairing *pairing, sh_channel **out, sh_err *err)
{
    const sh_transport *t = pairing->chosen;
    if (t == NULL || pairing->sockets_up != (1 << pairing->sockets) - 1) return SH_AGAIN;
    int place = 0;
    while (pairing->opts->transports[place] != t) place++;
    sh_status status = t->connect(&pairing->pair, pairing->state[place],
                                  sh_offers_find(&pairing->theirs, t), out, err);
    if (status != SH_OK) return status;
    pairing->state[place] = NULL;
    pairing->sockets_up = 0;
    return SH_OK;
}
