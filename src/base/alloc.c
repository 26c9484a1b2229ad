/* Two kinds of allocation with two failure policies. Control blocks are small, so running out of
 * memory for one means that the machine is beyond saving: abort rather than add an error path to
 * every caller. Weights and KV are large and may not fit: those return a status with the size. */
#include "base/alloc.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static void *check(void *ptr, size_t size)
{
    if (ptr != NULL) return ptr;
    fprintf(stderr, "shoal: out of memory allocating %zu bytes\n", size);
    abort();
}

/* A count that overflows usually comes from a corrupt length: it must not become a small block. */
static size_t product(size_t count, size_t size)
{
    size_t total;
    if (__builtin_mul_overflow(count, size, &total)) check(NULL, SIZE_MAX);
    return total;
}

void *sh_alloc(size_t size)
{
    return check(calloc(1, size == 0 ? 1 : size), size);
}

void *sh_alloc_array(size_t count, size_t size)
{
    return sh_alloc(product(count, size));
}

void *sh_realloc_array(void *ptr, size_t count, size_t size)
{
    size_t total = product(count, size);
    return check(realloc(ptr, total == 0 ? 1 : total), total);
}

char *sh_strndup(const char *text, size_t len)
{
    char *copy = sh_alloc(len + 1);
    if (len > 0) memcpy(copy, text, len);
    return copy;
}

char *sh_strdup(const char *text)
{
    return sh_strndup(text, strlen(text));
}

char *sh_asprintf(const char *fmt, ...)
{
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int len = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    SH_ASSERT(len >= 0);
    char *text = sh_alloc((size_t)len + 1);
    vsnprintf(text, (size_t)len + 1, fmt, again);
    va_end(again);
    return text;
}

sh_status sh_mem_map(size_t size, const char *what, void **out, sh_err *err)
{
    void *ptr = mmap(NULL, size == 0 ? 1 : size, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (ptr == MAP_FAILED)
        return sh_err_set(err, SH_ERR_MEMORY, "out of memory: cannot map %.1f MiB for %s",
                          (double)size / (1 << 20), what);
#ifdef MADV_HUGEPAGE
    /* Only a hint: without huge pages everything still works, with more TLB misses. */
    madvise(ptr, size, MADV_HUGEPAGE);
#endif
    *out = ptr;
    return SH_OK;
}

void sh_mem_unmap(void *ptr, size_t size)
{
    if (ptr != NULL) munmap(ptr, size == 0 ? 1 : size);
}
