/* Generating and checking the token. TLS never sees the token itself, only a labelled hash of it.
 */
#include "net/cluster_token.h"

#include "base/buf.h"
#include "base/secret.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

void sh_random(void *out, size_t len)
{
    /* Without random bytes nothing is secure; the systems that we run on never refuse them. */
    SH_ASSERT(getentropy(out, len) == 0);
}

void sh_cluster_token_make(char out[SH_CLUSTER_TOKEN_LEN + 1])
{
    uint8_t bytes[SH_CLUSTER_TOKEN_LEN / 2];
    sh_random(bytes, sizeof(bytes));
    for (size_t i = 0; i < sizeof(bytes); i++) snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}

sh_status sh_cluster_token_check(const char *token, sh_err *err)
{
    size_t len = strlen(token);
    if (len < SH_CLUSTER_TOKEN_LEN_MIN || len > SH_CLUSTER_TOKEN_LEN_MAX)
        return sh_err_set(
            err, SH_ERR_INPUT,
            "cluster token: %zu characters long, must be %d to %d: `shoal token` makes one", len,
            SH_CLUSTER_TOKEN_LEN_MIN, SH_CLUSTER_TOKEN_LEN_MAX);
    for (size_t i = 0; i < len; i++)
        if (token[i] <= ' ' || token[i] > '~')
            return sh_err_set(err, SH_ERR_INPUT,
                              "cluster token: character %zu is not a visible ASCII character",
                              i + 1);
    return sh_secret_check("the cluster token", sh_str_of(token), err);
}

void sh_cluster_token_key(const char *token, uint8_t out[SH_CLUSTER_TOKEN_KEY_LEN])
{
    /* A token has 128 bits or more, so one hash is enough; the label separates this use of the
     * token from any other. */
    sh_buf text = {0};
    sh_buf_addf(&text, "shoal link key 1:%s", token);
    size_t len;
    SH_ASSERT(EVP_Q_digest(NULL, "SHA256", NULL, text.ptr, text.len, out, &len) == 1);
    SH_ASSERT(len == SH_CLUSTER_TOKEN_KEY_LEN);
    sh_buf_reset(&text);
}
