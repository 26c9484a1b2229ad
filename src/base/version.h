/* version.h - the version of Shoal.
 *
 * Threads: pure functions. */
#ifndef SH_BASE_VERSION_H
#define SH_BASE_VERSION_H

/* As in the file VERSION, such as "0.1.0". */
const char *sh_version(void);

#endif
