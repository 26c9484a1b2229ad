/* A wrapper around OpenSSL, which can only fail here for lack of memory or a broken installation.
 */
#include "net/digest.h"

#include "base/status.h"

#include <openssl/evp.h>
#include <stdio.h>

void sh_digest_text(const void *data, size_t len, char out[SH_DIGEST_TEXT_LEN + 1])
{
    unsigned char bytes[EVP_MAX_MD_SIZE];
    size_t count = 0;
    SH_ASSERT(EVP_Q_digest(NULL, "SHA256", NULL, data, len, bytes, &count) == 1);
    SH_ASSERT(count * 2 == SH_DIGEST_TEXT_LEN);
    for (size_t i = 0; i < count; i++) snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}
