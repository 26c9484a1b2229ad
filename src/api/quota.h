/* quota.h - what named API keys have used, and what they may use.
 *
 * A key's limits are buckets that fill up at the limit's rate and hold a minute's worth. A request
 * takes one from the bucket of requests and needs something left in that of tokens; its tokens are
 * charged when they are known, the prompt's at the start and the answer's at the end. So a bucket
 * of tokens may go below zero, and its key then waits until it is above again.
 *
 * A quota belongs to a name: it goes on when the keys are read again, whatever their limits are
 * then.
 *
 * Threads: the loop's. */
#ifndef SH_API_QUOTA_H
#define SH_API_QUOTA_H

#include "api/error.h"
#include "base/buf.h"
#include "http/keys.h"
#include "http/request.h"

typedef struct sh_quotas sh_quotas;
typedef struct sh_quota sh_quota;

sh_quotas *sh_quotas_create(void);
void sh_quotas_free(sh_quotas *quotas);

/* The quota of a key, made if it is new; NULL for NULL. */
sh_quota *sh_quotas_of(sh_quotas *quotas, const sh_http_key_info *key);

/* Takes a request. False when a limit is reached; the error says which, and when to try again. */
bool sh_quota_take(sh_quota *quota, const sh_http_key_info *key, int64_t now_ns, sh_api_error *err);

/* Adds what is left to the headers of a reply, in the form that OpenAI's clients read. */
void sh_quota_headers(const sh_quota *quota, const sh_http_key_info *key, sh_http_request *req);

/* Charges tokens. Without effect if quota is NULL. */
void sh_quota_charge(sh_quota *quota, int prompt_tokens, int generated_tokens);

/* Appends the metrics, by name. */
void sh_quotas_write(const sh_quotas *quotas, sh_buf *out);

#endif
