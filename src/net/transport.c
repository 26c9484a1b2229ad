/* The table of transports and the choice for a pair.
 *
 * The choice is made twice, once on each end, and nobody compares the results. So it may depend on
 * nothing but the two lists of offers, which both ends have, and on the table, which is the same in
 * all programs of one version. */
#include "net/transport.h"

#include <inttypes.h>
#include <string.h>

const sh_transport *const sh_transports[] = {
    &sh_transport_shm, &sh_transport_tcp, &sh_transport_mpi, &sh_transport_rdma, NULL,
};

const sh_transport *sh_transport_find(const sh_transport *const *table, const char *name)
{
    for (; *table != NULL; table++)
        if (strcmp((*table)->name, name) == 0) return *table;
    return NULL;
}

const sh_transport *sh_transport_find_backend(const sh_transport *const *table, const char *backend)
{
    for (; *table != NULL; table++)
        if ((*table)->backend != NULL && strcmp((*table)->backend, backend) == 0) return *table;
    return NULL;
}

const sh_offer *sh_offers_find(const sh_offers *offers, const sh_transport *transport)
{
    for (int i = 0; i < offers->count; i++)
        if (strcmp(offers->offer[i].transport, transport->name) == 0) return &offers->offer[i];
    return NULL;
}

static bool is_made(const sh_offer *offer)
{
    return offer != NULL && offer->state == SH_OFFER_MADE;
}

/* What to call a transport that a rank asks for by name. */
static const char *title_of(const sh_transport *const *table, const char *name)
{
    const sh_transport *t = sh_transport_find(table, name);
    return t != NULL ? t->title : name;
}

/* Appends why a pair cannot use a transport. The rank that goes first usually knows; the other one
 * gives a reason only for what it was offered. */
static void add_reason(sh_buf *out, const sh_transport *t, const sh_offers *low,
                       const sh_offers *high)
{
    const sh_offers *by_turn[] = {high, low};
    for (size_t i = 0; i < SH_COUNT_OF(by_turn); i++) {
        const sh_offer *offer = sh_offers_find(by_turn[i], t);
        if (is_made(offer)) continue;
        if (offer == NULL || offer->why[0] == '\0')
            sh_buf_addf(out, "rank %" PRIu32 " does not offer it", by_turn[i]->rank);
        else if (offer->state == SH_OFFER_FAILED)
            sh_buf_addf(out, "rank %" PRIu32 " failed to set it up: %s", by_turn[i]->rank,
                        offer->why);
        else
            sh_buf_add_text(out, offer->why);
        return;
    }
}

static sh_status asked_in_vain(const sh_transport *const *table, const char *wanted,
                               const sh_offers *low, const sh_offers *high, sh_err *err)
{
    const sh_transport *t = sh_transport_find(table, wanted);
    sh_buf why = {0};
    if (t != NULL)
        add_reason(&why, t, low, high);
    else
        sh_buf_add_text(&why, "this program does not have it");
    sh_err_set(err, SH_ERR_GROUP,
               "%s was asked for between ranks %" PRIu32 " and %" PRIu32 ", but %s",
               title_of(table, wanted), low->rank, high->rank, why.ptr);
    sh_buf_reset(&why);
    return err->status;
}

static sh_status nothing_in_common(const sh_transport *const *table, const sh_offers *low,
                                   const sh_offers *high, sh_err *err)
{
    sh_buf why = {0};
    for (; *table != NULL; table++) {
        if ((*table)->clear_text) continue;
        sh_buf_addf(&why, "%s%s: ", why.len > 0 ? "; " : "", (*table)->title);
        add_reason(&why, *table, low, high);
    }
    sh_err_set(err, SH_ERR_GROUP, "nothing connects ranks %" PRIu32 " and %" PRIu32 " (%s)",
               low->rank, high->rank, why.len > 0 ? why.ptr : "no transports");
    sh_buf_reset(&why);
    return err->status;
}

sh_status sh_transport_choose(const sh_transport *const *table, const sh_offers *a,
                              const sh_offers *b, const sh_transport **out, sh_err *err)
{
    const sh_offers *low = a->rank < b->rank ? a : b, *high = low == a ? b : a;
    const char *wanted = low->wanted[0] != '\0' ? low->wanted : high->wanted;
    if (high->wanted[0] != '\0' && strcmp(high->wanted, wanted) != 0)
        return sh_err_set(err, SH_ERR_GROUP,
                          "rank %" PRIu32 " asks for %s, but rank %" PRIu32 " for %s", high->rank,
                          title_of(table, high->wanted), low->rank, title_of(table, wanted));
    bool any = wanted[0] == '\0';
    for (const sh_transport *const *t = table; *t != NULL; t++) {
        if (any ? (*t)->clear_text : strcmp((*t)->name, wanted) != 0) continue;
        if (!is_made(sh_offers_find(low, *t)) || !is_made(sh_offers_find(high, *t))) continue;
        *out = *t;
        return SH_OK;
    }
    return any ? nothing_in_common(table, low, high, err)
               : asked_in_vain(table, wanted, low, high, err);
}
