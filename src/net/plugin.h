/* plugin.h - the shared objects that are built beside the program.
 *
 * Threads: any. */
#ifndef SH_NET_PLUGIN_H
#define SH_NET_PLUGIN_H

/* The path of a plugin in `dir`, in DIR/../lib/shoal or in DIR/shoal, owned by the caller; NULL if
 * there is none. Without a `dir` it is the folder of the program, then that of the library. */
char *sh_plugin_find(const char *dir, const char *file);

#endif
