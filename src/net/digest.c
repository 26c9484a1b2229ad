/* A wrapper around OpenSSL, which can only fail here for lack of memory or a broken installation.
 */
#include "net/digest.h"

#include "base/status.h"

#include <openssl/evp.h>
#include <stdio.h>

void sh_digest(const void *data, size_t len, uint8_t out[SH_DIGEST_LEN])
{
    size_t count = 0;
    SH_ASSERT(EVP_Q_digest(NULL, "SHA256", NULL, data, len, out, &count) == 1);
    SH_ASSERT(count == SH_DIGEST_LEN);
}

void sh_digest_text(const void *data, size_t len, char out[SH_DIGEST_TEXT_LEN + 1])
{
    uint8_t bytes[SH_DIGEST_LEN];
    sh_digest(data, len, bytes);
    for (size_t i = 0; i < sizeof(bytes); i++) snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}
