/* Bytes from the network, as packets of discovery and as tokens that people type. What a reader
 * accepts, the writer must reproduce. */
#include "discover/packet.h"

#include <stdlib.h>
#include <string.h>

/* The seal cannot be guessed, so the body is also read without it. */
static void try_body(bool is_query, const uint8_t *data, size_t len)
{
    uint8_t body[SH_PACKET_BODY_LEN] = {0}, again[SH_PACKET_BODY_LEN];
    sh_packet packet;
    sh_err err;
    memcpy(body, data, len < sizeof(body) ? len : sizeof(body));
    if (sh_packet_body_read(is_query, body, &packet, &err) != SH_OK) return;
    sh_packet_body_write(&packet, again);
    SH_ASSERT(memcmp(body, again, sizeof(body)) == 0);
}

static void try_packet(const sh_packet_key *key, const uint8_t *data, size_t len)
{
    sh_packet packet;
    sh_err err;
    if (sh_packet_is_ours(key, data, len)) SH_ASSERT(sh_packet_open(key, data, &packet, &err) < 0);
}

static void try_token(const uint8_t *data, size_t len)
{
    sh_cluster_token token, again;
    sh_buf text = {0};
    sh_err err;
    char *typed = malloc(len + 1);
    memcpy(typed, data, len);
    typed[len] = '\0';
    if (sh_cluster_token_parse(typed, &token, &err) == SH_OK &&
        sh_cluster_token_wrap(&token, &text, &err) == SH_OK) {
        SH_ASSERT(sh_cluster_token_parse(text.ptr, &again, &err) == SH_OK);
        SH_ASSERT(memcmp(&token, &again, sizeof(token)) == 0);
    }
    sh_buf_reset(&text);
    free(typed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static const sh_packet_key key = {.seal = {1}, .network = "network"};
    if (len == 0 || len > 2 * SH_PACKET_LEN) return 0;
    switch (data[0] % 4) {
    case 0: try_body(true, data + 1, len - 1); break;
    case 1: try_body(false, data + 1, len - 1); break;
    case 2: try_packet(&key, data + 1, len - 1); break;
    default: try_token(data + 1, len - 1); break;
    }
    return 0;
}
