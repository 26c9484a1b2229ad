/* plugin.h - the shared objects that are built beside the program.
 *
 * Threads: any. */
#ifndef SH_NET_PLUGIN_H
#define SH_NET_PLUGIN_H

/* The path of a plugin in `dir` (NULL: the folder of the program) or in DIR/../lib/shoal, owned by
 * the caller; NULL if there is none. */
char *sh_plugin_find(const char *dir, const char *file);

#endif
