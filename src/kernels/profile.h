/* profile.h - where the time of a step goes, op by op.
 *
 * While a profile is on, the device has a table of ops that measure the time and call the real
 * ones. Products also count the bytes of their weights; experts count as many as the tokens of the
 * step can choose at most.
 *
 * Threads: the device's owner. */
#ifndef SH_KERNELS_PROFILE_H
#define SH_KERNELS_PROFILE_H

#include "kernels/device.h"

typedef struct {
    const char *op;
    int64_t calls;
    int64_t ns;
    uint64_t bytes; /* of weights */
} sh_profile_row;

typedef struct sh_profile sh_profile;

sh_profile *sh_profile_start(sh_device *dev);
void sh_profile_stop(sh_profile *profile); /* restores the ops of the device; accepts NULL */

/* Sets all counts to zero. */
void sh_profile_clear(sh_profile *profile);

/* The ops in a fixed order; borrowed until stop. */
const sh_profile_row *sh_profile_rows(const sh_profile *profile, size_t *count);

#endif
